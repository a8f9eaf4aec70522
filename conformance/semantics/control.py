"""Control flow around tensors."""

from __future__ import annotations

from typing import Any

import torch

from ..case import Collection, Trial

case = Collection("semantics/control")


@case()
def branches_on_numbers(trial: Trial) -> Any:
    """A branch on a Python argument gives each value its own result."""

    def f(x: torch.Tensor, up: bool) -> torch.Tensor:
        return x + 1 if up else x - 1

    compiled, x = trial.compile(f), trial.tensor(3)
    return compiled(x, True), compiled(x, False), compiled(x, True)


@case()
def branches_on_data(trial: Trial) -> Any:
    """A branch on the data of a tensor takes eager's direction each time."""

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y.sin() if y.sum() > 0 else y.cos()

    compiled, x = trial.compile(f), trial.tensor(3).abs()
    return compiled(x), compiled(-x), compiled(x)


@case()
def loops_that_end_by_data(trial: Trial) -> Any:
    """A loop whose end depends on data."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        steps = 0
        while x.norm() > 1:
            x, steps = x / 2, steps + 1
        return x, steps

    compiled = trial.compile(f)
    return compiled(trial.tensor(4) * 10), compiled(trial.tensor(4) * 100)


@case()
def exceptions(trial: Trial) -> Any:
    """An exception of the program reaches the program, and its earlier effects remain."""
    log: list[str] = []

    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        y = x + 1
        log.append(f"seen {n}")
        if n > 1:
            raise KeyError(n)
        return y

    compiled, x, caught = trial.compile(f), trial.tensor(3), []
    for n in (1, 2, 1):
        try:
            compiled(x, n)
        except KeyError as error:
            caught.append(str(error))
    return log, caught


@case()
def wrong_shapes(trial: Trial) -> Any:
    """Mismatched shapes raise an exception as in eager, and the next call works."""
    compiled, caught = trial.compile(lambda x, y: x @ y), []
    for rows in (3, 4, 3):
        try:
            caught.append(compiled(trial.tensor(2, 3), trial.tensor(rows, 2)))
        except RuntimeError as error:
            caught.append(type(error).__name__)
    return caught


@case()
def where_and_masks(trial: Trial) -> Any:
    """Selection by masks, including results whose size depends on the data."""
    x = trial.tensor(4, 4)
    return trial.run(lambda x: (torch.where(x > 0, x, 0.0), x.masked_fill(x > 0, -1.0), x[x > 0], x.nonzero()), x)


@case(reference=False)
def assertions(trial: Trial) -> Any:
    """An assertion about numbers raises in the call in which it does not hold, and in no other one."""
    trial.stops_devices()

    def plain(x: torch.Tensor) -> torch.Tensor:
        assert bool((x > -100).all()), "too small"
        return x * 2

    def of_torch(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x > -100).all())
        return x * 2

    def with_words(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x > -100).all(), "too small")
        return x * 2

    found, x = [], trial.tensor(4)
    for compiled in map(trial.compile, (plain, of_torch, with_words)):
        for given in (x, x - 200, x):
            try:
                found.append(compiled(given))
            except (AssertionError, RuntimeError) as error:
                found.append(type(error).__name__)
    return found


@case()
def conditions_on_tensors(trial: Trial) -> Any:
    """Which branch of ``torch.cond`` runs depends on the numbers of each call."""

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x, y: x.sin() + y, lambda x, y: x.cos() - y, (x, y))

    compiled, x, y = trial.compile(f), trial.tensor(3, 4).abs(), trial.tensor(3, 4)
    with torch.no_grad():
        return [compiled(each, y) for each in (x, -x, x * 2, -x - 1)]
