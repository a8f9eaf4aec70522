"""Kernels: statements that share their loops.

A kernel's *space* is its loop variables in the order of memory access; those in *inner* are reduced over, or looped
over once for each point of the others.  A statement of a kernel runs at each point of the whole space, or, at the outer
level, once for each point of the outer variables.

Two kernels are fused by finding a common space.  Splitting loops into factors always keeps accesses linear, so the
common space is the refinement of both, if one exists.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..ir import index
from ..ir.expressions import Buffer, Node, Statement, compute_type, make, operators_in, substitute
from ..ir.index import Index, Var
from ..ir.layout import ONCE_COST, is_short_row, weight

MOST_STATEMENTS = 48
MOST_BUFFERS = 40
DEEPEST = 160
"""What a kernel computes without reading memory is at most so many operations deep: what prints it recurs."""
_LEAST_PART = 8
FEW = 4
"""So many elements, which are walked one by one beside a vector, are a part of a loop, too."""
MOST_BESIDE = 16
"""So many elements beside each other are read or written as whole vectors, though each is in a vector of its own."""


@dataclass(frozen=True)
class Member:
    """A statement in a kernel; ``at`` is its place in the program, ``outer`` whether it runs at the outer level."""

    statement: Statement
    at: int
    outer: bool


@dataclass(eq=False)
class Kernel:
    space: tuple[Var, ...]
    inner: frozenset[Var]
    members: list[Member]

    @property
    def outer_vars(self) -> tuple[Var, ...]:
        return tuple(v for v in self.space if v not in self.inner)

    @property
    def inner_vars(self) -> tuple[Var, ...]:
        return tuple(v for v in self.space if v in self.inner)

    @property
    def is_on_cpu(self) -> bool:
        return self.members[0].statement.target.device.type == "cpu"

    @property
    def reads(self) -> set[Buffer]:
        return set().union(*(m.statement.reads for m in self.members))

    @property
    def writes(self) -> set[Buffer]:
        return {m.statement.target for m in self.members}

    @property
    def name(self) -> str:
        return "+".join(str(m.statement.target) for m in self.members)


def as_stored(buffer: Buffer, value: Node) -> Node:
    """What a buffer has for those that read it, of the value that was computed for it: half precision is rounded."""
    dtype = buffer.dtype
    if compute_type(dtype) is dtype:
        return value
    is_rounded = value.op == "round" and value.attr is dtype
    is_copied = value.op == "load" and value.attr[0].dtype is dtype
    return value if is_rounded or is_copied else make("round", (value,), value.dtype, dtype)


# --- from one statement -----------------------------------------------------------------------------------------------


def of_statement(statement: Statement, at: int) -> Kernel:
    """The kernel of one statement, with as few loops as its accesses allow."""
    variables = list(statement.kept)
    if statement.reduction:
        variables = _memory_order([*statement.kept, *statement.reduced], statement)
    kernel = Kernel(tuple(variables), frozenset(statement.reduced), [Member(statement, at, False)])
    return merge_loops(kernel)


def _memory_order(variables: list[Var], statement: Statement) -> list[Var]:
    """The variables from the largest stride to the smallest, by the access that has most of them."""
    best: Index = statement.position
    for _, position in statement.value.loads:
        if len(index.free(position)) > len(index.free(best)):
            best = position

    def key(variable: Var) -> tuple[int, int]:
        stride = index.coefficient(best, variable)
        if stride is None or (type(stride) is int and stride == 0):
            return (1, -variables.index(variable))
        weight = stride if type(stride) is int else max(c * 1000 ** len(m) for m, c in stride.terms)  # type: ignore[union-attr]
        return (0, weight)

    # Variables that it does not have stay outside, in their order.
    missing = [v for v in variables if key(v)[0]]
    return missing + sorted((v for v in variables if not key(v)[0]), key=lambda v: -key(v)[1])


def accesses(statement: Statement) -> set[Index]:
    """Every index expression of a statement."""
    found: set[Index] = {statement.position}
    for node in operators_in(statement.value):
        if node.op == "load":
            found.add(node.attr[1])
        elif node.op == "index":
            found.add(node.attr)
        elif node.op == "check" and isinstance(node.attr[0], index.Ix):
            found.add(node.attr[0])
    for atom in index.data_atoms(statement.position):
        for node in operators_in(atom.node):
            if node.op == "load":
                found.add(node.attr[1])
    return found


def merge_loops(kernel: Kernel) -> Kernel:
    """Make one loop of neighbours that every access walks as one."""
    touched: set[Index] = set().union(*(accesses(m.statement) for m in kernel.members))
    space = list(kernel.space)
    at = len(space) - 2
    while at >= 0:
        a, b = space[at], space[at + 1]
        if (a in kernel.inner) == (b in kernel.inner) and all(_walks_as_one(t, a, b) for t in touched):
            whole = index.var(f"{a.key}{b.key}", a.size * b.size)
            variable = index.the_var(whole)
            assert variable is not None
            mapping: dict[Var, Index] = {a: 0, b: whole}
            inner = (kernel.inner - {a, b}) | ({variable} if a in kernel.inner else frozenset())
            space[at : at + 2] = [variable]
            kernel = moved(kernel, tuple(space), inner, mapping)
            touched = set().union(*(accesses(m.statement) for m in kernel.members))
        at = min(at, len(space) - 1) - 1
    return kernel


def split_loops(kernel: Kernel) -> Kernel:
    """Make two loops of one that an access divides, so that the parts are walked without divisions."""
    while True:
        touched: set[Index] = set().union(*(accesses(m.statement) for m in kernel.members))
        found = min(
            ((right, v) for t in touched for v, right in _divided(t, kernel.space[-1:]) if v in kernel.space),
            key=lambda pair: (weight(pair[0]), str(pair[0]), pair[1].key),
            default=None,
        )
        if found is None:
            return kernel
        extent, variable = found
        parts = [
            index.var(f"{variable.key}a", index.floordiv(variable.size, extent)),
            index.var(f"{variable.key}b", extent),
        ]
        fresh = [v for p in parts if (v := index.the_var(p)) is not None]
        at = kernel.space.index(variable)
        space = (*kernel.space[:at], *fresh, *kernel.space[at + 1 :])
        inner = kernel.inner - {variable} | (set(fresh) if variable in kernel.inner else set())
        kernel = moved(kernel, space, inner, {variable: parts[0] * extent + parts[1]})


def _divided(access: Index, last: Sequence[Var]) -> list[tuple[Var, Index]]:
    """The loop variables of which an access takes quotients or remainders, with divisors that can split the loop.

    The ``last`` loop, whose points are neighbours in memory, is not split into parts that fill no vector.
    """
    found: list[tuple[Var, Index]] = []
    for atom in access.atoms() if isinstance(access, index.Ix) else ():
        if not isinstance(atom, (index.Div, index.Rem)):
            continue
        for variable in index.free(atom.left):
            step = index.coefficient(atom.left, variable)
            if type(step) is not int:
                continue
            part: Index
            if isinstance(atom.right, index.Ix):
                part, usable = atom.right, step == 1 and len(atom.right.terms) == 1
            else:
                part = atom.right // math.gcd(step, atom.right)
                usable = part >= _LEAST_PART or 1 < part <= FEW or (part > 1 and variable not in last)
            if usable and not _equal(part, variable.size) and _exact_quotient(variable.size, part) is not None:
                found.append((variable, part))
    return found


def _walks_as_one(access: Index, a: Var, b: Var) -> bool:
    if not (index.free(access) & {a, b}):
        return True
    strides = index.coefficient(access, a), index.coefficient(access, b)
    if strides[0] is None or strides[1] is None:
        return False
    return _equal(strides[0], strides[1] * b.size)


def _equal(one: Index, other: Index) -> bool:
    return one is other or (type(one) is int and one == other)


def moved(kernel: Kernel, space: tuple[Var, ...], inner: frozenset[Var], variables: Mapping[Var, Index]) -> Kernel:
    """The kernel over another space; ``variables`` says what its variables are there."""
    memo: dict[Node, Node] = {}
    members = []
    for member in kernel.members:
        old = member.statement
        position = index.substitute(old.position, variables, lambda n: substitute(n, variables, memo))
        statement = dataclasses.replace(old, position=position, value=substitute(old.value, variables, memo))
        members.append(dataclasses.replace(member, statement=statement))
    return Kernel(space, inner, members)


# --- fusing two -------------------------------------------------------------------------------------------------------


class NotFused(Exception):
    """Why two kernels stay two, as a sentence."""


def refine(left: Sequence[Index], right: Sequence[Index]) -> list[Index] | None:
    """The coarsest sizes that refine both, for equal products; None if the boundaries do not line up."""
    a, b = list(left), list(right)
    result: list[Index] = []
    while a and b:
        x, y = a.pop(), b.pop()
        if _equal(x, y):
            result.append(x)
            continue
        quotient = _exact_quotient(y, x)
        if quotient is not None:
            result.append(x)
            b.append(quotient)
            continue
        quotient = _exact_quotient(x, y)
        if quotient is None:
            return None
        result.append(y)
        a.append(quotient)
    return list(reversed(result)) if not a and not b else None


def _exact_quotient(whole: Index, part: Index) -> Index | None:
    if type(whole) is int and type(part) is int:
        return whole // part if part and whole % part == 0 else None
    quotient = index.floordiv(whole, part)
    product = quotient * part
    return quotient if product is whole else None


def fuse(first: Kernel, second: Kernel, shared_writers: set[Buffer]) -> Kernel:
    """One kernel that does what ``first`` and then ``second`` do.

    ``shared_writers`` are the buffers that several statements write parts of.

    Raises:
        NotFused: it is not possible, or not worth it.
    """
    if len(first.members) + len(second.members) > MOST_STATEMENTS:
        raise NotFused("the kernel would have too many statements")
    if len(first.reads | first.writes | second.reads | second.writes) > MOST_BUFFERS:
        raise NotFused("the kernel would touch too many buffers")
    if _depth(first, second) > DEEPEST:
        raise NotFused("the kernel would compute too deep an expression")
    if (first.writes & shared_writers) & second.reads:
        raise NotFused("the value that is read was assembled from several parts")
    if any(b.rewritten for b in ((first.reads | first.writes) & second.writes) | (first.writes & second.reads)):
        raise NotFused("one changes what the other has written or read")
    try:
        a, b, space, inner = _lined_up(first, second)
    except NotFused:
        if (turned := _turned(first, second)) is None:
            raise
        a, b, space, inner = _lined_up(first, turned)
    members = sorted([*a.members, *b.members], key=lambda m: m.at)
    fused = Kernel(space, inner, members)
    if any(buffer.over is not None for buffer in fused.writes):
        _check_overwriting(fused)
    if fused.is_on_cpu and not first.writes & second.reads and _is_chopped(first, second, fused):
        raise NotFused("they divide their loops in different ways, which would leave short ones")
    return fused


_MOST_TURNED = 2**18
"""Of so many points, what is written in another order than it lies in takes a GPU less time than another kernel."""


def _turned(first: Kernel, second: Kernel) -> Kernel | None:
    """On a GPU, ``second`` with its loops in the order in which it reads the rows of ``first``, where that is another
    one and the points are few."""
    points = index.product(v.size for v in second.space)
    if second.is_on_cpu or second.inner or not first.inner or type(points) is not int or points > _MOST_TURNED:
        return None
    read = [at for m in second.members for b, at in m.statement.value.loads if b in first.writes]
    for at in read:
        steps = {v: step for v in second.space if type(step := index.coefficient(at, v)) is int and step > 0}
        if len(steps) == len(second.space):
            order = tuple(sorted(second.space, key=lambda v: -steps[v]))
            return None if order == second.space else Kernel(order, second.inner, second.members)
    return None


_SHORT = 16
"""Steps of an innermost loop that fill few vectors."""


def _is_chopped(first: Kernel, second: Kernel, fused: Kernel) -> bool:
    """Whether one of two walks long rows, and together they walk short ones, since each divides loops in its way."""
    if fused.inner or not fused.space or any(type(v.size) is not int for v in fused.space):
        return False
    if fused.space[-1].size >= _SHORT and not all(map(_divides, (first, second))):  # type: ignore[operator]
        return False
    return _row(fused) < _SHORT <= max(_row(first), _row(second))


def _divides(kernel: Kernel) -> bool:
    return any(_divided(access, kernel.space[-1:]) for m in kernel.members for access in accesses(m.statement))


def _row(kernel: Kernel) -> int:
    """The steps of the loop that vectors walk, once loops are merged and split: a few elements lie beside it."""
    sizes = [v.size for v in split_loops(merge_loops(kernel)).space]
    walked = sizes[-2:] if type(sizes[-1]) is int and sizes[-1] <= MOST_BESIDE else sizes[-1:]
    return max(size if type(size) is int else 0 for size in walked)


def _check_overwriting(kernel: Kernel) -> None:
    """What a kernel overwrites it reads in the same place alone, and nothing is written before all is checked."""
    if any(node.op == "check" for m in kernel.members for node in _nodes_of(m.statement)):
        raise NotFused("an index must be checked before anything is written to an input")
    for writer in kernel.members:
        over = writer.statement.target.over
        for member in kernel.members if over is not None else ():
            if over not in member.statement.reads:
                continue
            others = [at for b, at in member.statement.value.loads if b is over and at != writer.statement.position]
            others += [at for a in index.data_atoms(member.statement.position) for b, at in a.node.loads if b is over]
            if others or member.outer != writer.outer:
                raise NotFused(f"{over} is read at points other than those where it is overwritten")


def _nodes_of(statement: Statement) -> Iterator[Node]:
    for top in (statement.value, *(a.node for a in index.data_atoms(statement.position))):
        yield from operators_in(top)


def _depth(first: Kernel, second: Kernel) -> int:
    """How deep the expressions are when what a kernel computes stands where it is read."""
    depth: dict[Buffer, int] = {}
    for member in sorted([*first.members, *second.members], key=lambda m: m.at):
        statement = member.statement
        below = max((depth.get(b, 0) for b in statement.reads), default=0)
        depth[statement.target] = statement.value.depth + below
    return max(depth.values())


def _lined_up(first: Kernel, second: Kernel) -> tuple[Kernel, Kernel, tuple[Var, ...], frozenset[Var]]:
    """Both in one space, in which the second reads what the first computes at the same point."""
    a, b, space, inner = _common_space(first, second)
    _check_reads(a, b)
    return a, b, space, inner


def _common_space(first: Kernel, second: Kernel) -> tuple[Kernel, Kernel, tuple[Var, ...], frozenset[Var]]:
    if bool(first.inner) == bool(second.inner):
        a, b, space, inner = _aligned(first, first.space, second, second.space, first.inner)
        if first.inner:
            other = {v for old, parts in b[1].items() if old in second.inner for v in index.free(parts)}
            if other != inner:
                raise NotFused("they reduce over different dimensions")
        return moved(first, space, inner, a[1]), moved(second, space, inner, b[1]), space, inner
    loops, flat = (first, second) if first.inner else (second, first)
    points = index.product(v.size for v in flat.space)
    if _same(points, index.product(v.size for v in loops.space)):
        a, b, space, inner = _aligned(loops, loops.space, flat, flat.space, loops.inner)
        new_loops, new_flat = moved(loops, space, inner, a[1]), moved(flat, space, inner, b[1])
    elif _same(points, index.product(v.size for v in loops.outer_vars)):
        inside = index.product(v.size for v in loops.inner)
        short = flat.is_on_cpu and is_short_row(inside, points)
        if short and any(m.statement.value.cost >= ONCE_COST for m in flat.members):
            raise NotFused("what is computed once per row takes longer than the short row")
        # The inner loops keep their variables, so the outer loops use other names.
        a, b, outer, _ = _aligned(loops, loops.outer_vars, flat, flat.space, frozenset(), "y")
        space = tuple(
            part for v in loops.space for part in ([v] if v in loops.inner else _in_order(index.free(a[1][v]), outer))
        )
        inner = loops.inner
        new_loops, new_flat = moved(loops, space, inner, a[1]), moved(flat, space, inner, b[1])
        new_flat.members = [dataclasses.replace(m, outer=True) for m in new_flat.members]
    else:
        raise NotFused("they loop over different numbers of elements")
    if first.inner:
        return new_loops, new_flat, space, inner
    return new_flat, new_loops, space, inner


def _same(a: Index, b: Index) -> bool:
    return a is b or (type(a) is int and a == b)


def _in_order(variables: frozenset[Var], order: Sequence[Var]) -> list[Var]:
    return [v for v in order if v in variables]


def _aligned(
    first: Kernel,
    left: Sequence[Var],
    second: Kernel,
    right: Sequence[Var],
    inner: frozenset[Var],
    prefix: str = "x",
) -> tuple[tuple[Kernel, dict[Var, Index]], tuple[Kernel, dict[Var, Index]], tuple[Var, ...], frozenset[Var]]:
    """Variables of the refinement of two lists of loops, and what the old variables are in them."""
    sizes = refine([v.size for v in left], [v.size for v in right])
    if sizes is None:
        raise NotFused("their loops cannot be split in the same way")
    fresh = [index.var(f"{prefix}{n}_{len(sizes)}", s) for n, s in enumerate(sizes)]
    space = tuple(v for i in fresh if (v := index.the_var(i)) is not None)
    maps = [_grouped(side, fresh, sizes) for side in (left, right)]
    # A variable of size 1 was dropped, so each old one is made of at least one new one.
    inside = {v for old, parts in maps[0].items() if old in inner for v in index.free(parts)}
    return (first, maps[0]), (second, maps[1]), space, frozenset(inside)


def _grouped(old: Sequence[Var], fresh: Sequence[Index], sizes: Sequence[Index]) -> dict[Var, Index]:
    mapping: dict[Var, Index] = {}
    at = len(sizes)
    for variable in reversed(old):
        end, points = at, 1
        while not _same(points, variable.size):
            at -= 1
            points = points * sizes[at]  # type: ignore[assignment]
        mapping[variable] = index.flatten(fresh[at:end], sizes[at:end])
    return mapping


def _check_reads(first: Kernel, second: Kernel) -> None:
    """What ``second`` reads of ``first`` must be what ``first`` computes at the same point."""
    made = {m.statement.target: m for m in first.members}
    for member in second.members:
        for buffer, position in member.statement.value.loads:
            source = made.get(buffer)
            if source is None:
                continue
            if source.statement.position is not position and source.statement.position != position:
                raise NotFused(
                    f"{member.statement.target} reads {buffer} at points other than those where it is computed"
                )
            if member.outer and not source.outer and not source.statement.reduction:
                raise NotFused(f"{member.statement.target} is computed once per row, {buffer} for each element")
        if any(b in made for a in index.data_atoms(member.statement.position) for b, _ in a.node.loads):
            raise NotFused("its position in memory depends on the computed values")
