"""Writes to inputs: which updates of a graph are made in the memory of an input, and where.

A functional graph has ``new = index_copy(old, ...)``, which copies all of ``old``, and ends with ``copy_(input, new)``.
If ``old`` is the input, or such an update of it, the update is a write to the input's memory.  The *new content* of an
input is a buffer of its own in the program (:attr:`~..ir.expressions.Buffer.over`), so that reads of the old content
and of the new one stay apart; ``schedule/reinplace.py`` finds an order in which both may lie in one place, or copies.

What was read of an update before the next one is put into memory before that, if the next one may change it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from ..ir import index, operations as ops
from ..ir.expressions import Buffer
from ..ir.index import Index
from ..ir.program import Program
from ..ir.values import Place, Value
from ..ir.verify import extremes
from .registry import SUPPORTED

_aten = torch.ops.aten

_PARTS = {  # operators that put a tensor into a part of another, and the view that shows this part
    _aten.select_scatter.default: _aten.select.int,
    _aten.slice_scatter.default: _aten.slice.Tensor,
    _aten.diagonal_scatter.default: _aten.diagonal.default,
}
_UPDATES = frozenset(
    (
        _aten.index_copy.default, _aten.index_add.default, _aten.index_put.default, _aten._unsafe_index_put.default,
        _aten.scatter.src, _aten.scatter.value, _aten.scatter_add.default, *_PARTS,
    )
)  # fmt: skip

_SHAPES = frozenset(
    (
        _aten.view.default, _aten._unsafe_view.default, _aten.reshape.default, _aten.permute.default, _aten.t.default,
        _aten.transpose.int, _aten.unsqueeze.default, _aten.squeeze.default, _aten.squeeze.dim, _aten.squeeze.dims,
    )
)  # fmt: skip
"""What shows all of a tensor in another form: functionalization puts it around an update of a view, and back."""


def is_write(node: Node) -> bool:
    """Whether ``node`` writes to an input of the graph."""
    target = node.args[0] if node.target is _aten.copy_.default else None
    return isinstance(target, Node) and target.op == "placeholder"


def is_lowered(node: Node) -> bool:
    """Whether the write ``node`` is one that the program can make."""
    values = [n.meta.get("val") for n in node.all_input_nodes]
    return (
        len(node.args) == 2
        and not node.kwargs
        and all(isinstance(v, torch.Tensor) and v.dtype in SUPPORTED and v.layout is torch.strided for v in values)
    )


def _made_in_place(graph: Graph) -> set[Node]:
    """The updates that lead from an input to what is written to it."""
    found: set[Node] = set()
    for node in graph.nodes:
        if is_write(node):
            found.update(_chain(node.args[1], functools.partial(operator.is_, node.args[0])) or ())
    return found


def _chain(value: Any, is_start: Callable[[Node], bool]) -> list[Node] | None:
    """The updates between a start and ``value``, with those of parts, and forms; None if something else is between."""
    found: list[Node] = []
    while not is_start(value):
        if not isinstance(value, Node) or value.target not in _UPDATES | _SHAPES:
            return None
        found.append(value)
        base = value.args[0]
        if (view := _PARTS.get(value.target)) is not None:
            # What goes into a part may be an update of this part.
            found += _chain(value.args[1], functools.partial(_shows_part, base, view, value)) or ()
        value = base
    return found


def _shows_part(base: Any, view: Any, update: Node, value: Any) -> bool:
    """Whether ``value`` is the part of ``base`` that ``update`` writes."""
    if not isinstance(value, Node):
        return False
    if value.target is operator.getitem:
        return _piece_of(value, base, view) == _part_of(update, 2)
    return value.target is view and value.args[0] is base and _part_of(value, 1) == _part_of(update, 2)


def _piece_of(value: Node, base: Any, view: Any) -> list[Any] | None:
    """As :func:`_part_of` of a ``view``, which part one of the pieces of ``base`` shows; None if it is none."""
    pieces, number = value.args
    if not isinstance(pieces, Node) or pieces.args[0] is not base or type(number) is not int:
        return None
    rank = base.meta["val"].dim()
    if pieces.target is _aten.unbind.int and view is _aten.select.int:
        return [(pieces.args[1] if len(pieces.args) > 1 else 0) % rank, number, pieces.kwargs]
    if pieces.target in (_aten.split.Tensor, _aten.split_with_sizes.default) and view is _aten.slice.Tensor:
        _, lengths, dim = (*pieces.args, 0)[:3]
        length = value.meta["val"].shape[dim]
        before = [lengths] * number if pieces.target is _aten.split.Tensor else lengths[:number]
        if all(type(n) is int for n in (*before, length)):
            return [dim % rank, sum(before), sum(before) + length, 1, pieces.kwargs]
    return None


def _part_of(node: Node, first: int) -> list[Any]:
    """The numbers that say which part a view shows, or an update writes."""
    if node.target in (_aten.diagonal.default, _aten.diagonal_scatter.default):
        defaults: list[Any] = [0, 0, 1]
    elif node.target in (_aten.slice.Tensor, _aten.slice_scatter.default):
        defaults = [0, None, None, 1]
    else:
        defaults = [0, 0]
    given = list(node.args[first:])
    base: Any = node.args[0]
    shape = base.meta["val"].shape
    numbers = [*given, *defaults[len(given) :]]
    if defaults == [0, 0, 1]:
        offset, *dims = numbers
        return [offset, *[d % len(shape) for d in dims], node.kwargs]
    dim, *rest = numbers
    dim %= len(shape)
    if len(rest) == 3:
        start, end, step = rest
        if type(end) is int and end >= 2**62:
            end = None
        if type(shape[dim]) is int and (end is None or (type(end) is int and end > shape[dim])):
            end = shape[dim]
        rest = [0 if start is None else start, end, step]
    return [dim, *rest, node.kwargs]


class Writes:
    """The writes of one graph while it is lowered; ``env`` has the values of the nodes so far."""

    def __init__(self, graph: Graph, program: Program, env: dict[Node, Any]) -> None:
        self.program = program
        self.env = env
        self.in_place = _made_in_place(graph)
        self.written: dict[Buffer, Buffer] = {}  # inputs of which a part was written: their new content
        self.begun: set[Buffer] = set()  # new contents with a first update
        self.readers: list[Node] = []  # nodes whose values read new contents
        self.saved: dict[Node, Any] = {}  # what such a node was, for those that do not update it

    def operand(self, user: Node, node: Node) -> Any:
        """The value of ``node`` as ``user`` gets it."""
        if node in self.saved and not (user in self.in_place and user.args[0] is node):
            return self.saved[node]
        return self.env[node]

    def note(self, node: Node, result: Any) -> None:
        """Remember ``node`` if its value reads what may be changed."""
        if self.written and any(b.over is not None for value in values_in(result) for b in _read(value)):
            self.readers.append(node)

    # --- updates --------------------------------------------------------------------------------------------------

    def place(self, node: Node, base: Value) -> Place | None:
        """Where the update ``node`` of ``base`` is made, if it is made in the memory of an input."""
        if node not in self.in_place or base.place is None:
            return None
        at = base.place
        if at.buffer.kind == "input" and at.buffer not in self.written and at.buffer not in self.program.packs.values():
            self.written[at.buffer] = self.new_content(at.buffer, rewritten=True)
        buffer = self.written.get(at.buffer, at.buffer)
        return Place(buffer, at.strides, at.offset) if buffer.over is not None else None

    def new_content(self, target: Buffer, *, rewritten: bool) -> Buffer:
        """A buffer for the new content of an input; ``rewritten`` if it is the old one with changes."""
        made = self.program.buffer(target.dtype, target.sizes, target.strides, device=target.device)
        made.over, made.rewritten = target, rewritten
        return made

    def prepare(self, node: Node, region: Value) -> None:
        """Save what was read of the memory of ``region``, and is still to be used, before ``node`` changes it."""
        assert region.place is not None
        self.begun.add(region.place.buffer)
        reached = _reach(region)
        for reader in self.readers:
            users = [u for u in reader.users if u not in self.env and u is not node]
            outside = [u for u in users if not (u in self.in_place and u.args[0] is reader)]
            if not outside:
                continue
            result = self.saved.get(reader, self.env[reader])
            kept = [self._kept(value, region.place.buffer, reached) for value in values_in(result)]
            if all(new is old for new, old in zip(kept, values_in(result), strict=True)):
                continue
            remaining = iter(kept)
            if isinstance(result, (list, tuple)):
                self.saved[reader] = type(result)(next(remaining) if isinstance(v, Value) else v for v in result)
            else:
                self.saved[reader] = next(remaining)

    def _kept(self, value: Value, buffer: Buffer, reached: tuple[int, int] | None) -> Value:
        """``value``, or a copy of it if ``buffer`` changes where it reads."""
        if value.place is not None:
            if value.place.buffer is not buffer or _apart(_reach(value), reached):
                return value
            return self.program.copy(value)
        for read, position in value.at(value.variables()).loads:
            if read is buffer and not _apart(extremes(position), reached):
                return self.program.realize(value)
        return value

    def independent(self, source: Value, region: Value, *, scattered: bool = False) -> Value:
        """``source``, in memory of its own if it reads elements of ``region`` that may be overwritten by then.

        What a part gets may depend on the element that it replaces, unless elements are ``scattered``.
        """
        assert region.place is not None
        buffer = region.place.buffer
        position = region.place.position(region.variables())
        harmless = {buffer} if buffer in self.begun else {buffer, buffer.over}
        for read, at in source.at(source.variables()).loads:
            if read not in (buffer, buffer.over) or (not scattered and read in harmless and at == position):
                continue
            return self.program.copy(source) if source.place is not None else self.program.realize(source)
        return source

    # --- the end --------------------------------------------------------------------------------------------------

    def write(self, node: Node, value: Value) -> None:
        """The whole of an input gets ``value``."""
        target = self.env[node.args[0]].place.buffer
        current = self.written.get(target)
        if current is not None and value.place is not None and value.place.buffer is current and _is_whole(value):
            return  # it was made there
        if current is not None:
            current.over, current.begins = None, target  # a copy, which is changed
        if value.place is None:
            fresh = self.new_content(target, rewritten=False)
            self.program.store(value, fresh, fresh.strides, 0)
            value.put(Place(fresh, fresh.strides, 0))
            return
        self.program.moves.append((value, target, node))


def region(base: Value, place: Place) -> Value:
    """``base`` where an update is made."""
    return Value(base.sizes, base.dtype, None, place)


def verified(program: Program, at: Value, check: Callable[[Any], Index]) -> Callable[[Any], Index]:
    """Indices that are checked before anything is written; ``check`` is one of them as an index."""

    def element(i: Any) -> Any:
        found = check(i)
        return ops.from_index(found)

    stored = program.realize(Value(at.sizes, torch.int64, element))
    return lambda i: index.data(stored.at(i))


def values_in(result: Any) -> list[Value]:
    """The tensors of what a node computes."""
    return [v for v in (result if isinstance(result, (list, tuple)) else [result]) if isinstance(v, Value)]


def _read(value: Value) -> Iterator[Buffer]:
    if value.place is not None:
        yield value.place.buffer
    else:
        for buffer, _ in value.at(value.variables()).loads:
            yield buffer


def _reach(value: Value) -> tuple[int, int] | None:
    """The first and the last element of its buffer that a value in memory has, if they are known."""
    assert value.place is not None
    return extremes(value.place.position(value.variables()))


def _is_whole(value: Value) -> bool:
    """Whether a value in memory is its buffer as that lies."""
    assert value.place is not None
    buffer, strides, offset = value.place.buffer, value.place.strides, value.place.offset
    ours = [(n, s) for n, s in zip(value.sizes, strides, strict=True) if n != 1]
    return (
        type(offset) is int
        and offset == 0
        and ours == [(n, s) for n, s in zip(buffer.sizes, buffer.strides, strict=True) if n != 1]
    )


def _apart(first: tuple[int, int] | None, second: tuple[int, int] | None) -> bool:
    return first is not None and second is not None and (first[1] < second[0] or second[1] < first[0])
