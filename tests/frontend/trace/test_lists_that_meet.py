"""Operators that write to a list of tensors, some of which share memory: eager goes from one to the next."""

import pytest
import torch

import torchmux


def parts(a, b):
    torch._foreach_add_([a[:2], a[1:]], 1.0)


def twice(a, b):
    torch._foreach_mul_([a, b, a], 2.0)


def crosswise(a, b):
    torch._foreach_sub_([a, b], [b, a])


def copied_crosswise(a, b):
    torch._foreach_copy_([a, b], [b, a[:]])


def of_the_graph(a, b):
    c = a * b
    torch._foreach_mul_([c, c[1:]], 3.0)
    a.add_(c)


def by_an_element(a, b):
    torch._foreach_mul_([a, b], a[0].clone())
    torch._foreach_mul_([b, a], b[0])


MEETING = [parts, twice, crosswise, copied_crosswise, of_the_graph]


def apart(a, b):
    torch._foreach_add_([a[:2], a[2:], b], [a[:2], a[2:] * 1, b])


def outcome(run):
    a, b = torch.arange(3.0) + 1, torch.full((3,), 2.0)
    try:
        run(a, b)
    except RuntimeError as error:
        return a, b, str(error)
    return a, b


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [*MEETING, by_an_element, apart])
def test_as_in_eager(function, backend):
    compiled = torchmux.compile(function, backend=backend)
    assert str(outcome(compiled)) == str(outcome(function))
    assert bool(torchmux.report(compiled).breaks) == (function is not apart)
