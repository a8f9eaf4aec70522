"""Which object it is: asked of arguments that are also met elsewhere, as a global, a default or a constant."""

import pytest
import torch

import torchmux


def new():
    return lambda: 1


FIRST, SECOND, THIRD = new(), new(), new()
BY_NAME = {"first": FIRST}


class Thing:
    def method(self):
        return 1


THING, OTHER = Thing(), Thing()

QUESTIONS = {
    "is": (lambda f: f is FIRST, FIRST, SECOND),
    "is, the other way round": (lambda f: FIRST is f, FIRST, SECOND),
    "is not": (lambda f: f is not FIRST, FIRST, SECOND),
    "==": (lambda f: f == FIRST, FIRST, SECOND),
    "in a list": (lambda f: f in [FIRST, SECOND], FIRST, THIRD),
    "in a tuple": (lambda f: (f, 1) == (FIRST, 1), FIRST, SECOND),
    "in an argument": (lambda f: f[0] is FIRST, [FIRST], [SECOND]),
    "after a call of it": (lambda f: (f(), f is FIRST), FIRST, SECOND),
    "after a call of the other": (lambda f: (FIRST(), f is FIRST, SECOND is f), FIRST, SECOND),
    "of its code": (lambda f: (f.__code__ is FIRST.__code__, f is FIRST), FIRST, SECOND),
    "of a choice": (lambda f: (f or FIRST) is FIRST, FIRST, SECOND),
    "as a key": (lambda f: {FIRST: 1}.get(f), FIRST, SECOND),
    "of a default": (lambda f, g=FIRST: f is g, FIRST, SECOND),
    "of an item": (lambda f: f is BY_NAME["first"], FIRST, SECOND),
    "of an object": (lambda f: (f is THING, f == THING), THING, OTHER),
    "of a bound method": (lambda f: (f == THING.method, f.__self__ is THING), THING.method, OTHER.method),
    "of a class": (lambda f: f is Thing, Thing, type("Derived", (Thing,), {})),
}


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("question", QUESTIONS)
def test_which_object_it_is(question, breaks):
    ask, *values = QUESTIONS[question]

    def function(x, value):
        if breaks:
            torchmux.graph_break()
        return x + 1, ask(value)

    x = torch.ones(2)
    for order in (values, values[::-1]):
        torchmux.reset()
        compiled = torchmux.compile(function, backend="eager")
        for value in (*order, *order, *order):
            assert compiled(x, value)[1] == function(x, value)[1]
