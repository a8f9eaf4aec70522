"""Products that compute their right operand while they read it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import torchmux
from torchmux.backends.native.targets.cpu import computed

from ...conftest import Check

HALVES = [torch.bfloat16, torch.float16]
ROWS = [1, 3, 8, 9]


@pytest.fixture(autouse=True)
def without_units(monkeypatch) -> None:
    """As on a processor that has no instructions for half precision."""
    monkeypatch.setattr(computed, "has_units", lambda dtype: False)


def _assert_computed(report, count: int = 1) -> None:
    code = report.output_code[0]
    assert code.count("computed_product<") == count
    assert not any(word in code for word in ("gather(", "strided("))


@pytest.mark.parametrize("m", ROWS)
@pytest.mark.parametrize("transposed", [True, False])
def test_weights_of_integers(check: Check, m: int, transposed: bool) -> None:
    """Of sizes that leave a part of a vector, of columns and of depths."""
    n, k = 37, 451
    weight = torch.randint(-128, 127, (n, k) if transposed else (k, n), dtype=torch.int8)
    scale = torch.rand(n)

    def linear(x, weight, scale):
        return x @ (weight.t().to(x.dtype) if transposed else weight.to(x.dtype)) * scale

    _assert_computed(check(linear, torch.randn(m, k), weight, scale))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("m", [2, 40])
@pytest.mark.parametrize("transposed", [True, False])
def test_half_precision(check: Check, dtype: torch.dtype, m: int, transposed: bool) -> None:
    n, k = 75, 200
    weight = (torch.randn(n, k).t() if transposed else torch.randn(k, n)).to(dtype)
    bias = torch.randn(n).to(dtype)
    report = check(lambda x, w, b: F.gelu(torch.addmm(b, x, w)), torch.randn(m, k).to(dtype), weight, bias)
    _assert_computed(report)


@pytest.mark.parametrize("dtype", HALVES)
def test_products_of_a_batch(check: Check, dtype: torch.dtype) -> None:
    def heads(q, k, v):
        return torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v

    _assert_computed(check(heads, *(torch.randn(2, 3, 19, 64).to(dtype) for _ in range(3))), 2)


@pytest.mark.parametrize("m", [3, 50])
def test_a_scaled_weight(check: Check, m: int) -> None:
    _assert_computed(
        check(lambda x, w, s: F.linear(x, w * s[:, None]), torch.randn(m, 100), torch.randn(30, 100), torch.rand(30))
    )


def _unpacked(weight: torch.Tensor, scale: torch.Tensor, group: int, dtype: torch.dtype) -> torch.Tensor:
    """Numbers of 4 bits, two in a byte, with a scale for each group of them."""
    rows, half = weight.shape
    numbers = torch.stack((weight & 15, weight // 16), -1).view(rows, -1, group)
    return ((numbers.to(dtype) - 8) * scale[:, :, None]).view(rows, 2 * half)


@pytest.mark.parametrize("m", [1, 5, 20])
@pytest.mark.parametrize("group", [32, 48, 20])
def test_weights_of_four_bits(check: Check, m: int, group: int) -> None:
    """Of groups of whole vectors, of which the scale is read once, and of others; in tables of all numbers."""
    n, k = 21, 5 * group
    weight, scale = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8), torch.rand(n, k // group)

    def linear(x, weight, scale):
        return F.linear(x, _unpacked(weight, scale, group, x.dtype))

    report = check(linear, torch.randn(m, k), weight, scale)
    assert ("computed_product<" in report.output_code[0]) == (group % 32 == 0)
    assert ("splat(load(p3 + " in report.output_code[0]) == (group == 32)
    assert report.output_code[0].count("of_sixteen(") == (2 if group == 32 else 0)


def test_a_table_is_for_what_is_the_same_for_a_vector(check: Check) -> None:
    """Numbers of 4 bits that have a factor each are multiplied one by one."""
    weight, factor = torch.randint(0, 256, (21, 96), dtype=torch.uint8), torch.rand(21, 96)
    report = check(lambda x, w, s: x @ ((w & 15).to(x.dtype) * s - 8).t(), torch.randn(2, 96), weight, factor)
    _assert_computed(report)
    assert "of_sixteen(" not in report.output_code[0]


def test_unpacked_numbers_that_are_returned(check: Check) -> None:
    weight = torch.randint(0, 256, (6, 10), dtype=torch.uint8)
    check(lambda w: torch.stack((w & 15, w // 16), -1).view(6, 20) + 1, weight)
    check(lambda w: torch.stack(((w & 15).to(torch.int8), w.to(torch.int8)), -1), weight)


def test_a_scaled_weight_of_many_rows_is_written_as_it_lies(check: Check) -> None:
    report = check(lambda x, w: x @ (w * 2).t(), torch.randn(computed.MOST_ROWS + 1, 100), torch.randn(30, 100))
    _assert_computed(report, 0)


def test_nan_and_infinity_beyond_a_row_do_not_come_in(check: Check) -> None:
    """Lanes that are not there count as nothing, whatever the expression makes of 0."""
    check(lambda x, w: x @ (1 / w).t(), torch.randn(2, 21), torch.rand(19, 21) + 1)


def test_rows_with_gaps(check: Check) -> None:
    weight = torch.randint(-9, 9, (40, 64), dtype=torch.int8)
    check(lambda x, w: x[:, 5:69] @ w.t().to(x.dtype), torch.randn(6, 80), weight)
    check(lambda x, w: x.t() @ w.t().to(x.dtype), torch.randn(64, 6), weight)


def test_autocast() -> None:
    layer = torch.nn.Linear(96, 40)

    def run(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(x)

    x = torch.randn(7, 96)
    with torch.no_grad():
        compiled = torchmux.compile(run, backend="native")
        torch.testing.assert_close(compiled(x), run(x), rtol=0.01, atol=0.01)


def test_the_library_computes_all_products_where_asked(check: Check) -> None:
    weight = torch.randint(-9, 9, (40, 64), dtype=torch.int8)
    report = check(lambda x, w: x @ w.t().to(x.dtype), torch.randn(6, 64), weight, options={"matmul": "library"})
    _assert_computed(report, 0)


def test_dynamic_rows() -> None:
    """The number of rows is known in a call; each of these takes another way."""
    weight = torch.randn(24, 32).bfloat16()
    compiled = torchmux.compile(lambda x: x @ weight.t(), backend="native", dynamic=True)
    for m in (2, 3, 7, 30, 65):
        x = torch.randn(m, 32).bfloat16()
        torch.testing.assert_close(compiled(x), x @ weight.t(), rtol=0.01, atol=0.01)


def test_gradients_of_half_precision() -> None:
    layer = torch.nn.Linear(64, 48).bfloat16()
    x = torch.randn(20, 64).bfloat16().requires_grad_()
    found = []
    for run in (layer, torchmux.compile(layer, backend="native")):
        run(x).float().square().sum().backward()
        found.append([x.grad, layer.weight.grad, layer.bias.grad])
        x.grad = layer.weight.grad = layer.bias.grad = None
    for eager, native in zip(*found, strict=True):
        torch.testing.assert_close(native, eager, rtol=0.02, atol=0.05 * float(eager.abs().max()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rows_of_half_precision_that_a_table_names(dtype: torch.dtype) -> None:
    """They are gathered first, and multiplied by our kernel, not by a library without instructions for them."""

    def f(query: torch.Tensor, keys: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return torch.bmm(query, keys[table].flatten(1, 2).transpose(1, 2))

    torch.manual_seed(0)
    given = torch.randn(3, 1, 32).to(dtype), torch.randn(20, 8, 32).to(dtype), torch.randint(0, 20, (3, 4))
    compiled = torchmux.compile(f, backend="native")
    expected = torch.bmm(given[0].double(), given[1][given[2]].flatten(1, 2).transpose(1, 2).double())
    error = (compiled(*given).double() - expected).abs().max()
    assert error <= 1.01 * max((f(*given).double() - expected).abs().max(), torch.finfo(dtype).eps)
    assert torchmux.report(compiled).library_calls == []
