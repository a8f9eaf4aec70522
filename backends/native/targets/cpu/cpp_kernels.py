"""Prints kernels as C++ functions, in the shape that their loops were given."""

from __future__ import annotations

from ...schedule.stages import LoopNest
from .cpp import Function, KernelPrinter
from .cpp_columns import ColumnsPrinter
from .cpp_plain import PlainPrinter, is_plain
from .cpp_tiles import TilesPrinter


def print_kernel(nest: LoopNest, *, over_itself: bool = False) -> Function:
    """The C++ function of a kernel.  Equal kernels on other buffers have the same text.

    With ``over_itself`` a result lies where what it is made of does.
    """
    if nest.by_columns:
        return ColumnsPrinter(nest).run()
    if nest.tile is not None:
        return TilesPrinter(nest).run()
    if is_plain(nest) and not over_itself:  # plain loops store before they have read all
        return PlainPrinter(nest).run()
    return KernelPrinter(nest, over_itself=over_itself).run()
