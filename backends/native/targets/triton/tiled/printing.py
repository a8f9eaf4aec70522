"""The kernel of a product that is finished before it is stored.

Each program computes a tile of the result: it walks the terms block by block, multiplies the blocks by tensor cores,
and then evaluates what finishes the elements.  Tiles are taken in groups of rows, so that programs that run at the same
time share what they read of both operands; see
https://triton-lang.org/main/getting-started/tutorials/03-matrix-multiplication.html.
"""

from __future__ import annotations

from ....ir import index
from ....ir.expressions import Node
from ....ir.index import Var
from ....ir.products import FinishedProduct
from ....schedule.stages import Store
from ..axes import Axis
from ..printer import axis_of
from ..scopes import TritonKernel, Writer

_GROUP = 8
"""So many rows of tiles make a group."""


def print_product(step: FinishedProduct, name: str = "kernel") -> TritonKernel:
    """The Triton function of a step.

    Raises:
        Unsupported: an operation that has no spelling in Triton, with the reason.
    """
    rows, columns, terms = step.loops
    part = index.the_var(step.part)
    y, x = axis_of("y", (rows,), step.shapes), axis_of("x", (columns,), step.shapes)
    w = Writer(y, x)
    w.allow_rough([Store(step.finish.target, step.finish.position, step.finish.value)])
    _start(w, y, x, part)
    w.write("total = tl.zeros((YBLOCK, XBLOCK), tl.float32)")
    w.open()
    # Blocks of the operands have the axis of terms in place of one of the result's.
    left = w.beside(y, axis_of("k", (terms,), step.shapes))
    right = w.beside(axis_of("k", (terms,), step.shapes), x)
    w.write(f"left = {_block(left, left.axes[1], step.left)}")
    w.write(f"right = {_block(right, right.axes[0], step.right)}")
    w.write("total = fn.add_product(total, left, right)")
    w.close(f"for start in range(0, {step.terms}, KBLOCK):")
    w.stored[step.product, step.position] = "total"
    finish = step.finish
    value = w.name(finish.value)
    w.store(finish.target, finish.position, value, finish.value.dtype, finish.value.free | {rows, columns})
    return w.kernel(name, step.shapes)


def _start(w: Writer, y: Axis, x: Axis, part: Var | None) -> None:
    """The rows and columns of a program, and which part of the terms is its own."""
    w.write("program = tl.program_id(0)")
    w.write(f"down, across = tl.cdiv({w.index(y.total)}, YBLOCK), tl.cdiv({w.index(x.total)}, XBLOCK)")
    if part is not None:
        w.start(Axis("s", (part,), None, False), "program // (down * across)")
        w.write("program = program % (down * across)")
    w.write(f"first = program // ({_GROUP} * across) * {_GROUP}")
    w.write(f"together = tl.minimum(down - first, {_GROUP})")
    w.write(f"rest = program % ({_GROUP} * across)")
    w.start(y, "(first + rest % together) * YBLOCK")
    w.start(x, "(rest // together) * XBLOCK")


def _block(w: Writer, terms: Axis, operand: Node) -> str:
    """A block of an operand, as it is in memory."""
    w.walked = terms
    w.start(terms, "start")
    buffer, position = operand.attr
    masks = [*w.masks(w.axes), *(w.name(a) for a in operand.args)]
    mask = f", mask={' & '.join(masks)}, other=0" if masks else ""
    return f"tl.load({w.address(buffer, position, w.axes)}{mask})"
