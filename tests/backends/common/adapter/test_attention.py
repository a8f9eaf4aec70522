"""Fused attention by smaller operators: the numbers and strides of torch's kernel, forward and backward."""

from __future__ import annotations

import pytest
import torch

from torchmux.backends.common.adapter import attention

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def _mask(*shape):
    mask = torch.randn(*shape)
    mask[..., 1, :] = -torch.inf  # a row that sees nothing
    mask[..., 2, 3:] = -torch.inf
    return mask


@pytest.mark.parametrize(
    ("heads", "length", "causal", "mask", "scale"),
    [
        (4, 5, False, None, None),
        (4, 7, True, None, None),
        (4, 9, True, None, None),
        (4, 7, False, (2, 4, 5, 7), None),
        (4, 7, False, (2, 1, 5, 7), 0.3),
        (2, 7, True, None, None),
        (1, 7, False, (5, 7), None),
    ],
)
def test_torchs_kernel(heads, length, causal, mask, scale):
    torch.manual_seed(0)
    query = torch.randn(2, 4, 5, 8) if heads == 4 else torch.randn(2, 5, 4, 8).transpose(1, 2)
    key, value = torch.randn(2, heads, length, 8), torch.randn(2, heads, length, 8)
    named = {"attn_mask": None if mask is None else _mask(*mask), "scale": scale}
    expected = FORWARD(query, key, value, 0.0, causal, **named)
    found = attention.TABLE[FORWARD](query, key, value, 0.0, causal, **named)
    _assert_same(found, expected)
    grad = torch.randn_like(expected[0])
    given = (grad, query, key, value, *expected, 0.0, causal)
    _assert_same(attention.TABLE[BACKWARD](*given, **named), BACKWARD(*given, **named))


def _assert_same(found, expected):
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
        assert a.stride() == b.stride()


def test_dropout_stays():
    x = torch.randn(1, 2, 3, 4)
    assert attention.TABLE[FORWARD](x, x, x, 0.1) is NotImplemented
