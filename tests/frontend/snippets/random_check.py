"""Runs a random program plainly and compiled, over several inputs, and compares all that can be seen."""

import contextlib
import signal

import torch

import torchmux

from . import random_prelude
from .corpus import Case, Runner, assert_same
from .random_programs import function_of


class Skip(BaseException):
    """The program does not do the same twice, or does not end."""


@contextlib.contextmanager
def _skip_if_endless(seconds=5):
    """A comprehension may append to the very list that it goes through."""

    def give_up(number, frame):
        raise Skip

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _inputs(n, flag, items, table, child=False, alias=False, grad=False):
    def make():
        x = torch.tensor([0.5, -1.0, 2.0, 3.5], requires_grad=grad)
        y = x if alias else torch.tensor([1.0, 0.25, -2.0, 1.5])
        cls = random_prelude.Child if child else random_prelude.Thing
        thing = cls(n + 1, torch.tensor([1.0, 2.0, -3.0, 0.5]))
        return x, y, n, flag, list(items), dict(table), thing, random_prelude.Layer()

    return make


INPUTS = (
    _inputs(2, True, (3, 1, 2), {"a": 1, "b": 4}),
    _inputs(3, False, (5, 0), {"key": 2, "a": 3, "n": 0}, child=True),
    _inputs(0, True, (), {}, alias=True),
    _inputs(7, True, (4, 4, 1, 6), {"b": 1}, grad=True),
)


def cases_of(function):
    return [Case("random", function, None, make, random_prelude.CHANGED) for make in INPUTS]


def _is_unbound_cell(expected, actual):
    """After a graph break a function's own cells are free variables, of which Python says NameError (docs/notes.md)."""
    if type(expected) is not UnboundLocalError or type(actual) is not NameError:
        return False
    return str(actual).split("'")[1] == str(expected).split("'")[1] and "free variable" in str(actual)


def check(source, stats=None, dynamic=None):
    """Fail unless the compiled program does what the plain one does; count what was made of it in ``stats``."""
    namespace = vars(random_prelude)
    function = function_of(source, namespace)
    cases = cases_of(function)
    torchmux.reset()
    compiled = torchmux.compile(function, backend="eager", dynamic=dynamic)
    try:
        for number, case in enumerate(cases):
            expected, again, actual = Runner(case, function), Runner(case, function), Runner(case, compiled)
            for call in range(2 if number == 0 else 1):
                with _skip_if_endless():
                    first = expected.call()
                try:
                    assert_same(first, again.call())
                except AssertionError:
                    # an address, or a class attribute that the program changed for good
                    raise Skip from None
                second = actual.call()
                if _is_unbound_cell(first["error"], second["error"]):
                    raise Skip
                assert_same(first, second, f"inputs {number}, call {call}: ")
        internal = [entry.message() for entry in torchmux.report(compiled).breaks if entry.kind == "TM000"]
        assert not internal, internal[0]
        if stats is not None:
            report = torchmux.report(compiled)
            stats["programs"] = stats.get("programs", 0) + 1
            stats["graphs"] = stats.get("graphs", 0) + len(report.graphs)
            stats["breaks"] = stats.get("breaks", 0) + len(report.breaks)
            stats["raised"] = stats.get("raised", 0) + (first["error"] is not None)
    finally:
        torchmux.reset()
