"""Printing loops whose order matters as Triton: each lane walks its own, and lanes write to different places."""

from __future__ import annotations

from ...ir import index
from ...ir.index import Index
from ...ir.ordered_loops import Scan, Scatter
from .scopes import TYPES, TritonKernel, Writer, loaded

_LANES = 128


def print_ordered(step: Scan | Scatter, name: str = "kernel") -> TritonKernel:
    """The Triton function of a step.

    Raises:
        Unsupported: an operation that has no spelling in Triton, with the reason.
    """
    w = Writer()
    side_by_side, in_turn = (step.rows, (step.along,)) if isinstance(step, Scan) else (step.apart, step.serial)
    total = index.product(v.size for v in side_by_side)
    block = min(_LANES, 1 << (total - 1).bit_length()) if type(total) is int and total > 0 else _LANES
    w.write("point = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)")
    w.write(f"inside = point < {w.index(total)}")
    w.unflatten("point", side_by_side)
    w.varying = frozenset((*side_by_side, *in_turn))
    if isinstance(step, Scan):
        kind = TYPES[step.value.dtype]
        w.write(f"sum = tl.full((BLOCK,), {'0' if step.op == 'sum' else '1'}, {kind})")
    for variable in in_turn:
        w.open()
        w.loops[variable] = w.fresh("i")
    _body(step, w)
    for variable in reversed(in_turn):
        counter = f"{w.loops[variable]}_at"
        w.scopes[-1].lines.insert(0, f"{w.loops[variable]} = tl.zeros((BLOCK,), tl.int64) + {counter}")
        w.close(f"for {counter} in range(0, {w.index(variable.size)}):")
    return w.kernel(name, _programs(total, block), block)


def _programs(total: Index, block: int) -> Index:
    return index.floordiv(total + (block - 1), block)


def _body(step: Scan | Scatter, w: Writer) -> None:
    value = w.name(step.value)
    if isinstance(step, Scan):
        w.write(f"sum = sum {'+' if step.op == 'sum' else '*'} {value}")
        value = "sum"
    elif step.adds:
        place = w.address(step.target, step.position, by_lanes=True)
        old = loaded(f"tl.load({place}, mask=inside, other=0)", step.target.dtype)
        text, value = value, w.fresh()
        w.write(f"{value} = {old} + {text}")
    w.store(step.target, step.position, value, step.value.dtype, by_lanes=True)
    if isinstance(step, Scatter):
        w.write("tl.debug_barrier()")  # the next turn may read what this one stored
