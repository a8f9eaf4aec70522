"""The gradient of an embedding in half precision, of which few rows are not zero.

Each row is a sum in float32 of what its indices add, and rounded once.  torch's formula adds to a float32 matrix as
large as the embedding, and converts it: three times the memory of the result, most of which is zero.  Here, only as
many rows as there are indices are added up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

OP = torch.ops.aten.embedding_dense_backward.default
_HALF = (torch.bfloat16, torch.float16)

_SHARE = 2
"""An embedding has so many times more rows than there are indices, for this to be worth it."""


def of_few_rows(usual: Callable[..., Tensor]) -> dict[Any, Callable[..., Tensor]]:
    """The formula, by its operator; ``usual`` is torch's, for what is not in half precision on a CPU."""

    def embedding_dense_backward(grad: Tensor, indices: Tensor, rows: int, padding: int, by_frequency: bool) -> Tensor:
        count = indices.numel()
        is_half = grad.dtype in _HALF and grad.device.type == "cpu" and not by_frequency
        if not is_half or type(count) is not int or type(rows) is not int or not 0 < _SHARE * count <= rows:
            return usual(grad, indices, rows, padding, by_frequency)
        at = indices.reshape(-1).long()
        given = grad.reshape(count, grad.shape[-1]).float()
        if padding >= 0:
            given = given.masked_fill((at == padding).unsqueeze(-1), 0)
        # The last of the indices of a row stands for it.
        last = torch.ops.aten.index_put(at.new_zeros(rows), [at], torch.arange(count, device=at.device))[at]
        sums = torch.ops.aten.index_put(torch.zeros_like(given), [last], given, True)
        found = sums[last].to(grad.dtype)
        return torch.ops.aten.index_put(grad.new_zeros(rows, grad.shape[-1]), [at], found)

    return {OP: embedding_dense_backward}
