"""The new content of an input is computed where the old content lies, if there is an order in which that is right.

All that reads the old content must run before the first write, and so must all that may raise an error: after an error
the inputs are as they were.  Only a statement may itself read what it overwrites, each element before it writes that
one.  Where an index is read by what reads the new content, it is verified in a step of its own, which comes first.
Where there is no such order, as for two inputs that are exchanged, the new content is made in separate memory
and then moved.
"""

from __future__ import annotations

import heapq
from typing import Any

import torch

from ..ir import index
from ..ir.expressions import Buffer, Node, Statement, make, operators_in, rewrite
from ..ir.index import Index
from ..ir.ordered_loops import Scan, Scatter
from ..ir.products import Product
from ..ir.program import Call, Program
from ..ir.values import Place, Value

_ATTENTION = (
    "flash_attention_for_cpu", "fused_attention_overrideable", "flash_attention", "efficient_attention",
    "cudnn_attention",
)  # fmt: skip
_NEVER_RAISE = frozenset(
    (
        "addmm", "_addmm_activation", "baddbmm", "bmm", "mm", "mm_in_rows", "addmv", "mv", "dot",
        "convolution", "convolution_backward", "native_dropout", "bernoulli_", "rand", "randn", "rand_like",
        "randn_like", "sort", "topk", "cumsum", "grid_sampler_2d", "_fft_c2c", "_fft_r2c", "_fft_c2r",
        "native_batch_norm", "native_group_norm", "native_layer_norm", "attention",
        *(f"_scaled_dot_product_{name}{suffix}" for name in _ATTENTION for suffix in ("", "_backward")),
    )
)  # fmt: skip
"""Operators of torch, and of ours, that raise no error that depends on data, and mostly run in calls."""
_RECURRENT = ("_rnn", "_rnn_layer")
"""How such operators of libraries for one kind of machine end."""


def reinplace(program: Program) -> None:
    """Settle where the new contents of inputs are made, and put the items of ``program`` into an order that allows it.

    The target has selected who computes what: memory that torch's operators allocate cannot be an input's.
    """
    if not program.moves and not any(b.over is not None or b.begins is not None for b in program.buffers):
        return
    _Order(program).run()


def is_checking(item: Any) -> bool:
    """Whether an item may raise an error that depends on data."""
    if isinstance(item, Call):
        name = item.op.overloadpacket.__name__
        return name not in _NEVER_RAISE and not name.endswith(_RECURRENT)
    if not isinstance(item, (Statement, Scan, Scatter)):
        return False
    nodes = [item.value, *(atom.node for atom in index.data_atoms(item.position))]
    return any(node.op == "check" for top in nodes for node in operators_in(top))


def overwrites(item: Any) -> set[Buffer]:
    """The inputs that an item writes to."""
    return {b.over for b in written_by(item) if b.over is not None}


def written_by(item: Any) -> set[Buffer]:
    found: set[Buffer] = {item.target} if isinstance(item, Statement) else item.writes
    return found


class _Order:
    def __init__(self, program: Program) -> None:
        self.program = program

    def run(self) -> None:
        self._move()
        for buffer in list(self.program.buffers):
            if buffer.begins is not None:
                self._begin(buffer)
        for item in self.program.items:
            for buffer in written_by(item):
                if buffer.over is not None and _overwrites_what_it_reads(item, buffer):
                    self._separate(buffer)
        while (stuck := self._sort()) is not None:
            if not self._verify_ahead():
                self._separate(stuck)

    # --- where new contents are made ------------------------------------------------------------------------------

    def _move(self) -> None:
        """What was computed for an input in memory is computed in the input's, if that can be."""
        by_torch: set[Buffer] = set()
        for item in self.program.items:
            if not isinstance(item, (Statement, Scan, Scatter)) and not _is_own(item):
                by_torch |= item.writes
        for value, target, node in self.program.moves:
            place = value.place
            assert place is not None
            made = place.buffer
            fits = (
                made.kind == "temp"
                and made.over is None
                and made not in by_torch
                and made.dtype is target.dtype
                and value.sizes == made.sizes == target.sizes
                and place.strides == made.strides == target.strides
                and type(place.offset) is int
                and place.offset == 0
            )
            if fits:
                made.over = target
            else:
                self._copy(value, target, [node])
        self.program.moves.clear()

    def _copy(self, value: Value, target: Buffer, origins: list[Any]) -> None:
        fresh = self.program.buffer(target.dtype, target.sizes, target.strides, device=target.device)
        fresh.over = target
        self._store(value, fresh, origins)

    def _store(self, value: Value, buffer: Buffer, origins: list[Any]) -> Statement:
        self.program.store(value, buffer, buffer.strides, 0)
        made = self.program.items[-1]
        made.origins = origins
        return made

    def _begin(self, buffer: Buffer) -> None:
        """Copy the input that a rewritten buffer begins as, before it is first written."""
        assert buffer.begins is not None
        first = next((n for n, item in enumerate(self.program.items) if buffer in written_by(item)), None)
        if first is not None:
            made = self._store(self.program.stored(buffer.begins), buffer, self.program.items[first].origins)
            self.program.items.insert(first, self.program.items.pop())
            assert self.program.items[first] is made
        buffer.begins = None

    def _separate(self, buffer: Buffer) -> None:
        """Make the new content elsewhere, and move it to the input in the end."""
        target = buffer.over
        if target is None:
            return
        buffer.over = None
        if buffer.rewritten:
            buffer.begins = target
            self._begin(buffer)
        last = next(item for item in reversed(self.program.items) if buffer in written_by(item))
        self._copy(Value(buffer.sizes, buffer.dtype, None, Place(buffer, buffer.strides, 0)), target, last.origins)

    # --- checks of what reads new contents ------------------------------------------------------------------------

    def _verify_ahead(self) -> bool:
        """Verify indices of what reads new contents in steps of their own, which can come before anything is written;
        whether there were any."""
        new = {buffer for buffer in self.program.buffers if buffer.over is not None}
        items, found = list[Any](), False
        for item in self.program.items:
            if not new.isdisjoint(item.reads):
                new |= written_by(item)
                if isinstance(item, (Statement, Scan, Scatter)):
                    ahead = self._checks_of(item, new)
                    items += ahead
                    found |= bool(ahead)
            items.append(item)
        self.program.items = items
        return found

    def _checks_of(self, item: Statement | Scan | Scatter, new: set[Buffer]) -> list[Statement]:
        """Statements that verify the indices of ``item``, which reads them from there; none if they depend on what is
        ``new``."""
        tops = [item.value, *(atom.node for atom in index.data_atoms(item.position))]
        checks = {node for top in tops for node in operators_in(top) if node.op == "check"}
        if any(b in new for node in checks for b, _ in node.loads):
            return []
        made: dict[Buffer, Statement] = {}
        memo: dict[Node, Node] = {}

        def verified(node: Node) -> Node:
            loops = sorted(node.free, key=lambda v: str(v.key))
            sizes = [v.size for v in loops]
            known = self.program.buffer(torch.int64, sizes, device=item.target.device)
            position = index.flatten([index.var(v.key, v.size) for v in loops], sizes)
            made[known] = Statement(known, position, node, tuple(loops), origins=item.origins)
            read = make("load", (), torch.int64, (known, position))
            extent = node.attr[0]
            return make("within", (read,), torch.int64, extent) if type(extent) is int else read

        def at(position: Index) -> Index:
            return index.map_data(position, lambda node: rewrite(node, change, memo))

        def change(old: Node, args: tuple[Node, ...]) -> Node:
            if old in checks:
                return verified(old)
            if old.op == "load":
                return make("load", args, old.dtype, (old.attr[0], at(old.attr[1])))
            if old.op == "index":
                return make("index", (), old.dtype, at(old.attr))
            return old if args == old.args else make(old.op, args, old.dtype, old.attr)

        item.value, item.position = rewrite(item.value, change, memo), at(item.position)
        return [statement for known, statement in made.items() if known in item.reads]  # not what others verify

    # --- the order ------------------------------------------------------------------------------------------------

    def _sort(self) -> Buffer | None:
        """Order the items; if there is no order, the new content of an input that is in the way."""
        items = self.program.items
        after: list[set[int]] = [set() for _ in items]
        count = [0] * len(items)

        def link(first: int, second: int) -> None:
            if first != second and second not in after[first]:
                after[first].add(second)
                count[second] += 1

        writers: dict[Buffer, list[int]] = {}
        readers: dict[Buffer, list[int]] = {}
        last_call: int | None = None
        for at, item in enumerate(items):
            for buffer in item.reads:
                for writer in writers.get(buffer, ()):
                    link(writer, at)
                readers.setdefault(buffer, []).append(at)
            for buffer in written_by(item):
                if buffer.rewritten or not isinstance(item, Statement):
                    for other in (*readers.get(buffer, ()), *writers.get(buffer, ())):
                        link(other, at)
                writers.setdefault(buffer, []).append(at)
            if isinstance(item, Call):
                if last_call is not None:
                    link(last_call, at)
                last_call = at
        checks = [at for at, item in enumerate(items) if is_checking(item)]
        over = {buffer: found for buffer, found in writers.items() if buffer.over is not None}
        for buffer, found in over.items():
            assert buffer.over is not None
            for writer in found:
                for at in (*readers.get(buffer.over, ()), *checks):
                    if at not in found:
                        link(at, writer)
        ready = [at for at, before in enumerate(count) if not before]
        order: list[int] = []
        while ready:
            at = heapq.heappop(ready)
            order.append(at)
            for later in after[at]:
                count[later] -= 1
                if not count[later]:
                    heapq.heappush(ready, later)
        if len(order) == len(items):
            self.program.items = [items[at] for at in order]
            return None
        done = set(order)
        return next(buffer for buffer, found in over.items() if not done.issuperset(found))


def _is_own(item: Any) -> bool:
    return isinstance(item, Product) and not isinstance(item, Call)


def _overwrites_what_it_reads(item: Any, buffer: Buffer) -> bool:
    """Whether an item that writes the new content needs more of the old one than what stands in the same place, or may
    raise an error."""
    if is_checking(item):
        return True
    if buffer.over not in item.reads:
        return False
    if not isinstance(item, Statement) or item.reduction is not None:
        return True
    if any(b is buffer.over for a in index.data_atoms(item.position) for b, _ in a.node.loads):
        return True
    return any(b is buffer.over and at != item.position for b, at in item.value.loads)
