"""The operator ``torchmux::attention`` and its gradient: what a target computes where a program writes attention out.

What they compute is attention as it is written out, ``softmax(query @ key.mT * scale + mask) @ value`` with scores in
float32 or better, nan where that has nan.  A target gives each the implementation of its devices
(``targets/cpu/attention_kernel.py``); this module knows shapes and gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_library = torch.library.Library("torchmux", "FRAGMENT")
_library.define("attention(Tensor query, Tensor key, Tensor value, Tensor? mask, float scale) -> (Tensor, Tensor)")
_library.define(
    "attention_backward(Tensor gradient, Tensor query, Tensor key, Tensor value, Tensor? mask, Tensor result, "
    "Tensor sums, float scale) -> (Tensor, Tensor, Tensor)"
)

ATTENTION = torch.ops.torchmux.attention.default
"""The result, in the shape of ``query``, and the logarithm of the sum of ``exp`` in each row, ``[batch, heads, rows]``.

Sizes are ``[batch, heads, rows, size]`` for ``query``, ``[batch, heads, columns, size]`` for ``key`` and ``value``;
``mask``, which is added, is broadcast to ``[batch, heads, rows, columns]``.  The rows of all heads lie side by side in
the result.
"""

ATTENTION_BACKWARD = torch.ops.torchmux.attention_backward.default
"""The gradients of query, key and value; ``result`` and ``sums`` are those of :data:`ATTENTION`."""


def _heads_side_by_side(like: Tensor) -> Tensor:
    batch, heads, rows, size = like.shape
    return like.new_empty((batch, rows, heads, size)).transpose(1, 2)


def _shapes(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    batch, heads, rows, _ = query.shape
    exact = query.dtype if query.dtype is torch.float64 else torch.float32
    return _heads_side_by_side(query), query.new_empty((batch, rows, heads), dtype=exact).transpose(1, 2)


def _shapes_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    result: Tensor,
    sums: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return _heads_side_by_side(query), _heads_side_by_side(key), _heads_side_by_side(value)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, mask, scale = inputs
    ctx.save_for_backward(query, key, value, mask, *output)
    ctx.scale = scale


def _backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Any, ...]:
    found = ATTENTION_BACKWARD(gradient, *ctx.saved_tensors, ctx.scale)
    return (*found, None, None)


torch.library.register_fake("torchmux::attention", _shapes, lib=_library)
torch.library.register_fake("torchmux::attention_backward", _shapes_backward, lib=_library)
torch.library.register_autograd("torchmux::attention", _backward, setup_context=_save, lib=_library)


def attend(
    query: Tensor, key: Tensor, value: Tensor, scale: float, bias: Tensor | None, blocked: Tensor | None, fill: float
) -> Tensor:
    """Attention whose scores have ``bias`` added, or are ``fill`` where ``blocked``, laid out as products are.

    Tensors of three dimensions are many heads of one batch.
    """
    if query.dim() == 3:
        query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
        return attend(query, key, value, scale, bias, blocked, fill).squeeze(0)
    mask = bias
    if blocked is not None:
        mask = torch.zeros(blocked.shape, dtype=query.dtype, device=query.device).masked_fill(blocked, fill)
    result, _ = ATTENTION(query, key, value, mask, scale)
    return result.contiguous()  # what reads it otherwise does so without a copy in between
