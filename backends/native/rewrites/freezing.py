"""Inference with constant parameters: everything that can be computed before the first call is.

A frozen graph holds its parameters.  Whatever depends on them alone is folded, a batch norm becomes part of the
convolution before it, and, for a target that finishes convolutions, these take what is added to their result, and a
relu behind, along.  A target may pack constant weights when the artifact is loaded.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchmux import torch_internals as internals

from ...common.adapter.graphs import copy_graph
from ...common.pipeline.decompose import is_random
from .convolution_operator import CONVOLUTION

PREFIX = "_frozen_"
"""Names of the tensors that a frozen graph holds.  Their values are not part of the code, nor of its cache key."""

_MOST_BYTES = 1 << 20
"""A folded value may be larger than what it is computed from up to this size."""

STANDS_FOR = "torchmux_stands_for"
"""In ``meta`` of a node that was made of several: their names."""

_aten = torch.ops.aten


def freeze(gm: GraphModule, constants: Mapping[int, torch.Tensor], *, finishes_convolutions: bool) -> GraphModule:
    """A copy of ``gm`` that uses ``constants`` in place of its placeholders at these positions, which stay unused.

    With ``finishes_convolutions``, those with a constant weight are calls of ``torchmux::convolution``.
    """
    gm = copy_graph(gm)
    placeholders = gm.graph.find_nodes(op="placeholder")
    if not constants:
        return gm
    values: dict[Node, Any] = {placeholders[at]: tensor for at, tensor in constants.items()}
    with torch.no_grad(), internals.without_modes():
        _fold(gm, values)
        _fold_batch_norms(gm)
    if finishes_convolutions:
        _take_along(gm)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm


def is_frozen(name: str) -> bool:
    """Whether a graph's attribute is a frozen tensor."""
    return name.startswith(PREFIX)


# --- constants --------------------------------------------------------------------------------------------------------


def _fold(gm: GraphModule, frozen: dict[Node, Any]) -> None:
    """Compute what depends on ``frozen`` and on constants of the graph alone, and hold what the rest uses of it."""
    known: dict[Node, Any] = dict(frozen)
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            known[node] = getattr(gm, str(node.target))
        elif node.op == "call_function" and all(n in known for n in node.all_input_nodes):
            found = _computed(node, known)
            if found is not None:
                known[node] = found
                if any(n in frozen for n in node.all_input_nodes):
                    frozen[node] = found
    for node, value in frozen.items():
        users = [u for u in node.users if u not in frozen]
        if not users or not isinstance(value, torch.Tensor):
            continue
        held = _hold(gm, value, before=_first_call(gm))
        held.meta = dict(node.meta)
        for user in users:
            user.replace_input_with(node, held)


def _first_call(gm: GraphModule) -> Node:
    return next(n for n in gm.graph.nodes if n.op not in ("placeholder", "get_attr"))


def _hold(gm: GraphModule, tensor: torch.Tensor, before: Node) -> Node:
    name = f"{PREFIX}{sum(n.startswith(PREFIX) for n in vars(gm))}"
    setattr(gm, name, tensor.detach())
    with gm.graph.inserting_before(before):
        return gm.graph.create_node("get_attr", name)


def _computed(node: Node, known: Mapping[Node, Any]) -> Any:
    """What ``node`` computes of known values; None if that must be left to the call, or would take too much memory."""
    if node.target is operator.getitem:
        return known[node.args[0]][node.args[1]]
    if not isinstance(node.target, internals.OpOverload) or is_random(node.target):
        return None
    fake = node.meta.get("val")
    if not isinstance(fake, torch.Tensor) or not all(type(s) is int for s in (*fake.shape, *fake.stride())):
        return None
    if internals.operator_schema(node.target).is_mutable:
        return None
    least = max((_bytes(known[n]) for n in node.all_input_nodes), default=0)
    if _bytes(fake) > max(least, _MOST_BYTES):
        return None
    args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), known.__getitem__)
    return node.target(*args, **kwargs)


def _bytes(value: Any) -> int:
    return int(value.numel()) * value.dtype.itemsize if isinstance(value, torch.Tensor) else 0


# --- convolutions -----------------------------------------------------------------------------------------------------


def _held(gm: GraphModule, node: Any) -> torch.Tensor | None:
    if isinstance(node, Node) and node.op == "get_attr":
        found: torch.Tensor = getattr(gm, str(node.target))
        return found
    return None


def _fold_batch_norms(gm: GraphModule) -> None:
    """Make a batch norm with constant statistics part of the convolution whose result it alone uses."""
    for node in list(gm.graph.nodes):
        if node.target is not _aten._native_batch_norm_legit_no_training.default:
            continue
        conv, eps = node.args[0], node.args[6]
        if not _is_convolution(conv) or len(conv.users) != 1 or any(u.args[1] != 0 for u in node.users):
            continue
        given = [*conv.args[1:3], *node.args[1:5]]
        tensors = [_held(gm, g) for g in given]
        if any(g is not None and t is None for g, t in zip(given, tensors, strict=True)) or tensors[0] is None:
            continue
        kernel, bias, weight, shift, mean, variance = (t.double() if t is not None else None for t in tensors)
        assert kernel is not None and mean is not None and variance is not None
        scale = torch.rsqrt(variance + eps)
        scale = scale if weight is None else scale * weight
        moved = (-mean if bias is None else bias - mean) * scale
        moved = moved if shift is None else moved + shift
        dtype = tensors[0].dtype
        scaled = kernel * scale.view(-1, *([1] * (kernel.dim() - 1)))
        first = _first_call(gm)
        held = [_hold(gm, t.to(dtype), first) for t in (scaled, moved)]
        for new in held:
            new.meta = {"val": getattr(gm, str(new.target))}
        conv.args = (conv.args[0], *held, *conv.args[3:])
        for user in list(node.users):
            user.replace_all_uses_with(conv)
            gm.graph.erase_node(user)
        gm.graph.erase_node(node)


def _is_convolution(node: Any) -> bool:
    """Whether ``node`` is an ordinary convolution over two dimensions with a held weight, which targets can pack."""
    if not isinstance(node, Node) or node.target is not _aten.convolution.default:
        return False
    weight, transposed, fake = node.args[1], node.args[6], node.meta["val"]
    return (
        isinstance(weight, Node)
        and weight.op == "get_attr"
        and not transposed
        and fake.dim() == 4
        and fake.dtype is torch.float32
        and all(type(s) is int for s in fake.shape)
    )


def _take_along(gm: GraphModule) -> None:
    """Make the addition and the relu that follow a convolution part of it where nothing else uses its result."""
    order = {node: at for at, node in enumerate(gm.graph.nodes)}
    for node in list(gm.graph.nodes):
        if not _is_convolution(node) or not is_frozen(str(node.args[1].target)):
            continue
        x, weight, bias, stride, padding, dilation, _, _, groups = node.args
        last, other, names = node, None, [node.name]
        user = _only_user(last)
        if user is not None and user.target is _aten.add.Tensor and not user.kwargs:
            rest = user.args[0] if user.args[1] is last else user.args[1]
            if isinstance(rest, Node) and rest is not last and _alike(rest, last):
                # Of two convolutions that are added, the one that runs last adds.
                if not (_is_convolution(rest) and order[rest] > order[node] and _only_user(rest) is user):
                    last, other = user, rest
                    names.append(user.name)
        user = _only_user(last)
        relu = user is not None and user.target is _aten.relu.default
        if relu:
            assert user is not None
            last = user
            names.append(user.name)
        with gm.graph.inserting_before(last):
            new = gm.graph.call_function(CONVOLUTION, (x, weight, bias, other, stride, padding, dilation, groups, relu))
        new.meta = {**last.meta, STANDS_FOR: names}
        order[new] = order[last]
        last.replace_all_uses_with(new)


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _alike(a: Node, b: Node) -> bool:
    left, right = a.meta.get("val"), b.meta.get("val")
    return (
        isinstance(left, torch.Tensor)
        and isinstance(right, torch.Tensor)
        and left.shape == right.shape
        and left.dtype is right.dtype
    )
