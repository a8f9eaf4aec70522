"""``torchmux::attention`` on the CPU: torch's fused kernel, with the answers of attention written out.

For a row of scores with a nan, or with only -inf, torch's kernel returns zeros, but attention that is written out
returns nan.  The kernel also returns the logarithm of the sum of ``exp``, which is 0 for such rows.  The few other rows
for which it happens to be 0 are correct either way.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...rewrites import attention_operator  # noqa: F401  # which defines what is implemented here

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def _attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    query, key, value = (t if t.stride(-1) == 1 else t.contiguous() for t in (query, key, value))
    if mask is not None:
        mask = mask.expand(*query.shape[:3], key.shape[2])
    result, sums = _flash(query, key, value, 0.0, False, attn_mask=mask, scale=scale)
    lost = sums == 0
    if lost.any():
        scores = query @ key.transpose(-2, -1) * scale
        exact = (scores if mask is None else scores + mask).softmax(-1) @ value
        result.copy_(torch.where(lost.unsqueeze(-1), exact, result))
    return result, sums


def _gradients(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    result: Tensor,
    sums: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    if mask is not None:
        mask = mask.expand(*query.shape[:3], key.shape[2])
    found: tuple[Tensor, Tensor, Tensor] = _flash_backward(
        gradient, query, key, value, result, sums, 0.0, False, attn_mask=mask, scale=scale
    )
    return found


_library = torch.library.Library("torchmux", "FRAGMENT")
_library.impl("attention", _attention, "CPU")
_library.impl("attention_backward", _gradients, "CPU")
