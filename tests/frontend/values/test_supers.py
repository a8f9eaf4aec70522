"""``super()`` in the wrong place raises what it raises in eager, and is no error of the tracer."""

import pytest
import torch

import torchmux

X = torch.ones(2)


class A:
    def go(self, x):
        return x + 1


class B(A):
    def plain(self, x):
        return super().go(x)

    def in_a_lambda(self, x):
        return (lambda: super().go(x))()

    def of_its_first_argument(self, x):
        return (lambda me: super().go(x))(self)

    def in_a_comprehension(self, x):
        return [super().go(x) for _ in range(1)]

    def of_a_number(self, x):
        return super(B, 3).go(x)

    def of_no_class(self, x):
        return super(3, self).go(x)

    def of_one_argument(self, x):
        return super(B).go(x)

    def of_three_arguments(self, x):
        return super(B, self, x).go(x)

    def of_what_was_deleted(self, x):
        me = self
        del self
        return super().go(x), me

    def of_another_object(self, x):
        self = A()  # noqa: F841 - which super() looks at
        return super().go(x)

    def of_a_cell(self, x):
        def inner():
            return self

        return super().go(x) if inner() else x


def outside(x):
    return super().go(x)


def without_arguments():
    return super().go(X)


PROGRAMS = {name: getattr(B(), name) for name, value in vars(B).items() if callable(value)}
PROGRAMS |= {"outside": outside, "without arguments": lambda x: without_arguments()}


def outcome(function):
    try:
        return repr(function(X))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_as_in_eager(name):
    compiled = torchmux.compile(PROGRAMS[name], backend="eager")
    for _ in range(2):
        assert outcome(compiled) == outcome(PROGRAMS[name])
    assert all(each.kind != "TM000" for each in torchmux.report(compiled).breaks)


@pytest.mark.parametrize("value", [5, None, 2.5, len])
def test_what_cannot_be_unpacked(value):
    def one(x):
        a, b = value
        return x + a + b

    def more(x):
        a, *_ = value
        return x + a

    for function in (one, more):
        compiled = torchmux.compile(function, backend="eager")
        assert outcome(compiled) == outcome(function)
