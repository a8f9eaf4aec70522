"""Products that a kernel of ours computes together with what follows."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F

from torchmux.backends.native.targets.triton import target as triton_target
from torchmux.backends.native.targets.triton.tiled import choosing

triton_only = pytest.mark.parametrize("target", ["triton"], indirect=True)
HALVES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


@pytest.fixture(autouse=True)
def every_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that a test has time for are too small to be worth it."""
    monkeypatch.setattr(choosing, "by_model", lambda _: lambda found: [choosing.ways(each.step)[-1:] for each in found])


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of one operand have launches of their own."""
    monkeypatch.setattr(choosing, "_side_by_side", lambda *_: {})


def is_finished(report) -> bool:
    kernels, host = report.output_code
    return kernels.count("fn.add_product(") == 1 and "ops.aten" not in host


@triton_only
@HALVES
@pytest.mark.parametrize(("rows", "columns", "terms"), [(64, 48, 32), (70, 33, 16), (129, 130, 100)])
def test_bias_and_activation(check, dtype, rows, columns, terms) -> None:
    x, weight, bias = (torch.randn(s, dtype=dtype) for s in ((rows, terms), (columns, terms), (columns,)))
    assert is_finished(check(lambda x, w, b: F.gelu(F.linear(x, w, b)), x, weight, bias))


@triton_only
@pytest.mark.parametrize("turned", [False, True])
def test_operands_in_any_order(check, turned) -> None:
    x, y = torch.randn(48, 40).bfloat16(), torch.randn(40, 64).bfloat16()
    if turned:
        x, y = x.t().contiguous().t(), y.t().contiguous().t()
    assert is_finished(check(lambda x, y: torch.tanh(x @ y) * 2, x, y))
    assert is_finished(check(lambda x, y: torch.tanh(x[3:, 2:34] @ y[5:37, 1:]) * 2, x, y))


@triton_only
def test_rows_that_the_library_would_set_apart(check, monkeypatch) -> None:
    monkeypatch.setattr(triton_target, "_WORTH_A_COPY", 16)
    x, w = torch.randn(32, 24).half(), torch.randn(67, 24).half()
    assert is_finished(check(lambda x, w: x @ w.t(), x, w))
    assert is_finished(check(lambda x, w: torch.relu(x @ w.t()).view(2, 16, 67), x, w))


@triton_only
def test_what_is_read_besides(check) -> None:
    """A residual, a column, a row, other views of the result, and another product."""
    x, w = torch.randn(2, 32, 24).half(), torch.randn(24, 64).half()
    rest, scale = torch.randn(2, 32, 64).half(), torch.rand(2, 32, 1).half()
    assert is_finished(check(lambda x, w, r, s: x @ w * s + r, x, w, rest, scale))
    assert is_finished(check(lambda x, w, r: (x @ w).view(2, 32, 4, 16).transpose(1, 2) + 1, x, w, rest))


@triton_only
def test_another_product_is_read(check, alone) -> None:
    x, w, v = torch.randn(2, 32, 24).half(), torch.randn(24, 64).half(), torch.randn(24, 64).half()
    kernels, host = check(lambda x, w, v: F.silu(x @ w) * (x @ v), x, w, v).output_code
    assert kernels.count("fn.add_product(") == 1 and host.count("torch.mm(") == 1


@triton_only
def test_products_of_one_operand_are_one_launch(check) -> None:
    """Queries, keys and values: with biases or without, of other sizes, and read in several places."""
    x = torch.randn(2, 16, 24).half()
    wide, narrow, bias = torch.randn(64, 24).half(), torch.randn(32, 24).half(), torch.randn(64).half()

    def three(x, wide, narrow, bias):
        q, k, v = F.linear(x, wide, bias), F.linear(x, narrow), F.linear(x, wide)
        half = torch.cat((-q[..., 32:], q[..., :32]), -1)
        return (q * 2 + half).view(2, 16, 2, 32).transpose(1, 2), k.transpose(1, 2), torch.tanh(v)

    kernels, host = check(three, x, wide, narrow, bias).output_code
    assert "ops.aten" not in host and kernels.count("if (program >= ") == 3 and host.count("launch(") == 2


@triton_only
def test_a_product_of_the_group_is_read_by_another(check) -> None:
    x, w, v = torch.randn(32, 24).half(), torch.randn(24, 64).half(), torch.randn(24, 64).half()
    kernels, host = check(lambda x, w, v: F.silu(x @ w) * (x @ v), x, w, v).output_code
    assert kernels.count("if (program >= ") == 2 and host.count("launch(") == 2


@triton_only
def test_a_group_whose_operand_changes(check) -> None:
    def function(x, w, v):
        y = x @ w
        x.mul_(2)
        return y, x @ v, torch.relu(x @ w)

    check(function, torch.randn(32, 24).half(), torch.randn(24, 64).half(), torch.randn(24, 64).half())


WINDOWS = {
    "single pixels": ((2, 16, 9, 7), (24, 16, 1, 1), {}),
    "pixels apart": ((2, 16, 9, 7), (24, 16, 1, 1), {"stride": 2}),
    "three by three": ((2, 16, 5, 7), (16, 16, 3, 3), {"padding": 1}),
    "few channels": ((2, 3, 19, 17), (16, 3, 7, 7), {"padding": 3, "stride": 2}),
    "holes": ((1, 8, 12, 9), (16, 8, 3, 2), {"padding": (2, 1), "dilation": (2, 1), "stride": (1, 2)}),
    "a sequence": ((2, 16, 37), (24, 16, 3), {"padding": 2, "dilation": 2, "stride": 2}),
}


@triton_only
@pytest.mark.parametrize("name", WINDOWS)
def test_convolutions(check, name, monkeypatch) -> None:
    monkeypatch.setattr(triton_target.Triton, "order_of_images", lambda *_: "channels last")
    monkeypatch.setattr(triton_target.Triton, "filters", lambda *_: False)
    images, weights, settings = WINDOWS[name]
    convolution = F.conv2d if len(images) == 4 else F.conv1d
    x = torch.randn(images).bfloat16().movedim(1, -1).contiguous().movedim(-1, 1)
    weight, (scale, shift) = torch.randn(weights).bfloat16(), torch.rand(2, weights[0], *[1] * (len(images) - 2))

    def block(x, w, a, b):
        return by_channels(F.relu(convolution(x, w, **settings) * a + b).bfloat16())

    def biased(x, w, a, b):
        return by_channels(F.relu(convolution(x, w, b, **settings)) * a.bfloat16())

    def by_channels(y):
        return y if len(images) == 4 else y.transpose(1, 2).contiguous()

    assert is_finished(check(block, x, weight, scale, shift))
    assert is_finished(check(biased, x, weight, scale, shift.flatten().bfloat16()))


@triton_only
def test_the_bias_of_a_convolution_is_added_where_its_result_is_read(check) -> None:
    """cuDNN's caller adds it in a pass of its own; what is returned and read by torch gets one of ours."""
    x, y = torch.randn(2, 4, 6, 6), torch.randn(2, 8, 14).transpose(1, 2).contiguous().transpose(1, 2)
    bias = torch.randn(8)

    def images(x, first, second, bias):
        y = F.conv2d(F.gelu(F.conv2d(x, first, bias)), second, bias)
        return F.conv_transpose2d(y, second, bias, stride=2)

    def sequences(x, weight, bias):
        return F.conv1d(F.silu(x), weight, bias, groups=2) * 2

    for function, calls, *arguments in (
        (images, 3, x, torch.randn(8, 4, 3, 3), torch.randn(8, 8, 3, 3), bias),
        (sequences, 1, y, torch.randn(8, 4, 3), bias),
    ):
        report = check(function, *arguments)
        host = report.output_code[1]
        assert [call.library for call in report.library_calls] == ["aten.convolution.default"] * calls
        assert len(re.findall(r"convolution\([^()]*, None, ", host)) == calls, host


@triton_only
def test_statements_that_follow_each_other(check, monkeypatch) -> None:
    """Normalization, a residual and an activation are one kernel with the last convolution of a block."""
    monkeypatch.setattr(triton_target.Triton, "order_of_images", lambda *_: "channels last")
    x = torch.randn(2, 16, 4, 4).bfloat16().to(memory_format=torch.channels_last)
    weight, (mean, scale, shift), var = torch.randn(16, 16, 1, 1).bfloat16(), torch.randn(3, 16), torch.rand(16) + 0.5

    def block(x, w, mean, var, scale, shift):
        return F.relu(F.batch_norm(F.conv2d(x, w), mean, var, scale, shift) + x)

    kernels, _ = check(block, x, weight, mean, var, scale, shift).output_code
    assert kernels.count("fn.add_product(") == 1 and kernels.count("tl.store(") <= 2  # and the factor of each channel


@triton_only
def test_what_stays_with_the_library(check) -> None:
    """Products that something else needs, of float32, too small ones, and such that a reduction takes up."""
    x, w = torch.randn(32, 24).half(), torch.randn(24, 64).half()

    def dots(function, *args) -> int:
        return "".join(check(function, *args).output_code).count("fn.add_product(")

    assert not dots(lambda x, w: (y := x @ w, torch.relu(y)), x, w)
    assert not dots(lambda x, w: torch.relu(x @ w), x.float(), w.float())
    assert not dots(lambda x, w: torch.relu(x @ w), x[:8], w)
    assert not dots(lambda x, w: torch.softmax(x @ w * 2, -1), x, w)
    assert not dots(lambda x, w: torch.relu(x @ w), x.expand(3, 32, 24).clone(), w.expand(3, 24, 64).clone())


@triton_only
def test_an_operand_that_changes_before_it_is_finished(check) -> None:
    def function(x, w):
        y = x @ w
        z = torch.relu(y + 1)
        x.add_(1)
        return z

    check(function, torch.randn(32, 24).half(), torch.randn(24, 64).half())


@triton_only
@pytest.mark.parametrize("options", [{"matmul": "library"}, {"fusion": False}, {"epilogue_fusion": False}], ids=str)
def test_what_the_program_asks_for(check, options) -> None:
    x, w = torch.randn(32, 24).half(), torch.randn(24, 64).half()
    report = check(lambda x, w: torch.relu(x @ w), x, w, options=options)
    assert "fn.add_product(" not in "".join(report.output_code)


@triton_only
@HALVES
def test_terms_are_divided_among_programs(check, dtype) -> None:
    """The kernel that normalizes adds the parts; an odd number of rows, and a weight in either order."""
    x, residual = torch.randn(2, 17, 768, dtype=dtype), torch.randn(2, 17, 40, dtype=dtype)
    weight, bias = torch.randn(40, 768, dtype=dtype) / 28, torch.randn(40, dtype=dtype)

    def block(x, weight, bias, residual):
        return F.layer_norm(F.linear(x, weight, bias) + residual, (40,))

    def turned(x, weight, bias, residual):
        return F.layer_norm(x @ weight.view(768, 40) + bias + residual, (40,))

    for function in (block, turned):
        kernels, host = check(function, x, weight, bias, residual).output_code
        assert "ops.aten" not in host and kernels.count("program // (down * across)") == 1
        assert host.count("launch(") == 2


@triton_only
def test_terms_of_a_convolution_are_divided(check, monkeypatch) -> None:
    monkeypatch.setattr(triton_target.Triton, "order_of_images", lambda *_: "channels last")
    monkeypatch.setattr(triton_target.Triton, "filters", lambda *_: False)
    x, weight = torch.randn(2, 64, 5, 6).half().to(memory_format=torch.channels_last), torch.randn(16, 64, 3, 3).half()
    kernels, host = check(lambda x, w: F.conv2d(x, w / 24, padding=1).mean((2, 3)), x, weight).output_code
    assert "ops.aten" not in host and kernels.count("program // (down * across)") == 1


@triton_only
def test_what_is_not_divided(check) -> None:
    """What another product reads, and what is returned."""
    x, w = torch.randn(34, 768).half(), torch.randn(768, 40).half() / 28
    for function in (
        lambda x, w: (y := x @ w, y.sum(1)),
        lambda x, w: x @ w @ w.view(40, 768),
    ):
        assert "program // (down * across)" not in "".join(check(function, x, w).output_code)


@triton_only
def test_rows_that_begin_at_any_place(check) -> None:
    """A library would write the logits of an odd vocabulary one by one; returned, and read by torch."""
    x, w = torch.randn(33, 24).half(), torch.randn(67, 24).half()
    assert is_finished(check(lambda x, w: x @ w.t(), x, w))
    check(lambda x, w: x @ w.t() @ w, x, w)


@triton_only
def test_a_bias_that_parts_share_is_added_once(check) -> None:
    """Queries, keys and values of one product are views of it, and nothing copies them."""
    x, weight, bias = torch.randn(2, 16, 24).half(), torch.randn(72, 24).half(), torch.randn(72).half()

    def attention(x, weight, bias):
        q, k, v = F.linear(x, weight, bias).reshape(2, 16, 3, 2, 12).permute(2, 0, 3, 1, 4).unbind(0)
        return F.scaled_dot_product_attention(q, k, v)

    _, host = check(attention, x, weight, bias).output_code
    assert host.count("launch(") <= 1
