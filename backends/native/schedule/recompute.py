"""Values that are cheaper to compute again than to keep in memory.

A value that several statements read lies in memory, and is written once and read by each kernel.  Where it is made of
what takes no more bytes to read, as the normalized rows of a layer norm's backward pass are, each reader computes it
itself.  The scheduler could not undo the store: it sees the readers one by one.
"""

from __future__ import annotations

from typing import Any

from ..ir import index
from ..ir.expressions import Buffer, Node, Statement, operators_in
from ..ir.program import Program
from .inlining import extents, replaced

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


def recompute(program: Program) -> None:
    """Replace loads by what was stored, where that is worth it."""
    _Recomputer(program).run()


class _Recomputer:
    def __init__(self, program: Program) -> None:
        self.program = program
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
        gone = {id(item) for item in self.program.items if isinstance(item, Statement) and self._spread(item)}
        if gone:
            self.program.items = [item for item in self.program.items if id(item) not in gone]

    def _spread(self, made: Statement) -> bool:
        """Put what ``made`` computes in the place of each load of it, if that is worth it; whether it was."""
        target = made.target
        readers = self.readers.get(target, [])
        if len(readers) < 2 or not self._is_free(made) or not _is_cheap(made):
            return False
        new: list[Node] = []
        for reader in readers:
            if not isinstance(reader, Statement) or reader.target is target:
                return False
            value = replaced(reader.value, made)
            if value is None or _decides(reader, target):
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

    def _is_free(self, made: Statement) -> bool:
        """Whether nobody else needs the buffer, and what it is made of is still there later."""
        target = made.target
        if made.reduction or target.kind != "temp" or target in self.returned or self.writers[target] != 1:
            return False
        return all(b not in self.changing and self.writers.get(b, 0) <= 1 for b in (target, *made.reads))


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
