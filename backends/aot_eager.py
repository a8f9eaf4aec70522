"""The backend that stops after the AOT split: it runs functional ATen graphs, forward and backward, one operator at a
time.

A failure that appears here but not under ``eager`` comes from functionalization or the split, not from a compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torchmux.registry.spec import ANY, BackendSpec

if TYPE_CHECKING:
    from torch.fx import GraphModule


class AotEager:
    """Accepts every operator, and decomposes none."""

    decompositions: dict[Any, Any] = {}

    def keep_whole(self) -> frozenset[Any]:
        """What torch would take apart, and get wrong, without being asked."""
        from .common.pipeline.decompose import RESAMPLING

        return RESAMPLING

    differentiate_whole = keep_whole

    def takes_numbers(self) -> bool:
        """Operators run as they are, and round as in eager."""
        return True

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Sequence[Any]]:
        import torch

        from .common.pipeline.promises import layout_keeper, promise_of, read_by_address

        for node in read_by_address(gm.graph):
            promise = promise_of(node.meta.get("val"))
            if promise is None:
                continue
            with gm.graph.inserting_after(node):
                kept = gm.graph.call_function(layout_keeper(promise), (node,))
            node.replace_all_uses_with(kept, lambda user, kept=kept: user is not kept)
        for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
            node.target = torch.ops.aten.reshape.default  # the strides that the trace knows need not be the kernel's
        gm.recompile()
        return gm.forward


compile = AotEager()

SPEC = BackendSpec(
    name="aot_eager",
    summary="runs the functional ATen graphs, forward and backward, one operator at a time",
    load="torchmux.backends.aot_eager:compile",
    graph="aten",
    training=True,
    dynamic_shapes=True,
    devices=(ANY,),
    dtypes=(ANY,),
    library="torch",
    priority=10,
)
