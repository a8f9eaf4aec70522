"""Prints kernels as C++ functions, in the shape that their loops were given."""

from __future__ import annotations

from ...schedule.stages import LoopNest
from .cpp import Function, KernelPrinter
from .cpp_columns import ColumnsPrinter
from .cpp_plain import PlainPrinter, is_plain
from .cpp_tiles import TilesPrinter


def print_kernel(nest: LoopNest) -> Function:
    """The C++ function of a kernel.  Equal kernels on other buffers have the same text."""
    if nest.by_columns:
        return ColumnsPrinter(nest).run()
    if nest.tile is not None:
        return TilesPrinter(nest).run()
    if is_plain(nest):
        return PlainPrinter(nest).run()
    return KernelPrinter(nest).run()
