"""Compiling one part of a graph with TVM."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch.fx import GraphModule, Node

from torchmux.registry.spec import CompileRequest

from ..common.cache import default_cache, graph_key
from ..common.refusal import NodesRefused
from . import build, fingerprint, operators
from .options import TvmOptions
from .runtime import TvmFunction
from .translate import translate


class Tvm:
    """The backend object; see :class:`torchmux.registry.spec.Backend`."""

    def __init__(self) -> None:
        self._fingerprint = fingerprint()

    def decompositions(self) -> dict[Any, Any]:
        return operators.decompositions()

    def keep_whole(self) -> frozenset[Any]:
        return operators.whole()

    def supports(self, node: Node) -> Literal[True] | str:
        return operators.supports(node)

    def compile(self, gm: GraphModule, example_inputs: Sequence[Any], request: CompileRequest) -> TvmFunction:
        options = request.options if request.options is not None else TvmOptions()
        constants = _lift_constants(gm)
        made = translate(gm, use_library=options.library == "torch")
        executable = build.compile_module(made.module, options)
        return TvmFunction(executable, made.inputs, made.outputs, constants, cache_hit=False, notes=[])


def _lift_constants(gm: GraphModule) -> list[torch.Tensor]:
    """Make the tensors that the graph holds placeholders after the others; returns them in order."""
    constants = []
    for node in gm.graph.find_nodes(op="get_attr"):
        last = gm.graph.find_nodes(op="placeholder")
        tensor = getattr(gm, node.target)
        with gm.graph.inserting_before(node) if not last else gm.graph.inserting_after(last[-1]):
            lifted = gm.graph.placeholder(node.name)
        lifted.meta = {"val": node.meta.get("val", tensor)}
        node.replace_all_uses_with(lifted)
        gm.graph.erase_node(node)
        constants.append(tensor.detach())
    return constants
