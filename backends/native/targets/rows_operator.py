"""The operator ``torchmux::mm_in_rows``: products of matrices whose sizes libraries do not like.

Libraries read and write rows in pieces of 16 bytes, and count rows, columns and terms in eights of two bytes.  A
product with 50,257 columns, the vocabulary of GPT-2, takes them several times as long as one with 50,256.  What is left
over of each size is therefore a product of its own.  The number of rows does not matter to them, unless the left matrix
is transposed.

Rows of the result may also follow each other without gaps, where few of them begin at a multiple of 16 bytes.  Every
fourth row, or every eighth, lies alike: these are a matrix whose rows are far apart, and all begin alike, so that a
library writes all but a few columns of it in pieces.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_library = torch.library.Library("torchmux", "FRAGMENT")
_library.define("mm_in_rows(Tensor left, Tensor right, int row, int unit) -> Tensor")

MM_IN_ROWS = torch.ops.torchmux.mm_in_rows.default
"""``left @ right``, two matrices, in rows that are ``row`` elements apart, by products of multiples of ``unit``.

``row`` is a multiple of ``unit``, or the number of columns.
"""


def _mm_in_rows(left: Tensor, right: Tensor, row: int, unit: int) -> Tensor:
    rows, columns = left.shape[0], right.shape[1]
    if row == columns and row % unit:
        return _without_gaps(left, right, unit)
    result = left.new_empty((rows, row))[:, :columns]
    for top, bottom in _pieces(rows, unit) if left.stride(0) == 1 else [(0, rows)]:
        for begin, end in _pieces(columns, unit):
            _write(left[top:bottom], right[:, begin:end], result[top:bottom, begin:end], unit)
    return result


def _without_gaps(left: Tensor, right: Tensor, unit: int) -> Tensor:
    columns = right.shape[1]
    result = left.new_empty((left.shape[0], columns))
    for begin in (0, columns - unit):  # more columns than are left over, whatever the row
        edge = left.new_empty((left.shape[0], unit))
        _write(left, right[:, begin : begin + unit], edge, unit)
        result[:, begin : begin + unit] = edge
    period = unit // math.gcd(columns, unit)
    for first in range(period):
        begin = -first * columns % unit
        end = columns - (columns - begin) % unit
        _write(left[first::period], right[:, begin:end], result[first::period, begin:end], unit)
    return result


def _pieces(extent: int, unit: int) -> list[tuple[int, int]]:
    """A multiple of ``unit``, and the rest."""
    even = extent - extent % unit
    return [(begin, end) for begin, end in ((0, even), (even, extent)) if begin < end]


def _write(left: Tensor, right: Tensor, result: Tensor, unit: int) -> None:
    """Write ``left @ right``; the sum of two products is rounded once."""
    first, *rest = _pieces(left.shape[1], unit)
    if not rest:
        torch.mm(left, right, out=result)
        return
    total = _exact(left, right, *first)
    for piece in rest:
        total += _exact(left, right, *piece)
    result.copy_(total)


def _exact(left: Tensor, right: Tensor, begin: int, end: int) -> Tensor:
    """The product of some terms, in float32."""
    left, right = left[:, begin:end], right[begin:end]
    if left.dtype is torch.float32:
        return left @ right
    if left.is_cuda:
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.float() @ right.float()


_library.impl("mm_in_rows", _mm_in_rows, "CompositeExplicitAutograd")
