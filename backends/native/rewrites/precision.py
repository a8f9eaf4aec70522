"""Matrix products and convolutions in another dtype than that of their operands, everything else unchanged.

``precision="bf16"`` asks for bfloat16.  Convolutions of float16 are computed in float32 on processors where the library
takes longer for them (``convolves_float16`` in ``targets/cpu/computed.py``); their result is rounded once.
"""

from __future__ import annotations

from operator import getitem

import torch
from torch.fx import GraphModule, Node

from ...common.adapter.graphs import copy_graph

_aten = torch.ops.aten
_PRODUCTS = frozenset(
    (_aten.mm.default, _aten.bmm.default, _aten.addmm.default, _aten.baddbmm.default, _aten.convolution.default)
)


def in_bfloat16(gm: GraphModule) -> GraphModule:
    """A copy of ``gm`` whose products take bfloat16, add up in float32, and give bfloat16, converted back."""
    gm = copy_graph(gm)
    converted: dict[Node, Node] = {}
    for node in list(gm.graph.nodes):
        if node.target not in _PRODUCTS or node.meta["val"].dtype is not torch.float32:
            continue
        taken = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]
        if any(n.meta["val"].dtype is not torch.float32 for n in taken):
            continue
        for value in taken:
            if value not in converted:
                with gm.graph.inserting_after(value):
                    converted[value] = _conversion(gm, value, torch.bfloat16)
            node.replace_input_with(value, converted[value])
        exact = node.meta["val"]
        node.meta["val"] = exact.to(torch.bfloat16)
        with gm.graph.inserting_after(node):
            back = _conversion(gm, node, torch.float32)
        node.replace_all_uses_with(back, delete_user_cb=lambda user, back=back: user is not back)
        back.meta["val"] = exact
    gm.recompile()
    return gm


def convolutions_in_float32(gm: GraphModule, dtype: torch.dtype) -> GraphModule:
    """A copy of ``gm`` whose convolutions of ``dtype``, and their gradients, are of float32, converted back.

    Windows of one channel are left alone: loops compute them, in float32.
    """
    found = [n for n in gm.graph.nodes if n.target in _CONVOLUTIONS and _is_of(n, dtype)]
    if not found:
        return gm
    names = {node.name for node in found}
    gm = copy_graph(gm)
    converted: dict[Node, Node] = {}
    for node in [n for n in gm.graph.nodes if n.name in names]:
        for value in node.all_input_nodes:
            if isinstance(value.meta.get("val"), torch.Tensor):
                if value not in converted:
                    with gm.graph.inserting_after(value):
                        converted[value] = _conversion(gm, value, torch.float32)
                node.replace_input_with(value, converted[value])
        results = [node] if node.target is _CONVOLUTION else [n for n in node.users if n.target is getitem]
        exact = [result.meta["val"] for result in results]
        for result, value in zip(results, exact, strict=True):
            if isinstance(value, torch.Tensor):
                result.meta["val"] = value.to(torch.float32)
                with gm.graph.inserting_after(result):
                    back = _conversion(gm, result, dtype)
                result.replace_all_uses_with(back, delete_user_cb=lambda user, back=back: user is not back)
                back.meta["val"] = value
        if node.target is not _CONVOLUTION:
            values = node.meta["val"]
            node.meta["val"] = tuple(v.float() if isinstance(v, torch.Tensor) else v for v in values)
    gm.recompile()
    return gm


_CONVOLUTION = _aten.convolution.default
_CONVOLUTIONS = frozenset((_CONVOLUTION, _aten.convolution_backward.default))


def _is_of(node: Node, dtype: torch.dtype) -> bool:
    values = [n.meta.get("val") for n in node.all_input_nodes]
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    weight = node.args[1 if node.target is _CONVOLUTION else 2].meta["val"]
    is_filter = node.target is _CONVOLUTION and weight.shape[1] == 1 and node.args[8] == weight.shape[0]
    return not is_filter and all(v.dtype is dtype for v in tensors)


def _conversion(gm: GraphModule, value: Node, dtype: torch.dtype) -> Node:
    node = gm.graph.call_function(_aten._to_copy.default, (value,), {"dtype": dtype})
    node.meta = {**value.meta, "val": value.meta["val"].to(dtype)}
    return node
