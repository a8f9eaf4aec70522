"""Indices: negative ones, those out of range, and what eager says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ..case import Collection, Trial

case = Collection("semantics/indices")


def _in_and_out(trial: Trial, function: Callable[..., Any], right: Any, wrong: Any, *given: torch.Tensor) -> Any:
    """Results with the right index, before and after the kind of exception that the wrong one raises."""
    trial.stops_devices()
    compiled, found = trial.compile(function), []
    for index in (right, wrong, right):
        try:
            found.append(compiled(torch.tensor(index, device=trial.device), *given))
        except (IndexError, RuntimeError, ValueError) as error:
            found.append(type(error).__name__)
    return found


@case()
def negative(trial: Trial) -> Any:
    """Negative indices count from the end."""
    x, index = trial.tensor(6, 4), torch.tensor([-1, 0, -6, 3], device=trial.device)

    def f(x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[index], x[-1], x[:, -2:], x[index, -1], x[index[:2], index[2:] % 4], x.index_put((index,), x[:4] * 2)

    return trial.run(f, x, index)


@case()
def read_out_of_range(trial: Trial) -> Any:
    """Reading beyond the end raises what eager raises, and nothing is read."""
    return _in_and_out(trial, lambda i, x: x[i] * 2, [1, 2, -6], [1, 6], trial.tensor(6, 4))


@case()
def read_before_the_beginning(trial: Trial) -> Any:
    """Reading before the beginning raises what eager raises."""
    return _in_and_out(trial, lambda i, x: x[i] + 1, [0, 5], [-7, 0], trial.tensor(6, 4))


@case()
def gathered_out_of_range(trial: Trial) -> Any:
    """``gather`` with an index out of range raises what eager raises."""
    return _in_and_out(trial, lambda i, x: x.gather(1, i) + 1, [[0, 3]], [[4, 0]], trial.tensor(1, 4))


@case()
def selected_out_of_range(trial: Trial) -> Any:
    """``index_select`` with an index out of range raises what eager raises."""
    return _in_and_out(trial, lambda i, x: x.index_select(0, i) + 1, [0, 3], [0, 4], trial.tensor(4, 2))


@case()
def words_out_of_range(trial: Trial) -> Any:
    """An embedding of a word that is not in the table raises what eager raises."""
    return _in_and_out(trial, lambda i, table: F.embedding(i, table) * 2, [0, 9], [10], trial.tensor(10, 3))


@case()
def written_out_of_range(trial: Trial) -> Any:
    """Writing beyond the end raises what eager raises, and writes nothing."""
    x = trial.tensor(5, 2)

    def f(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return x.index_put((i,), torch.zeros((), dtype=x.dtype)) + 1

    return _in_and_out(trial, f, [0, 4], [5, 0], x), x


@case()
def scattered_out_of_range(trial: Trial) -> Any:
    """``scatter`` with an index out of range raises what eager raises."""
    return _in_and_out(trial, lambda i, x: x.scatter(1, i, 1.0) * 2, [[1, 2]], [[3, 0]], trial.tensor(1, 3))


@case()
def classes_out_of_range(trial: Trial) -> Any:
    """A cross entropy with a class that does not exist raises what eager raises."""
    return _in_and_out(trial, lambda i, x: F.cross_entropy(x, i), [0, 2], [0, 3], trial.tensor(2, 3))


@case()
def written_twice(trial: Trial) -> Any:
    """Sums over indices that occur several times count each occurrence."""
    x, values = trial.tensor(5, 3), trial.tensor(64, 3)
    index = trial.tensor(64, dtype=torch.int64, low=0, high=5)

    def f(x: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = index[:, None].expand(64, 3)
        return (
            x.index_add(0, index, values), x.scatter_add(0, rows, values),
            x.index_put((index,), values, accumulate=True), x.scatter_reduce(0, rows, values, "amax"),
            torch.bincount(index, minlength=6),
        )  # fmt: skip

    return trial.run(f, x, index, values)


@case(reference=False)
def orders_with_ties(trial: Trial) -> Any:
    """The first of equal numbers is the largest, and stable sorts keep the order of equals."""
    x = trial.tensor(5, 40, dtype=torch.int64, low=0, high=4)

    def f(x: torch.Tensor) -> tuple[Any, ...]:
        y = x.float()
        return (
            y.argmax(-1), y.argmin(-1), y.max(-1), y.min(-1), y.sort(stable=True, dim=-1),
            x.argsort(stable=True, dim=-1),
            x.unique(), (x == 2).nonzero(), torch.searchsorted(torch.arange(4, device=x.device), x[0]), x.argmax(),
        )  # fmt: skip

    return trial.run(f, x)


@case(reference=False)
def orders_of_zeros(trial: Trial) -> Any:
    """Zeros of both signs are equal: what sorts, selects or looks for numbers keeps them in their order."""
    x = trial.given(torch.tensor([0.0, -0.0, 1.0, -0.0, 0.0, -1.0, 0.0, -0.0] * 5).reshape(2, 20))

    def f(x: torch.Tensor) -> tuple[Any, ...]:
        return (
            x.sort(dim=1, stable=True), x.sort(dim=0, descending=True, stable=True), x.argsort(dim=1, stable=True),
            x.abs().max(1), x.clamp(max=0.0).argmax(1), x.clamp(min=0.0).argmin(1), x.clamp(max=0.0).max(1),
            x.cummax(1).indices, x.cummin(1).indices, torch.searchsorted(x.new_tensor([-0.0, 0.0, 1.0]), x), x == -x,
            torch.isin(x, x.new_tensor([-0.0])), x.count_nonzero(1), x.nonzero(), x.unique_consecutive().abs(),
        )  # fmt: skip

    return trial.run(f, x)


@case()
def selected_by_masks(trial: Trial) -> Any:
    """Masks select, fill and combine; an empty selection is a tensor without elements."""
    x = trial.tensor(4, 7)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mask = x > 0
        return (
            x.masked_fill(mask, 7.0),
            torch.where(mask, x, -x),
            x.tril(1),
            x.triu(-1),
            x.masked_fill(x > 99, 0.0),
            mask.sum(1),
        )

    compiled = trial.compile(lambda x: (x[x > 0], x[x > 99]))
    return trial.run(f, x), compiled(x)


@case()
def classes_of_transposed_labels(trial: Trial) -> Any:
    """``one_hot`` writes to new memory in the usual order, whatever the order of the labels."""
    labels = torch.arange(12, device=trial.device).reshape(3, 4) % 5
    return trial.run(lambda x: (torch.nn.functional.one_hot(x.t(), 5), torch.nn.functional.one_hot(x.t())), labels)


@case(reference=False)
def numbers_that_are_refused(trial: Trial) -> Any:
    """What an operator refuses because of its numbers raises eager's exception; what it does not refuse does not."""
    trial.stops_devices()
    given = (
        torch.tensor([0.5, -0.2, 1.5]), torch.tensor([2, -1, 0]), torch.tensor([True, False, True]),
        torch.tensor([[1.0, 2.0], [2.0, 4.0]]),
    )  # fmt: skip
    found: list[Any] = []
    for function in (
        lambda x, n, b, s: torch.bernoulli(x), lambda x, n, b, s: torch.multinomial(x, 1), lambda x, n, b,
        s: torch.multinomial(x * 0, 1),
        lambda x, n, b, s: F.binary_cross_entropy(x, x * 0), lambda x, n, b, s: F.one_hot(n), lambda x, n, b,
        s: F.one_hot(n.abs(), 2),
        lambda x, n, b, s: x.masked_scatter(b, x[:1]), lambda x, n, b, s: x.repeat_interleave(n), lambda x, n, b,
        s: x.quantile(x),
        lambda x, n, b, s: n**n, lambda x, n, b, s: torch.linalg.cholesky(-s), lambda x, n, b, s: torch.linalg.inv(s),
        lambda x, n, b, s: x.take(n + 5),
        lambda x, n, b, s: n.bincount(), lambda x, n, b, s: x.put(n + 2, x), lambda x, n, b, s: torch.normal(x, x),
        lambda x, n, b, s: x.index_copy(0, n, x), lambda x, n, b, s: x.index_add(0, n + 1, x), lambda x, n, b,
        s: x.scatter(0, n + 1, x),
        lambda x, n, b, s: torch.linalg.solve(s, x[:2]), lambda x, n, b, s: x.sqrt().log(),
        lambda x, n, b, s: x.acos() + x.clamp(1, 0), lambda x, n, b, s: F.embedding(n, s), lambda x, n, b,
        s: x.index_fill(0, n - 3, 1.0),
        lambda x, n, b, s: x.item(), lambda x, n, b, s: int(n[:0]), lambda x, n, b, s: bool(b), lambda x, n, b,
        s: x[:0].max(), lambda x, n, b, s: x[:0].argmin(), lambda x, n, b, s: x[:0].median() + x[:1].item(),
        lambda x, n, b, s: n // (n * 0), lambda x, n, b, s: n % (n - n), lambda x, n, b, s: x[:0].aminmax(),
    ):  # fmt: skip
        try:
            found.append(trial.run(function, *given))
        except (RuntimeError, IndexError, ValueError) as error:
            found.append(type(error).__name__)
    return found
