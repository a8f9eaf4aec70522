"""Weights that are rounded for autocast."""

import pytest
import torch

from torchmux.backends.native import fingerprint
from torchmux.backends.native.targets.cpu.casting import casting


@pytest.mark.parametrize("threads", [1, 2])
def test_casts_are_torchs(threads):
    """Rows of all lengths and layouts, and numbers at the ends of each type."""
    cast = casting(fingerprint())
    assert cast is not None
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.manual_seed(0)
        weights = [torch.randn(n) * torch.randn(n).exp() * 1e3 for n in (0, 1, 5, 17, 1000, 70_000)]
        weights[4][:7] = torch.tensor([float("inf"), float("-inf"), float("nan"), -0.0, 1e-42, 6e-6, 3.4e38])
        weights += [torch.randn(8, 6).t(), torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)]
        weights.append(torch.randn(8, 6)[:, ::2])
        dtypes = [torch.bfloat16, torch.float16, torch.float64]
        casts = [torch.empty_like(weight, dtype=dtype) for dtype in dtypes for weight in weights]
        cast(casts, weights * len(dtypes))
    finally:
        torch.set_num_threads(before)
    for got, weight in zip(casts, weights * len(dtypes), strict=True):
        assert torch.equal(got.nan_to_num(7), weight.to(got.dtype).nan_to_num(7))
        assert torch.equal(got.isnan(), weight.isnan())
