"""Removes nodes of a traced graph that do not affect its result, so that no backend sees them."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

_aten = torch.ops.aten

_EMPTY = frozenset(
    getattr(_aten, name).default for name in ("empty_like", "empty_strided", "new_empty", "new_empty_strided")
) | {_aten.empty.memory_format}


def drop_detach_in_place(graph: Graph) -> None:
    """Remove ``detach_``: below autograd it is the tensor itself, but its name says that it writes.

    ``torch.tensor(...)`` leaves one behind for each constant.
    """
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is _aten.detach_.default:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def drop_empty_concatenands(graph: Graph) -> None:
    """Remove operands of ``cat`` that have no elements, as growing caches of keys and values start with.

    What is left must have the result's shape and dtype already; a single operand becomes a copy, since the result of
    ``cat`` never shares memory with an operand.
    """
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is not _aten.cat.default:
            continue
        operands = list(node.args[0])
        kept = [operand for operand in operands if not _is_empty(operand)]
        if len(kept) == len(operands) or not kept:
            continue
        result, dtypes = node.meta["val"], {operand.meta["val"].dtype for operand in kept}
        if dtypes != {result.dtype} or not result.is_contiguous():
            continue  # an empty operand takes part in type promotion and in the choice of strides
        if len(kept) > 1:
            node.args = (kept, *node.args[1:])
            continue
        with graph.inserting_before(node):
            copy = graph.call_function(_aten.clone.default, (kept[0],), {"memory_format": torch.contiguous_format})
        copy.meta = dict(node.meta)
        node.replace_all_uses_with(copy)
        graph.erase_node(node)


def spare_overwritten(graph: Graph) -> None:
    """Make a plain copy of what ``copy`` writes over a tensor, which then need not be there.

    Gradients of slices are full of them: ``new_empty_strided``, then ``copy``.
    """
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is not _aten.copy.default:
            continue
        written, value = node.args[:2]
        result, source = node.meta["val"], value.meta["val"]
        if not result.is_contiguous() or result.device != source.device:
            continue  # it gets the strides of what it writes over
        same = len(result.shape) == len(source.shape) and all(
            type(a) is int and a == b for a, b in zip(result.shape, source.shape, strict=True)
        )
        if not same and any(type(size) is not int for size in result.shape):
            continue
        with graph.inserting_before(node):
            if not same:
                value = graph.call_function(_aten.expand.default, (value, list(result.shape)))
                value.meta = {**node.meta, "val": source.expand(result.shape)}
            options = {"memory_format": torch.contiguous_format}
            if source.dtype is result.dtype:
                copy = graph.call_function(_aten.clone.default, (value,), options)
            else:
                copy = graph.call_function(_aten._to_copy.default, (value,), {"dtype": result.dtype, **options})
        copy.meta = dict(node.meta)
        node.replace_all_uses_with(copy)
        graph.erase_node(node)
        if not written.users and written.target in _EMPTY:
            graph.erase_node(written)


def _is_empty(operand: Node) -> bool:
    return any(type(size) is int and size == 0 for size in operand.meta["val"].shape)
