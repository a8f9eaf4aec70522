"""Where functions may be a few units of float32 off, because the results are rounded to half precision.

Division and exponentials that are right to the last bit take two to three times as many instructions as those of the
hardware, and kernels of half precision are bound by them and not by memory.  The hardware's are at most some 2^-18 of a
value off; the results keep 2^-9 (bfloat16) or 2^-12 (float16).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ..ir.expressions import Buffer, Node, operators_in
from ..ir.operation_table import OPERATIONS
from ..ir.operations import COMPARE
from .stages import Fold, Store

_HALF = (torch.bfloat16, torch.float16)
_DECIDING = frozenset((*COMPARE, "floor", "ceil", "trunc", "rint", "fmod", "bits_32", "nextafter"))
"""What makes of a small difference a large one."""
_BOUNDED = frozenset(("sqrt", "log", "log2", "log10", "log1p", "asin", "acos", "acosh", "atanh", "pow", "lgamma"))
"""What is not a number a unit beyond the end of where it is defined: 1 - x / x may be a unit below zero."""


def hides_units(steps: Iterable[Store | Fold]) -> bool:
    """Whether nobody can see in what a kernel writes that its float32 functions are some units off.

    All that it writes is half precision, and nothing that depends on such a function decides, or has a bounded domain.
    """
    inexact: set[Node] = set()
    found: set[Buffer] = set()  # by reductions of what is inexact
    for step in steps:
        # Rows of scratch memory are in registers.
        if isinstance(step, Store) and step.buffer.kind != "row" and step.buffer.dtype not in _HALF:
            return False
        for node in operators_in(step.value):
            if node.op == "result":
                depends = node.attr in found
            elif node.op == "load":
                depends = node.attr[0] in found
            else:
                depends = any(operand in inexact for operand in node.args)
            is_number = node.dtype.is_floating_point
            if depends and (node.op in _DECIDING or node.op in _BOUNDED or (node.op == "cast" and not is_number)):
                return False
            if depends or is_inexact(node):
                inexact.add(node)
        if step.value in inexact:
            if isinstance(step, Fold) and str(step.statement.reduction).startswith("arg"):
                return False  # which of several numbers is the largest is a decision as well
            found.add(step.buffer if isinstance(step, Store) else step.statement.target)
    return True


def is_inexact(node: Node) -> bool:
    """Whether there is a spelling of ``node`` that is some units off; means, which divide by a number, stay exact."""
    if node.dtype is not torch.float32 or OPERATIONS[node.op].rough is None:
        return False
    return node.op != "div" or node.args[1].op != "const"
