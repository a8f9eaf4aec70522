"""Attempts: each reason to start again occurs and is printed, what holds for good is remembered, and the loop ends."""

from __future__ import annotations

import functools
import re

import pytest
import torch

import torchmux
from torchmux.frontend.breaks import GraphBreak
from torchmux.frontend.capture import attempts
from torchmux.frontend.capture.attempts import Assumptions, Restart, StateChanged
from torchmux.registry.errors import FloatsNeeded

X = torch.linspace(-2, 2, 6)


@pytest.fixture(autouse=True)
def quiet_again():
    torchmux.reset()
    yield
    torchmux.set_logs()


# --- each reason ------------------------------------------------------------------------------------------------------


def breaks(x):
    y = x + 1
    torchmux.graph_break()
    return y * 2


def scaled(x, factor):
    return x * factor


class Doubled(torch.Tensor):
    """A tensor that consists of another one, and stands for twice its numbers."""

    @staticmethod
    def __new__(cls, half):
        return torch.Tensor._make_wrapper_subclass(cls, half.shape, dtype=half.dtype)

    def __init__(self, half):
        self.half = half

    def __tensor_flatten__(self):
        return ["half"], None

    @classmethod
    def __tensor_unflatten__(cls, parts, context, size, stride):
        return cls(parts["half"])

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        whole = [a.half * 2 if isinstance(a, Doubled) else a for a in args]
        return func(*whole, **(kwargs or {}))


def multiplied(x, doubled):
    return x * doubled


@functools.lru_cache
def cached(number):
    return number + 1


def calls_cached(x):
    return x * cached(1)


def writes_to_an_input(x):
    x.add_(1)
    assert x.isfinite().all()
    return x * 2


def returns_text(x):
    assert x.isfinite().all()
    return x * 2, f"{x.sum()}"


def returns_a_class(x):
    y = x + 1

    class Plain:
        size = 3

    return y, Plain


def wants_constants(gm, inputs):
    symbols = {str(n.meta["example_value"].node.expr) for n in gm.graph.nodes if n.type is float or _is_float(n)}
    if symbols:
        raise FloatsNeeded("wants_constants", frozenset(symbols))
    return gm


def sharing():
    size = 0

    def get():
        return size

    def shares(x):
        nonlocal size
        size = len(x)
        return x * get()

    return shares


def returns_hooked(x):
    y = x * 2
    y.register_hook(lambda grad: grad * 3)
    return y + 1, y


def endless():
    while True:
        yield [1]


def takes_one(x, lists):
    y = x * 2
    return (y + len(next(lists)),)


def routed(x, groups):
    made = torch.zeros_like(x)
    for group in range(3):
        (rows,) = torch.where(groups == group)
        made.index_add_(0, rows, x[rows] * group)
    return (made,)


def routed_and_printed(x, groups):
    made = torch.zeros_like(x)
    for group in range(3):
        made.index_add_(0, torch.where(groups == group)[0], x[groups == group])
    torchmux.graph_break()
    return (made + 1,)


def _is_float(node):
    return isinstance(node.meta.get("example_value"), torch.SymFloat)


# reason -> the program, its calls, its backend, what the line says, and how many attempts each call takes
REASONS = {
    "BreakFound": (
        breaks, [(X,)], "eager",
        r"attempt 1 starts again: TM005 explicit graph break at .*test_attempts.py:\d+: .* \(stop: none -> step \d+\)",
        [2],
    ),
    "NeedsShapeEnv": (
        scaled, [(X, 2), (X, 3)], "eager",
        r"attempt 1 starts again: a size or number is symbolic \(symbolic: False -> True\)",
        [1, 2],
    ),
    "FloatsAreConstants": (
        scaled, [(X, 0.5), (X, 0.25), (X, 0.75)], wants_constants,
        r"attempt 2 starts again: floats have to be constants \(floats: none -> factor\)",
        [1, 3, 1],
    ),
    "SubclassesStayWhole": (
        multiplied, [(X.clone().requires_grad_(), Doubled(X))], "eager",
        r"attempt 1 starts again: mul of .* needs gradients \(whole_subclasses: False -> True\)",
        [2],
    ),
    "SizesOfDataNeeded": (
        routed, [(X, torch.tensor([0, 2, 2, 2, 0, 2])), (X.double(), torch.tensor([0, 2, 1, 2, 0, 2]))], "eager",
        r"attempt 1 starts again: .*, whose output size depends on data, in a loop \(sizes_of_data: none -> True\)",
        [3, 2],
    ),
    "SizesOfDataGivenUp": (
        routed_and_printed, [(X, torch.tensor([0, 2, 1, 2, 0, 2]))], "eager",
        r"attempt 3 starts again: .* \(symbolic: True -> False, sizes_of_data: True -> False\)",
        [5],
    ),
    "StateChanged": (
        calls_cached, [(X,)], "eager",
        r"attempt 1 starts again: cached function .* has run \(ran: 0 -> 1\)",
        [2],
    ),
    "NothingExpected": (
        writes_to_an_input, [(X,), (X[:3],)], "eager",
        r"attempt 1 starts again: what the graph changes could not be put back .* \(may_expect: True -> False\)",
        [3, 4],
    ),
    "TextNeeded": (
        returns_text, [(X,), (X.double(),)], "eager",
        r"attempt 1 starts again: a string that contains the value of a tensor is used outside .* \(may_expect: ",
        [3, 2],
    ),
    "CellsNeeded": (
        sharing(), [(X,)], "eager",
        r"attempt 1 starts again: another function may share a variable .* \(passes_cells: False -> True\)",
        [2],
    ),
    "HookedTensorOutlives": (
        returns_hooked, [(X.clone().requires_grad_(),)], "eager",
        r"attempt 1 starts again: a tensor with a hook outlives the graph \(may_hook: True -> False\)",
        [3],
    ),
    "ClassNeeded": (
        returns_a_class, [(X,), (X.double(),)], "eager",
        r"attempt 1 starts again: a class that the trace has made is needed \(may_put_off: True -> False\)",
        [3, 2],
    ),
    "GeneratorSuspended": (
        takes_one, [(X, endless())], "eager",
        r"attempt 1 starts again: a generator from outside is left in the middle \(enters_generators: True -> False\)",
        [3],
    ),
}  # fmt: skip


def kinds(cls=Restart):
    for kind in cls.__subclasses__():
        if kind.__module__ == attempts.__name__:
            yield kind.__name__
            yield from kinds(kind)


def test_every_reason_has_a_program():
    assert set(kinds()) == set(REASONS)


def of(fn, text):
    """The lines about the first capture of a function, and not about what is resumed of it."""
    lines = [line for line in text.splitlines() if line.startswith(f"[torchmux attempts] {fn.__qualname__} (")]
    line = re.compile(r"test_attempts.py:\d+\), attempt (\d+) (starts again: .* \(.*\)|is captured)$")
    numbers = [int(line.search(each)[1]) for each in lines]
    captures = [position for position, number in enumerate(numbers) if number == 1]
    first = slice(0, captures[1] if len(captures) > 1 else None)
    assert numbers[first] == [*range(1, len(numbers[first]) + 1)]
    return [each.partition("), ")[2] for each in lines[first]]


@pytest.mark.parametrize("reason", REASONS)
def test_each_reason(capfd, reason):
    fn, calls, backend, words, counts = REASONS[reason]
    cached.cache_clear()
    torchmux.set_logs(attempts=True)
    compiled = torchmux.compile(fn, backend=backend)
    found, lines = [], []
    for args in calls:
        x, *others = args
        result, expected = (call(x.clone(), *others) for call in (compiled, fn))
        assert torch.equal(result[0], expected[0])
        new = of(fn, capfd.readouterr().err)
        assert new[-1].endswith("is captured")
        found.append(len(new))
        lines += new
    assert found == counts, lines
    assert any(re.match(words, line) for line in lines), lines


def test_what_is_given_up_is_printed(capfd):
    def fn(x):
        return fn.missing(x)

    torchmux.set_logs(attempts=True)
    with pytest.raises(AttributeError):
        torchmux.compile(fn, backend="eager")(X)
    assert re.search(r"fn \(.*\), attempt \d is given up: .*missing", capfd.readouterr().err)


# --- the loop ---------------------------------------------------------------------------------------------------------


def test_the_first_attempt_that_ends_is_the_result():
    seen, told = [], []

    def attempt(assumptions):
        seen.append(assumptions)
        if len(seen) < 3:
            raise StateChanged("something ran")
        return "done"

    assert attempts.run(Assumptions(), attempt, "frame", told.append) == "done"
    assert [each.ran for each in seen] == [0, 1, 2]
    assert [type(each) for each in told] == [StateChanged, StateChanged]


def test_a_restart_that_changes_nothing_is_an_error():
    def attempt(assumptions):
        raise attempts.NeedsShapeEnv

    with pytest.raises(RuntimeError, match="attempt 1 starts again without a change: a size or number is symbolic"):
        attempts.run(Assumptions(symbolic=True), attempt, "frame", lambda restart: None)


def test_attempts_come_to_an_end():
    count = 0

    def attempt(assumptions):
        nonlocal count
        count += 1
        raise StateChanged(f"run {count}")

    with pytest.raises(GraphBreak, match="64 attempts to capture the frame all started again; the last one: run 64"):
        attempts.run(Assumptions(), attempt, "frame", lambda restart: None)
    assert count == attempts.MOST


def test_a_program_that_takes_too_many_attempts_runs_in_eager_and_is_captured_later(monkeypatch):
    monkeypatch.setattr(attempts, "MOST", 8)

    @functools.lru_cache
    def slow(number):
        return number + 1

    def fn(x):
        for number in range(10):
            x = x + slow(number)
        return x

    compiled, expected = torchmux.compile(fn, backend="eager"), X + 55
    for _ in range(70):  # it is tried again after 64 calls
        torch.testing.assert_close(compiled(X), expected)
    (found,) = torchmux.report(compiled).breaks
    assert "TM015" in str(found) and "8 attempts" in str(found)
    assert torchmux.report(compiled).graph_count == 1


def test_other_assumptions_forget_the_break():
    broke = attempts.Stop(7, GraphBreak("TM005", "asked"))
    stopped = attempts.BreakFound(broke).next(Assumptions(symbolic=True))
    assert (stopped.stop, stopped.symbolic) == (broke, True)
    assert StateChanged("ran").next(stopped) == Assumptions(symbolic=True, ran=1)
