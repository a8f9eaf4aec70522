"""What a program sees of an operator that refuses the values of its arguments is what it sees in eager."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import torchmux

_SEEN: list[Any] = []
_norm = torch.nn.BatchNorm1d(2)


@contextlib.contextmanager
def _seen() -> Iterator[None]:
    _SEEN.append("in")
    try:
        yield
    except IndexError as error:
        raise KeyError("another") from error
    finally:
        _SEEN.append("out")


def caught(x: torch.Tensor, i: torch.Tensor) -> Any:
    try:
        return x[i] * 2
    except IndexError as error:
        return x * 0, str(error)


def suppressed(x: torch.Tensor, i: torch.Tensor) -> Any:
    y = x
    with contextlib.suppress(IndexError), torch.no_grad():
        y = x[i] * 2
    return y + 1


def replaced_by_a_context(x: torch.Tensor, i: torch.Tensor) -> Any:
    with _seen():
        return x[i] * 2


def after_a_side_effect(x: torch.Tensor, i: torch.Tensor) -> Any:
    _SEEN.append("called")
    y = x[i]
    _SEEN.append("done")
    return y


def after_random_numbers(x: torch.Tensor, i: torch.Tensor) -> Any:
    first = torch.rand(2)
    try:
        return first, x[i]
    except IndexError:
        return first, torch.rand(2)


def in_the_second_graph(x: torch.Tensor, i: torch.Tensor) -> Any:
    y = x + 1
    _SEEN.append(y.sum().item())
    try:
        z = y[i]
    except IndexError:
        z = y * 0
    _SEEN.append("after")
    return z


def only_tried(x: torch.Tensor, i: torch.Tensor) -> Any:
    try:
        x[i]
    except IndexError:
        return False
    return True


def behind_a_write(x: torch.Tensor, i: torch.Tensor) -> Any:
    x.mul_(3)
    try:
        found = x[i]
    except IndexError as error:
        return x + 1, str(error)
    x[0] = 7
    return found * x


def behind_many_writes(x: torch.Tensor, i: torch.Tensor) -> Any:
    norm = _norm.train()
    torch._foreach_add_([x[:2], x[2:]], 1.0)
    y = norm(x[:, None].expand(3, 2) * x[:, None])
    try:
        try:
            y = y + x[i]
        finally:
            _SEEN.append(norm.running_mean.tolist())
    except (KeyError, IndexError):
        y = y * torch.rand(2)
    return y.detach(), norm.running_mean.tolist(), norm.num_batches_tracked.item()


def a_number_too_large(x: torch.Tensor, i: torch.Tensor) -> Any:
    try:
        return torch.full((2,), 300, dtype=torch.uint8), x[i]
    except RuntimeError as error:
        return str(error)


def _outcome(function: Callable[..., Any], index: int) -> Any:
    torch.manual_seed(0)
    _SEEN.clear()
    _norm.reset_running_stats()
    x = torch.arange(3.0)
    try:
        found = function(x, torch.tensor([index]))
    except Exception as error:
        found = type(error).__name__, str(error), type(error.__cause__).__name__, type(error.__context__).__name__
    return repr(found), x.tolist(), list(_SEEN), torch.is_grad_enabled(), torch.rand(1).item()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "function",
    [
        caught, suppressed, replaced_by_a_context, after_a_side_effect, after_random_numbers, in_the_second_graph,
        only_tried, a_number_too_large, behind_a_write, behind_many_writes,
    ],
)  # fmt: skip
def test_errors_of_operators_are_seen_where_they_come_from(function: Any, backend: str) -> None:
    torchmux.reset()
    compiled = torchmux.compile(function, backend=backend)
    for index in (1, 5, 0, 7):
        assert _outcome(compiled, index) == _outcome(function, index)


def test_a_compilers_own_error_leaves_the_call() -> None:
    """Only an error that the graph raises uncompiled as well is the program's."""

    def broken(gm: torch.fx.GraphModule, inputs: list[Any], **options: Any) -> Any:
        def run(*args: Any) -> Any:
            raise IndexError("of the compiler")

        return run

    compiled = torchmux.compile(caught, backend=broken)
    with pytest.raises(IndexError, match="of the compiler"):
        compiled(torch.arange(3.0), torch.tensor([1]))


def test_writes_are_not_repeated() -> None:
    """A graph that has written to an input before it fails does not start again for the sake of side effects."""

    def writes(x: torch.Tensor, i: torch.Tensor) -> Any:
        _SEEN.append("called")
        x.add_(1)
        return x[i]

    x = torch.zeros(3)
    with pytest.raises(IndexError):
        torchmux.compile(writes, backend="eager")(x, torch.tensor([5]))
    assert x.tolist() == [1.0, 1.0, 1.0]


def test_what_autograd_has_recorded_is_not_put_back() -> None:
    """The error leaves the call: the tensor goes on being the result of the graph's write."""

    def writes(x: torch.Tensor, i: torch.Tensor) -> Any:
        x.mul_(2)
        try:
            return x[i]
        except IndexError:
            return x

    x = torch.ones(3, requires_grad=True) * 1
    compiled = torchmux.compile(writes, backend="eager")
    assert compiled(x, torch.tensor([1])).tolist() == [2.0]
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([5]))
    assert x.tolist() == [4.0] * 3
