"""What the tests of guards share: cases that change something after compiling, and how they are run.

Each case is a generator. It yields the function and its arguments, which are captured; then it changes something and
yields the arguments of the next call, and so on. Compiled and eager must agree at every step.
"""

import contextlib
import copy

import torch

import torchmux

from ..snippets.corpus import assert_same

_CASES = {}
UNDO = []


def case(function):
    """Register a case with its module."""
    cases_of(function.__module__)[function.__name__] = function
    return function


def cases_of(module):
    return _CASES.setdefault(module, {})


def vector():
    return torch.arange(3.0) - 1


def put(namespace, name, value):
    """Change a global or an attribute; undone after the case."""
    UNDO.append((namespace, name, namespace.__dict__.get(name, UNDO)))
    setattr(namespace, name, value)


def put_back():
    """Undo every :func:`put`."""
    while UNDO:
        namespace, name, value = UNDO.pop()
        if value is UNDO:
            delattr(namespace, name)
        else:
            setattr(namespace, name, value)


def scaled(x, by=2, *, plus=1):
    return x * by + plus


def times_two(x):
    return x * 2


def times_three(x):
    return x * 3


class Thing:
    limit = 5

    def __init__(self, value=1):
        self.value = value

    def method(self, x):
        return x + self.value

    @property
    def double(self):
        return self.value * 2

    @staticmethod
    def static(x):
        return x - 1

    @classmethod
    def on_class(cls, x):
        return x + cls.limit


class Other(Thing):
    def method(self, x):
        return x - self.value


class Slotted:
    __slots__ = ("maybe", "value")

    def __init__(self, value):
        self.value = value


def _arguments(step):
    if isinstance(step, tuple) and len(step) == 2 and isinstance(step[0], tuple) and isinstance(step[1], dict):
        return step
    return step, {}


def _copy(arguments):
    """Both runs may change what they are given.  What cannot be copied, a result of autograd, nobody changes here."""
    try:
        return copy.deepcopy(arguments)
    except RuntimeError:
        return arguments


def _run(function, arguments):
    args, kwargs = arguments
    torch.manual_seed(0)
    try:
        return ["returned", function(*args, **kwargs), args, kwargs]
    except Exception as error:
        return ["raised", error.with_traceback(None), args, kwargs]


def check(case, prepare=None, calls=2):
    """Run a case to its end.  ``prepare`` is handed what is compiled; each step is called ``calls`` times."""
    steps = case()
    torchmux.reset()
    with contextlib.ExitStack() as stack:
        stack.callback(torchmux.reset)
        stack.callback(put_back)
        stack.enter_context(contextlib.closing(steps))
        function, *first = next(steps)
        compiled = torchmux.compile(function, backend="eager")
        if prepare is not None:
            prepare(compiled)
        arguments = _arguments(tuple(first) if len(first) == 2 else first[0])
        _compare(function, compiled, arguments, calls)
        report = torchmux.report(compiled)
        assert report.graph_count == 1, "the first call is not captured, so nothing is guarded"
        assert not report.breaks, report.breaks[0].message()
        for step in steps:
            _compare(function, compiled, _arguments(step), calls)


def _compare(function, compiled, arguments, calls):
    for _ in range(calls):
        assert_same(_run(function, _copy(arguments)), _run(compiled, _copy(arguments)))
