"""A captured graph as a chain of pieces, each a graph of its own, that may go to different backends.

A piece is a run of consecutive nodes, so every piece after it comes later in the program, and random numbers are drawn
in the same order.  A cut is possible where few tensors pass, where nothing but tensors passes, and not between a write
and anything else that uses the same memory.  One run in eager finds this out, and how long each operator takes.

Which cuts are made follows from the times by kind of operator: neighbors are merged, those first whose difference in
kind concerns the fewest seconds (Ward's criterion, 1963), until the pieces that are left differ by enough.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node

from torchmux import torch_internals as internals

from ..parcel import Parcel, pack

MOST_LIVE = 8
"""How many tensors may pass a cut."""

LEAST = 0.04
"""Neighbors are merged if less than this share of the time is spent on what they differ in."""

_RUNS = 3

_KINDS = {
    "conv": "convolution",
    "linear": "matrix product",
    "matmul": "matrix product",
    "addmm": "matrix product",
    "bmm": "matrix product",
    "mm": "matrix product",
    "einsum": "matrix product",
    "attention": "attention",
    "lstm": "recurrence",
    "gru": "recurrence",
    "rnn": "recurrence",
    "pool": "pooling",
    "interpolate": "resampling",
    "grid_sample": "resampling",
    "sort": "order",
    "topk": "order",
    "cumsum": "order",
    "cumprod": "order",
    "gather": "indexing",
    "scatter": "indexing",
    "index": "indexing",
    "embedding": "indexing",
    "getitem": "indexing",
    "fft": "transform",
}
_OTHER = "elementwise"


class Whole(Exception):
    """The graph stays in one piece; the message says why."""


@dataclass
class Segment:
    """The nodes ``first`` to ``last - 1`` of a graph.

    ``seconds`` are those of eager, by kind of operator.  ``passed`` are the bytes that it hands to the next segment.
    """

    first: int
    last: int
    seconds: dict[str, float] = field(default_factory=dict)
    passed: int = 0

    @property
    def total(self) -> float:
        return math.fsum(self.seconds.values())

    @property
    def kind(self) -> str:
        """What it spends most of its time on."""
        return max(self.seconds, key=self.seconds.__getitem__, default=_OTHER)


def cut(gm: GraphModule, inputs: Any, most: int) -> list[Segment]:
    """At most ``most`` segments that cover all nodes of ``gm`` in order, which differ in what they compute.

    Args:
        inputs: makes fresh inputs of the graph for a run.

    Raises:
        Whole: there is no place to cut, or all of the graph is alike.
    """
    for node in gm.graph.nodes:
        if node.op == "get_attr" and not isinstance(getattr(gm, node.target, None), torch.Tensor):
            raise Whole("it has graphs inside")
        if any(isinstance(size, torch.SymInt) for size in _sizes(node.meta.get("example_value"))):
            raise Whole("its sizes are symbolic")
    seen = _seen(gm, inputs)
    atoms = list(_atoms(gm, seen))
    merged = _merged(atoms, most)
    if len(merged) < 2:
        raise Whole("all of it is of one kind" if len(atoms) > 1 else "there is no narrow place to cut it")
    return merged


def pieces(parcel: Parcel, gm: GraphModule, inputs: Sequence[Any], segments: Sequence[Segment]) -> Iterator[Parcel]:
    """Each segment as a parcel, whose inputs are what a run of the whole graph in eager hands to it.

    Args:
        gm: the graph of ``parcel``.
        inputs: for that run, which may write to them; those of the pieces are the parcel's own.
    """
    numbers = {node: number for number, node in enumerate(gm.graph.nodes)}
    wanted = [_interface(numbers, segment) for segment in segments]
    run = _Keeping(gm, {node for taken, _ in wanted for node in taken})
    run.run(*inputs)
    values = dict(zip(gm.graph.find_nodes(op="placeholder"), parcel.real_inputs(), strict=True)) | run.kept
    static = {node for i, node in enumerate(gm.graph.find_nodes(op="placeholder")) if i in parcel.static_inputs}
    for segment, (taken, given) in zip(segments, wanted, strict=True):
        piece = _extracted(gm, range(segment.first, segment.last), taken, given)
        positions = tuple(i for i, node in enumerate(taken) if node in static)
        yield _packed(parcel, piece, [values[node] for node in taken], positions)


def tiny(parcel: Parcel, gm: GraphModule) -> Parcel:
    """A graph that computes next to nothing; what it takes is the cost of a call."""
    fakes = (node.meta.get("example_value") for node in gm.graph.nodes)
    like = next(fake for fake in fakes if internals.is_fake(fake))
    graph = Graph()
    x = graph.placeholder("x")
    value = torch.ones(1, device=like.device, requires_grad=parcel.training)
    x.meta["example_value"] = like.fake_mode.from_tensor(value, static_shapes=True)
    graph.output((graph.call_method("neg", (x,)),))
    return _packed(parcel, GraphModule({}, graph), [value], ())


def _packed(parcel: Parcel, piece: GraphModule, inputs: Sequence[Any], static_inputs: tuple[int, ...]) -> Parcel:
    made = pack(
        piece,
        inputs,
        training=parcel.training,
        static_inputs=static_inputs,
        strict=parcel.strict,
        dynamic=parcel.dynamic,
    )
    return dataclasses.replace(made, state=parcel.state)


# --- what a run shows ------------------------------------------------------------------------------------------------


@dataclass
class _Seen:
    """What a node did: ``memory`` are the regions that it read, made or wrote, ``written`` those that it wrote."""

    seconds: float = math.inf
    memory: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    bytes: int | None = None  # of its result; None if that is not a tensor


class _Watching(Interpreter):
    """Runs a graph, and notes what each node does."""

    def __init__(self, gm: GraphModule, seen: dict[Node, _Seen]) -> None:
        super().__init__(gm)
        self.seen = seen
        self.regions: dict[Node, set[int]] = {}  # by node, the memory that its value lies in
        self.at: dict[int, int] = {}  # by address, the region of an input of the graph

    def run_node(self, n: Node) -> Any:
        args = [self.env[a] for a in n.all_input_nodes]
        tensors = [t for a in args for t in _tensors(a)]
        versions = [t._version for t in tensors]
        began = time.perf_counter()
        result = super().run_node(n)
        seconds = time.perf_counter() - began
        seen = self.seen.setdefault(n, _Seen())
        seen.seconds = min(seen.seconds, seconds)
        read = set().union(*(self.regions[a] for a in n.all_input_nodes))
        addresses = {_address(t): self.regions[a] for a in n.all_input_nodes for t in _tensors(self.env[a])}
        made: set[int] = set()
        for t in _tensors(result):
            if _address(t) in addresses:
                made |= addresses[_address(t)]
            elif n.op in ("placeholder", "get_attr"):
                made.add(self.at.setdefault(_address(t), id(n)))
            else:
                made.add(id(n))
        self.regions[n] = made
        wrote = any(t._version != v for t, v in zip(tensors, versions, strict=True))
        if n.op.startswith("call_"):
            if result is None and not wrote:
                raise Whole("it changes settings of torch along the way")
            seen.memory = read | made
            seen.written = read if wrote else set()
        seen.bytes = result.numel() * result.element_size() if isinstance(result, torch.Tensor) else None
        return result


class _Keeping(Interpreter):
    """Runs a graph, and keeps copies of some values, as they are when they are made; leaves if they need gradients."""

    def __init__(self, gm: GraphModule, wanted: set[Node]) -> None:
        super().__init__(gm)
        self.wanted = wanted
        self.kept: dict[Node, torch.Tensor] = {}

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if n in self.wanted and n.op.startswith("call_"):
            copy = torch.empty_like(result, memory_format=torch.preserve_format, requires_grad=False)
            self.kept[n] = copy.copy_(result.detach()).requires_grad_(result.requires_grad)
        return result


def _seen(gm: GraphModule, inputs: Any) -> dict[Node, _Seen]:
    seen: dict[Node, _Seen] = {}
    for _ in range(_RUNS):
        _Watching(gm, seen).run(*inputs())
    return seen


def _sizes(value: Any) -> Sequence[Any]:
    return value.shape if isinstance(value, torch.Tensor) else (value,)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors(each)


def _address(value: torch.Tensor) -> int:
    return value.untyped_storage().data_ptr() if value.numel() else -id(value)


# --- where to cut ----------------------------------------------------------------------------------------------------


def _atoms(gm: GraphModule, seen: dict[Node, _Seen]) -> Iterator[Segment]:
    """The finest segments that are possible."""
    nodes = list(gm.graph.nodes)
    number = {node: position for position, node in enumerate(nodes)}
    bound = _bound(nodes, seen)
    calls = [n for n in nodes if n.op.startswith("call_")]
    first, seconds = 0, dict[str, float]()
    for node, following in zip(calls, [*calls[1:], None], strict=True):
        kind = kind_of(node)
        seconds[kind] = seconds.get(kind, 0.0) + seen[node].seconds
        if following is None:
            yield Segment(first, len(nodes), seconds)
            return
        end = number[following]
        if end in bound or (passed := _passed(nodes, number, seen, end)) is None:
            continue
        yield Segment(first, end, seconds, passed)
        first, seconds = end, {}


def _bound(nodes: Sequence[Node], seen: dict[Node, _Seen]) -> set[int]:
    """The positions before which no cut is possible, since memory is written that both sides use."""
    written = set().union(*(each.written for each in seen.values()))
    uses: dict[int, list[int]] = {}
    for position, node in enumerate(nodes):
        for region in seen[node].memory & written if node in seen else ():
            uses.setdefault(region, []).append(position)
    return {position for each in uses.values() for position in range(each[0] + 1, each[-1] + 1)}


def _passed(nodes: Sequence[Node], number: dict[Node, int], seen: dict[Node, _Seen], end: int) -> int | None:
    """The bytes that pass from before ``end`` to after it; None if that is no place for a cut."""
    total = count = 0
    for node in nodes[:end]:
        if not node.op.startswith("call_") or all(number[u] < end or u.op == "output" for u in node.users):
            continue
        size = seen[node].bytes
        if size is None:
            return None
        total, count = total + size, count + 1
    return total if count <= MOST_LIVE else None


def kind_of(node: Node) -> str:
    """What an operator does, in a word."""
    target = node.target
    name = (target if isinstance(target, str) else getattr(target, "__name__", str(target))).lower()
    words = (kind for word, kind in _KINDS.items() if word in name)
    return next(words, _OTHER)


def _merged(atoms: Sequence[Segment], most: int) -> list[Segment]:
    """Neighbors merged, those first that are the most alike."""
    found = list(atoms)
    least = LEAST * math.fsum(a.total for a in found)
    while len(found) > 1:
        losses = [_loss(a, b) for a, b in itertools.pairwise(found)]
        place = min(range(len(losses)), key=losses.__getitem__)
        if len(found) <= most and losses[place] >= least:
            break
        a, b = found[place], found.pop(place + 1)
        seconds = {kind: a.seconds.get(kind, 0.0) + b.seconds.get(kind, 0.0) for kind in {**a.seconds, **b.seconds}}
        found[place] = Segment(a.first, b.last, seconds, b.passed)
    return found


def _loss(a: Segment, b: Segment) -> float:
    """The seconds whose kind is blurred when two segments become one."""
    if not a.total or not b.total:
        return 0.0
    kinds = {*a.seconds, *b.seconds}
    apart = sum((a.seconds.get(k, 0.0) / a.total - b.seconds.get(k, 0.0) / b.total) ** 2 for k in kinds)
    return apart / 2 * a.total * b.total / (a.total + b.total)


# --- segments as graphs -----------------------------------------------------------------------------------------------


def _interface(numbers: dict[Node, int], segment: Segment) -> tuple[list[Node], list[Node]]:
    """The nodes that a segment takes from outside, and those that it gives."""
    inside = range(segment.first, segment.last)
    taken: dict[Node, None] = {}
    given: list[Node] = []
    for node, number in numbers.items():
        if number not in inside or not node.op.startswith("call_"):
            continue
        for value in node.all_input_nodes:
            if value.op == "placeholder" or (value.op.startswith("call_") and numbers[value] not in inside):
                taken[value] = None
        if any(user.op == "output" or numbers[user] not in inside for user in node.users):
            given.append(node)
    return list(taken), given


def _extracted(gm: GraphModule, inside: range, taken: Sequence[Node], given: Sequence[Node]) -> GraphModule:
    """The operators at the positions ``inside``, as a graph that takes and gives these values."""
    graph = Graph()
    calls = {n for number, n in enumerate(gm.graph.nodes) if number in inside and n.op.startswith("call_")}
    copied: dict[Node, Node] = {}
    for node in taken:
        copied[node] = graph.placeholder(f"taken_{node.name}")
        copied[node].meta = dict(node.meta)
    for node in gm.graph.nodes:
        if node in calls or (node.op == "get_attr" and not calls.isdisjoint(node.users)):
            copied[node] = graph.node_copy(node, copied.__getitem__)
    graph.output(tuple(copied[node] for node in given))
    return GraphModule(gm, graph)
