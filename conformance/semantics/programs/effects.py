"""What programs do besides computing, in rarer forms: writes, draws, casts by mode, and gradients of unlike inputs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from torchmux import torch_internals as internals

from ...case import Collection, Trial

case = Collection("semantics/effects")


@case()
def writes_of_rarer_forms(trial: Trial) -> Any:
    """Writes with long steps, where nothing is selected, to several inputs, and of numbers that do not fit."""
    x, y, z = trial.tensor(9), trial.tensor(4, 7), trial.tensor(9)
    small, count = trial.given(torch.tensor([250, 3], dtype=torch.uint8)), trial.given(torch.tensor([300, -1]))

    def stepped(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> list[torch.Tensor]:
        x[::3] = 1.5
        x[1::4].mul_(2)
        y[:, 1::3] *= 3
        y[y > 100] = 7.0
        y.masked_fill_(y > 100, 8.0)
        y[2][3].add_(1)
        z.add_(x)
        return [x.sum(), y * 2]

    def narrow(small: torch.Tensor, count: torch.Tensor) -> list[torch.Tensor]:
        other = small.clone()
        other.copy_(count)
        small += 10
        return [other, other.to(torch.int8)]

    with torch.no_grad():
        return trial.run(stepped, x, y, z), x, y, z, trial.run(narrow, small, count), small


@case()
def writes_to_what_learns(trial: Trial) -> Any:
    """Without gradients, a program writes to tensors that require them, as an optimizer by hand does."""
    weight, scale = trial.tensor(3, 4, requires_grad=True), trial.tensor(4, requires_grad=True)
    x = trial.tensor(2, 4)

    def step(weight: torch.Tensor, scale: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
        weight.sub_(slope, alpha=0.1)
        scale.mul_(0.5)
        return weight.sum() + scale.sum()

    compiled, sums = trial.compile(step), []
    for _ in range(2):
        loss = (x @ (weight * scale).t()).square().sum()
        (slope,) = torch.autograd.grad(loss, (weight,))
        with torch.no_grad():
            sums.append(compiled(weight, scale, slope))
    return sums, weight.detach(), scale.detach()


@case(reference=False)
def draws_of_rarer_forms(trial: Trial) -> Any:
    """Draws that are equal but for their place, in place, with certain outcomes, and without gradients."""
    x, ones = trial.tensor(3, 5), trial.given(torch.ones(2, 4))

    def several(x: torch.Tensor) -> list[torch.Tensor]:
        drawn = [torch.rand(3, device=x.device) for _ in range(4)]
        return [*drawn, torch.randn_like(x), torch.randn_like(x), torch.randn_like(x), x + torch.rand_like(x)]

    def in_place(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            x.clone().uniform_(-1, 3), x.clone().normal_(2, 0.5), x.clone().exponential_(2.5), x.clone().random_(3, 9),
            x.clone().bernoulli_(0.3), x.clone().geometric_(0.4), x.clone().log_normal_(0.5, 0.2),
            x.t().clone().normal_(),
        ]  # fmt: skip

    def certain(x: torch.Tensor, ones: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.dropout(x, 1.0), F.dropout(x, 0.0), torch.bernoulli(ones), torch.bernoulli(ones * 0),
            torch.bernoulli(ones / 2), F.dropout(x, 0.5), torch.randint(-5, -2, (6,), device=x.device),
            torch.randperm(5, device=x.device),
        ]  # fmt: skip

    made = []
    for function, args in ((several, (x,)), (in_place, (x,)), (certain, (x, ones))):
        compiled = trial.compile(function)
        with torch.no_grad():
            made.append(compiled(*args))
        made += [torch.rand(2), compiled(*args)]
    return made


@case(reference=False)
def draws_in_order_of_memory(trial: Trial) -> Any:
    """Some operators draw in the order in which their argument lies in memory, others in the usual one: transposed,
    in channels last and with gaps, without and with gradients."""
    base = trial.tensor(6, 7, requires_grad=True)

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        images = x[:, :6].reshape(1, 3, 3, 4).contiguous(memory_format=torch.channels_last)
        found = []
        for y in (x.t(), images, x.t()[1:5]):
            rates = y.abs() + 0.5
            found += [
                F.alpha_dropout(y, 0.4, True), F.dropout(y, 0.4, True), torch.rand_like(y), torch.normal(y, rates),
                y.clone().bernoulli_(0.4), torch.empty_like(y).exponential_(), torch.poisson(rates.detach()),
                torch.bernoulli(y.detach(), 0.4),
            ]  # fmt: skip
        return [*found, torch.multinomial((x.abs() + 0.5).t()[1:5], 3)]

    compiled = trial.compile(f)
    with torch.no_grad():
        found = compiled(base)
    drawn = compiled(base)
    drawn[0].sum().backward()
    return found, [t.detach() for t in drawn], base.grad


@case("bfloat16")
def precise_under_autocast(trial: Trial) -> Any:
    """What autocast leaves in float32, and what a program takes out of it, has all digits: losses, powers, sums, norms,
    pools, and what is joined with narrower numbers."""
    x, target, weight = trial.tensor(3, 6), trial.tensor(3, 6), trial.tensor(4, 6)
    image, narrow = trial.tensor(1, 2, 4, 5), trial.tensor(3, 6, dtype=torch.bfloat16)

    def f(
        x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, image: torch.Tensor, narrow: torch.Tensor
    ) -> list[torch.Tensor]:
        with torch.autocast(x.device.type, enabled=False):
            exact = F.linear(x, weight)
        return [
            exact, F.mse_loss(x, target), F.cross_entropy(x, target.softmax(-1)), F.smooth_l1_loss(x, target),
            x.softmax(-1), x.log_softmax(0), torch.cat([x, target]), torch.stack([x, target]),
            torch.cat([narrow, target]),
            F.avg_pool2d(image, 2), F.interpolate(image, scale_factor=2), F.layer_norm(x, (6,)), x.abs().pow(1.5),
            x.exp(), x.cumsum(0), x.sum(0), x.norm(), x.square().sum().rsqrt(),
            (x.double() @ target.double().t()).float(),
            F.group_norm(image, 2), F.gelu(x), x * target,
        ]  # fmt: skip

    compiled = trial.compile(f)
    with torch.no_grad(), torch.autocast(x.device.type, dtype=torch.bfloat16):
        return compiled(x, target, weight, image, narrow)


@case("training", "float64")
def gradients_of_unlike_inputs(trial: Trial) -> Any:
    """Gradients of numbers in double beside single precision, of rows that are expanded, of no elements, and after
    calls without gradients."""
    x, wide = trial.tensor(3, 4, requires_grad=True), trial.tensor(3, 4, dtype=torch.float64, requires_grad=True)
    number, count = trial.tensor(requires_grad=True), trial.given(torch.tensor([2, 0, 1]))

    row = trial.tensor(4, requires_grad=True)

    def f(
        x: torch.Tensor, wide: torch.Tensor, number: torch.Tensor, count: torch.Tensor, rows: torch.Tensor
    ) -> list[torch.Tensor]:
        return [
            x * wide + rows,
            wide.exp().float() * x + number,
            x[:0] * number,
            x[count] * number,
            wide[:, :0].sum() + x.sum(),
        ]

    compiled, results = trial.compile(f), []
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            made = compiled(x, wide, number, count, row.expand(3, 4))
        results.append([(m.detach().clone(), m.requires_grad) for m in made])
        if made[0].requires_grad:
            loss = sum((k + 1) * m.double().sum() for k, m in enumerate(made))
            results.append(torch.autograd.grad(loss, (x, wide, number, row)))
            results.append(
                torch.autograd.grad(compiled(x, wide, number, count, row.expand(3, 4))[2].sum(), (x, number))
            )
    return results


@case(reference=False)
def calls_that_differ_in_one_thing(trial: Trial) -> Any:
    """Calls with the same sizes: of views, parameters, results of inference, opposites by a flag, the same memory
    twice, shared memory, other settings; and of numbers that are equal in one call only."""
    x, y = trial.tensor(4, 6), trial.tensor(4, 6)
    whole, image = trial.tensor(9, 6), trial.tensor(2, 3, 4, 4)
    complex_ones = trial.tensor(4, 6, dtype=torch.complex64)

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [x * 2 + y, x.mean(), (x - y).amax(-1)]

    def scaled(x: torch.Tensor, image: torch.Tensor, factor: float, count: int) -> list[torch.Tensor]:
        return [x * factor, image + count, x.sum(0) * count - factor]

    compiled, results = trial.compile(f), []
    with torch.no_grad():
        pairs = [(x, y), (whole[2:6], y), (torch.nn.Parameter(y), x), (x, x), (complex_ones.conj().imag, y), (y, x)]
        with torch.inference_mode():
            pairs.append((x + 1, y * 2))
        pairs.append((x.clone().share_memory_() if x.device.type == "cpu" else x.clone(), y))
        results += [compiled(*pair) for pair in pairs]
        before = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
        try:
            torch.set_default_dtype(torch.float64)
            results.append(compiled(x, y))
            torch.set_default_dtype(before[0])
            torch.use_deterministic_algorithms(True)
            results.append(compiled(x, y))
        finally:
            torch.set_default_dtype(before[0])
            torch.use_deterministic_algorithms(before[1])
        other = trial.compile(scaled)
        last = image.contiguous(memory_format=torch.channels_last)
        results += [other(x, image, 0.5, 3), other(x, last, 0.5, 3), other(x, image, 0.75, 4), other(x, last, 2.5, 9)]
    return results


@case()
def more_threads_than_rows(trial: Trial) -> Any:
    """Each of a few long rows, and what is reduced to fewer numbers than there are threads."""
    x, y, before = trial.tensor(3, 30011), trial.tensor(1, 40009), torch.get_num_threads()

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [x * 2 + 1, x.softmax(1), x.sum(1), y.exp(), x.t() * 3, y.mean(), x[:, :2] + 1]

    compiled = trial.compile(f)
    try:
        torch.set_num_threads(4)
        return compiled(x, y)
    finally:
        torch.set_num_threads(before)


@case()
def tensors_that_change_beside_others(trial: Trial) -> Any:
    """Masks, numbers in tensors, rows and weights that change from call to call, also past torch's count of writes; and
    calls without rows in between."""
    x, mask, weight = trial.tensor(4, 6), trial.given(torch.arange(6) % 2 == 0), trial.tensor(6)
    counts = [trial.given(torch.tensor(n)) for n in (2, 5)]

    def f(x: torch.Tensor, mask: torch.Tensor, count: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
        return [torch.where(mask, x, 0.5), x * count, (x + weight) * mask, weight[count] + x.sum(0)]

    compiled, results = trial.compile(f), []
    with torch.no_grad():
        results += [compiled(x, mask, counts[0], weight), compiled(x, ~mask, counts[1], weight)]
        weight.data.mul_(2)
        results += [compiled(x, mask, counts[1], weight), compiled(x[:0], mask, counts[0], weight)]
        mask.data.fill_(True)
        return results, compiled(x, mask, counts[0], weight), compiled(x[1:], mask, counts[0], weight.flip(0))


@case("dynamic_shapes", cancels=True)
def arithmetic_of_sizes(trial: Trial) -> Any:
    """Products of sizes are as large as they are, and quotients and remainders of negative numbers round down."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        n, m = x.shape
        return [
            x + n * m * 4099 % 1009, x + n * m * 70001 * 70001 % 1009, x * ((n - 9) // 2), x * ((n - 9) % 4),
            x * (m / (n * 7)), x + n**9 % 101, x[: (n - 9) // -2], x * max(n - 6, -m), x + (2**15 - n * m) % 13,
        ]  # fmt: skip

    compiled = trial.compile(f, dynamic=True)
    return [compiled(trial.tensor(*sizes)) for sizes in ((4, 6), (6, 10), (3, 7))]


@case()
def loops_of_any_length(trial: Trial) -> Any:
    """A loop whose condition is a tensor runs not at all, a few times, or many times."""
    x = trial.tensor(3)

    def f(x: torch.Tensor, count: torch.Tensor) -> Any:
        return internals.while_loop(lambda n, y: n > 0, lambda n, y: (n - 1, y * 1.5 + 1), (count, x))

    compiled = trial.compile(f)
    return [compiled(x, trial.given(torch.tensor(count))) for count in (3, 0, 12)]
