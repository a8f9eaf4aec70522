"""Divisions of indices in a form that TVM's simplifier keeps right.

TVM simplifies where a kernel reads and writes, and takes ``(5 - i) // 2`` for ``2 + i // -2`` and ``(5 - i) % 6`` for
``-(i % -6)``, which are other numbers: flipped rows that were reshaped before came in another order, or from beyond the
tensor (``tests/backends/tvm/test_indices.py``).  Only numerators all of whose terms are negative are taken so.  Here
these divide the opposite, by the identities of floors: ``a // k`` is ``-((k - 1 - a) // k)``, and ``a % k`` is
``k - 1 - (k - 1 - a) % k``.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx

from .. import compat


def rising(module: tvm.IRModule) -> tvm.IRModule:
    """``module`` whose kernels divide, by positive constants, numerators that rise with the loops."""
    for name, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc):
            module[name] = _rising(function)
    return module


def _rising(function: Any) -> Any:
    terms = _Terms(function)

    def replace(node: Any) -> Any:
        divisor = _number(node.b)
        if divisor is None or divisor <= 0 or terms.signs(node.a) != {-1}:
            return node
        last = tirx.const(divisor - 1, compat.dtype_of_scalar(node.a))
        opposite = type(node)(last - node.a, node.b)
        return -opposite if isinstance(node, tirx.FloorDiv) else last - opposite

    body = compat.with_replaced(function.body, replace, tirx.FloorDiv, tirx.FloorMod)
    return function if body.same_as(function.body) else function.with_body(body)


class _Terms:
    """The terms of an index of a kernel, once the variables of its blocks are what its loops give them."""

    def __init__(self, function: Any) -> None:
        loops = compat.collected(function.body, tirx.For)
        self._fixed = [loop.loop_var for loop in loops if _number(loop.extent) == 1]
        realized = compat.collected(function.body, s_tir.SBlockRealize)
        self._given = [
            (own.var, value)
            for each in realized
            for own, value in zip(each.block.iter_vars, each.iter_values, strict=True)
        ]

    def signs(self, expression: Any, sign: int = 1) -> set[int]:
        """The signs of all that is not a number."""
        if _number(expression) is not None or any(expression.same_as(variable) for variable in self._fixed):
            return set()
        if isinstance(expression, tirx.Add | tirx.Sub):
            second = sign if isinstance(expression, tirx.Add) else -sign
            return self.signs(expression.a, sign) | self.signs(expression.b, second)
        if isinstance(expression, tirx.Mul) and (factor := _number(expression.b)) is not None:
            return self.signs(expression.a, sign if factor > 0 else -sign)
        for variable, value in self._given:
            if expression.same_as(variable):
                return self.signs(value, sign)
        return {sign}


def _number(expression: Any) -> int | None:
    return int(expression.value) if isinstance(expression, tirx.IntImm) else None
