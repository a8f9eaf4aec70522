"""``flex_attention`` in one graph, or left to eager."""

from __future__ import annotations

import pytest
import torch

import torchmux

flex = pytest.importorskip("torch.nn.attention.flex_attention")
BIAS = torch.linspace(-1, 1, 4)
TABLE = torch.linspace(-2, 2, 2 * 4 * 5 * 5).view(2, 4, 5, 5)
ALPHA = torch.tensor(0.3, dtype=torch.float64)


def causal(b, h, q, k):
    return q >= k


MASK = flex.create_block_mask(causal, None, None, 5, 5, device="cpu")


def relative(score, b, h, q, k):
    return score + (q - k) * 0.5


def by_head(score, b, h, q, k):
    return torch.where(q > k, score * BIAS[h], torch.tanh(score / 20.0) * 20.0)


def by_table(score, b, h, q, k):
    return score + TABLE[b, h, q, k]


def of_another_dtype(score, b, h, q, k):
    return score * ALPHA


def of_all_scores(score, b, h, q, k):
    return score - score.max()


CAPTURED = [relative, by_head, by_table, None]
LEFT = [of_another_dtype, of_all_scores]


def inputs(heads=4, dtype=torch.float32):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 5, n, 8, dtype=dtype).transpose(1, 2) for n in (4, heads, heads))
    return q, k, v.contiguous()


def attend(q, k, v, score_mod, mask, **more):
    return flex.flex_attention(q * 1.0, k, v, score_mod=score_mod, block_mask=mask, **more) * 2


@pytest.mark.filterwarnings("ignore:flex_attention called")
@pytest.mark.parametrize(
    "score_mod",
    [by_head, of_all_scores, *(pytest.param(f, marks=pytest.mark.slow) for f in (*CAPTURED[::2], None, LEFT[0]))],
    ids=lambda f: getattr(f, "__name__", "none"),
)
def test_flex_attention_is_as_in_eager(score_mod):
    compiled = torchmux.compile(attend, backend="aot_eager", fullgraph=score_mod in CAPTURED)
    q, k, v = inputs()
    for mask in (None, MASK):
        expected, found = (each(q, k, v, score_mod, mask) for each in (attend, compiled))
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()
    if score_mod not in CAPTURED:
        assert torchmux.report(compiled).break_count


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called")
def test_groups_of_heads_and_other_dtypes():
    compiled = torchmux.compile(attend, backend="eager", fullgraph=True, dynamic=False)
    for given in (inputs(heads=2), inputs(dtype=torch.float64), inputs(dtype=torch.bfloat16)):
        more = {"enable_gqa": given[1].shape[1] == 2, "scale": 0.2}
        torch.testing.assert_close(compiled(*given, relative, MASK, **more), attend(*given, relative, MASK, **more))
