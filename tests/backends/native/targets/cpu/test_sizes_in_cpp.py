"""Sizes and offsets mean the same in C++, which rounds quotients towards zero, as in Python, which rounds them down."""

from __future__ import annotations

import random
import re

import torch

import torchmux
from torchmux.backends.native.ir import index
from torchmux.backends.native.targets.cpu.module import text_in_cpp


class Long(int):
    """An integer with the operators of C++."""

    def __add__(self, other):
        return Long(int(self) + int(other))

    def __mul__(self, other):
        return Long(int(self) * int(other))

    def __truediv__(self, other):
        size = abs(int(self)) // abs(int(other))
        return Long(size if (self < 0) == (other < 0) else -size)

    def __mod__(self, other):
        return Long(int(self) - int(other) * int(self / other))


def in_cpp(text, sizes):
    """What an expression in C++ is."""
    text = re.sub(r"(-?\d+)l\b", r"Long(\1)", text.replace("(i64)", ""))
    names = {name: Long(value) for name, value in sizes.items()}
    names |= {"Long": Long, "floor_div": lambda a, b: Long(a // b), "floor_rem": lambda a, b: Long(int(a) % int(b))}
    return eval(text, names)


def expression(draw, sizes, depth=3):
    kind = draw.choice(("sum", "product", "quotient", "rest")) if depth else draw.choice(("size", "number"))
    if kind == "size":
        return draw.choice(sizes)
    if kind == "number":
        return draw.randint(-70, 70)
    left = expression(draw, sizes, depth - 1)
    if kind == "sum":
        return left + expression(draw, sizes, depth - 1)
    if kind == "product":
        return left * draw.choice((*sizes, -32, 3, 64))
    by = draw.choice((2, 7, 64, sizes[0] + 1))
    return index.floordiv(left, by) if kind == "quotient" else index.remainder(left, by)


def test_expressions_of_sizes():
    draw = random.Random(0)
    sizes = [index.size("s0", 2), index.size("s1")]
    told = 0
    for _ in range(400):
        value = expression(draw, sizes)
        told += "floor_" in text_in_cpp(value)
        for s0, s1 in ((2, 0), (3, 1), (7, 12), (40, 5)):
            assert in_cpp(text_in_cpp(value), {"s0": s0, "s1": s1}) == eval(repr(value), {"s0": s0, "s1": s1}), value
    assert told > 50


def test_what_is_never_negative_is_divided_as_it_stands():
    size = index.size("s0", 2)
    assert text_in_cpp(index.floordiv(3 * size + 1, 64)) == "(((1l + 3l*s0) / 64l))"
    assert "floor_div" in text_in_cpp(index.floordiv(64 * size * size - 32 * size + 63, 64))


def test_buffers_behind_one_with_an_odd_number_of_elements():
    """A buffer that began later than planned went beyond the end of what is allocated for all."""

    def shifted(q):
        scores = q @ torch.ones(1, 2 * q.shape[2] - 1)
        b, h, rows, columns = scores.shape
        padded = torch.cat([scores.new_zeros(b, h, rows, 1), scores], -1).view(b, h, columns + 1, rows)
        return padded[:, :, 1:].reshape(b, h, rows, columns)[..., : columns // 2 + 1]

    compiled = torchmux.compile(shifted, backend="native")
    for rows in (7, 5, 40):
        q = torch.randn(2, 4, rows, 1, requires_grad=True)
        (expected,) = torch.autograd.grad(shifted(q).cos().sum(), q)
        (found,) = torch.autograd.grad(compiled(q).cos().sum(), q)
        torch.testing.assert_close(found, expected)
