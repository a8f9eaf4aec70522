"""Which products a kernel could finish: those that one statement reads, element by element."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from ....ir import index, operations as ops
from ....ir.expressions import Buffer, Node, Statement, compute_type, make, rewrite, substitute
from ....ir.index import Index, Var
from ....ir.products import Convolution, FinishedProduct, Product
from ....ir.program import Program
from ....ir.uses import Uses
from ....schedule.inlining import extents, replaced
from ..shapes import PIECE
from .operands import extent, factors

_MOST_COST = 200
"""So many instructions for an element are hidden behind the products of other programs."""


@dataclass(frozen=True)
class Candidate:
    """``step`` would compute what ``product`` and ``statements`` do, and stand where the last of these stands.

    ``whole`` is one statement that does what these do, and reads the product from memory.  Without ``statements``, the
    step only stores the product.
    """

    product: Product | Convolution
    statements: tuple[Statement, ...]
    whole: Statement | None
    step: FinishedProduct


def find(program: Program) -> list[Candidate]:
    """All of ``program``; no product and no statement is in two."""
    uses = Uses(program, program.items)
    place = {id(item): at for at, item in enumerate(program.items)}
    taken: set[int] = set()
    found = []
    # Of two products that a statement reads, the other one is in memory before the last one is finished.
    for product in reversed(program.items):
        if isinstance(product, (Product, Convolution)):
            for statements, whole in reversed(_chains(product, uses, taken)):
                step = None if _changes(program, place, product, statements) else _finished(product, whole)
                if step is not None:
                    taken.update(map(id, statements))
                    found.append(Candidate(product, statements, whole, step))
                    break
            else:
                if isinstance(product, Product) and factors(product) is not None and is_ragged(product.target):
                    found.append(stored(product))
    return found


def is_ragged(matrix: Buffer) -> bool:
    """Whether the rows of a matrix begin at any place, where a library cannot write several elements at once."""
    return cast("int", matrix.strides[0]) * matrix.dtype.itemsize % PIECE != 0


def stored(product: Product) -> Candidate:
    """A kernel that does nothing else than to store the product."""
    found = factors(product)
    assert found is not None
    target = product.target
    position = found.row * target.strides[0] + found.column
    value = make("load", (), compute_type(target.dtype), (target, position))
    kept = cast("tuple[Var, Var]", (index.the_var(found.row), index.the_var(found.column)))
    finish = Statement(target, position, value, kept, origins=product.origins)
    operands = (found.left, found.right, found.row, found.column, found.term)
    return Candidate(product, (), None, FinishedProduct(target, *operands, position, finish, list(product.origins)))


def _chains(
    product: Product | Convolution, uses: Uses, taken: Collection[int]
) -> list[tuple[tuple[Statement, ...], Statement]]:
    """The statements that follow, each the only reader of the one before, and what they are as one; with one more in
    each.  None where a reduction takes up the last one: it saves as much as we could."""
    found: list[tuple[tuple[Statement, ...], Statement]] = []
    statements: tuple[Statement, ...] = ()
    whole: Statement | None = None
    target = product.target
    while uses.readers.get(target) and uses.only_reader(target):
        (reader,) = uses.readers[target]
        if isinstance(reader, Statement) and reader.reduced:
            return []
        if not uses.is_whole(reader) or id(reader) in taken:
            break
        value = reader.value
        if whole is not None:
            inlined = replaced(value, whole) if extents(whole) is not None else None
            if inlined is None or inlined.cost > _MOST_COST or reader.kept_size != whole.kept_size:
                break
            value = inlined
        statements = (*statements, reader)
        origins = [node for each in statements for node in each.origins]
        whole = Statement(reader.target, reader.position, value, reader.kept, origins=origins)
        found.append((statements, whole))
        target = reader.target
    return [] if uses.is_reduced(target) else found


def _changes(
    program: Program, place: Mapping[int, int], product: Product | Convolution, statements: Sequence[Statement]
) -> bool:
    """Whether what one of these items reads is written between it and the last one, where it is read then."""
    last = place[id(statements[-1])]
    return any(
        not item.reads.isdisjoint({later.target} if isinstance(later, Statement) else later.writes)
        for item in (product, *statements)
        for later in program.items[place[id(item)] + 1 : last]
        if later not in statements
    )


def _finished(product: Product | Convolution, statement: Statement) -> FinishedProduct | None:
    found = factors(product)
    positions = {at for buffer, at in statement.value.loads if buffer is product.target}
    if found is None or len(positions) != 1:
        return None
    stride = product.target.strides[0] if isinstance(product, Product) else found.columns
    loops = in_rows(positions.pop(), statement.kept, found.row, found.column, stride)
    if loops is None:
        return None
    whole = found.row * stride + found.column
    memo: dict[Node, Node] = {}
    value = _of_sums(substitute(statement.value, loops, memo), product.target, found.shift)
    position = index.joined(index.substitute(statement.position, loops, lambda node: substitute(node, loops, memo)))
    kept = cast("tuple[Var, Var]", (index.the_var(found.row), index.the_var(found.column)))
    finish = Statement(statement.target, position, value, kept, origins=statement.origins)
    operands = (found.left, found.right, found.row, found.column, found.term)
    step = FinishedProduct(product.target, *operands, whole, finish, [*product.origins, *statement.origins])
    # Whether the arithmetic of indices finds that it is the same position.
    return step if all(at == whole for b, at in value.loads if b is product.target) else None


def _of_sums(value: Node, product: Buffer, shift: Node | None) -> Node:
    """``value`` where loads of ``product`` are sums without ``shift``.  Positions that were taken apart into loops, and
    are made of rows and columns again, are so in one piece."""

    def change(node: Node, args: tuple[Node, ...]) -> Node:
        if node.op != "load":
            return make(node.op, args, node.dtype, node.attr)
        buffer, position = node.attr
        read = make("load", args, node.dtype, (buffer, index.joined(position)))
        return read if shift is None or buffer is not product else ops.binary("add", read, shift)

    return rewrite(value, change, {})


def in_rows(
    position: Index, loops: Sequence[Var], row: Index, column: Index, stride: Index
) -> Mapping[Var, Index] | None:
    """What each loop is of a ``row`` and a ``column``, which are loops over all of a matrix, if ``position`` walks all
    its elements, each once; its rows are ``stride`` apart."""
    rows, columns = extent(row), extent(column)
    steps = {v: step for v in loops if type(v.size) is int and type(step := index.coefficient(position, v)) is int}
    places: dict[Var, Index] = {}
    whole, walked, count, step = row * columns + column, cast("Index", 0), 1, 1
    for v in sorted(steps, key=steps.__getitem__):
        if count == columns:
            step = cast("int", stride)  # from here on, the loops are over rows
        if steps[v] != step:
            return None
        places[v] = index.remainder(index.floordiv(whole, count), v.size)
        walked = walked + step * index.var(v.key, v.size)
        step, count = step * cast("int", v.size), count * cast("int", v.size)
    complete = len(places) == len(loops) and walked == position and count == rows * columns
    return places if complete and (step == count) == (stride == columns) else None
