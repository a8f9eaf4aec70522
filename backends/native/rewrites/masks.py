"""Masks of attention that hide nothing, or just the future, are dropped from a captured graph; others are laid out for
fused attention.

While they are captured, libraries make masks that they leave out in eager, because then they can look at them.  torch's
fused kernels take some masks only, or none, and what is not fused costs several times as much.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchmux import torch_internals as internals

_ATTENTION = torch.nn.functional.scaled_dot_product_attention
_MOST_NODES = 64
_MOST_ELEMENTS = 1 << 26


def simplified(gm: GraphModule) -> GraphModule:
    """``gm`` without masks that depend on nothing and hide nothing; ``gm`` itself where there are none to change."""
    found: dict[Node, str] = {}
    changes: list[tuple[str, str]] = []
    for node in gm.graph.nodes:
        mask = _mask_of(node)
        if mask is None:
            continue
        if mask not in found:
            found[mask] = _hidden(mask)
        hidden = found[mask]
        if hidden != "something" or not _is_laid_out(mask):
            changes.append((node.name, hidden))
    if not changes:
        return gm
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    graph.output(graph.graph_copy(gm.graph, copies))
    by_name = {old.name: new for old, new in copies.items()}
    for name, hidden in changes:
        _change(by_name[name], hidden)
    graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output") or not _is_pure(node))
    made = GraphModule(gm, graph)
    made.meta.update(gm.meta)
    return made


def _mask_of(node: Node) -> Node | None:
    if node.op != "call_function" or node.target is not _ATTENTION:
        return None
    mask = node.kwargs.get("attn_mask", node.args[3] if len(node.args) > 3 else None)
    return mask if isinstance(mask, Node) else None


def _change(node: Node, hidden: str) -> None:
    mask: Any = None
    if hidden == "something":
        with node.graph.inserting_before(node):
            mask = node.graph.call_method("contiguous", (_mask_of(node),))
    if "attn_mask" in node.kwargs:
        node.update_kwarg("attn_mask", mask)
    else:
        node.update_arg(3, mask)
    if hidden == "the future":
        if len(node.args) > 5:
            node.update_arg(5, True)
        else:
            node.update_kwarg("is_causal", True)


def _is_laid_out(mask: Node) -> bool:
    """Whether fused attention reads it: the elements of a row are side by side."""
    value = mask.meta.get("example_value")
    return not isinstance(value, torch.Tensor) or value.dim() == 0 or value.shape[-1] == 1 or value.stride(-1) == 1


_MAKING = frozenset(
    (
        "arange", "zeros", "ones", "full", "tensor", "expand", "expand_as", "view", "reshape", "unsqueeze",
        "squeeze", "to", "ge", "gt", "le", "lt", "eq", "ne", "add", "sub", "mul", "and_", "or_", "logical_and",
        "logical_or", "getitem", "__getitem__", "broadcast_to", "where", "bool", "float", "cumsum", "triu",
        "tril", "new_ones", "new_zeros", "new_full", "masked_fill", "contiguous", "__and__", "__or__",
        "bitwise_and", "bitwise_or", "logical_not", "bitwise_not", "invert", "diff",
    )
)  # fmt: skip
"""Operators that make masks, which change nothing and draw nothing."""


def _is_pure(node: Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return node.op in ("call_function", "call_method") and name in _MAKING


def _hidden(mask: Node) -> str:
    """What a mask that depends on no input hides: "nothing", "the future", as ``is_causal`` does, or "something"."""
    needed: dict[Node, None] = {}
    waiting = [mask]
    while waiting:
        node = waiting.pop()
        if node in needed:
            continue
        value = node.meta.get("example_value")
        sizes = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
        if not _is_pure(node) or len(needed) >= _MOST_NODES or any(type(s) is not int for s in sizes):
            return "something"
        needed[node] = None
        waiting += node.all_input_nodes
    value = mask.meta.get("example_value")
    if not isinstance(value, torch.Tensor) or value.numel() > _MOST_ELEMENTS:
        return "something"
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    for node in mask.graph.nodes:
        if node in needed:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(copies[mask])
    try:
        with internals.without_modes(), torch.no_grad():
            real = torch.fx.Interpreter(GraphModule(torch.nn.Module(), graph)).run()
            shown = real if real.dtype is torch.bool else real == 0
            if shown.all():
                return "nothing"
            # What is not shown must be hidden from all, and not just count less.
            hides = real.dtype is torch.bool or bool((shown | (real == -torch.inf)).all())
            square = real.dim() >= 2 and real.shape[-1] == real.shape[-2]
            if hides and square and torch.equal(shown, torch.ones_like(shown).tril()):
                return "the future"
    except Exception:  # what cannot be known ahead stays
        return "something"
    return "something"
