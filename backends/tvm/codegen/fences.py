"""Products and quotients in the order in which a program has them.

LLVM may reorder sums (``reassoc`` in ``build.py``), because only so are they vectors.  The same flag lets it multiply a
quotient before it divides, and join numbers that a program multiplies by in turn: what is infinite, zero or too small
on the way is not any more, or becomes so.  A fence is a value that LLVM takes as it is; it costs no instruction.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from .. import compat

_FENCE = "llvm.arithmetic.fence"
_FLOATS = ("float32", "float64")


def fenced(function: Any) -> Any:
    """``function`` with a fence around each product, quotient and call that is multiplied or divided."""

    def replace(node: Any) -> Any:
        operands = [_behind_a_fence(operand) for operand in (node.a, node.b)]
        kept = all(new is old for new, old in zip(operands, (node.a, node.b), strict=True))
        return node if kept else type(node)(*operands)

    body = compat.with_replaced(function.body, replace, tirx.Mul, tirx.Div)
    return function if body.same_as(function.body) else function.with_body(body)


def _behind_a_fence(value: Any) -> Any:
    if not isinstance(value, (tirx.Mul, tirx.Div, compat.Call)):
        return value
    dtype = compat.dtype_of_scalar(value)
    return tirx.call_llvm_pure_intrin(dtype, _FENCE, value) if dtype in _FLOATS else value
