"""The operator ``torchmux::attention``: torch's fused attention, with the answers of attention written out.

Where a row of scores has a nan, or nothing but -inf, torch's kernel makes zeros; written out, there is nan.  Such rows
are known by the logarithm of the sum of ``exp`` that the kernel says, which is 0 for them.  The few others for which it
happens to be 0 are right either way.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_library = torch.library.Library("torchmux", "FRAGMENT")
_library.define("attention(Tensor query, Tensor key, Tensor value, Tensor? mask, float scale) -> (Tensor, Tensor)")


def _attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    """The result, in the shape of ``query``, and the logarithms of the sums, ``[batch, heads, rows]``.

    Sizes are ``[batch, heads, rows, size]`` for ``query``, ``[batch, heads, columns, size]`` for ``key`` and ``value``;
    ``mask``, which is added, is broadcast to ``[batch, heads, rows, columns]``.
    """
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


def _shapes(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    batch, heads, rows, size = query.shape
    exact = query.dtype if query.dtype is torch.float64 else torch.float32
    result = query.new_empty((batch, rows, heads, size)).transpose(1, 2)
    return result, query.new_empty((batch, rows, heads), dtype=exact).transpose(1, 2)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, mask, scale = inputs
    ctx.save_for_backward(query, key, value, mask, *output)
    ctx.scale = scale


def _backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Any, ...]:
    query, key, value, mask, result, sums = ctx.saved_tensors
    if mask is not None:
        mask = mask.expand(*query.shape[:3], key.shape[2])
    found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        gradient, query, key, value, result, sums, 0.0, False, attn_mask=mask, scale=ctx.scale
    )
    return (*found, None, None)


_library.impl("attention", _attention, "CPU")
torch.library.register_fake("torchmux::attention", _shapes, lib=_library)
torch.library.register_autograd("torchmux::attention", _backward, setup_context=_save, lib=_library)


def attend(
    query: Tensor, key: Tensor, value: Tensor, scale: float, bias: Tensor | None, blocked: Tensor | None, fill: float
) -> Tensor:
    """Attention whose scores have ``bias`` added, or are ``fill`` where ``blocked``, laid out as products are."""
    mask = bias
    if blocked is not None:
        mask = torch.zeros(blocked.shape, dtype=query.dtype, device=query.device).masked_fill(blocked, fill)
    result, _ = torch.ops.torchmux.attention(query, key, value, mask, scale)
    return result.contiguous()  # what reads it otherwise does so without a copy in between
