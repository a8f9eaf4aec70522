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
