"""What repeats over rows, over channels or over lanes is computed, or read, once."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F


def test_a_window_is_computed_once(capture) -> None:
    x, phases = torch.randn(4, 3000), torch.randn(400)

    def frames(x, phases):
        return x.unfold(-1, 400, 160) * torch.cos(phases * 0.5)

    captured = capture(frames, x, phases)
    compiled = captured.compile("native", strict=True)
    torch.testing.assert_close(captured.run(compiled, x, phases), frames(x, phases))
    (code,) = (text for text in compiled.report.output_code if "kernels.h" in text)
    bodies = re.split(r"NOINLINE static", code)[1:]
    (inside,) = (body for body in bodies if "m_cos" in body)
    assert "for (i64 row" not in inside


def test_a_gate_of_channels_in_channels_last(capture) -> None:
    x, gate = torch.randn(2, 16, 9, 9).to(memory_format=torch.channels_last), torch.randn(2, 16, 1, 1)
    captured = capture(lambda x, gate: x * gate.sigmoid(), x, gate)
    compiled = captured.compile("native", strict=True)
    got = captured.run(compiled, x, gate)
    torch.testing.assert_close(got, x * gate.sigmoid())
    assert got.stride() == x.stride()
    (code,) = (text for text in compiled.report.output_code if "kernels.h" in text)
    (inside,) = (body for body in re.split(r"NOINLINE static", code)[1:] if "m_exp" in body)
    assert "for (i64 row" not in inside


@pytest.mark.parametrize("shape", [(2, 32, 5, 7), (2, 12, 3, 3), (2, 64, 1, 9), (3, 24, 40)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_group_norm_over_adjacent_channels(capture, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(shape).movedim(1, -1).contiguous().movedim(-1, 1).to(dtype)
    weight, bias = torch.randn(2, shape[1]).to(dtype)
    groups = 4

    def norm(x, weight, bias):
        return F.group_norm(x * 2 + 100, groups, weight, bias)

    captured = capture(norm, x, weight, bias)
    got = captured.run(captured.compile("native", strict=True), x, weight, bias)
    expected, exact = norm(x, weight, bias), norm(*(t.double() for t in (x, weight, bias)))
    assert got.stride() == expected.stride()
    error, own = ((r.double() - exact).abs().max() for r in (expected, got))
    assert own <= 4 * error + torch.finfo(dtype).eps


def test_an_element_for_all_lanes_that_may_not_be_there(capture) -> None:
    """Rows are no multiple of a vector, and the one column that reads is the last."""
    x, column = torch.randn(5, 21), torch.randn(5)
    captured = capture(lambda x, column: x.select_scatter(column, 1, 20), x, column)
    got = captured.run(captured.compile("native", strict=True), x, column)
    assert torch.equal(got, x.select_scatter(column, 1, 20))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_log_sigmoid(capture, dtype: torch.dtype) -> None:
    x = torch.cat([torch.randn(50) * 30, torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan")])]).to(
        dtype
    )
    captured = capture(lambda x: F.logsigmoid(x), x)
    got = captured.run(captured.compile("native", strict=True), x)
    torch.testing.assert_close(got, F.logsigmoid(x), equal_nan=True)


def test_a_bias_that_data_choose_is_read_once(capture) -> None:
    """Each of many windows adds the same table of differences in position: it is gathered once, ahead of them."""
    scores, table, at = torch.randn(8, 2, 9, 9), torch.randn(25, 2), torch.randint(0, 25, (9, 9))

    def biased(scores, table, at):
        return (scores + table[at].permute(2, 0, 1)).softmax(-1)

    captured = capture(biased, scores, table, at)
    compiled = captured.compile("native", strict=True)
    torch.testing.assert_close(captured.run(compiled, scores, table, at), biased(scores, table, at))
    (code,) = (text for text in compiled.report.output_code if "kernels.h" in text)
    (inside,) = (body for body in re.split(r"NOINLINE static", code)[1:] if "m_exp" in body)
    assert "check" not in inside and "gather" not in inside
