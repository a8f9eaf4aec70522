"""Printing loops whose order matters: running sums and products, and writing where data says.

Running sums are scans along an axis of a block, with what came before carried from block to block.  What is written to
places that may be the same is added by atomic operations: integers in any order, and floating-point numbers, too, as
torch's own ``index_add`` and ``scatter_add`` do on a GPU.  Where the order of rounding must not change
(``torch.use_deterministic_algorithms``), or there are no such operations, each lane walks its own places in order.
"""

from __future__ import annotations

import torch

from ...ir import index
from ...ir.index import Var
from ...ir.operations import Unsupported
from ...ir.ordered_loops import Scan, Scatter
from . import shapes
from .axes import Axis
from .printer import axis_of
from .scopes import TYPES, TritonKernel, Writer, loaded, stored, worst
from .shapes import Shape

_NEUTRAL = {"sum": "0", "prod": "1"}
_ATOMIC = (torch.float32, torch.float64, torch.int32, torch.int64)


def print_ordered(step: Scan | Scatter, name: str = "kernel") -> TritonKernel:
    """The Triton function of a step.

    Raises:
        Unsupported: an operation that has no spelling in Triton, with the reason.
    """
    if isinstance(step, Scan):
        return _scan(step, name)
    if step.combine not in ("", "add"):
        raise Unsupported(f"writes that are combined by {step.combine!r}")
    return _anywhere(step, name) if _may_mix(step) else _in_order(step, name)


# --- running sums -----------------------------------------------------------------------------------------------------


def _scan(step: Scan, name: str) -> TritonKernel:
    total = index.product(v.size for v in step.rows)
    found = shapes.scanned_rows(total, step.along.size)
    x, r = axis_of("x", step.rows, found), axis_of("r", (step.along,), found)
    if dict(found[0].blocks)["XBLOCK"] == 1:
        x.block, x.masked = None, False
        found = tuple(Shape(s.blocks[1:], s.warps, s.stages, s.programs) for s in found)
    w = Writer(x, r)
    if step.rows:
        w.start_programs([x])
    along = f"{r.place}, {len(w.blocks) > 1}"
    neutral = _NEUTRAL.get(step.op) or worst(step.value.dtype, step.op != "min")
    kind = TYPES[step.value.dtype]
    rest = w.shape([x]) if len(w.blocks) > 1 else "()"
    w.write(f"before = tl.full({rest}, {neutral}, {kind})")
    in_one = type(step.along.size) is int and step.along.size <= min(dict(s.blocks)["RBLOCK"] for s in found)
    if not in_one:
        w.open()
        w.walked = r
    w.start(r, "" if in_one else "start")
    value = w.whole(w.name(step.value), step.value)
    counted = f"tl.where({r.mask}, {value}, {neutral})" if r.masked else value
    w.write(f"block = fn.joined(before, fn.so_far({counted}, {step.op!r}, {r.place}).to({kind}), {step.op!r})")
    w.store(step.target, step.position, "block", step.value.dtype, step.value.free)
    if not in_one:
        w.write(f"before = fn.last(block, {w.lanes(r)}, RBLOCK, {along})")
        w.walked = None
        w.close(f"for start in range(0, {w.index(r.total)}, RBLOCK):")
    return w.kernel(name, found)


# --- writing where data says ------------------------------------------------------------------------------------------


def _may_mix(step: Scatter) -> bool:
    """Whether lanes may write at once, in any order."""
    if step.target in {b for b, _ in step.value.loads}:
        return False
    exact = not (step.adds and step.target.dtype.is_floating_point)
    if not step.serial:
        return True
    if not exact and torch.are_deterministic_algorithms_enabled():
        return False
    return step.target.dtype in _ATOMIC if step.adds else not torch.are_deterministic_algorithms_enabled()


def _anywhere(step: Scatter, name: str) -> TritonKernel:
    loops = (*step.serial, *step.apart)
    found = shapes.along_a_line(index.product(v.size for v in loops), 4)
    axis = axis_of("x", loops, found)
    w = Writer(axis)
    w.start_programs([axis])
    value = w.name(step.value)
    free = frozenset(loops)  # lanes that have the same place write to it each
    if step.adds and step.serial:
        place = w.address(step.target, step.position, [axis])
        whole = w.whole(value, step.value)
        mask = f", mask={axis.mask}" if axis.masked else ""
        w.write(f'tl.atomic_add({place}, {stored(whole, step.value.dtype, step.target.dtype)}{mask}, sem="relaxed")')
    else:
        w.store(step.target, step.position, _sum(step, w, value, free), step.value.dtype, free)
    return w.kernel(name, found)


def _in_order(step: Scatter, name: str) -> TritonKernel:
    """Each lane walks the loops in which places may meet."""
    found = shapes.along_a_line(index.product(v.size for v in step.apart), 4)
    axis = axis_of("x", step.apart, found)
    w = Writer(axis)
    w.start_programs([axis])
    turns = Axis("turn", step.serial, None, False)
    w.open()
    w.walked = turns
    w.start(turns, "at + tl.zeros((), tl.int64)")
    free = frozenset(step.apart)
    w.store(step.target, step.position, _sum(step, w, w.name(step.value), free), step.value.dtype, free)
    w.write("tl.debug_barrier()")  # the next turn may read what this one stored
    w.walked = None
    w.close(f"for at in range(0, {w.index(turns.total)}):")
    return w.kernel(name, found)


def _sum(step: Scatter, w: Writer, value: str, free: frozenset[Var]) -> str:
    """``value``, with the variables ``free``, added to what is there if the step adds."""
    if not step.adds:
        return value
    axes = w.axes_of(index.free(step.position) | free)  # none where a single lane writes
    place = w.address(step.target, step.position, axes)
    masks = w.masks(axes)
    old = f"tl.load({place}, mask={masks[0]}, other=0)" if masks else f"tl.load({place})"
    text = w.fresh()
    w.write(f"{text} = {loaded(old, step.target.dtype)} + {value}")
    return text
