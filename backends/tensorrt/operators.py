"""Decides which ATen nodes TensorRT accepts, according to torch_tensorrt's registry of converters."""

from __future__ import annotations

import functools
import threading
from typing import Any, Literal

import torch
from torch.fx import Node

from ..common.adapter import support
from ..common.adapter.graphs import values_in_use
from ..common.pipeline.decompose import can_stay_whole, is_random

DTYPES = frozenset((torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool))

_UNSEEN = "nobody has seen what TensorRT answers there: the authors of this adapter had no machine to run it"
COMMON = support.Common(
    "TensorRT",
    DTYPES,
    words={
        "dtypes": "TensorRT has no {dtype}, or computes it differently",
        "empty": "TensorRT does not support tensors without elements",
    },
    lacks={
        "comparisons": _UNSEEN,
        "remainders": _UNSEEN,
        "traps": "a division by zero on a GPU ends no process, and raises nothing in torch",
    },
)

LOCK = threading.RLock()
"""Held while the registry is used: its settings are the process's, not a compilation's."""


@functools.cache
def _registry() -> Any:
    from torch_tensorrt.dynamo.conversion import DYNAMO_CONVERTERS

    return DYNAMO_CONVERTERS


def use_settings(settings: Any) -> None:
    """Make the registry answer for ``settings``; hold :data:`LOCK` for as long as that matters."""
    _registry().set_compilation_settings(settings)


def decompositions() -> dict[Any, Any]:
    """torch_tensorrt's table without random operators, which would draw other numbers."""
    from torch_tensorrt.dynamo.lowering import get_decompositions

    return {op: function for op, function in get_decompositions().items() if not is_random(op)}


def whole() -> frozenset[Any]:
    """The composite operators that have their own converter."""
    return frozenset(op for op in _registry().keys() if can_stay_whole(op))  # noqa: SIM118, no mapping


def supports(node: Node) -> Literal[True] | str:
    """True, or why TensorRT does not run ``node``."""
    op = node.target
    # It also converts what takes an element of a tuple, which is no operator of torch's.
    if support.is_operator(node) and (reason := COMMON.about_operator(node)):
        return reason
    if reason := COMMON.about_values(node):
        return reason
    for value in values_in_use(node):
        if isinstance(value, torch.Tensor) and value.device.type != "cuda":
            return f"it reads or creates a tensor on the {value.device.type}"
    if node not in _registry():
        return "torch_tensorrt has no converter for it" + ("" if op not in _registry() else " with these arguments")
    return True
