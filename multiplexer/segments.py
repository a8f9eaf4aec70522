"""A captured graph as a chain of pieces, each a graph of its own, that may go to different backends.

A piece is a run of consecutive nodes, so every piece after it comes later in the program, and random numbers are drawn
in the same order.  A cut is possible where few tensors pass, where nothing but tensors passes, and not between a write
and anything else that uses the same memory.  One run in eager finds this out, and how long each operator takes.

Which cuts are made follows from the times by kind of operator: neighbors are merged, those first whose difference in
kind concerns the fewest seconds (Ward's criterion, 1963), until the pieces that are left differ by enough.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from .parcel import Parcel, Ref

MOST_LIVE = 8
"""How many tensors may pass a cut."""

LEAST = 0.04
"""Pieces that take less than this share of the time are merged with a neighbor, and so are those that differ by less."""

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
    seen = _seen(gm, inputs)
    atoms = list(_atoms(gm, seen))
    merged = _merged(atoms, most)
    if len(merged) < 2:
        raise Whole("all of it is of one kind" if len(atoms) > 1 else "there is no narrow place to cut it")
    return merged


def pieces(parcel: Parcel, gm: GraphModule, inputs: Sequence[Any], segments: Sequence[Segment]) -> Iterator[Parcel]:
    """Each segment as a parcel, whose inputs are what a run of the whole graph in eager hands to it."""
    numbers = {node: number for number, node in enumerate(gm.graph.nodes)}
    wanted = [_interface(numbers, segment) for segment in segments]
    values = _Keeping(gm, {number for taken, _ in wanted for number in taken})
    values.run(*inputs)
    for segment, (taken, given) in zip(segments, wanted, strict=True):
        yield _piece(parcel, segment, taken, given, values.kept)


def tiny(parcel: Parcel) -> Parcel:
    """A graph that computes next to nothing; what it takes is the cost of a call."""
    nodes = [
        ("placeholder", "x", (), {}, None),
        ("call_method", "neg", (Ref(0),), {}, None),
        ("output", "output", ((Ref(1),),), {}, None),
    ]
    return dataclasses.replace(
        parcel, nodes=nodes, held={}, inputs=[torch.ones(1)], needs_grad=[parcel.training], static_inputs=()
    )


# --- what a run shows --------------------------------------------------------------------------------------------------


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
    """Runs a graph, and keeps copies of some values, as they are when a segment takes them."""

    def __init__(self, gm: GraphModule, wanted: set[int]) -> None:
        super().__init__(gm)
        self.wanted = wanted
        self.number = {node: number for number, node in enumerate(gm.graph.nodes)}
        self.kept: dict[int, Any] = {}

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        number = self.number[n]
        if number in self.wanted and n.op.startswith("call_"):
            needs = result.requires_grad
            copy = torch.empty_like(result, memory_format=torch.preserve_format, requires_grad=False)
            self.kept[number] = (copy.copy_(result.detach()), needs)
        return result


def _seen(gm: GraphModule, inputs: Any) -> dict[Node, _Seen]:
    seen: dict[Node, _Seen] = {}
    for _ in range(_RUNS):
        _Watching(gm, seen).run(*inputs())
    return seen


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors(each)


def _address(value: torch.Tensor) -> int:
    return value.untyped_storage().data_ptr() if value.numel() else -id(value)


# --- where to cut ------------------------------------------------------------------------------------------------------


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
        losses = [_loss(a, b) for a, b in zip(found, found[1:])]
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


# --- segments as parcels -----------------------------------------------------------------------------------------------


def _interface(numbers: dict[Node, int], segment: Segment) -> tuple[list[int], list[int]]:
    """The numbers of the nodes that a segment takes from outside, and of those that it gives."""
    inside = range(segment.first, segment.last)
    taken: dict[int, None] = {}
    given: list[int] = []
    for node, number in numbers.items():
        if number not in inside or not node.op.startswith("call_"):
            continue
        for value in node.all_input_nodes:
            if value.op == "placeholder" or (value.op.startswith("call_") and numbers[value] not in inside):
                taken[numbers[value]] = None
        if any(user.op == "output" or numbers[user] not in inside for user in node.users):
            given.append(number)
    return list(taken), given


def _piece(
    parcel: Parcel, segment: Segment, taken: Sequence[int], given: Sequence[int], kept: dict[int, Any]
) -> Parcel:
    positions = [i for i, node in enumerate(parcel.nodes) if node[0] == "placeholder"]
    inputs, needs, static, nodes = [], [], [], []
    renumbered: dict[int, int] = {}
    for number in taken:
        renumbered[number] = len(nodes)
        nodes.append(("placeholder", f"x{len(nodes)}", (), {}, None))
        if number in kept:
            value, need = kept[number]
        else:
            position = positions.index(number)
            value, need = parcel.inputs[position], parcel.needs_grad[position]
            if position in parcel.static_inputs:
                static.append(len(inputs))
        inputs.append(value)
        needs.append(need)
    held = {}
    wanted = {ref for node in parcel.nodes[segment.first : segment.last] for ref in _refs((node[2], node[3]))}
    for number, (op, target, args, kwargs, line) in enumerate(parcel.nodes):
        if op == "get_attr" and number in wanted:
            held[target] = parcel.held[target]
        elif not (op.startswith("call_") and segment.first <= number < segment.last):
            continue
        args, kwargs = _renumbered(args, renumbered), _renumbered(kwargs, renumbered)
        renumbered[number] = len(nodes)
        nodes.append((op, target, args, kwargs, line))
    nodes.append(("output", "output", (tuple(Ref(renumbered[n]) for n in given),), {}, None))
    return dataclasses.replace(
        parcel, nodes=nodes, held=held, inputs=inputs, needs_grad=needs, static_inputs=tuple(static)
    )


def _renumbered(value: Any, numbers: dict[int, int]) -> Any:
    if isinstance(value, Ref):
        return Ref(numbers[value.position])
    if isinstance(value, dict):
        return {key: _renumbered(each, numbers) for key, each in value.items()}
    if isinstance(value, slice):
        return slice(*(_renumbered(each, numbers) for each in (value.start, value.stop, value.step)))
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return (tuple if isinstance(value, tuple) else list)(_renumbered(each, numbers) for each in value)
    return value


def _refs(value: Any) -> Iterator[int]:
    if isinstance(value, Ref):
        yield value.position
    elif isinstance(value, dict):
        yield from _refs(tuple(value.values()))
    elif isinstance(value, slice):
        yield from _refs((value.start, value.stop, value.step))
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _refs(each)
