"""Products whose right operand is computed while it is read, by ``computed.h``: which ones, and their code.

Weights in half precision, or that a program converts from integers or scales, are read once, as they are stored.  What
they are multiplied by, and the sums, are float32.  Processors with instructions for products of half precision leave
large ones to the library, which has kernels for them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from ....common.cache.versions import processor
from ...ir import index
from ...ir.expressions import Buffer, Node, make, operators_in, rewrite
from ...ir.index import Index, Var
from ...ir.products import ComputedProduct, elements_of
from ...ir.values import Value
from .cpp import Function, sizes_in, sizes_of
from .cpp_scopes import NAMES, Writer

FEW_ROWS = 8
"""Products of at most so many rows take as long as it takes to read the right operand."""

_FEW_FOR_UNITS = 2
"""As above where a large right operand lies in memory in half precision and the library has instructions for it: with
4 rows of bfloat16, our kernel reads 15 GB/s where the library reads 19, with 8 rows 9 and 17."""

_FEW_CONVERTED = 4
"""As above where a right operand is converted: writing it once, and the library's product, take 0.23 ms for 8 rows of a
matrix of 512 by 2048, our kernel 0.35."""

_SMALL = 1 << 19
"""Multiplications that take less time than a call of the library in half precision, some 13 µs."""

MOST_ROWS = 64
"""With more rows than this, float32 values are written once, and multiplied as they lie."""

_LEAST = 8
"""Rows and columns of a right operand for which this is meant."""

_LEAST_STORED = 1 << 16
"""Elements of a large matrix; from there on, our kernel is faster with few rows of float32 than the library."""

MOST_COST = 24
"""The right operand is computed again for each block of rows, so it must not cost much more than reading it."""

_UNITS = {
    torch.bfloat16: ("avx512_bf16", "amx_bf16", "bf16"),
    torch.float16: ("avx512_fp16", "amx_fp16", "asimdhp"),
}
"""How processors call instructions for products, on x86-64 and on arm64."""


@functools.cache
def has_units(dtype: torch.dtype) -> bool:
    """Whether the processor has instructions for products of a dtype in half precision, and the library uses them."""
    return torch.backends.mkldnn.is_available() and not set(_UNITS[dtype]).isdisjoint(processor().split())


@functools.cache
def convolves_float16() -> bool:
    """Whether the library's convolutions of float16 are as fast as those of float32.

    With AVX512-FP16 and no more, they take 1.2 to 5 times as long, and gradients of weights, for which it has no
    kernel, 300 times.
    """
    return torch.backends.mkldnn.is_available() and not {"amx_fp16", "asimdhp"}.isdisjoint(processor().split())


def is_computed(left: Value, right: Value) -> bool:
    """Whether the right operand of ``left @ right`` is computed while it is read."""
    m, (k, n) = left.sizes[-2], right.sizes[-2:]
    if left.dtype not in (torch.float32, *_UNITS) or left.dtype is not right.dtype:
        return False
    if any(type(s) is not int for s in (*right.sizes, *left.sizes[:-2])) or k < _LEAST or n < _LEAST:  # type: ignore[operator]
        return False
    if type(m) is not int and (right.rank == 3 or left.dtype is torch.float32):
        return False
    if left.dtype is not torch.float32:
        large = right.place is not None and k * n >= _LEAST_STORED  # type: ignore[operator]
        most = _FEW_FOR_UNITS if large else _FEW_CONVERTED
        is_small = type(m) is int and right.rank == 2 and m * k * n <= _SMALL  # type: ignore[operator]
        if not (type(m) is int and m <= most) and not is_small and has_units(left.dtype):
            return False
    elif right.place is not None:
        large = k * n >= _LEAST_STORED  # type: ignore[operator]
        if not (large and m < FEW_ROWS and right.rank == 2 and 1 in right.place.strides):  # type: ignore[operator]
            return False  # the library's, or a matter of measuring
    elif m > MOST_ROWS:  # type: ignore[operator]
        return False
    elements, depth, *_ = elements_of(right)
    if any(element.cost > MOST_COST or not element.loads for element in elements):
        return False
    nodes = [node for element in elements for node in operators_in(element)]
    return all(n.op != "check" and all(_is_walked(i, depth) for i in n._indices()) for n in nodes)


_WORTH_A_TABLE = 2
"""Operations that a permutation takes the place of."""

_TABLED = (torch.uint8, torch.int8, torch.int16, torch.int32)

_STEADY = 16
"""Lanes of the widest vector of float32."""


def _is_walked(position: Index, depth: Index) -> bool:
    """Whether an index is a sum of loops with factors, or of groups of whole vectors along the depth: others are read
    one element at a time."""
    atoms = position.atoms() if isinstance(position, index.Ix) else ()
    return all(isinstance(a, (Var, index.Size)) or _group(a, depth) % _STEADY == 0 for a in atoms)


def _group(atom: object, depth: Index) -> int:
    """The size of the groups of ``depth`` that ``atom`` numbers; 1 if it is something else."""
    if isinstance(atom, index.Div) and atom.left is depth and type(atom.right) is int:
        return atom.right
    return 1


class _Writer(Writer):
    """Reads what is the same for a whole vector once: vectors begin at multiples of their length.

    What is computed of a number from 0 to 15, as of weights in 4 bits, and of what is the same for a vector, is
    computed for all these numbers at once where a vector has so many lanes, which choose from them.
    """

    in_table = False  # whether a table is being written

    def _load(self, node: Node, vector: bool) -> str:
        buffer, position = node.attr
        text = super()._load(node, vector)
        if not text.startswith("gather") or not isinstance(position, index.Ix):
            return text
        assert self.vector is not None
        depth = index.var(self.vector.key, self.vector.size)
        factors = {factor for mono, _ in position.terms for factor in mono}
        groups = sorted(_group(f, depth) for f in factors if f is self.vector or isinstance(f, (index.Div, index.Rem)))
        if not groups or groups[0] % _STEADY:
            return text
        whole = " && ".join(f"{group} % LANES == 0" for group in groups)
        return f"({whole} ? splat(load({self.pointer(buffer)} + {self.index(position)})) : {text})"

    def _expression(self, node: Node, vector: bool) -> str:
        number = None if self.in_table or not vector else self._number_of(node)
        return super()._expression(node, vector) if number is None else self._by_table(node, number)

    def _number_of(self, node: Node) -> Node | None:
        """The number from 0 to 15 on which ``node`` depends, where what else it depends on is the same for a vector."""
        if node.dtype is not torch.float32:
            return None
        found: set[Node] = set()
        left = [node]
        while left:
            each = left.pop()
            if not self.is_vector(each):
                continue
            if _is_below_sixteen(each):
                found.add(each)
            elif each.op != "load" and each.args:
                left += each.args
            elif each.op != "load" or each.args or not self._is_steady(each.attr[1]):
                return None
        number = found.pop() if len(found) == 1 else None
        return number if number is not None and node.cost - number.cost >= _WORTH_A_TABLE else None

    def _is_steady(self, position: Index) -> bool:
        """Whether a position is the same for all lanes, as :meth:`_load` reads it."""
        assert self.vector is not None and isinstance(position, index.Ix)
        depth = index.var(self.vector.key, self.vector.size)
        factors = {factor for mono, _ in position.terms for factor in mono}
        return all(
            _group(f, depth) % _STEADY == 0 for f in factors if f is self.vector or self.vector in index.free_in(f)
        )

    def _by_table(self, node: Node, number: Node) -> str:
        """``node`` for each number from 0 to 15, and a choice from these."""
        given, entry, made = self.name(number), self.fresh("n"), self.fresh("t")
        kind = f"{NAMES[number.dtype]}v"
        any_number = make("entry", number.args, number.dtype)

        def change(old: Node, args: tuple[Node, ...]) -> Node:
            return old if args == old.args else make(old.op, args, old.dtype, old.attr)

        self.in_table = True
        self.push(*self.top.variables).names[any_number] = entry
        self.top.write(f"return {self.name(rewrite(node, change, {number: any_number}), vector=True)};")
        self.pop(f"f32v {made} = of_sixteen({given}, [&] ({kind} {entry}) INLINE_LAMBDA {{", "});")
        self.in_table = False
        return made


def _is_below_sixteen(node: Node) -> bool:
    """Whether an integer is one from 0 to 15 by its operation."""
    if node.dtype not in _TABLED or len(node.args) != 2 or node.args[1].op != "const":
        return False
    number = node.args[1].attr
    is_byte = node.dtype is torch.uint8
    if node.op == "and":
        return bool(0 <= number <= 15)
    if node.op == "shr":
        return is_byte and bool(4 <= number <= 7)
    return is_byte and (number >= 16 if node.op == "floor_div" else node.op == "floor_rem" and 0 < number <= 16)


def print_product(step: ComputedProduct) -> Function:
    """The C++ function of a product."""
    buffers: dict[Buffer, str] = {}

    def pointer(buffer: Buffer) -> str:
        return buffers.setdefault(buffer, f"p{len(buffers)}")

    out, x = pointer(step.target), pointer(step.left.buffer)
    depth, column, batch = (index.the_var(i) for i in (step.depth, step.column, step.batch))
    assert depth is not None and column is not None
    down = _runs_down(step.right, depth, column)
    turns = len(step.right)
    w = _Writer(pointer, depth if down else column)
    w.loop_names = {depth: "p", column: "j"}
    if batch is not None:
        w.loop_names[batch] = "b"
        w.push(batch)
    w.push()
    for at, element in enumerate(step.right):
        w.push(depth, column)
        w.top.write(f"return {w.name(element, vector=True)};")
        w.pop(f"if constexpr (turn.n == {at}) {{")
    rows, columns = w.index(step.m), w.index(step.n)
    along_x = step.left.strides[-2]
    few = 1 << (step.m - 1).bit_length() if type(step.m) is int and step.m <= FEW_ROWS else 0
    starts = [f"{x} + {w.index(step.left.offset)}", out]
    if batch is not None:
        starts[0] += f" + b*{w.index(step.left.strides[0])}"
        starts[1] += f" + b*{rows}*{columns}"
    sizes = f"{starts[1]}, {starts[0]}, {w.index(along_x)}, {rows}, {columns}, {w.index(step.k)}"
    kind = f"computed_product<{few}, {'true' if down else 'false'}, {turns}>"
    fetched = _fetched(w, step.right, depth, column) if down else []
    end = "".join([", [&] (i64 p, i64 j) { ", *(f"__builtin_prefetch({at}, 0, 2); " for at in fetched), "}"])
    w.pop(f"{kind}({sizes}, [&] (i64 p, i64 j, auto m, auto turn) {{", f"}}{end if fetched else ''});")
    if batch is not None:
        w.pop("for (i64 b = from; b < to; b++) {")
        inside = w.top.lines[:]
        grain = f"1 + 200000 / (1 + {rows}*{columns}*{w.index(step.k)})"
        w.top.lines[:] = [f"  parallel({w.index(batch.size)}, {grain}, [&] (i64 from, i64 to) {{"]
        w.top.lines += ["  " + line for line in inside]
        w.top.write("});")
    given: set[Index] = {step.m, along_x, step.left.offset}
    names = sorted({str(a) for i in given for a in sizes_of(i)}.union(*map(sizes_in, step.right)))
    arguments = [f"{NAMES[b.dtype]}* {name}" for b, name in buffers.items()] + [f"i64 {name}" for name in names]
    body = "\n".join([f"({', '.join(arguments)}) {{", *w.top.lines, "}\n"])
    return Function(body, tuple(buffers), tuple(names))


def _fetched(w: Writer, elements: Sequence[Node], depth: Var, column: Var) -> list[str]:
    """Where what is read for each row and column lies, if vectors of it lie side by side."""
    loads = dict.fromkeys(load for element in elements for load in element.loads)
    walked = [
        (buffer, at)
        for buffer, at in loads
        if isinstance(at, index.Ix)
        and all(isinstance(a, (Var, index.Size)) for a in at.atoms())
        and index.coefficient(at, depth) == 1
        and column in index.free(at)
    ]
    return [f"{w.pointer(buffer)} + {w.index(at)}" for buffer, at in walked]


def _runs_down(elements: Sequence[Node], depth: Var, column: Var) -> bool:
    """Whether more bytes of what is read lie side by side along the depth than along the columns."""
    beside = dict.fromkeys((depth, column), 0)
    for buffer, position in (load for element in elements for load in element.loads):
        for variable in beside:
            step = index.coefficient(position, variable)
            others = index.free(position) & beside.keys()
            if type(step) is int and step == 1:
                beside[variable] += buffer.dtype.itemsize * (64 if len(others) == 2 else 1)
    return beside[depth] >= beside[column]
