"""The operator ``torchmux::mm_in_rows``: a product of matrices whose rows have gaps between them.

Libraries read and write rows in pieces of 16 bytes.  A product with 50,257 columns of two bytes, the vocabulary of
GPT-2, takes them several times as long as one whose rows start at multiples of 16 bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor

_library = torch.library.Library("torchmux", "FRAGMENT")
_library.define("mm_in_rows(Tensor left, Tensor right, int row) -> Tensor")

MM_IN_ROWS = torch.ops.torchmux.mm_in_rows.default
"""``left @ right``, two matrices, in rows that are ``row`` elements apart."""


def _mm_in_rows(left: Tensor, right: Tensor, row: int) -> Tensor:
    rows, columns = left.shape[0], right.shape[1]
    return torch.mm(left, right, out=left.new_empty((rows, row))[:, :columns])


_library.impl("mm_in_rows", _mm_in_rows, "CompositeExplicitAutograd")
