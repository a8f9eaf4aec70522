"""Which ATen nodes TensorRT takes: asked of torch_tensorrt's registry of converters."""

from __future__ import annotations

import functools
import threading
from typing import Any, Literal

import torch
from torch.fx import Node

from torchmux import torch_internals as internals

from ..common.adapter.graphs import values_in_use
from ..common.pipeline.decompose import can_stay_whole, draws_nothing, is_random

DTYPES = frozenset((torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool))

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
    """The composite operators that have a converter of their own."""
    return frozenset(op for op in _registry().keys() if can_stay_whole(op))  # noqa: SIM118, no mapping


def supports(node: Node) -> Literal[True] | str:
    """True, or why TensorRT does not run ``node``."""
    op = node.target
    if is_random(op) and not draws_nothing(node):
        return "it draws random numbers, which would not be torch's for the same seed"
    for value in values_in_use(node):
        if isinstance(value, torch.Tensor):
            if value.dtype not in DTYPES:
                return f"TensorRT has no {str(value.dtype).removeprefix('torch.')}, or computes it otherwise"
            if any(type(s) is int and s == 0 for s in value.shape):
                return "TensorRT has no tensors without elements"
            if value.device.type != "cuda":
                return f"it takes or makes a tensor on the {value.device.type}"
    if isinstance(op, internals.OpOverload) and internals.operator_schema(op).is_mutable:
        return "it changes its arguments"
    if node not in _registry():
        return "torch_tensorrt has no converter for it" + ("" if op not in _registry() else " with these arguments")
    return True
