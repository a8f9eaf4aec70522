"""Programs and calls that differ in one thing: code that was made for the one does not run for the other."""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial

case = Collection("semantics/keys")


def _by_turns(trial: Trial, function: Any, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The results of all calls; a few at a time share what is compiled, so that no limit of it is reached."""
    found, at_once = [], 6
    for begin in range(0, len(calls), at_once):
        compiled = trial.compile(_twin(function, begin))
        found += [compiled(*given) for given in calls[begin : begin + at_once]]
    return found


def _twin(function: Any, number: int) -> Any:
    """The same function with code of its own."""
    code = function.__code__.replace(co_name=f"{function.__code__.co_name}_{number}")
    twin = types.FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


@case(reference=False)
def numbers_that_are_equal(trial: Trial) -> Any:
    """One, one point nought and True are equal in Python, and so are zeros of both signs; nan equals nothing."""
    n, x = torch.tensor([3, -2], device=trial.device), trial.tensor(2)
    numbers = (1, 1.0, True, 0, 0.0, -0.0, False, 2, 2.0, math.nan, math.inf, -1, 2**31, 2**53 + 1, 1e-50)

    def f(t: torch.Tensor, k: Any) -> tuple[torch.Tensor, ...]:
        return t * k, t + k, t / (k or 1), torch.full((2,), k, device=t.device), torch.atan2(x * 0, x.new_full((2,), k))

    return [_by_turns(trial, f, [(t, k) for k in numbers]) for t in (n, x)]


def _scaled(by: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: (x * by).sum(0) + by


@case(reference=False)
def programs_with_other_numbers(trial: Trial) -> Any:
    """Programs of one text with other numbers, dtypes, dimensions, words or tensors inside are other programs."""
    x, n = trial.tensor(4, 4), trial.tensor(4, 4, dtype=torch.int64)
    found: list[Any] = []
    for number, t in enumerate((x, n)):
        found += [trial.run(_twin(_scaled(by), number), t) for by in (2, 2.0, True, 3, -0.0, 0)]
    for table in (trial.tensor(4), trial.tensor(4), trial.tensor(4, 1), torch.arange(4, device=trial.device)):
        found.append(trial.run(lambda t, table=table: t + table, x))
    for change in (
        lambda t: t.sum(0), lambda t: t.sum(1), lambda t: t.sum(0, keepdim=True), lambda t: t.mean(0),
        lambda t: t.t() + 0,
        lambda t: t.softmax(0), lambda t: t.softmax(1), lambda t: t.double().sum(0), lambda t: t.half().sum(0),
        lambda t: F.gelu(t), lambda t: F.gelu(t, approximate="tanh"), lambda t: t[:2] + t[2:], lambda t: t[2:] + t[:2],
        lambda t: t[::2] * 1, lambda t: t[1::2] * 1, lambda t: torch.cat([t, t * 2]), lambda t: torch.cat([t * 2, t]),
        lambda t: t - t.sum(0), lambda t: t.sum(0) - t, lambda t: F.pad(t, (1, 0)), lambda t: F.pad(t, (0, 1)),
        lambda t: t.roll(1, 0), lambda t: t.roll(1, 1), lambda t: t.clamp(0, 1), lambda t: t.clamp(min=1),
        lambda t: t.clamp(max=1), lambda t: (t * 2, t), lambda t: (t, t * 2), lambda t: (t * 2, t * 2),
        lambda t: t.view(16) * 1,
        lambda t: t.view(2, 8) * 1, lambda t: t.view(8, 2) * 1, lambda t: t.topk(2).values, lambda t: t.topk(2,
        0).values,
        lambda t: t.topk(2, largest=False).values, lambda t: t.var(0), lambda t: t.var(0, correction=0),
    ):  # fmt: skip
        found.append(trial.run(change, x))
    return found


_NEARLY = (
    -1.0, -2.0, 0.1, 0.1 + 1e-9, 1e-9, 2e-9, 2.0**24, 2.0**24 + 1, math.inf, -math.inf, math.nan,
)  # fmt: skip
"""Numbers with one hash, with the same first digits, the same in float32, or as a text of few digits."""


def _two_ways(by: Any) -> Callable[[torch.Tensor], Any]:
    return lambda x: (x.abs() * by, by - x)


@case("float64", reference=False)
def programs_with_nearly_equal_numbers(trial: Trial) -> Any:
    """Programs whose numbers have the same hash, the same first digits or the same float32 are other programs."""
    x, whole = trial.tensor(4, dtype=torch.float64), trial.tensor(4, dtype=torch.int64)
    found = [trial.run(_twin(_two_ways(by), n), x) for n, by in enumerate(_NEARLY)]
    numbers = (-1, -2, 2**61 - 1, 0)
    return found, [trial.run(_twin(_two_ways(by), n), whole) for n, by in enumerate(numbers)]


def _long(last: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    def f(x: torch.Tensor) -> Any:
        y = x
        for _ in range(4):
            y = (y * 0.5 + 1).tanh()
        return last(y)

    return f


@case(reference=False)
def programs_that_begin_alike(trial: Trial) -> Any:
    """Programs that differ only in their last operator, in a keyword, in the bounds of a part, in whether they write,
    and in which of their arguments they read are other programs."""
    x, y = trial.tensor(4, 4), trial.tensor(4, 4)
    found: list[Any] = [
        trial.run(_twin(_long(last), number), x)
        for number, last in enumerate((
            lambda t: t.sin(), lambda t: t.cos(), lambda t: t > 0.5, lambda t: t < 0.5,
            lambda t: torch.add(t, t[0], alpha=2), lambda t: torch.add(t, t[0], alpha=3), lambda t: t[1:3] * 2,
            lambda t: t[1:2] * 2, lambda t: (t, t + 1), lambda t: (t + 1, t + 1),
        ))
    ]  # fmt: skip
    for write in (lambda a, b: a.relu(), lambda a, b: a.relu_(), lambda a, b: b.relu(), lambda a, b: b.relu_()):
        given = x.clone(), y.clone()
        found.append((trial.run(write, *given), given))
    return found


def _table(change: int) -> Callable[[torch.Tensor], torch.Tensor]:
    numbers = [float(n % 7) for n in range(1200)]
    at = (0, 600, 601)[change]
    if change:
        numbers[at], numbers[at + 1] = numbers[at + 1], numbers[at]
    # the numbers stand in the program: a list beside it would be read one by one
    made: Callable[[torch.Tensor], torch.Tensor] = eval(
        f"lambda x: x * torch.tensor({tuple(numbers)}, dtype=x.dtype, device=x.device)", {"torch": torch}
    )
    return made


@case()
def tables_that_differ_in_the_middle(trial: Trial) -> Any:
    """Programs with long tables of the same sum, the same ends and the same text as torch prints it differ."""
    x = trial.tensor(1200)
    return [trial.run(_table(change), x) for change in range(3)]


def _worded(form: str, rounding: str, reduction: str, equation: str) -> Callable[[torch.Tensor], Any]:
    return lambda x: (
        F.gelu(x, approximate=form), torch.div(x, 0.3, rounding_mode=rounding), torch.einsum(equation, x, x * 2),
        F.mse_loss(x, x * 2, reduction=reduction),
    )  # fmt: skip


def _flagged(yes: bool) -> Callable[[torch.Tensor], Any]:
    return lambda x: (
        x.topk(2, largest=yes).values, x.sort(0, descending=yes).values, x.std(0, unbiased=yes),
        torch.bucketize(x, x[0].sort().values, right=yes),
    )  # fmt: skip


def _typed(dtype: torch.dtype) -> Callable[[torch.Tensor], Any]:
    return lambda x: (x.to(dtype) * 2, x.sum(0, dtype=dtype), torch.ones_like(x, dtype=dtype) / 4)


def _bounded(low: float | None, high: float | None) -> Callable[[torch.Tensor], Any]:
    return lambda x: x.clamp(low, high)


def _turned(first: int) -> Callable[[torch.Tensor], Any]:
    def f(x: torch.Tensor) -> Any:
        parts = x * 2, x + 1, x.sin()
        return parts[first], parts[1], parts[2 - first]

    return f


@case(reference=False)
def programs_with_other_words(trial: Trial) -> Any:
    """Programs that differ only in a word, in True or False, in a dtype, in which bound is None, in the order of
    results are other programs."""
    x = trial.tensor(4, 4)
    programs = (
        _worded("none", "floor", "sum", "ij,jk->ik"), _worded("tanh", "trunc", "mean", "ij,kj->ik"), _flagged(True),
        _flagged(False), _typed(torch.float64), _typed(torch.int64), _bounded(0.5, None), _bounded(None, 0.5),
        _turned(0), _turned(2),
    )  # fmt: skip
    return [trial.run(program, x) for program in programs]


@case(reference=False)
def inputs_that_differ(trial: Trial) -> Any:
    """One function with other dtypes, shapes, orders in memory, beginnings, needs of gradients, by turns."""
    x, y, long = trial.tensor(4, 4), trial.tensor(4, 4), trial.tensor(4, 8)
    pairs = (
        (x, y), (x.double(), y), (x, y.double()), (x.half(), y.half()), (x.int(), y.int()), (x, y.int()), (x.t(), y),
        (x, y.t()), (long[:, ::2], y), (long[:, 4:], y), (x[0].expand(4, 4), y), (x, y[0]), (x, y[:, :1]), (x, y[0, 0]),
        (x, x), (x, x.t()), (x[:1], y), (x[:, :1], y[:1]), (x[:3], y[:3]), (x.bool(), y.bool()), (x.to(torch.uint8), y),
        (x[None], y), (x.clone().requires_grad_(), y), (x, y), (x, y.clone().requires_grad_()), (x, y.detach()),
    )  # fmt: skip

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x * 2 + y).detach(), x.detach().sum(0), (x > y).sum(), x.detach().reshape(-1)[:3]

    return _by_turns(trial, f, (*pairs, *pairs[:8])), _by_turns(trial, f, pairs[::5])


@case("bfloat16", "float16", reference=False)
def settings_that_change(trial: Trial) -> Any:
    """What a program reads besides its arguments: the default dtype, gradient modes, autocast and its dtype."""
    x, weight = trial.tensor(3, 4), trial.tensor(4, 4)

    def of_defaults(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        whole = torch.arange(4, device=x.device)
        return (
            whole / 3,
            torch.ones(3, device=x.device) / 3,
            torch.tensor([0.1]),
            x[:, :3] * torch.arange(3.0, device=x.device),
        )

    made = trial.compile(of_defaults)
    product = trial.compile(lambda x, w: (x @ w, F.linear(x, w).softmax(-1), x + 1))
    asked = trial.compile(lambda x: x * 2 if torch.is_grad_enabled() else x * 3)
    default, found = torch.get_default_dtype(), []
    try:
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            found.append(made(x))
    finally:
        torch.set_default_dtype(default)
    for dtype in (torch.bfloat16, torch.float16, None, torch.bfloat16):
        with torch.autocast(trial.device.type, dtype, enabled=dtype is not None):
            found.append(product(x, weight))
            with torch.autocast(trial.device.type, enabled=False):
                found.append(product(x, weight))
    for mode in (torch.no_grad, torch.enable_grad, torch.no_grad):
        with mode():
            found.append(asked(x))
    return found


@case()
def arguments_of_each_form(trial: Trial) -> Any:
    """Words, None, lists of other lengths, other keys, other defaults, keywords in another order, bound arguments."""
    x, y = trial.tensor(3), trial.tensor(3)

    def f(x: torch.Tensor, *rest: torch.Tensor, how: Any = "up", by: Any = None, **more: torch.Tensor) -> torch.Tensor:
        for each in rest:
            x = x + each
        for name, value in more.items():
            x = x * value + len(name)
        x = x + 1 if how == "up" else x - 1
        return x if by is None else x * by

    def listed(given: list[torch.Tensor]) -> torch.Tensor:
        return sum(given[1:], given[0] * 2)

    def named(given: dict[str, torch.Tensor]) -> torch.Tensor:
        return given["a"] - sum(v for k, v in given.items() if k != "a")

    words = (
        {"how": "down"},
        {"by": y},
        {"by": 2},
        {"first": x, "b": y},
        {"b": y, "first": x},
        {"how": None},
        {"by": None},
    )
    by_turns = functools.partial(_by_turns, trial)
    bound = [trial.compile(functools.partial(f, how=how, by=by)) for how, by in (("up", 2), ("down", 2), ("up", y))]
    return [
        by_turns(f, [(x,), (x, y), (x, y, x), (y, x)]), by_turns(lambda x, more: f(x, **more), [(x, w) for w in words]),
        by_turns(listed, [([x],), ([x] * 3,), ([x, y],), ((x, y),)]), [each(x) for each in bound],
        by_turns(named, [({"a": x, "b": y},), ({"b": y, "a": x},), ({"a": x},), ({"a": y, "c": x, "d": y},)]),
    ]  # fmt: skip
