"""Numbers far from one and nan, in compilers whose own functions lose them."""

from __future__ import annotations

import importlib.util
import math

import pytest
import torch
import torch.nn.functional as F

import torchmux
from torchmux.backends.common.adapter import results

pytestmark = pytest.mark.sampled(2)

FOREIGN = [
    pytest.param(name, marks=pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"needs {module}"))
    for name, module in (("onnxrt", "onnxruntime"), ("openvino", "openvino"), ("tvm", "tvm"))
]
X = torch.tensor([1e-10, -1e-10, 1e-4, 0.3, -0.3, -20.0, -60.0, 60.0, 2.0, -1.5])


def small_results(x):
    ones = torch.sigmoid(x), torch.log1p(x * 0.01), torch.expm1(x), torch.erf(x), F.softplus(x), torch.logaddexp(x, -x)
    return (*ones, F.elu(x), F.selu(x), F.mish(x), F.silu(x), F.logsigmoid(x))


@pytest.mark.parametrize("backend", FOREIGN)
def test_small_results_keep_their_digits(capture, backend) -> None:
    captured = capture(small_results, X)
    compiled = captured.compile(backend)
    assert compiled.report.share > 0.95 or backend == "tvm"
    for got, wanted in zip(captured.run(compiled, X), small_results(X.double()), strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=2e-6, atol=1e-37)


@pytest.mark.parametrize("backend", FOREIGN)
def test_results_of_mish_whose_factors_are_too_small_for_normal_numbers(capture, backend) -> None:
    x = torch.tensor([-90.0, -88.0, -100.0, -1e20, 1e20, math.inf, -math.inf, math.nan, 0.0, 1e-38, 20.0, 20.1])
    captured = capture(lambda x: F.mish(x), x)
    wanted = F.mish(x.double()).float()
    got = captured.run(captured.compile(backend), x)
    torch.testing.assert_close(got, wanted, rtol=2e-6, atol=2e-38, equal_nan=True)


@pytest.mark.parametrize("backend", ["native", *FOREIGN])
def test_softmax_of_a_scalar_that_is_not_finite(backend) -> None:
    def f(x):
        return x.softmax(0), x.log_softmax(0), F.softmin(x, 0)

    compiled = torchmux.compile(f, backend=backend)
    for number in (math.nan, math.inf, -math.inf, 2.0):
        torch.testing.assert_close(compiled(torch.tensor(number)), f(torch.tensor(number)), equal_nan=True)


SPREADS = {
    "std": lambda x: x.std(),
    "var": lambda x: x.var(),
    "a correction": lambda x: x.std(correction=3),
    "none": lambda x: x.std(unbiased=False),
    "of dimensions": lambda x: x.std((0, 1), keepdim=True),
    "of rows": lambda x: torch.var_mean(x, 1, correction=2)[0],
}


@pytest.mark.parametrize("backend", FOREIGN)
@pytest.mark.parametrize("name", SPREADS)
def test_the_correction_of_a_spread_counts(backend, name) -> None:
    """Also where it makes a difference that the check of compiled code allows."""
    x = torch.randn(83, 97)
    compiled = torchmux.compile(SPREADS[name], backend=backend)
    torch.testing.assert_close(compiled(x).double(), SPREADS[name](x.double()), rtol=3e-6, atol=0)


SLOPES = {
    name: getattr(F, name)
    for name in (
        "relu6", "hardtanh", "hardswish", "hardsigmoid", "elu", "celu", "selu", "leaky_relu", "softplus", "softshrink",
        "logsigmoid", "tanhshrink", "softsign",
    )
} | {
    "threshold": lambda x: F.threshold(x, 0.2, -1.0),
    "hardtanh of others": lambda x: F.hardtanh(x, -0.5, 3.0),
    "elu of 2": lambda x: F.elu(x, 2.0),
    "elu in place": lambda x: F.elu(x.mul(1.0), 0.5, inplace=True),
}  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("backend", ["native", *FOREIGN])
@pytest.mark.parametrize("name", SLOPES)
def test_slopes_at_kinks_and_of_nan(backend, name) -> None:
    """Eager's kernels process the end of a tensor otherwise than whole vectors, so that there are many of each."""
    numbers = [math.nan, math.inf, -math.inf, 0.0, -0.0, 0.2, *(s * n for s in (1, -1) for n in (0.5, 1, 3, 6, 20, 90))]

    def slope(function):
        x = torch.tensor(numbers).repeat_interleave(64).requires_grad_()
        y = function(x)
        return torch.autograd.grad(y, x, torch.linspace(1, 2, len(y)))[0]

    with torchmux.config.patch(fail_on_compiler_errors=True):
        got = slope(torchmux.compile(SLOPES[name], backend=backend))
    torch.testing.assert_close(got, slope(SLOPES[name]), equal_nan=True)


@pytest.mark.parametrize("backend", FOREIGN)
@pytest.mark.parametrize("dim", [0, -1, None])
@pytest.mark.parametrize("keep", [False, True])
def test_the_dimension_of_a_scalar(backend, dim, keep) -> None:
    def f(x):
        if dim is None:
            return x.sum(), x.mean(), x.exp()
        return x.sum(dim, keepdim=keep), x.mean(dim, keepdim=keep), x.exp().sum((dim,), keepdim=keep)

    x = torch.tensor(0.3)
    with torchmux.config.patch(fail_on_compiler_errors=True):
        got = torchmux.compile(f, backend=backend)(x)
    torch.testing.assert_close(got, f(x))


@pytest.mark.parametrize("backend", FOREIGN)
@pytest.mark.parametrize("pool", [F.adaptive_avg_pool1d, F.avg_pool1d, F.max_pool1d, F.adaptive_max_pool1d])
@pytest.mark.parametrize("shape", [(8, 8), (2, 3, 8)])
def test_pooling_without_a_batch(backend, pool, shape) -> None:
    x = torch.randn(shape)
    with torchmux.config.patch(fail_on_compiler_errors=True):
        got = torchmux.compile(lambda x: pool(x, 4), backend=backend)(x)
    torch.testing.assert_close(got, pool(x, 4))


def test_nan_in_tvm(capture) -> None:
    pytest.importorskip("tvm")

    def f(x, y):
        same = x == x, x != x, x != y
        return (
            *same,
            x.relu(),
            x.clamp(-1, 1),
            x.clamp(min=0),
            torch.maximum(x, y),
            torch.minimum(x, y),
            F.hardtanh(x),
        )

    x = torch.tensor([math.nan, 1.0, -math.inf, math.inf, -2.0])
    captured = capture(f, x, x.flip(0))
    compiled = captured.compile("tvm", strict=True)
    for got, wanted in zip(captured.run(compiled, x, x.flip(0)), f(x, x.flip(0)), strict=True):
        assert torch.equal(got.nan_to_num(7.0), wanted.nan_to_num(7.0)), (got, wanted)


@pytest.mark.parametrize("backend", FOREIGN)
def test_nan_through_operators_that_are_spelled_otherwise(capture, backend) -> None:
    """Each of these reads the result of another, so that their rewritten forms meet."""

    def f(x):
        wide = torch.maximum(x.exp(), x.erf()).clamp(0, 2)
        return x.exp() > 1, wide >= x.erf(), F.layer_norm(x, (4,)).exp() > 0.5, F.hardtanh(wide).clamp_min(0.5) > 0.7

    x = torch.tensor([[math.nan, 1.0, 2.0, -1.0], [3.0, -2.0, 0.5, 0.0]])
    captured = capture(f, x)
    compiled = captured.compile(backend, strict=True)
    for got, wanted in zip(captured.run(compiled, x), f(x), strict=True):
        assert torch.equal(got, wanted)


def softmax(x):
    powers = (x - x.amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


def softmax_with_empty_rows(x):
    """As torch spells out the one inside attention: zeros where all is minus infinity."""
    most = x.amax(-1, keepdim=True)
    empty = most == -math.inf
    powers = (x - most.masked_fill(empty, 0.0)).exp()
    return powers / powers.sum(-1, keepdim=True).masked_fill(empty, 1.0)


def by_zeros(x):
    zeros, half = torch.zeros(4), torch.zeros_like(x)[:2]
    return x / zeros, 1 / zeros, x * zeros, zeros.reciprocal() * 2, zeros / zeros, half / half + 1, (x - x) / zeros


@pytest.mark.parametrize("backend", FOREIGN)
def test_zeros_that_a_compiler_sees(capture, backend) -> None:
    """TVM would fold them: a product to zero, nan or not; a division ends the process."""
    x = torch.tensor([1.0, -2.0, math.nan, math.inf])
    captured = capture(by_zeros, x)
    for got, wanted in zip(captured.run(captured.compile(backend), x), by_zeros(x), strict=True):
        torch.testing.assert_close(got, wanted, equal_nan=True)


def cancelling(x):
    both = (x + 1) - (x + 1), (x - x) * 0.5 + 1, (x - x).sum(), x + 1 - x, (x - x) / x, x * 1e38 * 10 - x * 1e38 * 10
    return *both, (x[:2] + 12582912.0) - 12582912.0


@pytest.mark.parametrize("backend", ["native", *FOREIGN])
@pytest.mark.parametrize("batch", [2, 40])
def test_what_cancels_in_algebra_and_not_in_floats(capture, backend, batch) -> None:
    x = torch.tensor([1.3, -2.6, math.nan, math.inf]).repeat(batch)
    captured = capture(cancelling, x)
    for got, wanted in zip(captured.run(captured.compile(backend), x), cancelling(x), strict=True):
        torch.testing.assert_close(got, wanted, equal_nan=True)


DIVISIONS = [
    lambda x, y: x // y,
    lambda x, y: x % y,
    lambda x, y: x.fmod(y),
    lambda x, y: x.div(y, rounding_mode="trunc"),
    lambda x, y: x // torch.zeros_like(y),
]


@pytest.mark.parametrize("backend", ["native", *FOREIGN])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_integers_divided_by_zero_are_an_error_as_in_torch(capture, backend, dtype) -> None:
    """A processor would end the process."""
    x, y = torch.arange(1, 21, dtype=dtype), torch.arange(20, dtype=dtype)
    for divide in DIVISIONS:
        captured = capture(divide, x, y)
        compiled = captured.compile(backend)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            captured.run(compiled, x, y)


@pytest.mark.parametrize("backend", FOREIGN)
def test_the_lowest_integer_divided_by_minus_one(capture, backend) -> None:
    x, y = torch.full((4,), -(2**63)), torch.full((4,), -1)
    captured = capture(DIVISIONS[0], x, y)
    assert torch.equal(captured.run(captured.compile(backend), x, y), x // y)


@pytest.mark.parametrize("backend", FOREIGN)
@pytest.mark.parametrize("f", [softmax, softmax_with_empty_rows])
def test_the_maximum_in_a_softmax(capture, backend, f) -> None:
    """It need not see nan, which the difference has: so a softmax that is spelled out stays in one piece."""

    x = torch.tensor(
        [[math.nan, 1.0, 2.0], [math.inf, 1.0, 2.0], [-math.inf, 1.0, 2.0], [-math.inf] * 3, [math.nan] * 3]
    )
    captured = capture(f, x)
    # The maximum of nothing but minus infinity is no infinity in OpenVINO.
    compiled = captured.compile(backend, strict=backend != "openvino" or f is softmax)
    torch.testing.assert_close(captured.run(compiled, x), f(x), equal_nan=True)


def test_what_is_wrong_in_corners_goes_to_torch(capture) -> None:
    pytest.importorskip("onnxruntime")
    x, y = torch.tensor([3.0, math.inf, -0.0]), torch.tensor([math.inf, 2.0, 1.0])
    functions = (
        lambda x, y: torch.remainder(x, y), lambda x, y: torch.fmod(x, y), lambda x, y: torch.floor_divide(x, y),
        lambda x, y: torch.atan2(x, y),
    )  # fmt: skip
    for function in functions:
        captured = capture(function, x, y)
        compiled = captured.compile("onnxrt")
        torch.testing.assert_close(captured.run(compiled, x, y), function(x, y), equal_nan=True)
        assert compiled.report.share == 0.0


@pytest.mark.parametrize("backend", FOREIGN)
def test_elements_by_address(capture, backend) -> None:
    """``as_strided`` of a tensor that lies in another order than a runtime would have it, as Longformer's windows."""

    def f(x):
        transposed = (x * 2).transpose(0, 1)
        within = (x * 2).as_strided((3, 2), (2, 2), 1)
        return transposed.as_strided((5, 3), (4, 1)).exp(), (x * 2)[1:].as_strided((2, 2), (2, 1), 0) + 1, within + 1

    x = torch.randn(4, 5)
    captured = capture(f, x)
    compiled = captured.compile(backend)
    for got, wanted in zip(captured.run(compiled, x), f(x), strict=True):
        torch.testing.assert_close(got, wanted)
    assert [p.reason for p in compiled.report.fallbacks] == [
        "it selects elements by their position in torch's memory"
    ] * 5


@pytest.mark.parametrize("backend", FOREIGN)
def test_elements_by_address_of_a_view_that_a_runtime_uses_too(capture, backend) -> None:
    """The slice starts in the middle of what it is a slice of, and the address is of that."""

    def f(x):
        part = (x * 2)[1:].view(-1)
        return part.as_strided((2, 2), (2, 1), 0) + 1, part.exp()

    x = torch.randn(4, 5)
    captured = capture(f, x)
    compiled = captured.compile(backend)
    for got, wanted in zip(captured.run(compiled, x), f(x), strict=True):
        torch.testing.assert_close(got, wanted)
    assert {p.reason for p in compiled.report.fallbacks} == {"it selects elements by their position in torch's memory"}


@pytest.mark.parametrize("backend", FOREIGN)
def test_results_with_gaps_have_the_strides_of_eager(capture, backend) -> None:
    """Slices and expanded tensors, whose memory is not all theirs."""

    def f(x):
        y = x * 2 + 1
        row = x.sum(0, keepdim=True).exp()
        return y[:, 1:], (x + 1)[::2], row.expand(4, 5), (x - 1).t()[1:], y.exp()

    x = torch.randn(4, 5)
    captured = capture(f, x)
    compiled = captured.compile(backend)
    for _ in range(2):
        for got, wanted in zip(captured.run(compiled, x), f(x), strict=True):
            torch.testing.assert_close(got, wanted)
            assert got.stride() == wanted.stride()


def test_gaps() -> None:
    x = torch.arange(60.0).view(3, 4, 5)
    for value in (x[:, 1:], x[::2], x.transpose(0, 2)[1:], x[:, :1].expand(3, 4, 5), x[0, 0, 0].expand(2, 2)):
        strides = results.gaps_of(value)
        assert strides == value.stride()
        made = results.with_gaps(value.contiguous(), strides)
        assert torch.equal(made, value)
        assert made.stride() == value.stride()
    for dense in (x, x.transpose(0, 2), x[1:], x[:, :1], x[:0], x.unfold(2, 3, 1)):
        assert results.gaps_of(dense) is None or dense.shape == (3, 1, 5)


@pytest.mark.parametrize("backend", ["native", *FOREIGN])
def test_sums_and_products_of_large_integers(backend) -> None:
    """int64 has more digits than float64, and its products wrap around."""
    x = torch.tensor([2**60 + 1, 2**60 + 3, 5])
    compiled = torchmux.compile(lambda x: (x.sum(0), x.prod(0)), backend=backend)
    assert list(compiled(x)) == [x.sum(0), x.prod(0)]


@pytest.mark.parametrize("backend", ["native", *FOREIGN])
def test_bounds_and_sums_at_the_limits_of_integers(backend) -> None:
    """Bounds beside 2^31, of int64, and sums with the smallest integer, which wrap around."""
    x, smallest = torch.tensor([2**31 + 1] * 17 + [2**31, -7, 2**53 + 1]), -(2**63)
    functions = (
        lambda x: x.clamp(-3, 5), lambda x: x.clamp(max=5), lambda x: x.clamp(min=5), lambda x: x.clamp(smallest, 5),
        lambda x: torch.minimum(x, torch.full_like(x, 5)), lambda x: torch.maximum(x, torch.full_like(x, 5)),
        lambda x: x[:, None].amax(1), lambda x: torch.stack([x, x * 0 + 5]).amin(0), lambda x: x + smallest,
        lambda x: torch.full_like(x, smallest) + x, lambda x: torch.where(x > 0, smallest, 2**63 - 1) + x,
    )  # fmt: skip
    for function in functions:
        torchmux.reset()
        assert torch.equal(torchmux.compile(function, backend=backend)(x), function(x))


@pytest.mark.parametrize("backend", ["native", *FOREIGN])
@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_quotients_of_large_integers(backend, mode) -> None:
    x, y = torch.tensor([-(2**31), 7, 2**31 - 1, 2**24 + 1], dtype=torch.int32), torch.tensor([3, -2, 2, 1])
    compiled = torchmux.compile(
        lambda x, y: (torch.div(x, 2, rounding_mode=mode), torch.div(x, y, rounding_mode=mode)), backend=backend
    )
    for got, wanted in zip(compiled(x, y), compiled.__wrapped__(x, y), strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("backend", ["native", *FOREIGN])
def test_remainders_of_large_integers(backend) -> None:
    x = torch.tensor([-(2**63), 3, 2**63 - 1, 5])
    compiled = torchmux.compile(lambda x: (torch.fmod(x, 4), x % 8), backend=backend)
    assert [each.tolist() for each in compiled(x)] == [torch.fmod(x, 4).tolist(), (x % 8).tolist()]


@pytest.mark.parametrize("backend", ["native", *FOREIGN])
def test_opposites_by_a_flag_are_read_as_what_they_are(backend) -> None:
    """Inputs, and what one part of a graph hands to another."""
    x, z = torch.arange(12.0), torch.complex(torch.arange(4.0), torch.arange(4.0) + 1)
    compiled = torchmux.compile(lambda x: (x * 2, x + 1), backend=backend)
    for given in (x, torch._neg_view(x), x):
        assert list(map(torch.Tensor.tolist, compiled(given))) == [(given * 2).tolist(), (given + 1).tolist()]
    inside = torchmux.compile(lambda z: z.conj().imag * 3 + 1, backend=backend)
    assert inside(z).tolist() == (z.conj().imag * 3 + 1).tolist()


@pytest.mark.parametrize("backend", ["native", *FOREIGN])
def test_the_logit_of_nan_is_nan(backend) -> None:
    x = torch.tensor([-1.0, 0.5, torch.nan, 1.5])
    compiled = torchmux.compile(lambda x: (torch.logit(x, 0.01), torch.logit(x)), backend=backend)
    for got, wanted in zip(compiled(x), (torch.logit(x, 0.01), torch.logit(x)), strict=True):
        assert torch.allclose(got, wanted, equal_nan=True)


def _kind(function, *given):
    try:
        return function(*given)
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("backend", ["native", *FOREIGN])
def test_writes_by_index_count_from_the_end_where_torch_does(backend) -> None:
    x, inside = torch.arange(12.0).view(3, 4), torch.tensor([2, 0])
    functions = (
        lambda x, i: x.index_fill(0, i, 2.5), lambda x, i: x.index_add(0, i, x[:2], alpha=2),
        lambda x, i: x.index_copy(1, i, x[:, :2]), lambda x, i: x[0].clone().index_fill_(0, i, 2),
    )  # fmt: skip
    for function in functions:
        torchmux.reset()
        compiled = torchmux.compile(function, backend=backend)
        for index in (inside, torch.tensor([-1, 0]), torch.tensor([0, 9]), inside):
            got, wanted = _kind(compiled, x, index), _kind(function, x, index)
            assert got == wanted if isinstance(wanted, str) else torch.equal(got, wanted)


@pytest.mark.parametrize("backend", ["native", *FOREIGN])
def test_steps_that_other_compilers_leave_out(backend) -> None:
    x = torch.tensor([0.0, -0.0, 1e-20, 1.0, -1.5, 3e4, math.inf])
    functions = (
        lambda x: 1 - (1 - x), lambda x: (x + 1) - 1, lambda x: 1 - (x + 1), lambda x: torch.ones_like(x) - (1 - x),
        lambda x: torch.zeros_like(x) - x, lambda x: 0.0 - x, lambda x: F.pad(x, (1, 1), value=-0.0),
        lambda x: (x.half() * 3).float(), lambda x: (x.bfloat16() * 3).float(),
        lambda x: (x * math.nan).view(1, 7).any(1),
    )  # fmt: skip
    for function in functions:
        torchmux.reset()
        got, wanted = torchmux.compile(function, backend=backend)(x), function(x)
        assert got.dtype is wanted.dtype and torch.equal(got.nan_to_num(7), wanted.nan_to_num(7))
        if wanted.is_floating_point():
            assert torch.equal(got.signbit() | got.isnan(), wanted.signbit() | wanted.isnan())


def test_windows_that_begin_outside_are_left_to_torch() -> None:
    pytest.importorskip("onnxruntime")
    x = torch.randn(1, 2, 7, 9)
    pool = torchmux.compile(lambda x: (F.max_pool2d(x - 10, 2, 3, 1, ceil_mode=True), x * 2), backend="onnxrt")
    torch.testing.assert_close(pool(x), (F.max_pool2d(x - 10, 2, 3, 1, ceil_mode=True), x * 2))
    assert "windows that begin outside" in str(torchmux.report(pool)) and torchmux.report(pool).share < 1
    assert "windows" not in str(torchmux.explain(lambda x: F.max_pool2d(x, 2, ceil_mode=True), backend="onnxrt")(x))


@pytest.mark.parametrize("backend", FOREIGN)
def test_rows_that_a_mask_hides_attend_to_nothing(backend) -> None:
    """Made-up masks, on which code is compared, seldom hide a whole row."""

    def f(x, mask, numbers):
        attend = F.scaled_dot_product_attention
        return attend(x, x, x, mask), attend(x, x, x * 2, numbers)

    x, mask = torch.randn(1, 2, 3, 4), torch.tensor([[True, True, True], [False, True, True], [False, False, True]])
    compiled = torchmux.compile(f, backend=backend, strict=backend != "tvm")
    for hidden in (mask, mask.tril()):
        numbers = torch.zeros(3, 3).masked_fill(~hidden, -math.inf)
        for got, wanted in zip(compiled(x, hidden, numbers), f(x, hidden, numbers), strict=True):
            torch.testing.assert_close(got, wanted)


def test_scattered_extremes_of_nan() -> None:
    pytest.importorskip("onnxruntime")
    x, at = torch.tensor([1.0, math.nan, 3.0]), torch.tensor([0, 0, 2])
    compiled = torchmux.compile(lambda x, at: x.scatter_reduce(0, at, x * 2, "amax"), backend="onnxrt")
    torch.testing.assert_close(compiled(x, at), torch.tensor([math.nan, math.nan, 6.0]), equal_nan=True)


def test_a_region_without_autocast_is_compared_without_it() -> None:
    pytest.importorskip("onnxruntime")

    def f(x, weight):
        with torch.autocast("cpu", enabled=False):
            return F.linear(x, weight)

    x, weight = torch.randn(3, 6), torch.randn(4, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = torchmux.compile(f, backend="onnxrt", strict=True)(x, weight)
    torch.testing.assert_close(got, F.linear(x, weight))
