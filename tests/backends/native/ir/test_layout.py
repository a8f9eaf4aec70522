"""What is computed from memory is written in the order in which it is read."""

from __future__ import annotations

import pytest
import torch

from torchmux.backends.native.ir import index, layout, operations as ops
from torchmux.backends.native.ir.expressions import Buffer
from torchmux.backends.native.ir.values import Place, Value, broadcast


def _stored(name: str, dtype: torch.dtype, *sizes: int) -> Value:
    strides = index.contiguous_strides(sizes)
    buffer = Buffer(name, dtype, sizes, strides, torch.device("cpu"), "input")
    return Value(sizes, dtype, None, Place(buffer, strides, 0))


def _sum(*values: Value) -> Value:
    values = broadcast(*values)

    def element(at):
        first, *rest = (ops.cast(v.at(at), torch.float32) for v in values)
        for node in rest:
            first = ops.binary("add", first, node)
        return first

    return Value(values[0].sizes, torch.float32, element)


f32, i8 = torch.float32, torch.int8


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (lambda: _sum(_stored("a", f32, 30, 40).permute((1, 0))), (1, 40)),
        (lambda: _sum(_stored("a", f32, 30, 40)), None),
        (lambda: _sum(_stored("a", f32, 30, 40).permute((1, 0)), _stored("b", f32, 30)), (1, 40)),
        (lambda: _sum(_stored("a", f32, 30, 40).permute((1, 0)), _stored("b", f32, 40, 30)), None),
        (lambda: _sum(_stored("a", i8, 30, 40).permute((1, 0)), _stored("b", f32, 40, 30)), None),
        (lambda: _sum(_stored("a", f32, 30, 40).permute((1, 0)), _stored("b", i8, 40, 30)), (1, 40)),
        (lambda: _sum(_stored("a", f32, 5, 30, 40).permute((0, 2, 1))), (1200, 1, 40)),
        (lambda: _sum(_stored("a", f32, 5, 30, 40).slice(1, 3, 20).permute((2, 0, 1))), (1, 800, 40)),
        (lambda: _sum(_stored("a", f32, 1, 40).permute((1, 0))), None),
        (lambda: _sum(_stored("a", f32, 1200).view((30, 40)).permute((1, 0))), (1, 40)),
    ],
)
def test_the_order_of_what_is_read(value, expected) -> None:
    assert layout.followed_strides(value()) == expected


def test_the_dimensions_of_matrices_stay_the_innermost() -> None:
    moved = _sum(_stored("a", f32, 30, 40, 5).permute((2, 0, 1)))
    assert layout.followed_strides(moved) == (1, 200, 5)
    assert layout.followed_strides(moved, innermost=2) is None
    turned = _sum(_stored("a", f32, 5, 40, 30).permute((0, 2, 1)))
    assert layout.followed_strides(turned, innermost=2) == (1200, 1, 30)
