"""``precision="bf16"``: matrix products and convolutions of float32 in bfloat16, everything else unchanged."""

from __future__ import annotations

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


def _conversion(gm: GraphModule, value: Node, dtype: torch.dtype) -> Node:
    node = gm.graph.call_function(_aten._to_copy.default, (value,), {"dtype": dtype})
    node.meta = {**value.meta, "val": value.meta["val"].to(dtype)}
    return node
