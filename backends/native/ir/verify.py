"""Checking that expressions, statements and programs are well formed; ``schedule/verify.py`` checks what follows.

Each rule has a name, and what breaks one raises :class:`Malformed`, which names the pass after which it was found, the
statement and the rule.  The compiler checks after each pass where ``config.debug`` is set, as the tests of this backend
do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import torch

from . import index
from .expressions import Buffer, Node, Statement, compute_type, operators_in
from .index import Index, Var
from .operation_table import KINDS, OPERATIONS
from .ordered_loops import Scan, Scatter
from .products import Attention, ComputedProduct, Convolution, FinishedProduct, Product
from .program import Call, Program, TensorRef

REDUCTIONS = ("sum", "prod", "max", "min", "argmax", "argmin", "any", "all")


class Malformed(Exception):
    """A pass left something that breaks a rule of the loop IR: a fault of this compiler, never of the program."""

    def __init__(self, after: str, where: object, rule: str, what: str) -> None:
        self.after, self.where, self.rule, self.what = after, where, rule, what
        super().__init__(f"after {after}: {what} [rule: {rule}] in: {where}")


Report = Callable[[str, str], Malformed]
"""Makes the error for a rule and what breaks it."""


def reporter(after: str, where: object) -> Report:
    return lambda rule, what: Malformed(after, where, rule, what)


# --- expressions ------------------------------------------------------------------------------------------------------


def types(node: Node, wrong: Report) -> None:
    """The table has each operation, and its signature fits."""
    for n in operators_in(node):
        operation = OPERATIONS.get(n.op)
        if operation is None:
            raise wrong("operations", f"the operation {n.op!r} is not in the table")
        most = len(operation.operands)
        if not most - operation.optional <= len(n.args) <= most:
            raise wrong("types", f"{n.op} has {len(n.args)} operands")
        bound: dict[str, torch.dtype] = {}
        letters = (*operation.operands[: len(n.args)], operation.result)
        for letter, dtype in zip(letters, (*(a.dtype for a in n.args), n.dtype), strict=True):
            if dtype not in KINDS[letter] or bound.setdefault(letter, dtype) is not dtype:
                found = ", ".join(str(a.dtype) for a in n.args)
                signature = " ".join((*operation.operands, "->", operation.result))
                raise wrong("types", f"{n.op} of ({found}) gives {n.dtype}, but its signature is {signature!r}")
        _attribute(n, wrong)


def _attribute(n: Node, wrong: Report) -> None:
    if n.op == "const":
        wanted = float if n.dtype.is_floating_point else bool if n.dtype is torch.bool else int
        if type(n.attr) is not wanted:
            raise wrong("types", f"a constant of {n.dtype} is the {type(n.attr).__name__} {n.attr!r}")
        if wanted is int and not torch.iinfo(n.dtype).min <= n.attr <= torch.iinfo(n.dtype).max:
            raise wrong("types", f"the constant {n.attr} does not fit {n.dtype}")
    elif n.op in ("load", "result"):
        buffer = n.attr[0] if n.op == "load" else n.attr
        if n.dtype is not compute_type(buffer.dtype):
            raise wrong("types", f"{buffer} holds {buffer.dtype}, and is read as {n.dtype}")
    elif n.op == "round" and n.attr not in (torch.bfloat16, torch.float16):
        raise wrong("types", f"a value is rounded to {n.attr}")


def variables(node: Node, position: Index, space: Collection[Var], wrong: Report) -> None:
    """Indices use only variables of the space."""
    for what, used in (("the value", node.free), ("the position", index.free(position))):
        if foreign := used - set(space):
            names = ", ".join(sorted(v.key for v in foreign))
            raise wrong("variables", f"{what} depends on {names}, which no loop here is over")
    for n in operators_in(node):
        if n.op == "check" and index.free(n.attr[0]):
            raise wrong("variables", f"an index is verified against {n.attr[0]}, which changes in the loops")


def symbols(node: Node, position: Index, space: Collection[Var], known: Collection[str], wrong: Report) -> None:
    """Each symbolic size is one that a call finds."""
    found: list[Index] = [position, *(v.size for v in space)]
    for n in operators_in(node):
        found += n._indices()
        if n.op == "check":
            found.append(n.attr[0])
    for value in found:
        for atom in value.atoms() if isinstance(value, index.Ix) else ():
            if isinstance(atom, index.Size) and atom.key not in known:
                raise wrong("symbols", f"the size {atom.key} is no input's")


def extremes(value: Index) -> tuple[int, int] | None:
    """The least and the greatest value of an index that is linear in loops of known sizes; None for others."""
    if not isinstance(value, index.Ix):
        return value, value
    low = high = 0
    for mono, coef in value.terms:
        if not mono:
            low, high = low + coef, high + coef
            continue
        (atom, *more) = mono
        if more or not isinstance(atom, Var) or type(atom.size) is not int:
            return None
        end = coef * (atom.size - 1)
        low, high = low + min(end, 0), high + max(end, 0)
    return low, high


def inside(buffer: Buffer, position: Index, verb: str, wrong: Report) -> None:
    """A position lies in its buffer, where that is known."""
    found, numel = extremes(position), buffer.numel
    if found is not None and type(numel) is int and not 0 <= found[0] <= found[1] < numel:
        raise wrong(
            "bounds", f"{buffer}, which has {numel} elements, is {verb} at {position}, from {found[0]} to {found[1]}"
        )


def bounds(node: Node, position: Index, target: Buffer, space: Collection[Var], wrong: Report) -> None:
    """What is read without a condition, and what is written, lies in its buffer."""
    if any(type(v.size) is int and v.size < 1 for v in space):
        return  # no point of the space is ever visited
    inside(target, position, "written", wrong)
    for n in operators_in(node):
        if n.op == "load" and not n.args:
            inside(n.attr[0], n.attr[1], "read", wrong)


# --- statements and the other items -----------------------------------------------------------------------------------


def statement(item: Statement, known: Collection[str], wrong: Report) -> None:
    """All rules about one statement alone."""
    space = (*item.kept, *item.reduced)
    if len(set(space)) != len(space):
        raise wrong("variables", "a loop comes twice")
    if foreign := index.free(item.position) & set(item.reduced):
        names = ", ".join(sorted(v.key for v in foreign))
        raise wrong("variables", f"the position depends on {names}, which is reduced over")
    _loop_body(item.value, item.position, item.target, space, known, wrong)
    reduction(item, wrong)


def reduction(item: Statement, wrong: Report) -> None:
    """The reduction is one that there is, has something to reduce over, and stores the type that it gives."""
    if (item.reduction is None) != (not item.reduced):
        raise wrong("reduction", f"the reduction {item.reduction} is over {len(item.reduced)} loops")
    wanted = compute_type(item.target.dtype)
    if item.reduction is None:
        if item.value.dtype is not wanted:
            raise wrong("types", f"{item.target} holds {item.target.dtype}, and {item.value.dtype} is stored")
        return
    if item.reduction not in REDUCTIONS:
        raise wrong("reduction", f"there is no reduction {item.reduction!r}")
    finds_place = item.reduction.startswith("arg")
    if finds_place != (item.value.op == "pair"):
        raise wrong("reduction", f"{item.reduction} of {item.value.op}: a place goes with argmax and argmin alone")
    given = torch.int64 if finds_place else item.value.dtype
    if given is not wanted:
        raise wrong("types", f"{item.target} holds {item.target.dtype}, and {item.reduction} gives {given}")
    if (item.reduction in ("any", "all")) != (item.value.dtype is torch.bool):
        raise wrong("reduction", f"{item.reduction} of {item.value.dtype}")


def _loop_body(
    value: Node, position: Index, target: Buffer, space: Collection[Var], known: Collection[str], wrong: Report
) -> None:
    types(value, wrong)
    for atom in index.data_atoms(position):
        types(atom.node, wrong)
    variables(value, position, space, wrong)
    symbols(value, position, space, known, wrong)
    bounds(value, position, target, space, wrong)


def ordered(item: Scan | Scatter, known: Collection[str], wrong: Report) -> None:
    """All rules about one step whose order matters."""
    space = (*item.rows, item.along) if isinstance(item, Scan) else (*item.apart, *item.serial)
    if len(set(space)) != len(space):
        raise wrong("variables", "a loop comes twice")
    _loop_body(item.value, item.position, item.target, space, known, wrong)
    if isinstance(item, Scan) and item.op not in ("sum", "prod", "max", "min", "logsumexp"):
        raise wrong("reduction", f"there is no cumulative {item.op!r}")
    if isinstance(item, Scatter) and item.value.dtype is not compute_type(item.target.dtype):
        raise wrong("types", f"{item.target} holds {item.target.dtype}, and {item.value.dtype} is stored")


def view(ref: TensorRef, wrong: Report) -> None:
    """A tensor on a buffer lies in it, where that is known."""
    if len(ref.sizes) != len(ref.strides):
        raise wrong("shapes", f"a view of {ref.buffer} has {len(ref.sizes)} sizes and {len(ref.strides)} strides")
    numbers = (*ref.sizes, *ref.strides, ref.offset, ref.buffer.numel)
    if any(type(n) is not int for n in numbers) or 0 in ref.sizes:
        return
    reach = ref.offset + sum((s - 1) * t for s, t in zip(ref.sizes, ref.strides, strict=True))
    if not 0 <= reach < ref.buffer.numel:  # type: ignore[operator]
        raise wrong("bounds", f"a view of {ref.buffer}, which has {ref.buffer.numel} elements, reaches to {reach}")


def product(item: Product, wrong: Report) -> None:
    """The sizes of the operands of a matrix product go together, and the types are one."""
    if not item.left.buffer.dtype is item.right.buffer.dtype is item.target.dtype:
        raise wrong("types", f"{item.left.buffer.dtype} @ {item.right.buffer.dtype} gives {item.target.dtype}")
    for what, sizes in (("inner sizes", (item.k, item.right.sizes[-2])), ("batches", _batches(item))):
        if sizes[0] != sizes[1]:
            raise wrong("shapes", f"the {what} of a product, {sizes[0]} and {sizes[1]}, differ")
    if (wanted := (*item.left.sizes[:-1], item.n)) != item.target.sizes:
        raise wrong(
            "shapes", f"a product of the sizes {wanted} goes to {item.target}, of the sizes {item.target.sizes}"
        )


def computed_product(item: ComputedProduct, known: Collection[str], wrong: Report) -> None:
    """The same where the right operand is an expression over the loops of the product."""
    found = {item.left.buffer.dtype, item.target.dtype, *(element.dtype for element in item.right)}
    if found != {torch.float32}:
        raise wrong("types", f"a product in float32 has operands of {', '.join(sorted(map(str, found)))}")
    if (wanted := (*item.left.sizes[:-1], item.n)) != item.target.sizes:
        raise wrong("shapes", f"a product of the sizes {wanted} goes to {item.target}")
    loops = [v for i in (item.depth, item.column, item.batch) if (v := index.the_var(i)) is not None]
    for element in item.right:
        _loop_body(element, 0, item.target, loops, known, wrong)


def finished_product(item: FinishedProduct, known: Collection[str], wrong: Report) -> None:
    """The operands are elements of one type, and all that finishes is over parts, rows and columns."""
    rows, columns, terms = item.loops
    parts = [v for v in (index.the_var(item.part),) if v is not None]
    for operand, loops in ((item.left, (*parts, rows, terms)), (item.right, (*parts, terms, columns))):
        if operand.op != "load" or operand.attr[0].dtype is not item.product.dtype:
            raise wrong("types", f"{operand} is no element of {item.product.dtype}")
        _loop_body(operand, 0, item.product, loops, known, wrong)
    if set(item.finish.kept) != {*parts, rows, columns} or item.finish.reduced:
        raise wrong("variables", "a product is finished in loops that are not its rows and columns")
    if any(at != item.position for buffer, at in item.finish.value.loads if buffer is item.product):
        raise wrong("order", f"{item.product} is read elsewhere than where it is computed")
    statement(item.finish, known, wrong)


def _batches(item: Product) -> tuple[Index, Index]:
    first, second = (ref.sizes[0] if len(ref.sizes) == 3 else 1 for ref in (item.left, item.right))
    return first, second


def operands(item: Product | ComputedProduct | Convolution | Attention | Call) -> Iterator[TensorRef]:
    """The tensors that an item is given."""
    if isinstance(item, Call):
        return refs_in((item.args, item.kwargs))
    return refs_in(list(vars(item).values()))


def refs_in(value: Any) -> Iterator[TensorRef]:
    """The tensors among the arguments of a call."""
    if isinstance(value, TensorRef):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from refs_in(part)
    elif isinstance(value, dict):
        yield from refs_in(list(value.values()))


def writes_of(item: Any) -> set[Buffer]:
    found: set[Buffer] = {item.target} if isinstance(item, Statement) else item.writes
    return found


# --- programs ---------------------------------------------------------------------------------------------------------


def given(program: Program) -> set[Buffer]:
    """The buffers that hold something before the first item runs."""
    constants = {b for b in program.buffers if b.name in program.constants}
    shown = {b for b in program.buffers if b.shows is not None}
    return {b for b in program.inputs if isinstance(b, Buffer)} | shown | constants | set(program.packs.values())


def verify_program(checked: Program, after: str) -> None:
    """Raise :class:`Malformed` for the first item of ``checked`` that breaks a rule."""
    _buffers(checked, reporter(after, "the list of buffers"))
    for item in checked.items:
        wrong = reporter(after, item)
        if isinstance(item, Statement):
            statement(item, checked.symbols, wrong)
        elif isinstance(item, (Scan, Scatter)):
            ordered(item, checked.symbols, wrong)
        elif isinstance(item, FinishedProduct):
            finished_product(item, checked.symbols, wrong)
        elif isinstance(item, (Product, ComputedProduct, Convolution, Attention, Call)):
            for ref in operands(item):
                view(ref, wrong)
            if isinstance(item, Product):
                product(item, wrong)
            if isinstance(item, ComputedProduct):
                computed_product(item, checked.symbols, wrong)
    for output in checked.outputs:
        if isinstance(output, TensorRef):
            view(output, reporter(after, output))
    order(checked.items, checked, after)
    _written_once(checked, after)


def _buffers(checked: Program, wrong: Report) -> None:
    names: set[str] = set()
    for buffer in checked.buffers:
        if buffer.name in names:
            raise wrong("buffers", f"two buffers are called {buffer.name}")
        names.add(buffer.name)
        if buffer.kind not in ("input", "temp", "output"):
            raise wrong("buffers", f"{buffer} is of the kind {buffer.kind!r}")
        if len(buffer.sizes) != len(buffer.strides):
            raise wrong("shapes", f"{buffer} has {len(buffer.sizes)} sizes and {len(buffer.strides)} strides")
        if any(type(s) is int and s < 0 for s in (*buffer.sizes, *buffer.strides)):
            raise wrong("shapes", f"{buffer} has sizes {buffer.sizes} and strides {buffer.strides}")


def order(items: Iterable[Any], checked: Program, after: str) -> None:
    """What is read is a buffer of the program that something before has written; nothing writes to an input."""
    known, holds = set(checked.buffers), given(checked)
    fixed = set(holds)
    holds |= {b for b in checked.buffers if b.over is not None or b.begins is not None}  # the old content
    for item in items:
        wrong = reporter(after, item)
        for buffer in sorted(item.reads | writes_of(item), key=str):
            if buffer not in known:
                raise wrong("buffers", f"{buffer} is no buffer of the program")
        _fresh_reads(item.reads, holds, wrong)
        for buffer in sorted(writes_of(item), key=str):
            if buffer in fixed:
                raise wrong("kinds", f"{buffer}, which is an input or a constant, is written")
            holds.add(buffer)
    for result in checked.outputs:
        if isinstance(result, TensorRef):
            wrong = reporter(after, result)
            _fresh_reads({result.buffer}, holds, wrong)
            if result.buffer.kind == "temp":
                raise wrong("kinds", f"{result.buffer} is returned, and is of the kind 'temp'")


def _fresh_reads(reads: set[Buffer], holds: set[Buffer], wrong: Report) -> None:
    for buffer in sorted(reads - holds, key=str):
        empty = type(buffer.numel) is int and buffer.numel == 0
        if not empty:
            raise wrong("order", f"{buffer} is read before anything is written to it")


def _written_once(checked: Program, after: str) -> None:
    """Statements write each element of a buffer once: all of it in one, or parts that add up to it."""
    points: dict[Buffer, Index] = {}
    others: set[Buffer] = set()
    last: dict[Buffer, Statement] = {}
    for item in checked.items:
        if isinstance(item, Statement) and not item.target.rewritten:
            points[item.target] = points.get(item.target, 0) + item.kept_size
            last[item.target] = item
            if item.target in others:
                raise Malformed(after, item, "kinds", f"{item.target}, which a call or loop made, is written again")
        else:
            others |= writes_of(item)
    for buffer, count in points.items():
        whole = index.product((*buffer.sizes, 2 if buffer.pairs else 1))
        if type(count) is int and type(whole) is int and count != whole:
            raise Malformed(
                after, last[buffer], "kinds", f"statements write {count} elements of {buffer}, which has {whole}"
            )
