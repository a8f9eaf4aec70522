"""The boundary: a target that has kernels and nothing else, and the neutral steps that a target prints."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F

import torchmux
from torchmux import torch_internals as internals
from torchmux.backends.native import targets
from torchmux.backends.native.ir.expressions import Buffer
from torchmux.backends.native.ir.products import Attention, Convolution, Product
from torchmux.backends.native.ir.program import Program
from torchmux.backends.native.options import NativeOptions
from torchmux.backends.native.schedule import host
from torchmux.backends.native.targets.cpu.target import Cpu
from torchmux.backends.native.targets.host import _DIRECT, allocation
from torchmux.backends.native.targets.target import Target
from torchmux.backends.native.targets.torch_calls import call_of
from torchmux.config import config

from ..conftest import Check, assert_as_exact_as_eager, in_double

ABSTRACT = (Product, Convolution, Attention)


class Plain(Cpu):
    """Wants no form of anything, and computes nothing but kernels: the rest is torch's."""

    name = "plain"
    takes_matrix = Target.takes_matrix
    computes_operand = Target.computes_operand
    padded_strides = Target.padded_strides
    order_of_images = Target.order_of_images
    finishes_convolutions = Target.finishes_convolutions
    hints = Target.hints
    seen: ClassVar[list[type]] = []

    def attends(self, query: torch.Tensor, scores: int) -> bool:
        return super().attends(query, 1 << 20)

    def select(self, program: Program, options: NativeOptions) -> None:
        self.seen.extend(type(item) for item in program.items if isinstance(item, ABSTRACT))
        program.items = [call_of(item) if isinstance(item, ABSTRACT) else item for item in program.items]


@pytest.fixture
def plain(monkeypatch) -> list[type]:
    """The abstract operations that the target has seen, which compiles everything."""
    monkeypatch.setitem(targets.TARGETS, "plain", targets.Doors(f"{__name__}:Plain", targets.TARGETS["cpu"].loads))
    monkeypatch.setitem(targets.BY_DEVICE, "cpu", "plain")
    monkeypatch.setattr(Plain, "seen", [])
    return Plain.seen


def test_products(plain, check: Check) -> None:
    def f(x, y, z):
        return torch.relu(x @ y.t()) * 2, z @ z.transpose(1, 2) + 1, torch.addmm(x.sum(1), y, x.t(), beta=2)

    cpp, python = check(f, torch.randn(9, 30), torch.randn(9, 30), torch.randn(3, 5, 7)).output_code
    assert plain == [Product] * 3
    assert "product(" not in cpp
    assert python.count("torch.mm(") == 2
    assert python.count("torch.bmm(") == 1


def test_products_of_half_precision(plain, check: Check) -> None:
    x = torch.randn(9, 30, dtype=torch.bfloat16)
    check(lambda x: torch.relu(x @ x.t()), x)
    assert plain == [Product]


def test_convolutions_in_the_order_in_which_images_come(plain, check: Check) -> None:
    def f(x, first, second, bias):
        y = F.relu(F.conv2d(x, first, bias, stride=2, padding=(1, 0)))
        return F.conv_transpose2d(y, second, output_padding=1, stride=2).sigmoid()

    given = torch.randn(2, 3, 11, 14), torch.randn(16, 3, 3, 3), torch.randn(16, 4, 3, 3), torch.randn(16)
    python = check(f, *given).output_code[1]
    assert plain == [Convolution] * 2
    assert python.count("torch.convolution(") == 2
    last = given[0].contiguous(memory_format=torch.channels_last)
    check(f, last, *given[1:])


def test_attention_and_its_gradient(plain) -> None:
    def f(q, k, v):
        return torch.softmax(q @ k.transpose(-1, -2) * 0.3, -1) @ v

    results = []
    tensors = [torch.randn(1, 2, 12, 8) for _ in range(3)]
    for kind in ("native", "eager", "exact"):
        leaves = [(t.double() if kind == "exact" else t.clone()).requires_grad_() for t in tensors]
        with config.patch(cache_enabled=False):
            compiled = torchmux.compile(f, backend="native", strict=True) if kind == "native" else f
            result = compiled(*leaves)
            result.square().sum().backward()
        results.append([result.detach(), *(leaf.grad for leaf in leaves)])
    assert_as_exact_as_eager(*results)
    assert plain == [Attention]


def test_frozen_graphs(plain, tmp_path) -> None:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3),
        torch.nn.BatchNorm2d(32),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(800, 9),
    ).eval()
    x = torch.randn(10, 3, 7, 7)
    with config.patch(cache_dir=tmp_path), torch.no_grad():
        compiled = torchmux.compile(model, backend="native", options={"freeze": True}, strict=True)
        assert_as_exact_as_eager(compiled(x), model(x), in_double(model)(x.double()))
    cpp, python = torchmux.report(compiled).graphs[0].report.output_code
    assert plain == [Convolution, Product]
    assert "aten._native_batch_norm" not in cpp
    assert "torch.convolution(" in python


def test_targets_do_not_share_artifacts(monkeypatch, plain, capture, tmp_path) -> None:
    x = torch.randn(9, 30)
    with config.patch(cache_dir=tmp_path):
        hits = [capture(lambda x: x @ x.t(), x).compile("native", strict=True).report.cache_hits for _ in range(2)]
        monkeypatch.setitem(targets.BY_DEVICE, "cpu", "cpu")
        other = capture(lambda x: x @ x.t(), x).compile("native", strict=True).report
    assert hits == [0, 1]
    assert "product(" in other.output_code[0]


# --- the host ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def planned(monkeypatch) -> list[host.Host]:
    """The hosts that are planned."""
    found: list[host.Host] = []
    plan = host.plan

    def spy(*args):
        found.append(plan(*args))
        return found[-1]

    monkeypatch.setattr(host, "plan", spy)
    return found


def test_steps_of_the_host(planned, check: Check) -> None:
    """A product in the place of the kernel that finishes it, a sort by torch, and what follows."""

    def f(x, y):
        return torch.sort(torch.relu(x @ y), 1)[0].sum(1) * 2

    check(f, torch.randn(5, 6), torch.randn(6, 7))
    (made,) = planned
    kinds = [type(step) for step in made.steps]
    before = [host.FitInput, host.FitInput, host.MakeArena, host.Allocate, host.Launch, host.Release]
    after = [host.CallOperator, host.Release, host.Allocate, host.Launch, host.Release, host.Return]
    assert kinds == [*before, *after]
    first, second = made.launches
    assert [type(step).__name__ for step in first.steps] == ["Product", "LoopNest"]
    target = first.steps[0].target
    assert made.placed(target) in first.tensors
    assert made.placed(target) is not target
    (call,) = made.calls
    assert str(call.op) == "aten.sort.default"
    kept = next(step.kept for step in made.steps if isinstance(step, host.CallOperator))
    assert kept == [call.results[0], None]  # the places are not used
    assert made.arena.size == 0
    assert {b.device for b in (*first.tensors, *second.tensors)} == {torch.device("cpu")}


def test_sizes_are_read_before_they_are_needed(planned, capture) -> None:
    captured = capture(lambda x: x.softmax(-1) @ x.t(), torch.randn(40, 30), dynamic={0: [0]})
    captured.compile("native", strict=True, options={"keep_scratch": True})
    (made,) = planned
    assert made.steps[0] == host.ReadSize(made.steps[0].name, made.steps[0].input, ("size", 0), 1)
    assert [type(step) for step in made.steps[1:3]] == [host.FitInput, host.MakeArena]
    assert made.arena.offsets


def test_memory_is_on_the_device_of_its_buffer() -> None:
    def buffer(device: str) -> Buffer:
        return Buffer("b1", torch.float16, (3, 4), (4, 1), torch.device(device))

    assert allocation(buffer("cpu")) == "b1 = empty((3, 4, ), (4, 1, ), torch.float16)"
    where = "device=torch.device('cuda:1')"
    assert allocation(buffer("cuda:1")) == f"b1 = torch.empty_strided((3, 4, ), (4, 1, ), dtype=torch.float16, {where})"


def test_functions_that_are_called_directly_are_the_operators() -> None:
    """Those of one matrix, or of one image, with all arguments by position, as code passes them."""
    matrix, image, at = torch.rand(6, 6) + torch.eye(6) * 6, torch.rand(1, 2, 8, 8), torch.tensor([3, 0, 1])
    sized, fold = (image, [4, 4], False, None, None), ([2, 2], [1, 1], [0, 0], [2, 2])
    arguments = {
        **dict.fromkeys(("median", "nanmedian", "erfinv", "lgamma", "digamma", "_linalg_det"), (matrix,)),
        **dict.fromkeys(("median.dim", "nanmedian.dim", "mode"), (matrix, 1, True)),
        **dict.fromkeys(("topk", "kthvalue"), (matrix, 3, 1, True)),
        **dict.fromkeys(("igamma", "igammac"), (matrix, matrix)),
        **dict.fromkeys(("cummax", "cummin"), (matrix, 1)),
        "searchsorted.Tensor": (matrix[0].sort()[0], matrix),
        "_embedding_bag": (matrix, at, at[1:2], False, 0, False, None, False, -1),
        "_embedding_bag_forward_only": (matrix, at, at[1:2], False, 1, False, None, False, 2),
        "native_dropout": (matrix, 0.0, True),
        "_scaled_dot_product_flash_attention_for_cpu": (image, image, image, 0.0, True),
        **dict.fromkeys(("_adaptive_avg_pool2d", "adaptive_max_pool2d"), (image, [3, 5])),
        "_adaptive_avg_pool3d": (image[None], [1, 2, 3]),
        "max_pool2d_with_indices": (image, [3, 3], [2, 2], [1, 1], [1, 1], True),
        **dict.fromkeys(("upsample_bilinear2d", "upsample_bicubic2d"), sized),
        **dict.fromkeys(("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"), sized),
        "im2col": (image, *fold),
        "col2im": (torch.rand(1, 8, 16), [8, 8], *fold),
        "_linalg_eigh": (matrix @ matrix.t(), "L", True),
        "_linalg_solve_ex": (matrix, matrix),
        "_linalg_svd": (matrix, True, True),
        "linalg_inv_ex": (matrix,),
        "linalg_cholesky_ex": (matrix @ matrix.t(),),
        "linalg_qr": (matrix, "reduced"),
    }
    for name, given in arguments.items():
        if (path := _DIRECT.get(f"aten::{name}")) is None:
            continue  # this torch has no such function, or nothing calls it so
        packet, _, overload = name.partition(".")
        expected = getattr(getattr(torch.ops.aten, packet), overload or "default")(*given)
        module, function = path.split(".")
        got = getattr({"torch": torch, **internals.functions_in_c}[module], function)(*given)
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
