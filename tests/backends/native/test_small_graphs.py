"""Training graphs that torch runs sooner than compiled code, and the cost model that says so."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchmux
from torchmux.backends.native import small_graphs
from torchmux.config import config


@pytest.fixture(autouse=True)
def as_for_users() -> Iterator[None]:
    with config.patch(leave_small_graphs=True):
        yield


def is_left(f: Callable[..., Any], *inputs: torch.Tensor, **settings: Any) -> bool:
    """Whether torch runs ``f``, whose results and gradients are eager's either way."""
    compiled = torchmux.compile(f, backend="native", fullgraph=True, **settings)
    expected = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    for call, given in ((compiled, inputs), (f, expected)):
        call(*given).sum().backward()
    for got, right in zip(inputs, expected, strict=True):
        assert (got.grad is None) == (right.grad is None)
        if right.grad is not None:
            torch.testing.assert_close(got.grad, right.grad)
    report = torchmux.report(compiled)
    assert all("config.leave_small_graphs" in str(p.reason) for p in report.fallbacks)
    assert report.share == (0 if report.fallbacks else 1)
    return bool(report.fallbacks)


def tensor(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).requires_grad_()


def test_one_operator_on_a_small_tensor_is_left_to_torch_and_the_report_says_why() -> None:
    assert is_left(lambda x: x.softmax(-1), tensor(4, 8))


def test_the_log_tells_it_as_information(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "torchmux.fallback"):
        assert is_left(lambda x: x.tanh(), tensor(3))
    assert [record.levelname for record in caplog.records if "sooner" in record.message] == ["INFO"]


def test_a_chain_of_operators_is_compiled() -> None:
    assert not is_left(lambda x: ((x.sin() * x.cos() + x).tanh() * 2).exp(), tensor(4, 8))


def test_an_operator_with_slow_kernels_in_torch_is_compiled_where_tensors_are_large() -> None:
    assert is_left(F.mish, tensor(64))
    assert not is_left(F.mish, tensor(64, 256))
    assert is_left(lambda x: x.log_softmax(-1), tensor(60, 50))
    assert not is_left(lambda x: x.log_softmax(-1), tensor(1000, 3))  # torch computes short rows one by one


def test_what_has_the_same_kernels_or_the_same_library_is_left_in_larger_sizes() -> None:
    assert is_left(lambda x: F.layer_norm(x, (768,)), tensor(128, 768))
    given = [torch.randn(64, 256), torch.randn(512, 256), torch.randn(512)]
    assert is_left(F.linear, *(x.bfloat16().requires_grad_() for x in given))


def test_the_setting_and_strict_turn_it_off() -> None:
    assert not is_left(lambda x: x.relu(), tensor(3), strict=True)
    with config.patch(leave_small_graphs=False):
        assert not is_left(lambda x: x.relu(), tensor(3))


def test_what_is_left_with_symbolic_sizes_is_better_left_for_all_sizes() -> None:
    assert is_left(lambda x: x.relu(), tensor(5, 3), dynamic=True)
    assert not is_left(lambda x: F.mish(x), tensor(5, 3), dynamic=True)
    assert not is_left(lambda x: x.sin().triu(), tensor(5, 5), dynamic=True)
    triangle = (torch.randn(5, 5).triu() + 9 * torch.eye(5)).requires_grad_()
    assert is_left(lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), triangle, tensor(5, 2), dynamic=True)
    # windows of channels of their own are loops only where the image has one size
    assert is_left(lambda x, w: F.conv2d(x, w, groups=8), tensor(2, 8, 9, 9), tensor(8, 1, 3, 3), dynamic=True)


def test_what_writes_or_was_not_measured_or_reads_other_layouts_is_compiled() -> None:
    assert not is_left(lambda x: x.clone().mul_(2), tensor(3))
    assert not is_left(lambda x: x.prod(), tensor(3))
    wide = torch.randn(96, 64).t().requires_grad_()
    assert not is_left(lambda x: x.relu(), wide)


def test_what_a_library_computes_either_way_is_left_to_torch() -> None:
    assert is_left(lambda x: x.sort(-1).values, tensor(60, 8))
    x, w = tensor(2, 8, 9, 9), tensor(8, 8, 3, 3)
    assert is_left(lambda x, w: F.conv2d(x, w, padding=1).relu(), x, w)
    assert is_left(lambda x, w: F.conv2d(x, w), tensor(2, 8, 9, 9), tensor(8, 8, 1, 1))
    positive = (torch.randn(5, 5) + 9 * torch.eye(5)).requires_grad_()
    for function in (torch.linalg.inv, torch.linalg.det, torch.linalg.svdvals):
        assert is_left(lambda a: function(a), positive)  # noqa: B023
        positive.grad = None
    assert is_left(torch.linalg.cholesky, (torch.eye(5) + 0.1).requires_grad_())
    grid = (torch.rand(1, 4, 4, 2) - 0.5).requires_grad_()
    assert is_left(lambda x, g: F.grid_sample(x, g, align_corners=False), tensor(1, 2, 5, 5), grid)


def test_transposed_matrices_are_left_to_torch_if_they_are_only_multiplied() -> None:
    x = torch.randn(80, 64).t().requires_grad_()
    assert is_left(lambda x, y: (x @ y).tanh(), x, torch.randn(80, 70).requires_grad_())


def test_convolutions_that_our_code_computes_are_compiled() -> None:
    assert not is_left(lambda x, w: F.conv2d(x, w, stride=4), tensor(2, 8, 16, 16), tensor(8, 8, 4, 4))
    assert not is_left(lambda x, w: F.conv_transpose2d(x, w, stride=2), tensor(2, 8, 9, 9), tensor(8, 8, 2, 2))
    assert not is_left(lambda x, w: F.conv2d(x, w, padding=1, groups=8), tensor(2, 8, 9, 9), tensor(8, 1, 3, 3))


def test_images_in_channels_last_are_left_to_torch_if_all_is_done_by_pixels() -> None:
    x = torch.randn(2, 16, 9, 9).to(memory_format=torch.channels_last).requires_grad_()
    assert is_left(lambda x, w: F.conv2d(x, w).relu(), x, tensor(8, 16, 3, 3))
    x.grad = None
    assert not is_left(lambda x, w: F.conv2d(x, w).softmax(-1), x, tensor(8, 16, 3, 3))


def test_of_any_size_torch_runs_the_small_calls_and_the_report_says_which() -> None:
    compiled = torchmux.compile(lambda x: x.softmax(-1), backend="native", dynamic=True, fullgraph=True)
    engines = []
    for rows in (8, 4000, 16):
        x = tensor(rows, 64)
        result = compiled(x)
        engines.append(type(result.grad_fn).__name__)
        (result * result).sum().backward()
        found, x.grad = x.grad, None
        expected = x.softmax(-1)
        (expected * expected).sum().backward()
        torch.testing.assert_close(found, x.grad)
    assert engines[0] == engines[2] == "SoftmaxBackward0" != engines[1]
    (entry,) = torchmux.report(compiled).graphs
    assert not entry.report.fallbacks
    assert "calls sooner in which input 0 has less than" in str(entry.report.notes)
    assert [calls.count for calls in entry.report.calls_in_torch if calls.why in entry.report.notes] == [2]


def test_of_any_size_all_calls_are_compiled_where_the_elements_of_an_input_tell_nothing() -> None:
    for outer in (lambda x: (x[:, None] - x).abs(), lambda x: F.mish(torch.outer(x, x))):
        compiled = torchmux.compile(outer, backend="native", dynamic=True)
        compiled(tensor(60)).sum().backward()
        assert not torchmux.report(compiled).graphs[0].report.notes


def test_losses_of_few_numbers_are_left() -> None:
    assert is_left(lambda x: F.huber_loss(x, x.detach() * 0.5), tensor(8, 8))
    assert is_left(lambda x: F.pad(x, (1, 1)), tensor(8, 8))
    assert not is_left(lambda x: F.huber_loss(x, x.detach() * 0.5), tensor(300, 300))


def test_what_cannot_be_estimated_prints_nothing(capfd: pytest.CaptureFixture) -> None:
    x = tensor(4)
    compiled = torchmux.compile(lambda y: y.div_(-2).exp_(), backend="native")
    torch.testing.assert_close(compiled(x * 1), (x / -2).exp())
    assert "Error" not in capfd.readouterr().err


def test_inference_is_compiled() -> None:
    compiled = torchmux.compile(lambda x: x.relu(), backend="native")
    compiled(torch.randn(3))
    assert not torchmux.report(compiled).fallbacks


def test_a_chain_of_backends_compiles_it() -> None:
    compiled = torchmux.compile(lambda x: x.relu(), backend="native+aot_eager")
    compiled(tensor(3)).sum().backward()
    assert not torchmux.report(compiled).fallbacks


def test_the_estimate_draws_no_numbers() -> None:
    states = []

    def looking(gm: Any, inputs: Any) -> Any:
        states.append(torch.get_rng_state())
        small_graphs.why_torch(gm)
        states.append(torch.get_rng_state())
        return gm.forward

    torchmux.compile(lambda x: F.dropout(x, 0.5).relu(), backend=looking)(tensor(16))
    assert torch.equal(*states)


def test_second_derivatives_and_tangents_are_torchs_own() -> None:
    compiled = torchmux.compile(lambda x: x.tanh(), backend="native")
    x = tensor(5)
    (first,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, -2 * x.tanh() * (1 - x.tanh() ** 2))
