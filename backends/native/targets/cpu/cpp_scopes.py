"""Prints scalar expressions as C++: each subexpression once, in the outermost loop where it does not change."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...ir import index, operations
from ...ir.expressions import Buffer, Node, compute_type
from ...ir.index import Div, Index, Ix, Rem, Var
from ...ir.operation_table import OPERATIONS
from ...ir.operations import COMPARE, is_float
from ...schedule.kernel import FEW, MOST_BESIDE
from ...schedule.tiles import wrapped

NAMES: dict[torch.dtype, str] = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "flag",
}
"""How an element is stored."""

_PROMOTED = (torch.bool, torch.int8, torch.uint8, torch.int16)
"""What C++ computes as int."""

_SHORT = 2**30
"""Indices below are computed with 32 bits, also those of lanes beyond the end of a row."""


def is_truncated(node: Node) -> bool:
    """Whether an integer is a converted float."""
    return node.op == "cast" and is_float(node.args[0].dtype) and node.dtype is not torch.bool


def register_type(dtype: torch.dtype, vector: bool) -> str:
    """How a value of ``dtype`` is computed with."""
    dtype = compute_type(dtype)
    if dtype is torch.bool:
        return "mask" if vector else "bool"
    return NAMES[dtype] + ("v" if vector else "")


def literal(value: Any, dtype: torch.dtype) -> str:
    dtype = compute_type(dtype)
    if dtype is torch.bool:
        return "true" if value else "false"
    if dtype.is_floating_point:
        suffix = "f" if dtype is torch.float32 else ""
        if math.isnan(value):
            return f'__builtin_nan{suffix}("")'
        if math.isinf(value):
            return ("-" if value < 0 else "") + f"__builtin_inf{suffix}()"
        if dtype is torch.float32 and abs(value) > 3.4028235677973366e38:
            return ("-" if value < 0 else "") + "__builtin_inff()"
        text = repr(float(value))  # the shortest decimal that reads back as the same number
        return f"({text}{suffix})" if text.startswith("-") else f"{text}{suffix}"
    if dtype is torch.int64:
        return f"{value}l" if value > -(2**63) else "(-9223372036854775807l - 1)"
    return f"({NAMES[dtype]}){value}" if value >= 0 else f"({NAMES[dtype]})({value})"


@dataclass
class Scope:
    """The inside of a loop: the lines so far, and the names of values computed here."""

    variables: frozenset[Var]
    indent: int
    lines: list[str] = field(default_factory=list)
    names: dict[Any, str] = field(default_factory=dict)

    def write(self, line: str) -> None:
        self.lines.append("  " * self.indent + line)


class Writer:
    """A stack of scopes, the outermost first."""

    def __init__(self, pointer: Callable[[Buffer], str], vector: Var | None) -> None:
        self.scopes: list[Scope] = [Scope(frozenset(), 1)]
        self.pointer = pointer
        self.vector = vector
        self.loop_names: dict[Var, str] = {}
        self.results: dict[Buffer, tuple[str, int, bool]] = {}  # name, depth, whether it is a vector
        self.lanes = "m"
        # Where a square of memory was turned, and how a row of scratch memory is addressed if not by its position.
        self.squares: dict[tuple[Buffer, Index], str] = {}
        self.row_position: Callable[[Index], str] | None = None
        self.reads: Collection[tuple[Buffer, Index]] = ()  # what is read for each point of the kernel
        self._count = 0
        self._found: dict[Node, list[tuple[str, int, bool]]] = {}

    @property
    def top(self) -> Scope:
        return self.scopes[-1]

    def push(self, *variables: Var) -> Scope:
        scope = Scope(frozenset(variables), self.top.indent + 1)
        self.scopes.append(scope)
        return scope

    def pop(self, opening: str, closing: str = "}") -> None:
        """Close the innermost scope and write it, as a loop, into the one around."""
        scope = self.scopes.pop()
        self.top.write(opening)
        self.top.lines += scope.lines
        self.top.write(closing)

    def fresh(self, prefix: str = "v") -> str:
        """A name for a variable; ``s`` is the prefix of sizes, which torch names."""
        self._count += 1
        return f"{prefix}{self._count}"

    # --- what depends on what -------------------------------------------------------------------------------------

    def depth(self, node: Node) -> int:
        deepest = 0
        free = node.free
        for at, scope in enumerate(self.scopes):
            if scope.variables & free:
                deepest = at
        for result in self._results_in(node):
            deepest = max(deepest, result[1])
        return deepest

    def _results_in(self, node: Node) -> list[tuple[str, int, bool]]:
        if not self.results:
            return []
        found = self._found.get(node)
        if found is None:
            inside = [*node.args, *(a.node for value in node._indices() for a in index.data_atoms(value))]
            results = dict.fromkeys(r for each in inside for r in self._results_in(each))
            if node.op == "result":
                results[self.results[node.attr]] = None
            found = self._found[node] = list(results)
        return found

    def is_vector(self, node: Node) -> bool:
        return (self.vector is not None and self.vector in node.free) or any(r[2] for r in self._results_in(node))

    # --- expressions ----------------------------------------------------------------------------------------------

    def name(self, node: Node, *, vector: bool | None = None) -> str:
        """The name of the value, or its literal; computed where it belongs if it was not yet."""
        own = self.is_vector(node)
        if node.op == "const":
            text = literal(node.attr, node.dtype)
        elif node.op == "result":
            text = self.results[node.attr][0]
        else:
            at = self.depth(node)
            scope = self.scopes[at]
            found = next((s.names[node] for s in self.scopes[: at + 1] if node in s.names), None)
            if found is None:
                expression = self._expression(node, own)
                found = self.fresh()
                scope.write(f"{register_type(node.dtype, own)} {found} = {expression};")
                scope.names[node] = found
            text = found
        if vector and not own:
            return f"splat({text})"
        return text

    def _expression(self, node: Node, vector: bool) -> str:
        op = node.op
        if op == "load":
            return self._load(node, vector)
        if op == "index":
            return self.index_vector(node.attr) if vector else f"(i64)({self.index(node.attr)})"
        if op == "pair":
            return self.name(node.args[0], vector=vector)
        if op == "cast" and vector and node.dtype is torch.int32 and node.args[0].op == "index":
            value = node.args[0].attr
            step = (
                None if self._is_vector_index(value) or self.vector is None else index.coefficient(value, self.vector)
            )
            if step is not None:
                return f"short_lanes((i32)({self.index(value)}), (i32){self.index(step)})"
        if op in COMPARE and vector and (text := self._compared_in_32_bits(node)) is not None:
            return text
        args = [self.name(a, vector=vector) for a in node.args]
        kind = register_type(node.dtype, vector)
        if op == "cast":
            if is_float(node.dtype) and is_truncated(node.args[0]):
                if not vector:
                    args[0] = f"settled({args[0]})"
                elif node.args[0].dtype is torch.int64:
                    args[0] = f"settled_lanes({args[0]})"
            return self._cast(node.args[0].dtype, node.dtype, args[0], vector)
        if op == "round":
            return f"round_{NAMES[node.attr]}({args[0]})"
        if op == "check":
            extent, wrap, fault = node.attr
            lanes = self.lanes if vector else "All()"
            return f"check({args[0]}, {self.index(extent)}, {'true' if wrap else 'false'}, {fault}, bad, {lanes})"
        if op == "where" and vector and not self.is_vector(node.args[0]):
            return f"({self.name(node.args[0])} ? {args[1]} : {args[2]})"
        if vector and op in ("floor_div", "floor_rem") and node.args[1].op == "const" and node.dtype is not torch.int64:
            return f"{op}_by({args[0]}, {args[1]})"
        spelling = OPERATIONS[op].cpp
        if vector:
            return spelling.text.format(*args)
        text = (spelling.scalar or spelling.text).format(*args)
        return f"({kind})({text})" if spelling.promotes and node.dtype in _PROMOTED else text

    def _compared_in_32_bits(self, node: Node) -> str | None:
        """One number of 64 bits compared with the indices of a vector: what no index can be is all the same."""
        for at, number in (node.args, node.args[::-1]):
            if at.op != "index" or number.dtype is not torch.int64 or self.is_vector(number):
                continue
            if not (index.not_negative(at.attr) and index.less(at.attr, 2**31 - 1)):
                return None
            short = f"splat(bounded({self.name(number)}))"
            positions = self.name(operations.cast(at, torch.int32), vector=True)
            return f"{node.op}({positions}, {short})" if at is node.args[0] else f"{node.op}({short}, {positions})"
        return None

    def _cast(self, source: torch.dtype, target: torch.dtype, text: str, vector: bool) -> str:
        kind = register_type(target, vector)
        if target is torch.uint8 and compute_type(source) is torch.float32:
            return f"bytes({text})"
        # torch converts floats to small integers through larger ones; beyond these C++ leaves the value open.
        small = {torch.int8: "i32", torch.int16: "i32", torch.uint8: "i64"} if source.is_floating_point else {}
        if not vector:
            return f"({kind})({small[target]}){text}" if target in small else f"({kind}){text}"
        if source is torch.bool:
            return f"convert<{kind}>({text} & 1)"
        if target in small:
            return f"convert<{kind}>(convert<{small[target]}v>({text}))"
        return f"convert<{kind}>({text})"

    def move_results(self, depth: int) -> None:
        """Results of reductions are arrays from now on, whose elements are named in the scope at ``depth``."""
        self.results = {buffer: (name, depth, vector) for buffer, (name, _, vector) in self.results.items()}
        self._found.clear()

    def place(self, buffer: Buffer, position: Index) -> str:
        """The address of an element; in vector code, that of the first lane."""
        if buffer.kind == "row" and self.row_position is not None:
            return f"{buffer.name} + {self.row_position(position)}"
        return f"{self.pointer(buffer)} + {self.index(position)}"

    def _load(self, node: Node, vector: bool) -> str:
        buffer, position = node.attr
        if not node.args and node.attr in self.squares:
            return self.squares[node.attr]
        base = self.pointer(buffer)
        condition = node.args[0] if node.args else None
        varies = self.vector is not None and (self.vector in index.free(position) or self._is_vector_index(position))
        if not varies:
            if condition is not None and self.is_vector(condition):
                held = self.name(condition, vector=True)
                return f"read_if({held}, {base} + {self.index(position)}, {self.lanes})"
            if condition is not None:
                return f"load_if({self.name(condition)}, {base} + {self.index(position)})"
            return f"load({base} + {self.index(position)})"
        assert self.vector is not None
        step = None if self._is_vector_index(position, apart=True) else index.coefficient(position, self.vector)
        if condition is not None and self.is_vector(condition):
            held = self.name(condition, vector=True)
            if type(step) is int and step == 1:
                return f"load_some({held}, {base} + {self.index(position)}, {self.lanes})"
            if type(step) is int and step == -1:
                return f"load_some_back({held}, {base} + {self.index(position)}, {self.lanes})"
            return f"gather_if({held}, {base}, {self.index_vector(position)}, {self.lanes})"
        if step is None:
            read = self._gathered(base, position)
        elif type(step) is int and step == 1:
            read = f"load({self.place(buffer, position)}, {self.lanes})"
        elif type(step) is int and (beside := self._beside(buffer, position, step)) is not None:
            read = self._picked(node, step, *beside)
        elif type(step) is int and (step == -1 or 1 < abs(step) <= FEW):
            read = f"in_steps<{step}>({base} + {self.index(position)}, {self.lanes})"
        else:
            read = f"strided({base} + {self.index(position)}, {self.index(step)}, {self.lanes})"
        if condition is not None:
            kind = register_type(node.dtype, True)
            return f"({self.name(condition)} ? {read} : {kind}{{}})"
        return read

    def _beside(self, buffer: Buffer, position: Index, step: int) -> tuple[Index, int] | None:
        """The first of the elements beside each other that are read one by one in steps over all of them, and which of
        them is at ``position``; None if others than these are read."""
        if not 1 < step <= MOST_BESIDE:
            return None
        for which in range(step):
            if all((buffer, position - which + n) in self.reads for n in range(step)):
                return position - which, which
        return None

    def _picked(self, node: Node, step: int, first: Index, which: int) -> str:
        """One of the elements beside each other, which are read together."""
        buffer, at = node.attr[0], self.depth(node)
        key = (buffer, first)
        found = next((s.names[key] for s in self.scopes[: at + 1] if key in s.names), None)
        if found is None:
            found = self.scopes[at].names[key] = self.fresh("few")
            self.scopes[at].write(f"{register_type(node.dtype, True)} {found}[{step}];")
            self.scopes[at].write(f"load_few<{step}>({found}, {self.place(buffer, first)}, {self.lanes});")
        return f"{found}[{which}]"

    def _gathered(self, base: str, position: Index) -> str:
        assert self.vector is not None
        if self._is_vector_index(position):
            if (near := self._computed(position)) is not None:
                rest = position - index.data(near)
                positions = self.name(near.args[0], vector=True)
                return f"gather_near({base} + {self.index(rest)}, {positions}, {self.lanes})"
            return f"gather({base}, {self.index_vector(position)}, {self.lanes})"
        around = wrapped(position, self.vector)
        if around is None:
            if (short := self.short_vector(position)) is not None:
                return f"gather_near({base}, {short}, {self.lanes})"
            return f"gather({base}, {self.index_vector(position)}, {self.lanes})"
        first = f"floor_rem((i64)({self.index(around.left)}), (i64)({self.index(around.right)}))"
        return f"wrapped({base} + {self.index(around.base)}, {first}, {self.index(around.right)}, {self.lanes})"

    def _computed(self, position: Index) -> Node | None:
        """What differs among lanes, if that is a converted integer of 32 bits that is not read from memory."""
        assert self.vector is not None
        differing = [a.node for a in index.data_atoms(position) if self.is_vector(a.node)]
        if len(differing) != 1 or differing[0].loads:
            return None
        (node,) = differing
        rest = position - index.data(node)
        if self.vector in index.free(rest) or self._is_vector_index(rest):
            return None
        return node if node.op == "cast" and node.args[0].dtype is torch.int32 else None

    # --- indices --------------------------------------------------------------------------------------------------

    def _is_vector_index(self, value: Index, apart: bool = False) -> bool:
        """Whether an index has a data-dependent part that differs from lane to lane."""
        return any(self.is_vector(a.node) for a in index.data_atoms(value))

    def index(self, value: Index) -> str:
        """An index as a C++ expression of type i64; in vector code, that of the first lane."""
        if type(value) is int:
            return f"{value}l"
        assert isinstance(value, Ix)
        return self._sum(value, self._atom)

    def divisor(self, value: Index) -> str:
        """An index as the right operand of a division."""
        text = self.index(value)
        return f"({text})" if "*" in text else text

    def _sum(self, value: Ix, atom: Callable[[Any], str]) -> str:
        terms = []
        for mono, coef in value.terms:
            factors = [atom(a) for a in mono]
            if coef != 1 or not factors:
                factors.insert(0, f"{coef}l")
            terms.append("*".join(factors))
        return "(" + " + ".join(terms) + ")" if len(terms) > 1 else terms[0]

    def _atom(self, atom: Any) -> str:
        if isinstance(atom, Var):
            return self.loop_names[atom]
        if isinstance(atom, index.Data):
            return self.name(atom.node)
        if isinstance(atom, (Div, Rem)):
            return self._hoisted(atom)
        return str(atom.key)

    def _hoisted(self, atom: Div | Rem) -> str:
        """A division in the outermost loop where it does not change: compilers leave it where it is."""
        free = index.free_in(atom)
        at = max((n for n, scope in enumerate(self.scopes) if scope.variables & free), default=0)
        if at == len(self.scopes) - 1 or at == 0 or index.data_atoms(atom.left):
            return self._division(atom)
        scope = self.scopes[at]
        if atom not in scope.names:
            text = self._division(atom)
            scope.names[atom] = self.fresh("d")
            scope.write(f"i64 {scope.names[atom]} = {text};")
        return scope.names[atom]

    def _division(self, atom: Div | Rem) -> str:
        left, right = self.index(atom.left), self.divisor(atom.right)
        if index.not_negative(atom.left):
            return f"({left} {'/' if isinstance(atom, Div) else '%'} {right})"
        return f"{'floor_div' if isinstance(atom, Div) else 'floor_rem'}((i64)({left}), (i64)({right}))"

    def index_vector(self, value: Index) -> str:
        """An index as a C++ expression of type i64v: one for each lane."""
        if not isinstance(value, Ix):
            return f"splat((i64){value}l)"
        if self.vector is not None and not self._is_vector_index(value):
            step = index.coefficient(value, self.vector)
            if step is not None:
                return f"lanes_from({self.index(value)}, {self.index(step)})"
            if (short := self.short_vector(value)) is not None:
                return f"convert<i64v>({short})"
        return self._vector_sum(value, "i64")

    def short_vector(self, value: Index) -> str | None:
        """As :meth:`index_vector`, of type i32v; None where the index or a part of it may need more bits.

        Compilers divide 32 bits by a constant in a few instructions, where 64 bits take a conversion to floats.
        """
        if not isinstance(value, Ix) or not self._is_short(value):
            return None
        step = index.coefficient(value, self.vector) if self.vector is not None else None
        if step is not None:
            return f"short_lanes((i32)({self.index(value)}), (i32)({self.index(step)}))"
        return self._vector_sum(value, "i32")

    def _is_short(self, value: Index) -> bool:
        if not isinstance(value, Ix):
            return abs(value) < _SHORT
        least, most = index.bounds(value)
        if least is None or most is None or not -_SHORT < least <= most < _SHORT:
            return False
        atoms = [a for mono, _ in value.terms for a in mono]
        return all(
            isinstance(a, Var) or (isinstance(a, (Div, Rem)) and type(a.right) is int and self._is_short(a.left))
            for a in atoms
        )

    def _vector_sum(self, value: Ix, kind: str) -> str:
        terms = []
        for mono, coef in value.terms:
            factors = [f"splat(({kind}){coef}l)"] if coef != 1 or not mono else []
            factors += [self._atom_vector(a, kind) for a in mono]
            terms.append("*".join(factors))
        return "(" + " + ".join(terms) + ")"

    def _atom_vector(self, atom: Any, kind: str) -> str:
        if isinstance(atom, Var):
            if atom is not self.vector:
                return f"splat(({kind}){self.loop_names[atom]})"
            return f"{'short_lanes' if kind == 'i32' else 'lanes_from'}({self.loop_names[atom]}, 1)"
        if isinstance(atom, index.Data):
            return self.name(atom.node, vector=True)
        if isinstance(atom, (Div, Rem)):
            if self.vector not in index.free(atom.left):
                return f"splat(({kind}){self._atom(atom)})"
            name = "floor_div" if isinstance(atom, Div) else "floor_rem"
            if kind == "i64":
                return f"{name}({self.index_vector(atom.left)}, splat((i64){self.index(atom.right)}))"
            return self._short_division(atom, name)
        return f"splat(({kind}){atom.key})"

    def _short_division(self, atom: Div | Rem, name: str) -> str:
        """The name of a division in lanes, in the outermost loop where it does not change."""
        free = index.free_in(atom)
        at = max(n for n, scope in enumerate(self.scopes) if scope.variables & free)
        key = ("short", atom)
        found = next((s.names[key] for s in self.scopes[: at + 1] if key in s.names), None)
        if found is None:
            left, right = self.short_vector(atom.left), f"splat((i32){atom.right})"
            if index.not_negative(atom.left):
                text = f"{left} {'/' if isinstance(atom, Div) else '%'} {right}"
            else:
                text = f"{name}_by({left}, {right})"
            found = self.scopes[at].names[key] = self.fresh("d")
            self.scopes[at].write(f"i32v {found} = {text};")
        return found


_NAME, _KNOWN = re.compile(r"\b[A-Za-z_]\w*\b"), re.compile(r"  \w+ ([rv]\d+) = ")
_COPY = re.compile(r"\s*auto \w+ = \w+;$")


def with_own_numbers(lines: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """``lines`` of a function, whose loops over threads have copies of the function's numbers that they read.

    Such a loop is a lambda, which sees them in memory, where any write may change them as far as a compiler knows.
    """
    found: list[str] = []
    known = {argument.rpartition(" ")[2] for argument in arguments}
    at = 0
    while at < len(lines):
        line = lines[at]
        found.append(line)
        at += 1
        if (number := _KNOWN.match(line)) is not None:
            known.add(number[1])
        if not line.lstrip().startswith("parallel(") or not line.endswith("{"):
            continue
        indent = line[: len(line) - len(line.lstrip())]
        end = lines.index(f"{indent}}});", at)
        inside = [inner for inner in lines[at:end] if not _COPY.match(inner)]
        read = sorted(known.intersection(name for inner in inside for name in _NAME.findall(inner)))
        if read:
            found += [f"{indent}  auto own_{name} = {name};" for name in read]
            found += [f"{indent}  {{", *(f"{indent}  auto {name} = own_{name};" for name in read)]
            found += [*lines[at:end], f"{indent}  }}"]
            at = end
    return found
