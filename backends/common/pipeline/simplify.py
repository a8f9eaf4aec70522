"""Removes nodes of a traced graph that need not run in each call, so that no backend sees them."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from torchmux import torch_internals as internals

from . import aliasing
from .decompose import is_random

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


def merge_repeated(graph: Graph) -> None:
    """Let each operator that computes what one before it has computed give way to that one.

    Those stay that draw numbers, have effects or tell their results from the values of tensors, and those whose results
    share memory with an output: eager returns a tensor for each.
    """
    root = aliasing.roots(graph)
    shown = {root[node] for node in graph.output_node().all_input_nodes}
    shown |= {node.args[0] for node in shown if node.target is operator.getitem}  # one of several results
    first: dict[Any, Node] = {}
    writes = 0
    for node in list(graph.nodes):
        if aliasing.writes(node):
            writes += 1  # what was read before may be something else now
        elif root[node] not in shown and _is_repeatable(node):
            try:
                found = first.setdefault((writes, node.target, _key(node.args), _key(node.kwargs)), node)
            except TypeError:  # an argument without a hash
                continue
            if found is not node:
                node.replace_all_uses_with(found)
                graph.erase_node(node)


def fold_numbers(gm: GraphModule) -> None:
    """Compute once what follows from numbers that the program has made tensors: ``torch.sqrt(torch.tensor(64.0))``.

    Such tensors are on the CPU.  In a graph on another device, each operator on them would be a call of torch's between
    parts that a backend compiles.  What a result shares memory with stays, as eager returns a new tensor.
    """
    root = aliasing.roots(gm.graph)
    shown = {root[node] for node in gm.graph.output_node().all_input_nodes}
    written = {argument for node in gm.graph.nodes if aliasing.writes(node) for argument in node.all_input_nodes}
    numbers: dict[Node, torch.Tensor] = {}
    for node in gm.graph.nodes:
        if node.op == "get_attr" and _is_number(value := getattr(gm, str(node.target), None)) and node not in written:
            numbers[node] = value
        elif root[node] not in shown and _is_arithmetic(node) and node.all_input_nodes:
            if all(operand in numbers for operand in node.all_input_nodes):
                with internals.without_modes(), internals.disable_autocast(), torch.no_grad():
                    value = node.target(
                        *map_arg(node.args, numbers.__getitem__), **map_arg(node.kwargs, numbers.__getitem__)
                    )
                if _is_number(value):
                    numbers[node] = value
    for node, value in numbers.items():
        if node.op == "get_attr" or all(user in numbers for user in node.users):
            continue
        name = next(n for n in map("_number{}".format, itertools.count()) if not hasattr(gm, n))
        setattr(gm, name, value)
        with gm.graph.inserting_before(node):
            folded = gm.graph.create_node("get_attr", name)
        folded.meta = dict(node.meta)
        node.replace_all_uses_with(folded)
    for node in reversed(numbers):
        if not node.users:
            gm.graph.erase_node(node)


def _is_number(value: Any) -> bool:
    return type(value) is torch.Tensor and value.dim() == 0 and value.device.type == "cpu" and not value.requires_grad


_CONVERSIONS = frozenset(
    (_aten.lift_fresh_copy.default, _aten._to_copy.default, torch.ops.prims.convert_element_type.default)
)


def _is_arithmetic(node: Node) -> bool:
    """Whether ``node`` computes each element from those in its place, with no other effect."""
    if node.target in _CONVERSIONS:
        return True
    if not isinstance(node.target, torch._ops.OpOverload) or torch.Tag.pointwise not in node.target.tags:
        return False
    return node.target.namespace == "aten" and not node.target._schema.is_mutable and not is_random(node.target)


_TELLS_FROM_VALUES = frozenset((torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape))


def _is_repeatable(node: Node) -> bool:
    if node.op != "call_function" or node.target in _EMPTY or node.is_impure() or is_random(node.target):
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        return _TELLS_FROM_VALUES.isdisjoint(node.target.tags)
    return getattr(node.target, "__module__", "") in ("_operator", "math")  # of what computes with sizes


def _key(value: Any) -> Any:
    """Equal for equal arguments only: 1, 1.0 and True are different ones, and so are 0.0 and -0.0.

    Raises:
        TypeError: when it is hashed, for what has no hash.
    """
    if isinstance(value, (list, tuple)):
        return (list if isinstance(value, list) else tuple, *map(_key, value))
    if isinstance(value, dict):
        return (dict, *((name, _key(each)) for name, each in value.items()))
    if isinstance(value, slice):
        return slice, _key(value.start), _key(value.stop), _key(value.step)
    if isinstance(value, (float, complex)):
        return type(value), repr(value)
    return type(value), value


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


def spare_kept_dimensions(graph: Graph) -> None:
    """Sum without the dimensions of one element that only a view takes away again: gradients of biases have them."""
    for node in graph.find_nodes(op="call_function", target=_aten.view.default):
        total = node.args[0]
        if total.target is not _aten.sum.dim_IntList or len(total.users) > 1 or total.args[2:] != (True,):
            continue
        summed, result = total.args[0].meta["val"], node.meta["val"]
        dims = {dim % max(summed.dim(), 1) for dim in total.args[1]}
        left = [size for dim, size in enumerate(summed.shape) if dim not in dims]
        if not dims or any(type(size) is not int for size in summed.shape) or list(result.shape) != left:
            continue
        total.args, total.meta = total.args[:2], dict(node.meta)
        node.replace_all_uses_with(total)
        graph.erase_node(node)


def see_past_writes(graph: Graph) -> None:
    """Read what was written to a part of a tensor where it comes from, and the rest of it before that was written.

    Writes in place to parts become ``slice_scatter`` and ``select_scatter`` of the whole, one after the other: the four
    gates of an LSTM cell read and write one tensor.  Only sizes that are known are compared, and what the graph writes
    to is not read later than it was.  A part stays one if a result shows its memory, directly or by way of other views.
    """
    root = aliasing.roots(graph)
    shown = _shown(graph)
    written = {root.get(a, a) for node in graph.nodes if aliasing.writes(node) for a in node.all_input_nodes}
    for node in list(graph.nodes):
        part = _part_read(node)
        if part is None or node in shown:
            continue
        whole, dim, first, last = part
        base, found = whole, None
        while (write := _part_written(base)) is not None and write[2] == dim:
            under, source, _, low, high = write
            if last <= low or high <= first:
                base = under
                continue
            same = source.meta["val"].shape == node.meta["val"].shape and (low, high) == (first, last)
            found = source if same and source.meta["val"].dtype is node.meta["val"].dtype else None
            break
        if (found is None and base is whole) or root.get(found or base, found or base) in written:
            continue
        if found is None:
            with graph.inserting_before(node):
                if node.target is _aten.select.int:
                    found = graph.call_function(_aten.select.int, (base, dim, first))
                else:
                    found = graph.call_function(_aten.slice.Tensor, (base, dim, first, last))
            found.meta = dict(node.meta)
        node.replace_all_uses_with(found)
    for node in reversed(list(graph.nodes)):
        if not node.users and (_part_read(node) or _part_written(node) or node.target is _aten.split.Tensor):
            graph.erase_node(node)


def _shown(graph: Graph) -> set[Node]:
    """The nodes whose memory a result shows, or an operator that finds elements by where they lie."""
    found: set[Node] = set()
    for node in graph.nodes:
        if node.op != "output" and node.target is not _aten.as_strided.default:
            continue
        for shown in node.all_input_nodes:
            base: Node | None = shown
            while base is not None and base not in found:
                found.add(base)
                base = aliasing.viewed(base)
    return found


def _part_read(node: Node) -> tuple[Node, int, int, int] | None:
    """The tensor of which ``node`` is a part, the dimension, and from where to where; None if that is unknown."""
    if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
        return None
    if node.target is operator.getitem:
        split, nth = node.args
        if not isinstance(split, Node) or split.target is not _aten.split.Tensor or not isinstance(split.args[0], Node):
            return None
        whole, length = split.args[:2]
        dim = split.args[2] if len(split.args) > 2 else split.kwargs.get("dim", 0)
        return _interval(whole, dim, nth * length if type(nth) is int and type(length) is int else None, node)
    if node.target is _aten.slice.Tensor and len(node.args) >= 3 and len(node.args) < 5 and not node.kwargs:
        return _interval(node.args[0], node.args[1], node.args[2], node)
    if node.target is _aten.select.int and not node.kwargs:
        return _interval(node.args[0], node.args[1], node.args[2], node)
    return None


def _part_written(node: Node) -> tuple[Node, Node, int, int, int] | None:
    """What ``node`` writes to, what it writes, the dimension, and from where to where."""
    if node.op != "call_function" or node.kwargs:
        return None
    if node.target is _aten.select_scatter.default:
        whole, source, dim, first = node.args
    elif node.target is _aten.slice_scatter.default and 4 <= len(node.args) < 6:
        whole, source, dim, first = node.args[:4]
    else:
        return None
    found = _interval(whole, dim, first, source)
    return None if found is None or not isinstance(source, Node) else (found[0], source, *found[1:])


def _interval(whole: Any, dim: Any, first: Any, part: Node) -> tuple[Node, int, int, int] | None:
    """``part`` of ``whole``, which begins at ``first``; its length is that of ``part``, or 1 without the dimension."""
    shape, sizes = whole.meta["val"].shape, part.meta["val"].shape
    if type(dim) is not int or type(first) is not int or not shape:
        return None
    dim %= len(shape)
    extent = shape[dim]
    length = sizes[dim] if len(sizes) == len(shape) else 1
    if type(extent) is not int or type(length) is not int:
        return None
    first = min(first + extent if first < 0 else first, extent)
    return (whole, dim, first, first + length) if first >= 0 else None


def _is_empty(operand: Node) -> bool:
    return any(type(size) is int and size == 0 for size in operand.meta["val"].shape)
