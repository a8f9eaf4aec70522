"""The table of lowerings, and the arguments that each of them receives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ir import index, operations as ops
from ..ir.expressions import Node, compute_type
from ..ir.index import Index
from ..ir.layout import ONCE_COST, is_short_row
from ..ir.operations import Unsupported
from ..ir.program import Program
from ..ir.values import Value, broadcast, scalar

aten = torch.ops.aten

Lowering = Callable[..., Any]

table: dict[Any, Lowering] = {}

SUPPORTED = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)


COMPLEX = (torch.complex64, torch.complex128)

KEEP_COST = 6
"""A value that is used several times is put into memory (or a row of scratch memory) if it costs more than this."""


class Context:
    """One node that is being lowered: the program so far, and what is known of the result."""

    def __init__(self, program: Program, node: Any, size: Any, writes: Any) -> None:
        self.program = program
        self.writes = writes  # writes.Writes, which says what is made in the memory of an input
        self.node = node
        self.val = node.meta.get("val")
        self.size = size  # graph.SymbolicSizes: a size as torch has it (an int or a SymInt) as an index

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the result."""
        found: torch.dtype = self.val.dtype
        return found

    def sizes(self, tensor: Any = None) -> tuple[Index, ...]:
        """The sizes of a fake tensor; of the result by default."""
        return tuple(self.size(s) for s in (self.val if tensor is None else tensor).shape)

    def strides(self, tensor: Any = None) -> tuple[Index, ...]:
        """The strides of a fake tensor; of the result by default."""
        return self.size.strides(self.val if tensor is None else tensor)

    def promoted(self) -> torch.dtype:
        """The dtype to which torch promotes the first two arguments."""
        left, right = (self.fake(a) for a in self.node.args[:2])
        return torch.result_type(left, right)

    def fake(self, argument: Any) -> Any:
        return argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument

    def keep(self, value: Value) -> Value:
        """``value``, in memory if computing it again for each of several uses would cost more."""
        if value.place is None and value.at(value.variables()).cost > KEEP_COST:
            self.program.realize(value)
        return value


def lowers(*operators: Any) -> Callable[[Lowering], Lowering]:
    """Register a lowering for ATen overloads."""

    def register(function: Lowering) -> Lowering:
        for operator in operators:
            assert operator not in table, operator
            table[operator] = function
        return function

    return register


def as_value(operand: Any, dtype: torch.dtype) -> Value:
    if isinstance(operand, Value):
        return operand
    if isinstance(operand, (bool, int, float, complex)) or type(operand).__name__ == "Ix":
        return scalar(operand, dtype)
    raise Unsupported(f"an operand of type {type(operand).__name__}")


def elementwise(
    ctx: Context,
    function: Callable[..., Node],
    *operands: Any,
    compute: torch.dtype | None = None,
) -> Value:
    """``function`` of the elements of the operands, cast to ``compute`` (the type of the result) and broadcast.

    An operand of half precision beside one of another type has no more digits than that.
    """
    out = ctx.dtype
    chosen = compute_type(out if compute is None else compute)
    wider = out.is_floating_point or out.is_complex
    given = [as_value(o, chosen) for o in operands]
    given = [as_stored(v) if wider and v.dtype is not out else v for v in given]
    _keep_repeated(ctx, given)
    values = broadcast(*given)
    return combine(values[0].sizes, out, lambda *nodes: function(*nodes), values, chosen)


def _keep_repeated(ctx: Context, operands: Sequence[Value]) -> None:
    """Put an operand into memory that is repeated outside of where it varies: loops would compute it in each turn.

    What is repeated inside of where it varies is computed ahead of the inner loop anyway, but one number at a time: if
    that loop is short, vectors of them are computed sooner on their own.
    """
    if all(value.place is not None for value in operands):
        return
    sizes = broadcast(*operands)[0].sizes
    order = list(range(len(sizes)))  # of the loops, outermost first
    strides = [s for s in ctx.strides() if type(s) is int]
    if len(strides) == len(order):
        order.sort(key=lambda d: -strides[d])
    for value in operands:
        if value.place is not None:
            continue
        own = (*(1 for _ in range(len(sizes) - value.rank)), *value.sizes)
        varies = [d for d, extent in enumerate(own) if not (type(extent) is int and extent == 1)]
        repeats = [d for d, extent in enumerate(sizes) if d not in varies and not (type(extent) is int and extent <= 1)]
        if not varies or not repeats or not _is_worth_a_pass(value, index.product(sizes[d] for d in repeats)):
            continue
        is_short = is_short_row(index.product(sizes[d] for d in repeats), value.numel)
        if min(map(order.index, repeats)) < max(map(order.index, varies)) or (
            is_short and ctx.program.device.type == "cpu"
        ):
            ctx.program.realize(value)


_OFTEN = 4


def _is_worth_a_pass(value: Value, times: Index) -> bool:
    """Whether a value is computed once, not so many times: a function is, and what data choose if it is often."""
    node = value.at(value.variables())
    if node.cost >= ONCE_COST:
        return True
    is_often = type(times) is not int or times >= _OFTEN
    return is_often and any(index.data_atoms(position) for _, position in node.loads)


def combine(
    sizes: Sequence[Index], out: torch.dtype, function: Callable[..., Node], values: Sequence[Value], dtype: torch.dtype
) -> Value:
    """A value of given sizes from values of the same sizes, whose elements are cast to ``dtype`` first."""

    def element(at: tuple[Index, ...]) -> Node:
        return ops.cast(function(*(ops.cast(v.at(at), dtype) for v in values)), out)

    return Value(sizes, out, element)


def as_stored(value: Value) -> Value:
    """A value with the precision that it has in memory."""
    if compute_type(value.dtype) is value.dtype or value.place is not None:
        return value

    def element(at: tuple[Index, ...]) -> Node:
        node = value.at(at)
        stored = node.op == "load" and node.attr[0].dtype is value.dtype
        return node if stored else ops.round_to(node, value.dtype)

    return Value(value.sizes, value.dtype, element)


def dims_of(dims: Any, rank: int) -> list[int]:
    """Dimensions as a list of numbers from 0; all if none are given.

    Raises:
        Unsupported: one is out of range, which torch's traced operators may not notice, and its others do.
    """
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return list(range(rank))
    if isinstance(dims, int):
        dims = [dims]
    if any(not -max(rank, 1) <= d < max(rank, 1) for d in dims):
        raise Unsupported("a dimension out of range")
    return sorted({d % rank for d in dims}) if rank else []
