"""Where torch's formulas are not what eager computes."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from torch.nn import functional as F

import torchmux

pytestmark = pytest.mark.sampled(2)

BACKENDS = ("aot_eager", "native", "onnxrt", "openvino", "tvm")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["known sizes", "symbolic sizes"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_images_that_stay_or_double(backend, dynamic, trains):
    """2.18 of 5 pixels are 10, which eager takes twice each, and 1.1 of 5 are 5."""

    def resized(x):
        nearest = F.interpolate(x, scale_factor=(2.18, 1.1)), F.interpolate(x, scale_factor=(2.18, 1.7))
        return *nearest, F.interpolate(x, scale_factor=(1.7, 1.1), mode="bilinear")

    if backend not in torchmux.list_backends():
        pytest.skip(f"{backend} is not installed")
    compiled = torchmux.compile(resized, backend=backend, dynamic=dynamic)
    gradients = []
    for function in (compiled, resized):
        x = torch.arange(150.0).view(2, 3, 5, 5).requires_grad_(trains)
        results = function(x)
        if trains:
            sum((r * torch.arange(r.numel()).view(r.shape)).sum() for r in results).backward()
        gradients.append((*results, x.grad))
    for got, expected in zip(*gradients, strict=True):
        assert got is expected is None or torch.allclose(got, expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
def test_whole_factors_of_symbolic_sizes(mode, trains):
    """They are what the sizes say: nothing is asked about these, and native computes all of it for all of them."""
    compiled = torchmux.compile(lambda x: F.interpolate(x, scale_factor=2.0, mode=mode), backend="native", dynamic=True)
    for size in (5, 6, 9):
        compiled(torch.randn(2, 3, size, size + 1, requires_grad=trains))
    report = torchmux.report(compiled)
    assert report.graph_count == 1 and not report.fallbacks


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_no_probability_is_refused(backend):
    """The formula of the loss computes something, and the kernel raises; torch runs none of it for that."""
    if backend not in torchmux.list_backends():
        pytest.skip(f"{backend} is not installed")
    compiled = torchmux.compile(lambda x, target: F.binary_cross_entropy(x, target), backend=backend)
    x = torch.tensor([0.5, 0.25])
    for trains in (False, True):
        given = x.clone().requires_grad_(trains)
        torch.testing.assert_close(compiled(given, x), F.binary_cross_entropy(x, x))
        for wrong, target in ((given * 9, x), (given, -x), (given * torch.nan, x)):
            with pytest.raises(RuntimeError, match="should be between 0 and 1"):
                compiled(wrong, target)
    left = {placement.op for graph in torchmux.report(compiled).graphs for placement in graph.report.fallbacks}
    assert left <= {"aten.log1p.default"}  # TVM's own is less precise


@pytest.mark.parametrize("backend", BACKENDS)
def test_shuffled_channels_that_stand_last(backend):
    if backend not in torchmux.list_backends():
        pytest.skip(f"{backend} is not installed")
    compiled = torchmux.compile(lambda x: (F.channel_shuffle(x, 2), F.channel_shuffle(x, 2) * 2), backend=backend)
    image = torch.arange(96.0).view(2, 4, 3, 4)
    for layout in (torch.channels_last, torch.contiguous_format):
        x = image.to(memory_format=layout)
        for got, wanted in zip(compiled(x), (F.channel_shuffle(x, 2), F.channel_shuffle(x, 2) * 2), strict=True):
            assert torch.equal(got, wanted)
            assert got.stride() == wanted.stride()


@pytest.mark.parametrize("backend", ["native", "onnxrt"])
def test_gradients_of_padded_images(backend: str) -> None:
    """They are laid out as the image."""
    if backend not in torchmux.list_backends():
        pytest.skip(f"{backend} is not installed")
    compiled = torchmux.compile(lambda x: F.pad(x, (1, 2, 0, 1), mode="reflect"), backend=backend)
    x = torch.randn(2, 4, 5, 6).to(memory_format=torch.channels_last).requires_grad_()
    (slope,) = torch.autograd.grad(compiled(x).sum(), x)
    assert slope.stride() == x.stride()


@pytest.mark.parametrize("backend", BACKENDS)
def test_places_in_a_whole_tensor_are_checked(backend):
    if backend not in torchmux.list_backends():
        pytest.skip(f"{backend} is not installed")
    compiled, x = torchmux.compile(lambda x, places: x.take(places + 1), backend=backend), torch.arange(6.0).view(2, 3)
    assert torch.equal(compiled(x, torch.tensor([0, 4, -3])), torch.tensor([1.0, 5.0, 4.0]))
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([6]))


@pytest.mark.usefixtures("compiler_errors_fall_back")
@pytest.mark.parametrize("backend", BACKENDS)
def test_operators_that_only_raise_leave_the_rest_of_the_graph_to_the_backend(backend):
    """``_linalg_check_errors`` has no result, and says that a matrix has no root."""
    if backend not in torchmux.list_backends():
        pytest.skip(f"{backend} is not installed")
    compiled = torchmux.compile(lambda x: torch.linalg.cholesky(x * 2 + 1) * 3, backend=backend)
    compiled(torch.eye(2))
    with pytest.raises(torch.linalg.LinAlgError):
        compiled(-torch.eye(2) * 5)
    reasons = [p.reason for graph in torchmux.report(compiled).graphs for p in graph.report.fallbacks]
    assert not any("compiler error" in reason for reason in reasons)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_labels_end_at_the_first_that_is_none(backend, trains, reduction):
    """torch's formula counts what comes after it as the first class, in a batch."""
    labels = torch.tensor([[3, 0, -1, 1, 2], [1, 2, 4, -1, 0], [-1, 1, 1, 2, 3], [0, 1, 2, 3, 4]])

    def f(x):
        return F.multilabel_margin_loss(x, labels, reduction=reduction), F.multilabel_margin_loss(x[1], labels[1])

    x = torch.randn(4, 5, requires_grad=trains)
    expected, found = f(x), torchmux.compile(f, backend=backend)(x)
    torch.testing.assert_close(found, expected)
    if trains:
        wanted, given = (torch.autograd.grad(sum(r.sum() for r in each), x) for each in (expected, found))
        torch.testing.assert_close(given, wanted)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("backend", ["eager", *BACKENDS])
def test_rows_that_are_resized_are_in_the_usual_order(backend, trains, dynamic):
    """torch's formulas and fakes keep the order of the argument, which the kernels do not."""

    def f(x):
        found = [F.interpolate(x, size=9, mode=mode) for mode in ("nearest", "nearest-exact")]
        return [(y, y * 2, y.stride(), y.is_contiguous()) for y in found]

    x = torch.randn(5, 4, 6).permute(2, 1, 0).requires_grad_(trains)
    expected, found = f(x), torchmux.compile(f, backend=backend, dynamic=dynamic)(x)
    for wanted, given in zip(expected, found, strict=True):
        torch.testing.assert_close(given, wanted, check_stride=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_slopes_of_hardsigmoid_have_eagers_digits(backend):
    """Eager multiplies by a sixth of float32, in float64 as well."""
    x = torch.linspace(-4, 4, 9, dtype=torch.float64, requires_grad=True)
    compiled = torchmux.compile(lambda x: F.hardsigmoid(x), backend=backend)
    (given,), (wanted,) = (torch.autograd.grad(f(x).sum(), x) for f in (compiled, F.hardsigmoid))
    assert torch.equal(given, wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_shrunk_to_zero_has_no_sign(backend):
    """In whole vectors, the kernel has a slope of zero at nan; in what is left of them, that of the result."""
    numbers = torch.tensor([math.nan, -0.5, 0.5, 2.0, -2.0, 0.0, -0.25, math.inf])
    x = numbers.repeat_interleave(64).requires_grad_()

    def f(x):
        return F.softshrink(x, 0.5)

    found, expected = torchmux.compile(f, backend=backend)(x), f(x)
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert torch.equal(found.signbit() & ~found.isnan(), expected.signbit() & ~expected.isnan())
    weights = torch.linspace(1, 2, len(x))
    torch.testing.assert_close(*(torch.autograd.grad(r, x, weights)[0] for r in (found, expected)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("f", [torch.sigmoid, torch.expm1, torch.log1p], ids=lambda f: f.__name__)
def test_formulas_of_real_numbers_are_not_those_of_complex_ones(f, backend):
    x = torch.polar(torch.tensor([0.5, 1.5]), torch.tensor([0.3, 2.9]))
    torch.testing.assert_close(torchmux.compile(lambda x: f(x), backend=backend)(x), f(x))


@pytest.mark.parametrize("backend", BACKENDS)
def test_complex_numbers_that_python_cannot_read(backend):
    x = torch.complex(torch.randn(3), torch.randn(3))
    found = torchmux.compile(lambda x: torch.logaddexp(x, x.flip(0)), backend=backend)(x)
    torch.testing.assert_close(found, torch.logaddexp(x, x.flip(0)))


@pytest.mark.parametrize("backend", ["aot_eager", "native", "onnxrt"])
def test_what_is_changed_in_place_keeps_its_strides(backend):
    """The functional forms of these operators have results in the usual order."""
    at, zeros = torch.tensor([0]), torch.zeros(1, 4, 3, 5, dtype=torch.int64)
    changes = {
        "tril": lambda y: y.tril_(),
        "cumsum": lambda y: y.cumsum_(1),
        "masked_fill": lambda y: y.masked_fill_(y > 0, 1.0),
        "masked_scatter": lambda y: y.masked_scatter_(y > 0, torch.ones(120)),
        "scatter": lambda y: y.scatter_(0, zeros, 2.0),
        "index_copy": lambda y: y.index_copy_(1, at, torch.ones(2, 1, 3, 5)),
        "add": lambda y: y.add_(torch.ones(5)),
    }

    def f(x):
        return {name: change(x.clone()) for name, change in changes.items()}

    x = torch.randn(2, 3, 4, 5).transpose(1, 2)
    torch.testing.assert_close(torchmux.compile(f, backend=backend)(x), f(x), check_stride=True)


@pytest.mark.parametrize("make", [lambda x: x.clone(), lambda x: x.t().clone(), lambda x: x.repeat(1, 2)[:, ::2]])
def test_draws_between_bounds_are_eagers(make):
    """The operator's overload is called ``from``, which generated code cannot name."""
    compiled = torchmux.compile(lambda x: make(x).random_(3, 9), backend="aot_eager", strict=True)
    x = torch.zeros(3, 4)
    torch.manual_seed(0)
    got, after = compiled(x), torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(got, make(x).random_(3, 9)) and torch.equal(after, torch.rand(1))


def test_soft_margins_are_no_call_of_a_kernel():
    x, sides = torch.randn(3, 5).mul_(4).requires_grad_(), torch.randint(0, 2, (3, 5)).float() * 2 - 1
    for reduction in ("mean", "sum", "none"):
        compiled = torchmux.compile(functools.partial(F.soft_margin_loss, reduction=reduction), backend="native")
        got, expected = compiled(x, sides), F.soft_margin_loss(x, sides, reduction=reduction)
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(*(torch.autograd.grad(y.sum(), x) for y in (got, expected)))
        (each,) = torchmux.report(compiled).graphs
        assert bool(each.report.library_calls) == (reduction == "none")
