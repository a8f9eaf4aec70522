"""The backend that stops after the AOT split: functional ATen graphs, forward and backward, run operator by operator.

What fails here and not under ``eager`` fails in functionalization or in the split, not in a compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torchmux.registry.spec import ANY, BackendSpec

if TYPE_CHECKING:
    from torch.fx import GraphModule


class AotEager:
    """Takes every operator, and none apart."""

    decompositions: dict[Any, Any] = {}

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Sequence[Any]]:
        return gm.forward


compile = AotEager()

SPEC = BackendSpec(
    name="aot_eager",
    summary="runs the functional ATen graphs, forward and backward, operator by operator",
    load="torchmux.backends.aot_eager:compile",
    graph="aten",
    training=True,
    dynamic_shapes=True,
    devices=(ANY,),
    dtypes=(ANY,),
    priority=10,
)
