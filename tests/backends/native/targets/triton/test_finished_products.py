"""Products that a kernel of ours computes together with what follows."""

from __future__ import annotations

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
    x, w, v = torch.randn(2, 32, 24).half(), torch.randn(24, 64).half(), torch.randn(24, 64).half()
    rest, scale = torch.randn(2, 32, 64).half(), torch.rand(2, 32, 1).half()
    assert is_finished(check(lambda x, w, r, s: x @ w * s + r, x, w, rest, scale))
    assert is_finished(check(lambda x, w, r: (x @ w).view(2, 32, 4, 16).transpose(1, 2) + 1, x, w, rest))
    kernels, host = check(lambda x, w, v: F.silu(x @ w) * (x @ v), x, w, v).output_code
    assert kernels.count("fn.add_product(") == 1 and host.count("torch.mm(") == 1


WINDOWS = {
    "single pixels": ((2, 16, 9, 7), (24, 16, 1, 1), {}),
    "pixels apart": ((2, 16, 9, 7), (24, 16, 1, 1), {"stride": 2}),
    "three by three": ((2, 16, 5, 7), (16, 16, 3, 3), {"padding": 1}),
    "few channels": ((2, 3, 19, 17), (16, 3, 7, 7), {"padding": 3, "stride": 2}),
    "holes": ((1, 8, 12, 9), (16, 8, 3, 2), {"padding": (2, 1), "dilation": (2, 1), "stride": (1, 2)}),
}


@triton_only
@pytest.mark.parametrize("name", WINDOWS)
def test_convolutions(check, name, monkeypatch) -> None:
    monkeypatch.setattr(triton_target.Triton, "order_of_images", lambda *_: "channels last")
    monkeypatch.setattr(triton_target.Triton, "filters", lambda *_: False)
    images, weights, settings = WINDOWS[name]
    x = torch.randn(images).bfloat16().to(memory_format=torch.channels_last)
    weight, scale, shift = torch.randn(weights).bfloat16(), torch.rand(weights[0], 1, 1), torch.randn(weights[0], 1, 1)

    def block(x, w, a, b):
        return F.relu(F.conv2d(x, w, **settings) * a + b).bfloat16()

    def biased(x, w, a, b):
        return F.relu(F.conv2d(x, w, b, **settings)) * a.bfloat16()

    assert is_finished(check(block, x, weight, scale, shift))
    assert is_finished(check(biased, x, weight, scale, shift.flatten().bfloat16()))


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
