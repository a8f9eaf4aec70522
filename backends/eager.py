"""The backend that compiles nothing: it runs the captured graph unchanged, and its results match eager bit for bit.

It shows what the frontend alone does to a program, and is the baseline for every other backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torchmux.registry.spec import ANY, BackendSpec

if TYPE_CHECKING:
    from torch.fx import GraphModule


def compile(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Sequence[Any]]:
    """The captured graph's own code."""
    return gm.forward


SPEC = BackendSpec(
    name="eager",
    summary="runs the captured graph unchanged; compiles nothing",
    load="torchmux.backends.eager:compile",
    graph="torch",
    training=True,
    dynamic_shapes=True,
    devices=(ANY,),
    dtypes=(ANY,),
    library="torch",
    priority=0,
)
