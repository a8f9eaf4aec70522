"""Decides which operators CUDA graphs can record, and hands a part of a graph to the code that records it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch.fx import GraphModule, Node

from torchmux import torch_internals as internals
from torchmux.registry.errors import NodesRefused
from torchmux.registry.spec import CompileRequest

from ..common.pipeline.decompose import RESIZING
from .function import CudagraphsFunction
from .options import CudagraphsOptions
from .pool import pool_of

_INDEXING = (torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten._unsafe_index)
_WAITING = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


class Cudagraphs:
    """The backend object; see :class:`torchmux.registry.spec.Backend`."""

    decompositions: dict[Any, Any] = {}

    def keep_whole(self) -> frozenset[Any]:
        """What torch would take apart without being asked: a recording has eager's kernels."""
        return RESIZING

    differentiate_whole = keep_whole

    def supports(self, node: Node) -> Literal[True] | str:
        """A recording keeps which kernels run, their sizes and their numbers; what else decides those is refused."""
        op = node.target
        if not isinstance(op, internals.OpOverload):
            return f"{getattr(op, '__name__', op)} is not an ATen operator"
        if op.overloadpacket in _INDEXING:
            if _has_mask(node):
                return "indexing by a mask waits for the GPU to learn the size"
        elif any(tag in op.tags for tag in _WAITING):
            return "its result determines sizes or numbers on the CPU, which waits for the GPU"
        elif torch.Tag.cudagraph_unsafe in op.tags:
            return "it is tagged as unsafe in CUDA graphs"
        for value in node.all_input_nodes:
            held = value.meta.get("val")
            if value.op == "get_attr" and torch.Tag.pointwise in op.tags and held is not None and held.dim() == 0:
                continue  # a number of the program's, which stays what it is
            for tensor in held if isinstance(held, (tuple, list)) else (held,):
                if isinstance(tensor, torch.Tensor) and tensor.device.type != "cuda":
                    return f"it reads a tensor on the {tensor.device.type}, and a recording would keep its values"
        for argument in (*node.args, *node.kwargs.values()):
            if isinstance(argument, torch.Generator):
                return "it draws from the program's own random generator"
        return True

    def compile(self, gm: GraphModule, example_inputs: Sequence[Any], request: CompileRequest) -> CudagraphsFunction:
        """The code for ``gm``; recording starts with the calls.

        Raises:
            NodesRefused: nodes on another GPU than the first one's.
        """
        device = _one_device(gm)
        placeholders = gm.graph.find_nodes(op="placeholder")
        values = [n.meta["val"] for n in placeholders]
        symbolic = any(not isinstance(v, torch.Tensor) or any(not isinstance(s, int) for s in v.shape) for v in values)
        return CudagraphsFunction(
            gm.forward,
            device,
            request.options if request.options is not None else CudagraphsOptions(),
            pool_of(device),
            symbolic=symbolic,
            strict=bool(request.strict),
        )


def _has_mask(node: Node) -> bool:
    values = [i.meta.get("val") for i in node.args[1] if isinstance(i, Node)]
    return any(isinstance(v, torch.Tensor) and v.dtype in (torch.bool, torch.uint8) for v in values)


def _one_device(gm: GraphModule) -> int:
    found: dict[int, list[Node]] = {}
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and node.op == "call_function":
            found.setdefault(value.device.index or 0, []).append(node)
    first = next(iter(found), torch.cuda.current_device())
    others = {
        node.name: f"it is on cuda:{device}, but the graph is on cuda:{first}"
        for device, nodes in found.items()
        for node in nodes
        if device != first
    }
    if others:
        raise NodesRefused(others)
    return first
