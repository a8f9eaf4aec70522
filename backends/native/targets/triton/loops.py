"""Planning the loops of a kernel for a GPU: what its stages compute again, and what they read back.

Memory is slow beside arithmetic: a later stage computes again what an earlier one has computed.  Where a row stays in
registers through all stages, the printer finds that it has the value, and nothing is computed twice.
"""

from __future__ import annotations

from ...ir.expressions import Buffer
from ...schedule import stages
from ...schedule.kernel import Kernel
from ...schedule.stages import LoopNest

_AGAIN = 200
"""What costs more is kept, in registers or in memory."""
_KEPT = 64 * 1024


def plan(kernel: Kernel, needed: set[Buffer]) -> LoopNest:
    """Arrange ``kernel``; ``needed`` are the buffers that something else reads."""
    nest = stages.plan(kernel, needed, 0, _AGAIN)
    if any(b.over is not None for b in kernel.writes) and not stages.reads_before_writing(nest):
        return stages.plan(kernel, needed, _KEPT)
    return nest
