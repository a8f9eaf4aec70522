"""The backend that compiles nothing: it runs the graph as captured, bit for bit as eager does.

It shows what the frontend alone does to a program, and is what every other backend is compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torchmux.registry.spec import BackendSpec

if TYPE_CHECKING:
    from torch.fx import GraphModule

ALL_DEVICES = ("cpu", "cuda", "mps", "xpu", "meta")
ALL_DTYPES = (
    "float64", "float32", "float16", "bfloat16", "complex64", "complex128",
    "int64", "int32", "int16", "int8", "uint8", "bool",
)  # fmt: skip


def compile(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Sequence[Any]]:
    """The captured graph's own code."""
    return gm.forward


SPEC = BackendSpec(
    name="eager",
    summary="runs the captured graph as it is; nothing is compiled",
    load="torchmux.backends.eager:compile",
    graph="torch",
    training=True,
    dynamic_shapes=True,
    devices=ALL_DEVICES,
    dtypes=ALL_DTYPES,
    priority=0,
)
