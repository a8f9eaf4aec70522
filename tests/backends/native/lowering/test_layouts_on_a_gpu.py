"""In which layout operators of torch's are called on a GPU, of which fake tensors tell without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchmux import torch_internals as internals
from torchmux.backends.common.pipeline import aot
from torchmux.backends.native import targets
from torchmux.backends.native.generate import decompositions
from torchmux.backends.native.ir import expressions
from torchmux.backends.native.ir.program import Call
from torchmux.backends.native.lowering import calls as whole, graph
from torchmux.registry.errors import NodesRefused

aten = torch.ops.aten


def calls(function: Callable[..., torch.Tensor], *sizes: tuple[int, ...]) -> list[Call]:
    """The calls in the program of ``function`` of tensors of these sizes on a GPU."""
    with FakeTensorMode():
        inputs = [torch.empty(size, device="cuda") for size in sizes]
        gm = make_fx(lambda *given: [function(*given)], decomposition_table=dict(decompositions()))(*inputs)
    with expressions.lock:
        return [item for item in graph.lower(gm, targets.named("triton")).items if isinstance(item, Call)]


def test_rows_of_a_mask_begin_at_multiples_of_eight_elements() -> None:
    """torch pads a mask for attention, whose kernels refuse rows at odd places."""

    def attention(q: torch.Tensor, mask: torch.Tensor) -> Any:
        padded = aten.constant_pad_nd.default(mask * 2, [0, 7])
        rows = aten.slice.Tensor(padded, 3, 0, 49)
        return aten._scaled_dot_product_efficient_attention.default(q, q, q, rows, False)[0]

    (call,) = calls(attention, (2, 4, 49, 16), (2, 4, 49, 49))
    assert call.args[3].strides[2:] == (56, 1)


def test_draws_for_what_has_gaps_are_left_to_torch() -> None:
    """CUDA's kernels draw in the order of memory, but for what has gaps."""

    def dropped(x: torch.Tensor, first: int) -> Any:
        return aten.native_dropout.default(aten.slice.Tensor(aten.t.default(x), 0, first, 5), 0.4, True)[0]

    (call,) = calls(lambda x: dropped(x, 0), (6, 5))
    assert call.args[0].strides == (1, 5)
    with pytest.raises(NodesRefused, match="gaps in memory"):
        calls(lambda x: dropped(x, 1), (6, 7))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_rows_that_are_resized_are_contiguous(device: str) -> None:
    """Whatever the order of what they are made of: torch's formula, which a trace runs, keeps that."""
    given = torch.fx.Graph()
    x = given.placeholder("x")
    turned = given.call_function(torch.permute, (x, (2, 0, 1)))
    given.output((given.call_function(torch._C._nn.upsample_nearest1d, (turned, None, [2.0])),))
    mode = internals.correct(internals.new_fake_mode())
    with mode:
        fake = torch.empty(3, 4, 5, device=device)
    gm = torch.fx.GraphModule({}, given)
    traced = aot.trace_inference(gm, mode, [fake], [fake], dict(decompositions()), frozenset(whole.composite()))
    (resized,) = traced.gm.graph.output_node().args[0]
    assert resized.target is aten.upsample_nearest1d.vec and resized.meta["val"].is_contiguous()
