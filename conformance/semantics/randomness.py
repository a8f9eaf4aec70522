"""Random numbers match eager's for the same seed."""

from __future__ import annotations

from typing import Any

import torch

from ..case import Collection, Trial

case = Collection("semantics/randomness")


@case(reference=False)
def the_same_seed(trial: Trial) -> Any:
    """The same seed gives eager's numbers in every call, and leaves the generator in eager's state."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.rand_like(x) + x, torch.randn(3, device=x.device), torch.randint(0, 10, (4,), device=x.device)

    compiled = trial.compile(f)
    torch.manual_seed(5)
    results = [compiled(trial.tensor(3)) for _ in range(3)]
    return results, torch.rand(2)


@case("training", reference=False)
def dropout(trial: Trial) -> Any:
    """Dropout in training drops what eager drops, also in the gradient."""
    x = trial.tensor(4, 16, requires_grad=True)
    torch.manual_seed(5)
    y = trial.run(lambda x: torch.nn.functional.dropout(x, 0.4) * 2, x)
    y.sum().backward()
    return y, x.grad


@case(reference=False)
def dropout_switched_off(trial: Trial) -> Any:
    """Dropout in evaluation draws nothing."""
    torch.manual_seed(5)
    y = trial.run(lambda x: torch.nn.functional.dropout(x, 0.4, training=False) * 2, trial.tensor(4, 4))
    return y, torch.rand(2)


@case(reference=False)
def order_of_draws(trial: Trial) -> Any:
    """Draws happen in the program's order, even if their results are used in another order."""

    def f(x: torch.Tensor) -> torch.Tensor:
        a, b = torch.rand(3, device=x.device), torch.rand(3, device=x.device)
        return b * 2 + x + a.sin()

    torch.manual_seed(5)
    return trial.run(f, trial.tensor(3))


@case(reference=False)
def a_draw_without_a_use(trial: Trial) -> Any:
    """A draw whose result is unused still advances the generator."""

    def f(x: torch.Tensor) -> torch.Tensor:
        torch.rand(7, device=x.device)
        return x + torch.rand(3, device=x.device)

    torch.manual_seed(5)
    return trial.run(f, trial.tensor(3)), torch.rand(2)


@case(reference=False)
def each_distribution(trial: Trial) -> Any:
    """Every way to draw takes eager's numbers, and as many as eager takes, whatever the size and the dtype."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        p = x.sigmoid()
        return [
            torch.bernoulli(p), torch.normal(x, p), torch.randperm(7), torch.rand(3, dtype=torch.float64),
            torch.randn(17),
            torch.multinomial(p, 2), torch.multinomial(p, 5, replacement=True), x.clone().uniform_(-1, 2),
            torch.rand(1),
            x.clone().normal_(1, 2), x.clone().exponential_(), x.clone().bernoulli_(0.3), torch.randint_like(x, 5),
            x * 2,
            torch.randn(5, dtype=torch.float16), torch.poisson(p * 5), x.clone().geometric_(0.4), torch.rand(0),
            p.clone().random_(9),
            torch.nn.functional.gumbel_softmax(x, hard=True), torch.randint(-5, 5, (3,), dtype=torch.int8),
            torch.rand(2, 65),
        ]  # fmt: skip

    compiled = trial.compile(f)
    torch.manual_seed(5)
    return [compiled(trial.tensor(3, 6)) for _ in range(2)], torch.rand(2)


@case("training", reference=False)
def layers_that_drop(trial: Trial) -> Any:
    """Each kind of dropout drops what eager drops: all of it, none of it, whole channels, in place, in attention."""
    x = trial.tensor(2, 4, 3, 3, requires_grad=True)
    F = torch.nn.functional

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        q = x.flatten(2)
        return [
            F.dropout(x, 1.0), F.dropout(x, 0.0), F.dropout2d(x, 0.5), F.dropout1d(q, 0.5), F.feature_alpha_dropout(x,
            0.5, True),
            F.alpha_dropout(x, 0.2, True), F.dropout(x * 1, 0.3, True, True), F.scaled_dot_product_attention(q, q, q,
            dropout_p=0.4),
            F.rrelu(x, 0.1, 0.3, True), F.rrelu(x, 0.1, 0.3, False), F.dropout3d(x[None], 0.5)[0],
        ]  # fmt: skip

    torch.manual_seed(5)
    results = trial.run(f, x)
    sum((n + 1) * r.square().sum() for n, r in enumerate(results)).backward()
    return [r.detach() for r in results], x.grad, torch.rand(2)


@case(reference=False)
def seeds_and_generators(trial: Trial) -> Any:
    """A program may seed, keep and restore the state of random numbers, or draw from a generator of its own."""
    own = torch.Generator().manual_seed(3)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(11)
        first = torch.rand(3, device=x.device) + x
        with torch.random.fork_rng():
            torch.manual_seed(7)
            second = torch.randn(3, device=x.device)
        return first, second, torch.rand(3, device=x.device), torch.rand(3, generator=own)

    compiled = trial.compile(f)
    return [compiled(trial.tensor(3)) for _ in range(2)], torch.rand(2)


@case(reference=False, draws=1)  # a unit in the last place of a rate leads to other draws
def rare_distributions(trial: Trial) -> Any:
    """Draws of counts, of large numbers and of many places take eager's, also where their outcome is certain."""
    counts = trial.given(torch.tensor([0.0, 1.0, 7.0, 40.0, 5.0, 5.0, 3000.0]))
    shares = trial.given(torch.tensor([0.5, 0.5, 0.3, 0.7, 0.0, 1.0, 0.01]))
    rates = trial.given(torch.tensor([0.0, 0.3, 9.0, 11.0, 60.0, 1000.0]))

    def f(counts: torch.Tensor, shares: torch.Tensor, rates: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.binomial(counts, shares), torch.poisson(rates), torch.binomial(counts.double(), shares.double()),
            torch.poisson(rates.half()), torch.randperm(40, device=rates.device), torch.normal(rates, shares[:6]),
            torch.randperm(33, dtype=torch.int32, device=rates.device),
            torch.randint(2**40, (5,), device=rates.device), torch.randint(-(2**62), 2**62, (5,), device=rates.device),
            rates.clone().cauchy_(1, 2), torch.bernoulli(shares), torch.rand(3, dtype=torch.bfloat16),
        ]  # fmt: skip

    compiled = trial.compile(f)
    torch.manual_seed(5)
    return [compiled(counts, shares, rates) for _ in range(2)], torch.rand(2)


@case(reference=False)
def own_generators(trial: Trial) -> Any:
    """A generator of the program's gives the numbers that it is asked for, and torch's own stays where it is."""
    generator = torch.Generator(trial.device).manual_seed(7)
    x = trial.tensor(3, 4)

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        where: dict[str, Any] = {"generator": generator, "device": x.device}
        return [
            torch.rand(3, **where), torch.randn(2, 2, **where), torch.randint(9, (4,), **where),
            torch.randperm(6, **where), torch.bernoulli(x.sigmoid(), generator=generator),
            torch.multinomial(x.sigmoid(), 2, generator=generator), x.clone().normal_(generator=generator),
            x.clone().uniform_(generator=generator) + torch.rand(1, device=x.device),
        ]  # fmt: skip

    compiled = trial.compile(f)
    return [compiled(x) for _ in range(2)], torch.rand(2), generator.get_state()


@case(reference=False)
def places_that_are_drawn(trial: Trial) -> Any:
    """Calls alone draw the places that a program reads: to learn how large they are, nothing is drawn."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            x[:, torch.randint(-3, 3, (4,), device=x.device)] * 2,
            x.index_select(2, torch.randint(4, (3,), device=x.device)) + 1,
            x[torch.randperm(2, device=x.device)] - 1,
            torch.nn.functional.embedding(torch.randint(2, (5,), device=x.device), x[0]) * 3,
        ]

    compiled = trial.compile(f)
    torch.manual_seed(5)
    return [compiled(trial.tensor(2, 3, 4)) for _ in range(2)], torch.rand(2)
