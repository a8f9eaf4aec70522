"""The algebra of indices: what it simplifies, and that it never changes a value."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from torchmux.backends.native.ir import index
from torchmux.backends.native.ir.expressions import Buffer, Statement, make
from torchmux.backends.native.schedule.inlining import replaced

pytestmark = pytest.mark.usefixtures("fresh_tables")


@pytest.fixture
def fresh_tables():
    yield
    index.forget()


def value_of(expression: index.Index, values: dict[str, int]) -> int:
    return eval(repr(expression), {}, values)


def test_splitting_and_merging_cancel() -> None:
    h, d = index.var("h", 12), index.var("d", 64)
    merged = h * 64 + d
    assert merged // 64 is h
    assert merged % 64 is d
    assert merged // 128 is not h
    assert (merged * 5) // 320 is h
    assert index.unflatten(merged, (12, 64)) == (h, d)
    assert index.unflatten(merged, (3, 4, 64))[2] is d


def test_sizes_that_are_not_known() -> None:
    s, t = index.size("s", least=1), index.size("t", least=1)
    b, i = index.var("b", s), index.var("i", t)
    assert (b * t + i) // t is b
    assert (b * t + i) % t is i
    assert (b * 16 * t + i) // (16 * t) is b
    assert index.less(b, s)
    assert index.less(b * t + i, s * t)
    assert not index.less(b * t + i, s * t - 1)
    assert index.not_negative(s * t - 1)
    assert not index.not_negative(s - t)


@pytest.mark.parametrize("seed", range(40))
def test_no_value_changes(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice([2, 3, 4, 6]) for _ in range(3)]
    variables = [index.var(f"v{n}", s) for n, s in enumerate(sizes)]
    expression: index.Index = 0
    reference = []
    points = list(itertools.product(*map(range, sizes)))
    for _ in range(3):
        n, factor = rng.randrange(3), rng.choice([1, 2, 3, 4, 8, 12])
        expression = expression + variables[n] * factor
        reference.append((n, factor))
    constant, divisor, modulus = rng.randrange(3), rng.choice([2, 3, 4, 8, 12]), rng.choice([2, 3, 5, 8])
    changed = ((expression + constant) // divisor) * 7 + (expression % modulus) + (expression // divisor) % modulus
    for point in points:
        base = sum(point[n] * factor for n, factor in reference)
        expected = ((base + constant) // divisor) * 7 + base % modulus + (base // divisor) % modulus
        assert value_of(changed, {f"v{n}": p for n, p in enumerate(point)}) == expected


def test_bounds_are_bounds() -> None:
    a, b = index.var("a", 5), index.var("b", 7)
    for expression in (a * 7 + b, 30 - a - b, (a * 7 + b) // 3, (a * 3 + b) % 4, a * 2 - b):
        values = [
            value_of(expression, {"a": x, "b": y}) if isinstance(expression, index.Ix) else expression
            for x in range(5)
            for y in range(7)
        ]
        for bound in range(-10, 45):
            if index.less(expression, bound):
                assert max(values) < bound
            if index.not_negative(expression - bound):
                assert min(values) >= bound


def test_what_is_left_of_a_sum_is_divided_as_a_number() -> None:
    d = index.var("d", 5)
    assert index.floordiv(d * 2 + 3, 2) == d + 1
    assert index.remainder(d * 2 + 3, 2) == 1
    assert index.floordiv(d * 10 - 3, 5) == d * 2 - 1
    assert index.remainder(d * 10 - 3, 5) == 2


def test_a_place_that_turns_out_to_be_known_is_a_number() -> None:
    """What stands in the place of a load may be a constant, and an index made of it is one."""
    i = index.var("i", 5)
    made = Buffer("made", torch.int64, (5,), (1,), torch.device("cpu"))
    statement = Statement(made, i, make("const", (), torch.int64, 3), tuple(index.free(i)))
    place = index.data(make("load", (), torch.int64, (made, i)))
    found = replaced(make("index", (), torch.int64, place + 1), statement, anywhere=True)
    assert found is make("const", (), torch.int64, 4)


def test_what_may_be_negative_is_not_taken_for_a_size() -> None:
    n, at = index.size("n"), index.size("at", None)
    assert index.not_negative(n)
    assert index.not_negative(n * n + 3)
    for expression in (at, at + 5, at * at, n + at, at // 4, n * at):
        assert not index.not_negative(expression)
    assert index.not_negative(index.remainder(at, 4))
    assert index.less(index.remainder(at, 4), 4)
    for value in range(-9, 9):
        assert value_of(index.remainder(at, 4), {"at": value}) == value % 4
