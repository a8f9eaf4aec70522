"""A guard for whatever a graph takes for granted of sizes, strides and numbers: change it, and get eager's new answer.

As in :mod:`guarding`, but each case has several calls before the change, so that symbols are in the graph by then.
"""

import math

import pytest
import torch

import torchmux

from ..snippets.corpus import assert_same
from .guarding import case, cases_of


@pytest.fixture(autouse=True)
def fresh():
    torchmux.reset()


def matrix(rows, columns=4):
    return torch.arange(float(rows * columns)).reshape(rows, columns)


@case
def size_that_changed():
    yield lambda x: x * x.shape[0]
    yield from ((matrix(n),) for n in (3, 4, 5, 1, 0, 9))


@case
def number_of_dimensions():
    yield lambda x: x.sum(x.dim() - 1)
    yield from ((x,) for x in (matrix(3), matrix(4), matrix(4)[0], matrix(8).view(2, 4, 4), matrix(5)))


@case
def branch_on_a_size():
    yield lambda x: x + 1 if x.shape[0] > 4 else x - 1
    yield from ((matrix(n),) for n in (3, 4, 5, 6, 4, 2))


@case
def branch_on_what_is_derived_from_a_size():
    yield lambda x: x + 1 if x.shape[0] * 3 // 2 % 2 else x - 1
    yield from ((matrix(n),) for n in (3, 4, 5, 6, 7, 8, 9))


@case
def branch_on_a_quotient():
    yield lambda x: x + 1 if x.shape[0] / 4 > 1.3 else x - 1
    yield from ((matrix(n),) for n in (3, 4, 5, 6, 7, 8, 9))


@case
def branch_on_a_root():
    yield lambda x: x + 1 if math.sqrt(x.shape[0]) >= 2.5 else x - 1
    yield from ((matrix(n),) for n in (3, 4, 5, 6, 7, 8, 9))


@case
def sizes_that_were_equal():
    yield lambda x, y: (x + 1, y) if x.shape == y.shape else (x - 1, y)
    yield from ((matrix(n), matrix(m)) for n, m in ((3, 3), (4, 4), (4, 5), (6, 6), (7, 6)))


@case
def sizes_that_have_to_be_equal():
    def added(x, y):
        return x + y

    yield added
    yield from ((matrix(n), matrix(m)) for n, m in ((3, 3), (4, 4), (5, 1), (1, 6), (7, 7), (7, 6)))


@case
def size_that_became_a_constant():
    yield lambda x: x * {4: 2.0, 6: 3.0}.get(x.shape[0], 5.0)
    yield from ((matrix(n),) for n in (3, 4, 5, 6, 7))


@case
def size_in_text():
    yield lambda x: (x * 2, f"{x.shape[0]} rows")
    yield from ((matrix(n),) for n in (3, 4, 5, 6))


@case
def stride_of_a_part():
    yield lambda x: (x * 2, x.stride(0), x.is_contiguous())
    yield from ((matrix(4, n)[:, :3],) for n in (5, 6, 7, 3, 9))


@case
def transposed():
    yield lambda x: (x.contiguous() + 1, x.is_contiguous())
    yield from ((x,) for x in (matrix(4), matrix(4).t(), matrix(5), matrix(5).t(), matrix(6).t(), matrix(4, 6)))


@case
def storage_offset():
    yield lambda x: (x * 2, x.storage_offset())
    yield from ((matrix(9)[n : n + 3],) for n in (0, 1, 2, 5))


@case
def storage_offset_of_a_window():
    yield lambda x: x.as_strided((2, 2), (4, 1)) * 2
    yield from ((matrix(9)[n : n + 3],) for n in (0, 1, 2, 5))


@case
def integer():
    yield lambda x, n: x * n + n // 2
    yield from ((matrix(2), n) for n in (3, 4, 5, 0, 1, -7))


@case
def type_of_an_integer():
    yield lambda x, n: (x * n, n // 2, type(n))
    yield from ((matrix(2), n) for n in (3, 4, 5, 2.5, True, 6, 7.5))


@case
def integer_beyond_64_bits():
    yield lambda x, n: (x * 2, n + 1)
    yield from ((matrix(2), n) for n in (3, 4, 1 << 70, -(1 << 66), 5))


@case
def branch_on_an_integer():
    yield lambda x, n: x + 1 if 3 < n <= 6 else x - 1
    yield from ((matrix(2), n) for n in (3, 4, 5, 6, 7, -8))


@case
def integer_beside_a_size():
    yield lambda x, n: x[:n] if n < x.shape[0] else x + n
    yield from ((matrix(r), n) for r, n in ((5, 3), (6, 4), (6, 6), (5, 9), (8, 7)))


@case
def integer_as_divisor():
    def divided(x, n):
        try:
            return x * (7 // n) + 7 % n
        except ZeroDivisionError:
            return x - 1

    yield divided
    yield from ((matrix(2), n) for n in (3, 4, 5, 0, -2))


@case
def integer_as_shift():
    def shifted(x, n):
        try:
            return x * (7 << n)
        except ValueError:
            return x - 1

    yield shifted
    yield from ((matrix(2), n) for n in (3, 4, 5, -1, 2))


@case
def integer_in_a_square_root():
    def rooted(x, n):
        try:
            return x * math.sqrt(n)
        except ValueError:
            return x - 1

    yield rooted
    yield from ((matrix(2), n) for n in (3, 4, 5, -1, 2))


@case
def number_in_a_container():
    yield lambda x, tree: x * tree["a"][1] + tree["b"]
    yield from ((matrix(2), {"a": [0, n], "b": m}) for n, m in ((3, 0.5), (4, 0.5), (5, 0.25), (6, 0.75), (6.5, 2)))


@case
def float_number():
    yield lambda x, f: x * f
    yield from ((matrix(2), f) for f in (0.5, 0.25, 0.1, 0.0, -0.0, math.inf, -math.inf, math.nan, 1e300))


@case
def branch_on_a_float():
    yield lambda x, f: x + 1 if f > 0.3 else x - 1
    yield from ((matrix(2), f) for f in (0.5, 0.25, 0.3, 0.30000000000000004, 0.7, math.nan, -math.inf))


@case
def branch_on_arithmetic_with_floats():
    yield lambda x, f: x + 1 if f * 3 == 0.3 else x - 1
    yield from ((matrix(2), f) for f in (0.5, 0.25, 0.1, 0.09999999999999999, 0.3))


@case
def float_that_is_not_itself():
    yield lambda x, f: x + 1 if f != f else x - f
    yield from ((matrix(2), f) for f in (0.5, 0.25, math.nan, 0.75))


@case
def float_that_became_a_constant():
    yield lambda x, f: (x * {0.5: 2.0}.get(f, 3.0), str(f))
    yield from ((matrix(2), f) for f in (0.25, 0.5, 0.75, 0.1 + 0.2, 0.3))


@case
def float_in_an_operator_that_wants_a_constant():
    yield lambda x, f: torch.nn.functional.leaky_relu(x - 4, f).clamp(max=f)
    yield from ((matrix(2), f) for f in (0.25, 0.5, 0.75, 0.1 + 0.2, 0.3))


@case
def float_as_a_size():
    yield lambda x, f: x[: int(f * 4)]
    yield from ((matrix(6), f) for f in (0.25, 0.5, 1.0, 0.1, 7.0, -0.5))


@case
def sizes_of_which_much_is_asked():
    """Those for which all conditions held are remembered; others have to be asked about, also in between."""

    def windows(x):
        b, h, w, c = x.shape
        return x.view(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c) * (h * 3 // 2 % 4)

    yield windows
    image = torch.arange(2 * 12 * 12 * 3.0).view(2, 12, 12, 3)
    sizes = [
        (2, 4, 4),
        (2, 6, 6),
        (2, 8, 8),
        (1, 8, 8),
        (2, 8, 6),
        (2, 5, 8),
        (2, 8, 8),
        (2, 10, 10),
        (2, 6, 6),
        (2, 4, 4),
    ]
    yield from ((image[:b, :h, :w].contiguous(),) for b, h, w in sizes)
    yield from ((image[:, :n, :n],) for n in (8, 6))


def test_conditions_that_held_are_not_checked_again(capfd):
    def windows(x):
        b, h, w, c = x.shape
        return x.view(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)

    compiled = torchmux.compile(windows, backend="eager", dynamic=True)
    torchmux.set_logs(guards=True)
    try:
        compiled(torch.rand(2, 4, 4, 3))
    finally:
        torchmux.set_logs()
    lines = capfd.readouterr().err.splitlines()
    (start,) = [n for n, line in enumerate(lines) if line.strip().startswith("if shapes not in ")]
    inside = [line for line in lines[start + 1 :] if line.startswith(" " * 12) and "return False" in line]
    assert len(inside) > 10
    assert not [line for line in lines[:start] if "size_1" in line]


@pytest.mark.parametrize("dynamic", [None, True], ids=["automatic", "dynamic"])
@pytest.mark.parametrize("name", cases_of(__name__))
def test_a_change_is_seen(name, dynamic):
    steps = cases_of(__name__)[name]()
    function, calls = next(steps), list(steps)
    compiled = torchmux.compile(function, backend="eager", dynamic=dynamic)
    with torchmux.config.patch(recompile_limit=20):
        for number, arguments in enumerate([*calls, *reversed(calls)]):
            expected, actual = _outcome(function, arguments), _outcome(compiled, arguments)
            assert_same(expected, actual, f"call {number}: ")
    report = torchmux.report(compiled)
    assert report.graph_count
    assert not [entry for entry in report.breaks if entry.kind == "TM000"]


def _outcome(function, arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return type(error)
