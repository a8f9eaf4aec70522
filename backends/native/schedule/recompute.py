"""Values that are cheaper to compute again than to keep in memory.

A value that several statements read lies in memory, and is written once and read by each kernel.  Where it is made of
what takes no more bytes to read, as the normalized rows of a layer norm's backward pass are, each reader computes it
itself.  The scheduler could not undo the store: it sees the readers one by one.

On a GPU, another kernel takes a microsecond to begin.  What few points are computed by, and read at others than those
where it is computed, is computed again at each of these as long as that takes less.
"""

from __future__ import annotations

from typing import Any

from ..ir import index
from ..ir.expressions import Buffer, Node, Statement, operators_in
from ..ir.program import Program
from .inlining import extents, replaced
from .unroll import written_out

_MOST_COST = 8
"""So many simple instructions take less time than a load from memory."""
_LEAST = 2**15
"""So many elements are worth it; fewer stay in the cache."""
_SMOOTH = frozenset(
    ("const", "index", "load", "round", "add", "sub", "mul", "div", "neg", "abs", "sqrt", "exp", "exp2", "expm1", "log",
     "log1p", "log2", "log10", "erf", "erfc", "tanh", "sin", "cos", "normal_cdf", "normal_pdf", "pow")
)  # fmt: skip
"""Operations that make little of the last bit.  It may differ between two kernels that compute the same, since one of
them may contract a product and a sum; a comparison or a conversion to integers would make much of that."""


_MOST_BYTES, _OF_A_THREAD, _OF_ALL = 4 * 2**20, 96, 2**23
"""What a kernel of its own is not worth on a GPU: such a value is not larger, takes a thread at most so many more
instructions, and all threads so many."""
_LARGEST, _DEEPEST = 512, 80
"""Instructions of an expression that others have been put into, and how many of them depend on each other."""
_LOAD_COST = 4
"""Instructions that a load takes which is in a cache, with those that compute its place."""
_FEW = 8
"""Terms of a reduction that is one expression, where what reads it reduces over others."""
_IMPURE = frozenset(("check", "result", "pair"))


def recompute(program: Program, *, saves_kernels: bool = False) -> None:
    """Replace loads by what was stored, where that is worth it.

    ``saves_kernels`` says that it is where a kernel less is worth the instructions, and that kernels never contract
    what they compute: the last bit is then the same wherever a value is computed.
    """
    _Recomputer(program, saves_kernels).run()


class _Recomputer:
    def __init__(self, program: Program, saves_kernels: bool) -> None:
        self.program = program
        self.saves_kernels = saves_kernels
        self.readers: dict[Buffer, list[Any]] = {}
        self.writers: dict[Buffer, int] = {}
        for item in program.items:
            for buffer in item.reads:
                self.readers.setdefault(buffer, []).append(item)
            for buffer in {item.target} if isinstance(item, Statement) else item.writes:
                self.writers[buffer] = self.writers.get(buffer, 0) + 1
        self.returned = program.returned
        self.changing = {b.over for b in program.buffers if b.over is not None}
        self.changing |= {b for b in program.buffers if b.rewritten or b.over is not None}

    def run(self) -> None:
        statements = [item for item in self.program.items if isinstance(item, Statement)]
        if self.saves_kernels:
            for statement in filter(self._is_short, statements):
                statement.value, statement.reduction, statement.reduced = written_out(statement), None, ()
        self.reduced = {s.target for s in statements if s.reduction}
        # From the last one on: the readers of a value are then those that its own readers have been put into.
        gone = {id(statement) for statement in reversed(statements) if self._spread(statement)}
        if gone:
            self.program.items = [item for item in self.program.items if id(item) not in gone]

    def _spread(self, made: Statement) -> bool:
        """Put what ``made`` computes in the place of each load of it, if that is worth it; whether it was."""
        target = made.target
        readers = self.readers.get(target, [])
        if not readers or not self._is_free(made):
            return False
        if not all(isinstance(reader, Statement) and reader.target is not target for reader in readers):
            return False
        is_small = self.saves_kernels and self._is_small(made, readers)
        if not is_small and (len(readers) < 2 or not _is_cheap(made)):
            return False
        new: list[Node] = []
        for reader in readers:
            value = replaced(reader.value, made, anywhere=is_small)
            if value is None or (not self.saves_kernels and _decides(reader, target)):
                return False
            if any(b is target for a in index.data_atoms(reader.position) for b, _ in a.node.loads):
                return False
            if is_small and (value.cost > _LARGEST or value.depth > _DEEPEST):
                return False
            new.append(value)
        for reader, value in zip(readers, new, strict=True):
            reader.value = value
            reader.origins = list(dict.fromkeys((*made.origins, *reader.origins)))
            for buffer in made.reads:
                if reader not in self.readers[buffer]:
                    self.readers[buffer].append(reader)
        for buffer in made.reads:
            self.readers[buffer].remove(made)
        return True

    def _is_short(self, made: Statement) -> bool:
        """Whether it reduces few terms, and its readers all reduce over what it is computed at."""
        terms, readers = made.reduced_size, self.readers.get(made.target, [])
        if made.reduction is None or made.reduction.startswith("arg"):
            return False
        if type(terms) is not int or not 0 < terms <= _FEW:
            return False
        if made.target.rewritten or made.target.over is not None:
            return False
        if any(node.op in _IMPURE for node in operators_in(made.value)):
            return False
        if terms * (made.value.cost + _LOAD_COST * len(made.value.loads)) > _OF_A_THREAD:
            return False
        return bool(readers) and all(isinstance(r, Statement) and _reduces_over(r, made.target) for r in readers)

    def _is_small(self, made: Statement, readers: list[Statement]) -> bool:
        """Whether its readers compute it sooner than a kernel begins; what a reduction is made into stays beside it."""
        count = index.product(v.size for v in made.kept)
        if type(count) is not int or count * made.target.dtype.itemsize > _MOST_BYTES or extents(made) is None:
            return False
        if any(node.op in _IMPURE for node in operators_in(made.value)) or not self.reduced.isdisjoint(made.reads):
            return False
        each = made.value.cost + _LOAD_COST * len(made.value.loads)
        total, is_apart = 0, False
        for reader in readers:
            places = [at for buffer, at in reader.value.loads if buffer is made.target]
            points = index.product(v.size for v in (*reader.kept, *reader.reduced))
            if type(points) is not int or each * len(places) > _OF_A_THREAD:
                return False
            total += points * each * len(places)
            is_apart |= points != count or len(places) > 1
        return is_apart and total <= _OF_ALL

    def _is_free(self, made: Statement) -> bool:
        """Whether nobody else needs the buffer, and what it is made of is still there later."""
        target = made.target
        if made.reduction or target.kind != "temp" or target in self.returned or self.writers[target] != 1:
            return False
        return all(b not in self.changing and self.writers.get(b, 0) <= 1 for b in (target, *made.reads))


def _reduces_over(reader: Statement, target: Buffer) -> bool:
    return any(b is target and not index.free(at).isdisjoint(reader.reduced) for b, at in reader.value.loads)


def _is_cheap(made: Statement) -> bool:
    """Whether it takes few instructions, and no more bytes than its result, which lie in the same order."""
    count = index.product(v.size for v in made.kept)
    if made.value.cost > _MOST_COST or extents(made) is None or type(count) is not int or count < _LEAST:
        return False
    if not all(map(_is_smooth, operators_in(made.value))):
        return False
    size = 0
    for buffer, at in made.value.loads:
        if index.free(at) >= frozenset(made.kept):
            if any(index.coefficient(at, v) != index.coefficient(made.position, v) for v in made.kept):
                return False
            size += buffer.dtype.itemsize
    return size <= made.target.dtype.itemsize


def _decides(reader: Statement, target: Buffer) -> bool:
    """Whether ``reader`` does more than compute smoothly with what it reads of ``target``."""
    if reader.reduction not in (None, "sum") or any(a for a in index.data_atoms(reader.position)):
        return True
    return any(
        not _is_smooth(n) and any(b is target for a in n.args for b, _ in a.loads) for n in operators_in(reader.value)
    )


def _is_smooth(node: Node) -> bool:
    return node.op in _SMOOTH or (node.op == "cast" and node.dtype.is_floating_point)
