"""Ranges of integers: no byte leads out of one, and an index that cannot be wrong is not verified."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchmux
from torchmux.backends.native.ir import operations as ops, ranges
from torchmux.backends.native.ir.expressions import Node
from torchmux.backends.native.ir.program import Program
from torchmux.backends.native.ir.values import Value

from ..conftest import both_targets
from .test_operation_table import run

BYTES = torch.arange(256, dtype=torch.uint8)


def c(number: int, like: Node) -> Node:
    return ops.const(number, like.dtype)


def _mapped(x: Node) -> Node:
    small = ops.binary("and", x, c(31, x))
    return ops.where(ops.compare("lt", x, c(100, x)), small, c(40, x))


# What is computed of a byte, and the range that is to be found; None where only the type is known.
EXPRESSIONS: dict[str, tuple[Callable[[Node], Node], tuple[int, int] | None]] = {
    "and": (lambda x: ops.binary("and", x, c(15, x)), (0, 15)),
    "shr": (lambda x: ops.binary("shr", x, c(4, x)), (0, 15)),
    "or": (lambda x: ops.binary("or", ops.binary("and", x, c(5, x)), c(8, x)), (0, 15)),
    "floor_rem": (lambda x: ops.binary("floor_rem", x, c(7, x)), (0, 6)),
    "floor_div": (lambda x: ops.binary("floor_div", x, c(100, x)), (0, 2)),
    "minimum": (lambda x: ops.binary("minimum", x, c(9, x)), (0, 9)),
    "where": (_mapped, (0, 40)),
    "add": (lambda x: ops.binary("add", ops.cast(x, torch.int64), ops.const(3, torch.int64)), (3, 258)),
    "wraps": (lambda x: ops.binary("add", x, c(1, x)), (0, 255)),
    "wraps twice": (lambda x: ops.binary("and", ops.binary("mul", x, c(3, x)), c(63, x)), (0, 63)),
    "sub": (lambda x: ops.binary("sub", ops.cast(x, torch.int32), ops.const(10, torch.int32)), (-10, 245)),
    "neg": (lambda x: ops.unary("neg", ops.cast(x, torch.int32)), (-255, 0)),
    "abs": (lambda x: ops.unary("abs", ops.cast(x, torch.int8)), None),
    "cast": (lambda x: ops.cast(x, torch.int8), (-128, 127)),
    "comparison": (lambda x: ops.cast(ops.compare("gt", x, c(3, x)), torch.int64), (0, 1)),
}


@both_targets
def test_no_value_leaves_its_range(target: str) -> None:
    found = {}

    def build(program: Program, values: list[Value]) -> list[Value]:
        def made(name: str) -> Value:
            def element(at: Any) -> Node:
                node = EXPRESSIONS[name][0](values[0].at(at))
                found[name] = ranges.of(node)
                return ops.cast(node, torch.int64)

            return Value((256,), torch.int64, element)

        return [made(name) for name in EXPRESSIONS]

    results = run(target, [BYTES], build)
    for name, result in zip(EXPRESSIONS, results, strict=True):
        low, high = found[name]
        assert low <= int(result.min()), name
        assert int(result.max()) <= high, name
        expected = EXPRESSIONS[name][1]
        assert expected is None or found[name] == expected, name


PROGRAMS = {
    "halves of bytes": (lambda t, x: (t[(x >> 4).long()], t[(x & 15).long()]), 16),
    "a remainder": (lambda t, x: t[x.long() % 11] * 2, 11),
    "a mask": (lambda t, x: t[(x > 7).long()], 2),
    "some bytes are out of it": (lambda t, x: t[x.long()], 255),
    "negative ones wrap": (lambda t, x: t[(x & 15).long() - 16], 16),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_tables_by_bytes(name: str) -> None:
    function, size = PROGRAMS[name]
    table = torch.randn(size)
    compiled = torchmux.compile(function, backend="native", fullgraph=True)
    for x in (BYTES[:200], BYTES[:200].flip(0), BYTES[:199]):
        torch.testing.assert_close(compiled(table, x), function(table, x), rtol=0, atol=0)
    if size == 255:
        with pytest.raises(IndexError):
            compiled(table, BYTES)
