"""Writes to tensors whose elements overlap in memory, as in ``x.expand(4).fill_(1)``.

Eager allows some of these writes, and their result depends on how the elements overlap.  Functionalization treats each
element as separate memory: it adds up the copies, or chooses one.  A graph that writes to such a tensor therefore runs
in torch, which also raises eager's error if eager refuses the write.  So does one that writes to windows
(``x.unfold``) that leave some elements out: functionalization makes zeros of those.

Inputs may share memory as well.  Code that writes to one of them was compiled for one way in which they do.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node
from torch.multiprocessing.reductions import StorageWeakRef

from torchmux import torch_internals as internals

from . import aliasing

BEHIND_AUTOGRAD = "the graph writes, behind autograd's back, to an input that autograd has computed"
PART_OF_SHARED = "a result is a view of inputs that share memory, to one of which the graph writes"
PART_OF_SYMBOLIC = "a result is a view, with symbolic sizes, of an input to which the graph writes"
REASON = "the graph writes to a tensor of which several elements lie in one place, or to windows that leave some out"


def is_overlapping(value: Any) -> bool:
    """Whether elements of this tensor may overlap; symbolic sizes have the values of this call."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    sizes, strides = [_now(n) for n in value.shape], [_now(n) for n in value.stride()]
    if None in sizes or None in strides or 0 in sizes:
        return False  # an unbacked size belongs to a new tensor, which does not overlap itself
    reach = 0
    for stride, size in sorted((stride, size) for size, stride in zip(sizes, strides, strict=True) if size > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def span(tensor: torch.Tensor) -> torch.Tensor:
    """All memory from the first element of ``tensor`` to the last, as a tensor of one dimension."""
    reach = sum(stride * (size - 1) for stride, size in zip(tensor.stride(), tensor.size(), strict=True))
    return tensor.as_strided((reach + 1,), (1,))


def _now(number: Any) -> Any:
    return number if type(number) is int else number.node.hint


def is_written_to(traced: GraphModule) -> bool:
    """Whether an operator of an ATen graph writes to a tensor that overlaps itself, or to a part of one."""
    return any(_shows_overlap(n) for node in traced.graph.nodes if aliasing.writes(node) for n in _written(node))


def _written(node: Node) -> list[Node]:
    found: list[Node] = []
    for position, argument in enumerate(internals.operator_schema(node.target).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            found += [v for v in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(v, Node)]
    return found


def _shows_overlap(node: Node) -> bool:
    at: Node | None = node
    while at is not None:
        if is_overlapping(at.meta.get("val")) or _leaves_out(at):
            return True
        at = _shown(at)
    return False


def _leaves_out(node: Node) -> bool:
    """Whether a node is a view of windows that do not have all elements."""
    if node.target is not torch.ops.aten.unfold.default:
        return False
    counts = [_now(each.meta["val"].numel()) for each in (node, node.args[0]) if isinstance(each, Node)]
    return None in counts or counts[0] < counts[1]


def _shown(node: Node) -> Node | None:
    """The base of the view ``node``; an operator that writes returns its target."""
    if (base := aliasing.viewed(node)) is not None:
        return base
    return next(iter(_written(node)), None) if aliasing.writes(node) else None


def may_be_written_to(gm: GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether a tensor of a captured graph that overlaps itself, or has windows, has been written to."""
    values = [(n.target, n.meta.get("example_value")) for n in gm.graph.nodes if n.op != "output"]
    return any(
        isinstance(v, torch.Tensor) and _version(v) > 0 and (is_overlapping(v) or _called(target) == "unfold")
        for target, v in [*((None, v) for v in inputs), *values]
    )


def may_be_returned(gm: GraphModule) -> bool:
    """Whether a result of a captured graph may overlap itself: a gradient of it has no room in its strides."""
    results = [n for node in gm.graph.find_nodes(op="output") for n in node.all_input_nodes]
    return any("example_value" not in n.meta or is_overlapping(n.meta["example_value"]) for n in results)


def writes_behind_autograd(gm: GraphModule) -> bool:
    """Whether a captured graph writes to a detached tensor in the memory of an input that is no leaf.

    AOTAutograd copies the new contents to the input itself, in view of autograd: that is an error for views of leaves,
    and for leaves, to which the code belongs as well.  Where the graph also writes in its view, eager raises it.
    """
    inputs = [n for n in gm.graph.find_nodes(op="placeholder") if getattr(_example(n), "requires_grad", False)]
    made = _storages(n for n in inputs if not _example(n).is_leaf)
    if not made:
        return False
    written = [n for node in gm.graph.nodes for n in _targets(node)]
    behind, seen = (_storages(n for n in written if _is_detached(n) is hidden) for hidden in (True, False))
    return any(storage in made and storage not in seen for storage in behind)


def _is_detached(node: Node) -> bool:
    """Whether a tensor did not require a gradient before it was written to: what is written may require one."""
    if not getattr(_example(node), "requires_grad", True):
        return True
    while node.op in ("call_function", "call_method") and node.all_input_nodes:
        if _called(node.target) in ("detach", "detach_") or node.args[1:] == ("data",):
            return True
        node = node.all_input_nodes[0]
    return False


def _targets(node: Node) -> Iterable[Node]:
    """The tensors that a node of a captured graph writes to."""
    name = _called(node.target)
    if node.target in _IN_PLACE or name in ("setitem", "__setitem__") or (name.endswith("_") and name[-2:] != "__"):
        first = node.args[0] if node.args else None
        yield from (n for n in (first if isinstance(first, (list, tuple)) else (first,)) if isinstance(n, Node))
    out = node.kwargs.get("out")
    yield from (n for n in (out if isinstance(out, (list, tuple)) else (out,)) if isinstance(n, Node))


def returns_parts_of_written_inputs(gm: GraphModule) -> str | None:
    """Why AOTAutograd gets a captured graph wrong that returns a view of an input to which it writes, if it does.

    It makes such a result anew from the input.  Where inputs share memory, one tensor of all their memory stands in
    their place, and the steps that led to the view from the one input lead from there to another place.  Where sizes
    are symbolic, it takes strides and offset of the view in a copy of the input, which lies in memory otherwise, unless
    no view on the way to it has a number among its arguments.
    """
    written = _storages(n for n in gm.graph.nodes if _is_written(_example(n)))  # ``.data`` counts its own writes
    inputs = [storage for storage in _storages(gm.graph.find_nodes(op="placeholder")) if storage in written]
    results = [n for n in gm.graph.output_node().all_input_nodes if n.op != "placeholder"]
    if any(inputs.count(storage) > 1 for storage in _storages(results)):
        return PART_OF_SHARED
    others = [n for n in results if not _is_repeated(n)] if inputs and _has_symbols(gm) else []
    return PART_OF_SYMBOLIC if any(storage in inputs for storage in _storages(others)) else None


def _storages(nodes: Iterable[Node]) -> list[StorageWeakRef]:
    values = (_example(n) for n in nodes)
    dense = (v for v in values if isinstance(v, torch.Tensor) and v.layout is torch.strided)
    return [StorageWeakRef(v.untyped_storage()) for v in dense]


def _is_written(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and _version(value) > 0


def _has_symbols(gm: GraphModule) -> bool:
    """Whether some size, stride or number of a captured graph is symbolic."""
    values = [_example(n) for n in gm.graph.find_nodes(op="placeholder")]
    numbers = (n for v in values for n in ((*v.shape, *v.stride()) if isinstance(v, torch.Tensor) else (v,)))
    return any(isinstance(n, torch.SymInt) for n in numbers)


def _example(node: Node) -> Any:
    return node.meta.get("example_value")


_WITHOUT_NUMBERS = frozenset(
    (
        "detach",
        "alias",
        "t",
        "T",
        "mT",
        "transpose",
        "swapaxes",
        "permute",
        "movedim",
        "squeeze",
        "unsqueeze",
        "getattr",
    )
)


_IN_PLACE = frozenset(
    getattr(operator, f"__i{name}__")
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
)


def _is_repeated(node: Node) -> bool:
    """Whether no view between an input and ``node`` has a size among its arguments."""
    while node.op in ("call_function", "call_method") and node.all_input_nodes:
        name = _called(node.target)
        in_place = node.target in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))
        if not in_place and name.rstrip("_") not in _WITHOUT_NUMBERS:
            return False
        node = node.all_input_nodes[0]
    return node.op == "placeholder"


def _called(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", "")


def _version(tensor: torch.Tensor) -> int:
    return 1 if tensor.is_inference() else tensor._version


PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
"""Classes of tensors that consist of no others."""


class Sharing(NamedTuple):
    """How tensors share memory, as far as it matters to code that writes to some of them."""

    first: list[int]
    """For each tensor the position of the first one on its storage (:func:`sharing`)."""
    places: list[list[int]]
    """Of the tensors on a storage to which the code writes, where there are several: position and storage offset."""

    @classmethod
    def of(cls, gm: GraphModule, args: Sequence[Any]) -> Sharing:
        """How the inputs ``args`` of the captured graph ``gm`` share memory."""
        written = _written_inputs(gm)
        first = sharing(args)
        tensors = [(at, part) for at, value in enumerate(args) for part in _tensors([value])]
        changed = {leader for leader, (at, _) in zip(first, tensors, strict=True) if written is None or at in written}
        several = {leader for leader in changed if first.count(leader) > 1}
        return cls(first, [[p, tensors[p][1].storage_offset()] for p, at in enumerate(first) if at in several])

    def holds(self, args: Sequence[Any]) -> bool:
        """Whether these tensors share memory in the same way."""
        if sharing(args) != self.first:
            return False
        if not self.places:
            return True
        tensors = _tensors(args)
        return all(tensors[position].storage_offset() == offset for position, offset in self.places)


def _tensors(args: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors among ``args``, or what they consist of."""
    if any(isinstance(value, torch.Tensor) and type(value) not in PLAIN for value in args):
        args = [part for value in args for part in internals.parts_of(value)]
    return [value for value in args if isinstance(value, torch.Tensor)]


def sharing(args: Sequence[Any]) -> list[int]:
    """Like :func:`aliasing.sharing`, for real tensors and in a fifth of the time; empty tensors share with no other.

    A tensor that consists of others shares memory where those do.
    """
    first: dict[int, int] = {}
    answer = []
    for position, value in enumerate(_tensors(args)):
        address = value.untyped_storage().data_ptr()
        answer.append(first.setdefault(address, position) if address else position)
    return answer


def _written_inputs(gm: GraphModule) -> set[int] | None:
    """The positions of the inputs that the capture saw ``gm`` write to; None if it saw none."""
    values = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
    found = {at for at, v in enumerate(values) if isinstance(v, torch.Tensor) and _version(v) > 0}
    return found or None
