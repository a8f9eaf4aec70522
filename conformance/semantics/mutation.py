"""In-place changes."""

from __future__ import annotations

from typing import Any

import torch

from ..case import Collection, Trial

case = Collection("semantics/mutation")


@case()
def input_in_place(trial: Trial) -> Any:
    """An input that is changed in place is changed for the caller."""
    x = trial.tensor(3, 4)

    def f(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + 1

    return trial.run(f, x), x


@case()
def input_returned_after_change(trial: Trial) -> Any:
    """An input that is changed and returned is the caller's tensor, not a copy."""
    x = trial.tensor(3, 4)
    result = trial.run(lambda x: x.add_(1), x)
    return result, x, result is x


@case()
def shapes_changed_in_place(trial: Trial) -> Any:
    """Dimensions that are turned, added or dropped in place are so in what follows, also for the caller of an input."""

    def inside(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b, c = x * 2, x + 1, x[:1] * 3
        a.t_()
        b.unsqueeze_(1)
        c.squeeze_(0)
        a[0] += 1
        return a * 1, b.transpose_(0, 2) * 2, c + a[:, 0], a

    def outside(x: torch.Tensor) -> torch.Tensor:
        x.t_()
        return x.sum(0)

    x = trial.tensor(3, 4)
    return trial.run(inside, x), trial.run(outside, x), x


@case()
def part_of_an_input(trial: Trial) -> Any:
    """A change through a view changes that part of the input and nothing else."""
    x = trial.tensor(4, 4)

    def f(x: torch.Tensor) -> torch.Tensor:
        x[1:3, ::2].zero_()
        return x.sum()

    return trial.run(f, x), x


@case()
def read_after_write(trial: Trial) -> Any:
    """Values computed before a change stay the same, and values computed after it use the new data."""
    x = trial.tensor(5)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        before = x * 2
        x.add_(1)
        return before, x * 2

    return trial.run(f, x), x


@case()
def indices_written(trial: Trial) -> Any:
    """``x[i] = y`` with a tensor of indices, some of them twice with accumulation."""
    x, values = trial.tensor(6, 3), trial.tensor(4, 3)
    index = torch.tensor([5, 0, 2, 3], device=trial.device)

    def f(x: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        x[index] = values
        return x.index_put((torch.zeros_like(index),), values, accumulate=True)

    return trial.run(f, x, index, values), x


@case()
def buffers_of_a_module(trial: Trial) -> Any:
    """Buffers that a forward pass changes are changed in every call."""

    class Counts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += x.shape[0]
            self.mean.lerp_(x.mean(0), 0.5)
            return x - self.mean

    module = trial.module(Counts())
    compiled = trial.compile(module)
    results = [compiled(trial.tensor(4, 3)) for _ in range(3)]
    return results, dict(module.named_buffers())


@case("training")
def batch_norm_statistics(trial: Trial) -> Any:
    """Batch norm in training updates its running statistics."""
    torch.manual_seed(0)
    module = trial.module(torch.nn.BatchNorm2d(3))
    compiled = trial.compile(module)
    results = [compiled(trial.tensor(2, 3, 4, 4)) for _ in range(2)]
    return results, dict(module.named_buffers())


@case()
def out_argument(trial: Trial) -> Any:
    """``out=`` writes to the given tensor."""
    x, out = trial.tensor(3), trial.tensor(3)

    def f(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        torch.add(x, 1, out=out)
        return x * 2

    return trial.run(f, x, out), out


@case()
def integer_counter(trial: Trial) -> Any:
    """Integers and bools are also changed in place."""
    n, flags = trial.tensor(4, dtype=torch.int64), trial.tensor(4, dtype=torch.bool)

    def f(n: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
        n += 3
        flags.logical_not_()
        return n * flags

    return trial.run(f, n, flags), n, flags


@case()
def copies_from_another_input(trial: Trial) -> Any:
    """``copy_`` between inputs of different dtypes converts."""
    x, y = trial.tensor(3, 2), trial.tensor(3, 2, dtype=torch.int64)

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.copy_(y)
        return x / 2

    return trial.run(f, x, y), x, y


@case()
def slices_written_into_slices(trial: Trial) -> Any:
    """A tensor is written to a slice of a slice that was written before."""
    x, y, part = trial.tensor(8, 4, 5), trial.tensor(8, 1, 5), trial.tensor(8, 1, 3)

    def f(x: torch.Tensor, y: torch.Tensor, part: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inner, outer = y * 1, x * 1
        inner[..., 1:4] = part
        outer[:, 2:3] = inner
        picked = y * 1
        picked[..., 3] = part[..., 0]
        return outer, torch.select_scatter(x, picked[:, 0], 1, 2)

    return trial.run(f, x, y, part)


@case()
def what_is_made_is_written(trial: Trial) -> Any:
    """What a program makes without an input is made in each call, and what is written to it is in no other call."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = [
            torch.zeros(4, device=x.device), torch.ones(4, device=x.device), torch.full((4,), 2.5, device=x.device),
            torch.zeros_like(x), torch.ones_like(x), x.new_zeros(4), x.new_full((4,), 3), torch.full_like(x, -1.0),
            torch.arange(4.0, device=x.device), torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device),
            torch.eye(4, device=x.device)[1],
        ]  # fmt: skip
        for number, each in enumerate(made):
            each.add_(x) if number % 2 else each[1:].mul_(x[1:])
        return (*made, torch.zeros(3, device=x.device))

    compiled = trial.compile(f)
    found = [compiled(trial.tensor(4, low=1.0, high=2.0)) for _ in range(3)]
    found[0][-1].fill_(7.0)
    return found, compiled(trial.tensor(4, low=1.0, high=2.0))
