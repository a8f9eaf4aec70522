"""Guards on cells: which of the functions that a trace has met share a variable with the frame."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from .. import breaks
from ..breaks import GraphBreak
from ..bytecode import cell_parameters, resume_origin
from ..capture.attempts import CellsNeeded
from ..guards.sources import Attr, Cell, CellContents, ClosureCell, Local, Source

if TYPE_CHECKING:
    from .tracer import Tracer


def guard_cells(
    tr: Tracer, cells: list[Source], shared_cells: list[tuple[Source, Cell]], changed: set[Source | None]
) -> None:
    """Whether other functions share the frame's cells, which matters if the trace has written to one of both.

    ``cells`` are those that it has met, and ``shared_cells`` other paths to those of the frame.
    A check sees the cells only where they are parameters.  Of variables with different names, none share a cell.
    """
    own = [source for source in cells if isinstance(source, Cell)]
    told: list[tuple[Source, Cell, bool]] = []
    for source, cell in shared_cells:
        if cell in changed:
            told.append((source, cell, True))
        else:
            tr.guards.same(Attr(source, "cell_contents"), CellContents(cell.name))
    for cell, other in itertools.product(own, cells):
        if isinstance(other, Cell) or not (cell in changed or other in changed):
            continue
        if not isinstance(other, ClosureCell) or other.name == cell.name:
            told.append((other, cell, False))
    if not told:
        return
    held = cell_parameters(tr.code)
    if told[0][1].name not in held:
        if resume_origin(tr.code) is not None:  # it reads its own frame, and would see them
            stop = GraphBreak(breaks.OPERATION, f"another function may share {told[0][1].name}, which is written")
            stop.whole_frame = True
            raise stop
        raise CellsNeeded
    for source, cell, shared in told:
        if shared:
            tr.guards.same(source, Local(held[cell.name]))
        else:
            tr.guards.distinct.append([source, Local(held[cell.name])])
