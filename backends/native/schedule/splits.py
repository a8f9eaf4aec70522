"""Reductions in two stages: parts of what is reduced over at the same time, and then the parts.

A GPU is idle where few results are made of many elements each.  Such a reduction becomes two statements before anything
is fused: the first has the number of the part as one more loop, the second reduces over the parts, always in the same
order.  Both are fused like any others, and what is between them is planned like all memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..ir import index, operations as ops
from ..ir.expressions import Buffer, Node, Statement, compute_type, make, rewrite, substitute
from ..ir.index import Index, Var
from ..ir.operations import binary, compare, const
from ..ir.program import Program
from ..ir.uses import Uses

MOST_UNEVEN = 2
"""Parts are equal if a number of them that is off by this factor at most allows it; the last is shorter otherwise."""


@dataclass(frozen=True)
class Surroundings:
    """What a program does around a reduction: ``made`` is what the statements before it have made."""

    program: Program
    uses: Uses
    made: Mapping[Buffer, Statement]
    statement: Statement

    def feeds_a_pass(self) -> bool:
        """Whether another pass over all elements needs the result, as in softmax: one kernel for both may read memory
        once."""
        points, made = _points(self.statement), {self.statement.target}
        for item in self.program.items:
            if isinstance(item, Statement) and not made.isdisjoint(item.reads):
                if not item.reduction and _points(item) >= points:
                    return True
                made.add(item.target)
        return False

    def cost(self) -> int:
        """About how many instructions an element takes, with what computes it on the way."""
        return self.statement.value.cost + sum(made.value.cost for made in self.on_the_way())

    def on_the_way(self) -> list[Statement]:
        """What computes an element in the kernel that reduces it: a kernel stores and reduces what walks the same
        points, and whatever has no other reader is computed there."""
        points = _points(self.statement)
        found: dict[Buffer, Statement] = {}
        todo = [(self.statement, buffer) for buffer in self.statement.reads]
        while todo:
            reader, buffer = todo.pop()
            made = self.made.get(buffer)
            if made is None or buffer in found or made.reduction or _points(made) != points:
                continue
            if reader is self.statement or self.uses.only_reader(buffer):
                found[buffer] = made
                todo += [(made, read) for read in made.reads]
        return list(found.values())

    def is_of_moments(self) -> bool:
        """Whether this is the sum of a mean, or of squared distances from one: a kernel updates both with each
        element."""
        own = self.statement
        loops = (own.kept, own.reduced)
        return own.reduction == "sum" and any(
            isinstance(item, Statement)
            and item.reduction == "sum"
            and (item.kept, item.reduced) == loops
            and (parts := _distance(item.value)) is not None
            and (item is own or parts[0] is own.value)
            for item in self.program.items
        )


PartsOf = Callable[[Statement, Surroundings], int]
"""Into about how many parts a reduction is split; 1 leaves it alone."""


def split(program: Program, parts_of: PartsOf) -> None:
    """Split the reductions of ``program``."""
    _ByParts(program, parts_of).run()


@dataclass
class Parts:
    """What a statement has instead of the loops that it reduces over: ``part`` counts the parts, ``within`` walks one.

    ``mapping`` is what the old loops are; ``guard`` is what must be true of a point in the last part.  What is between
    the two statements has the loops that are kept, and ``part`` after the first ``place`` of them.
    """

    part: Var
    within: tuple[Var, ...]
    mapping: dict[Var, Index]
    guard: Node | None
    place: int = 0

    def loops(self, old: Statement) -> tuple[Var, ...]:
        """The loops of what is between the two statements."""
        return (*old.kept[: self.place], self.part, *old.kept[self.place :])


class Splitter:
    """Splits each reduction that has parts, in the order of the program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.made: dict[Buffer, Statement] = {}

    def parts(self, old: Statement) -> Parts | None:
        raise NotImplementedError

    def run(self) -> None:
        items: list[Any] = []
        for item in self.program.items:
            new = self._of(item) if isinstance(item, Statement) and item.reduction else [item]
            items += new
            if isinstance(item, Statement):
                self.made[item.target] = item
        self.program.items = items

    def _of(self, old: Statement) -> list[Statement]:
        if (parts := self.parts(old)) is None:
            return [old]
        kind = str(old.reduction)
        return self._places(old, parts, kind) if kind.startswith("arg") else self._values(old, parts, kind)

    def _values(self, old: Statement, parts: Parts, kind: str) -> list[Statement]:
        first = self._first(old, parts, old.value, kind)
        return [first, self._second(old, parts, self._load(first.target, old, parts), kind)]

    def _first(self, old: Statement, parts: Parts, value: Node, kind: str) -> Statement:
        """The reduction of each part."""
        moved = _guarded(substitute(value, parts.mapping), parts.guard, _neutral(value.dtype, kind), kind)
        dtype = torch.int64 if kind.startswith("arg") else value.dtype
        kept = parts.loops(old)
        buffer = self.program.buffer(dtype, [v.size for v in kept])
        position = _flat(kept)
        return Statement(buffer, position, moved, kept, parts.within, kind, list(old.origins))

    def _second(self, old: Statement, parts: Parts, value: Node, kind: str) -> Statement:
        return dataclasses.replace(old, value=value, reduced=(parts.part,), reduction=kind)

    def _load(self, buffer: Buffer, old: Statement, parts: Parts) -> Node:
        return make("load", (), compute_type(buffer.dtype), (buffer, _flat(parts.loops(old))))

    def _places(self, old: Statement, parts: Parts, kind: str) -> list[Statement]:
        """The extremum of each part and its place; then the place of the best of them."""
        values = self._first(old, parts, old.value.args[0], kind.removeprefix("arg"))
        places = self._first(old, parts, old.value, kind)
        value = self._load(values.target, old, parts)
        pair = make("pair", (value, self._load(places.target, old, parts)), value.dtype)
        return [values, places, self._second(old, parts, pair, kind)]


class _ByParts(Splitter):
    """Parts that lie one behind the other, of which a target says how many there should be."""

    def __init__(self, program: Program, parts_of: PartsOf) -> None:
        super().__init__(program)
        self.parts_of = parts_of
        self.uses = Uses(program, program.items)
        self.sums: dict[Buffer, tuple[Buffer, Statement, int]] = {}  # of what is split: the parts, and their length

    def parts(self, old: Statement) -> Parts | None:
        around = Surroundings(self.program, self.uses, self.made, old)
        if (wanted := self.parts_of(old, around)) < 2:
            return None
        rows = {index.coefficient(made.position, v): v.size for made in around.on_the_way() for v in made.kept}
        steps = _in_order_of_memory(old)
        return _parts(tuple(steps), wanted, {v: rows[step] for v, step in steps.items() if step in rows})

    def _values(self, old: Statement, parts: Parts, kind: str) -> list[Statement]:
        length = index.product(v.size for v in parts.within)
        if kind != "sum" or parts.guard is not None or type(length) is not int:
            return super()._values(old, parts, kind)
        if (found := self._distances(old, parts)) is not None:
            return found
        first, second = super()._values(old, parts, kind)
        self.sums[old.target] = (first.target, first, length)
        return [first, second]

    def _distances(self, old: Statement, parts: Parts) -> list[Statement] | None:
        """Squared distances from the mean of all: those from the mean of each part, which needs no other pass over the
        elements than that mean does, and those of these means."""
        if (parted := _distance(old.value)) is None:
            return None
        value, mean = parted
        source = self.made.get(mean.attr[0]) if mean.op == "load" else None
        if source is None or source.reduction or source.value.op != "div" or source.value.args[0].op != "load":
            return None
        total = source.value.args[0].attr[0]
        found = self.sums.get(total)
        whole = self.made.get(total, None)
        if found is None or whole is None or not _is_same_sum(whole, value, old):
            return None
        buffer, first, length = found
        part = first.kept[0]
        count = index.product(v.size for v in old.reduced)
        divisor = source.value.args[1]
        if divisor.op != "const" or divisor.attr != count or part.size != parts.part.size:
            return None
        own = binary("div", self._load(buffer, old, parts), const(float(length), value.dtype))
        inside = binary("sub", substitute(value, parts.mapping), own)
        squares = self._first(dataclasses.replace(old), parts, old.value, "sum")
        squares.value = binary("mul", inside, inside)
        apart = binary("sub", own, mean)
        spread = binary("mul", binary("mul", apart, apart), const(float(length), value.dtype))
        return [squares, self._second(old, parts, binary("add", self._load(squares.target, old, parts), spread), "sum")]


def _distance(value: Node) -> tuple[Node, Node] | None:
    """What a squared distance is one of: a value, and a mean."""
    if value.op != "mul" or value.args[0] is not value.args[1] or value.args[0].op != "sub":
        return None
    left, right = value.args[0].args
    return left, right


def _in_order_of_memory(old: Statement) -> dict[Var, int]:
    """The loops that are reduced over, and how far apart in memory their elements are, so that a part of the first ones
    is read in one piece.

    Channels of an image that lie innermost would else be parted, and each part read a few elements at a time.  Places
    of an extremum keep their order, by which the first of equal elements is found.
    """

    def steps(position: Index) -> list[int] | None:
        found = [abs(step) for v in old.reduced if type(step := index.coefficient(position, v)) is int]
        return found if len(found) == len(old.reduced) else None

    walks = [found for _, position in old.value.loads if (found := steps(position)) is not None]
    walk = dict(zip(old.reduced, max(walks, key=sum, default=[0] * len(old.reduced)), strict=True))
    if str(old.reduction).startswith("arg"):
        return walk
    return dict(sorted(walk.items(), key=lambda each: -each[1]))


def _points(statement: Statement) -> int:
    return index.usual(index.product(v.size for v in (*statement.kept, *statement.reduced))) or 0


def _is_same_sum(whole: Statement, value: Node, old: Statement) -> bool:
    """Whether ``whole`` adds up ``value`` over the same loops."""
    return whole.reduction == "sum" and whole.value is value and (whole.kept, whole.reduced) == (old.kept, old.reduced)


def _flat(loops: tuple[Var, ...]) -> Index:
    return index.flatten([index.var(v.key, v.size) for v in loops], [v.size for v in loops])


def _parts(reduced: tuple[Var, ...], wanted: int, rows: Mapping[Var, Index]) -> Parts | None:
    """About ``wanted`` parts: the outermost loops as they are, and of one of them a part.

    What computes the elements may walk a loop as rows of so many ``rows`` elements.  If it can be, a part is some whole
    rows, because one kernel does both then.

    Of a loop whose size changes from call to call, the parts keep their length, so that there are more of a longer one.
    """
    whole: list[Var] = []
    count = 1
    rest = list(reduced)
    while rest and count * _usual(rest[0]) <= wanted:
        count *= _usual(rest[0])
        whole.append(rest.pop(0))
    if not rest:
        return None
    loop, after = rest[0], rest[1:]
    length, more, guard = _length(loop, max(wanted // count, 1), rows.get(loop, 1))
    inner = list(after)
    sizes: list[Index] = [v.size for v in whole]
    if length is None:
        inner.insert(0, loop)
    else:
        sizes.append(more)
        step = index.var(f"{loop.key}w", length)
        if (variable := index.the_var(step)) is not None:
            inner.insert(0, variable)
    part = index.var(f"{reduced[0].key}p", index.product(sizes))
    the_part = index.the_var(part)
    if the_part is None:
        return None
    values = index.unflatten(part, tuple(sizes))
    mapping: dict[Var, Index] = dict(zip(whole, values, strict=False))
    if length is not None:
        mapping[loop] = values[-1] * length + step
    within = compare("lt", ops.from_index(mapping[loop]), ops.from_index(loop.size)) if guard else None
    return Parts(the_part, tuple(inner), mapping, within)


def _usual(variable: Var) -> int:
    """The size of a loop, or what it was in the first call."""
    return index.usual(variable.size) or 1


def _length(loop: Var, wanted: int, row: Index) -> tuple[int | None, Index, bool]:
    """How long about ``wanted`` parts of a loop are, how many there are, and whether the last may be shorter; the
    length is None if the loop is one part."""
    extent = _usual(loop)
    more = _pieces(extent, wanted, row if type(row) is int else 1)
    if more < 2:
        return None, 1, False
    length = -(-extent // more)
    if extent % more or type(loop.size) is not int:
        length = 1 << (length.bit_length() - 1)  # what blocks cover without a rest
    count = index.floordiv(loop.size + (length - 1), length)
    return length, count, index.exact(loop.size, length) * length != loop.size


def _pieces(extent: int, wanted: int, row: int) -> int:
    """A divisor of ``extent`` that is about ``wanted``, or that number itself if there is none.  Divisors that leave
    rows of so many elements whole come first."""
    if wanted <= 1:
        return 1
    near = [n for n in range(max(wanted // MOST_UNEVEN, 2), wanted * MOST_UNEVEN + 1) if extent % n == 0]
    return min(near, key=lambda n: (extent // n % row != 0, abs(n - wanted)), default=wanted)


def _neutral(dtype: torch.dtype, kind: str) -> Node:
    if kind in ("sum", "prod"):
        return const(0 if kind == "sum" else 1, dtype)
    if kind in ("any", "all"):
        return const(kind == "all", dtype)
    most = kind.endswith("max")
    if dtype.is_floating_point:
        return const(float("-inf" if most else "inf"), dtype)
    return const(torch.iinfo(dtype).min if most else torch.iinfo(dtype).max, dtype)


def _guarded(value: Node, guard: Node | None, neutral: Node, kind: str) -> Node:
    """``value``, or ``neutral`` where ``guard`` does not hold, where memory is not read either."""
    if guard is None:
        return value

    def change(old: Node, args: tuple[Node, ...]) -> Node:
        if old.op == "load" and not old.free.isdisjoint(guard.free):
            held = guard if not args else binary("and", guard, args[0])
            return make("load", (held,), old.dtype, old.attr)
        return old if args == old.args else make(old.op, args, old.dtype, old.attr)

    read = rewrite(value, change, {})
    if kind.startswith("arg"):
        return make("pair", (ops.where(guard, read.args[0], neutral), read.args[1]), read.dtype)
    return ops.where(guard, read, neutral)
