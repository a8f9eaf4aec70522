"""Products of matrices in rows of any length."""

from __future__ import annotations

import pytest
import torch

from torchmux.backends.native.targets.rows_operator import MM_IN_ROWS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("columns", [256, 257, 258, 260, 263, 17])
@pytest.mark.parametrize("terms", [64, 67])
def test_rows_follow_each_other(dtype: torch.dtype, columns: int, terms: int) -> None:
    """Without gaps, whatever is left over of the rows, columns and terms."""
    torch.manual_seed(0)
    left, right = torch.randn(37, terms).to(dtype), torch.randn(columns, terms).to(dtype).t()
    unit = 16 // dtype.itemsize
    found = MM_IN_ROWS(left, right, columns, unit)
    assert found.is_contiguous() and found.shape == (37, columns)
    torch.testing.assert_close(found, (left.double() @ right.double()).to(dtype))
