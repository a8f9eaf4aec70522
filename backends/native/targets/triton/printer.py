"""Printing kernels as Triton: the second printer of the loop IR, for pointwise kernels and reductions along rows.

A kernel without reductions is printed over all its points, ``BLOCK`` of them in a program.  One that reduces along rows
gets a program for each row, which holds the whole row in registers through all stages, so that what the C++ printer
keeps in rows of scratch memory is just a value here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from ...ir import index
from ...ir.expressions import Buffer, Node, compute_type
from ...ir.index import Index, Ix, Var
from ...ir.operations import COMPARE, Unsupported
from ...schedule.stages import Fold, LoopNest, Store

LONGEST_ROW = 16384
_POINTS = 1024

_TYPES: dict[torch.dtype, str] = {
    torch.float32: "tl.float32",
    torch.float64: "tl.float64",
    torch.bfloat16: "tl.bfloat16",
    torch.float16: "tl.float16",
    torch.int64: "tl.int64",
    torch.int32: "tl.int32",
    torch.int16: "tl.int16",
    torch.int8: "tl.int8",
    torch.uint8: "tl.uint8",
    torch.bool: "tl.int1",
}
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"}
_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_FUNCTIONS = {"exp", "log", "sqrt", "sin", "cos", "exp2", "log2", "floor", "ceil", "erf", "abs"}


@dataclass(frozen=True)
class TritonKernel:
    """``source`` defines the function ``name``; its arguments are buffers, then sizes, then ``BLOCK``.

    ``programs`` is how many are launched, as an index expression; ``block`` is the value for ``BLOCK``.
    """

    name: str
    source: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[str, ...]
    programs: Index
    block: int


def print_kernel(nest: LoopNest, name: str = "kernel") -> TritonKernel:
    """The Triton function of a kernel.

    Raises:
        Unsupported: what this printer does not print yet, with the reason.
    """
    return _Printer(nest, name).run()


class _Printer:
    def __init__(self, nest: LoopNest, name: str) -> None:
        self.nest = nest
        self.name = name
        self.buffers: dict[Buffer, str] = {}
        self.sizes: dict[str, None] = {}
        self.lines: list[str] = []
        self.loops: dict[Var, str] = {}
        self.names: dict[Node, str] = {}
        self.results: dict[Buffer, str] = {}
        # What is in rows of scratch memory elsewhere, and what was stored: threads do not see each other's stores.
        self.rows: dict[Buffer, str] = {}
        self.stored: dict[tuple[Buffer, Index], str] = {}
        self.varying: frozenset[Var] = frozenset()  # the loops whose points are side by side

    def run(self) -> TritonKernel:
        folds = any(isinstance(step, Fold) for stage in self.nest.stages for step in stage.body)
        if folds and (self.nest.by_columns or len(self.nest.inner) != 1):
            raise Unsupported("reductions along columns or over several loops")
        programs, block = self._along_rows() if folds else self._all_points()
        arguments = [*self.buffers.values(), *self.sizes, "BLOCK: tl.constexpr"]
        head = ["import triton", "import triton.language as tl", "", "", "@triton.jit"]
        source = "\n".join([*head, f"def {self.name}({', '.join(arguments)}):", *self.lines, ""])
        return TritonKernel(self.name, source, tuple(self.buffers), tuple(self.sizes), programs, block)

    # --- the two shapes -------------------------------------------------------------------------------------------

    def _all_points(self) -> tuple[Index, int]:
        loops = [*self.nest.rows, *self.nest.inner]
        total = index.product(v.size for v in loops)
        self._write("point = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)")
        self._write(f"inside = point < {self._index(total)}")
        self._unflatten("point", loops)
        self.varying = frozenset(loops)
        for stage in self.nest.stages:
            for step in [*stage.before, *stage.body]:
                assert isinstance(step, Store)
                self._store(step)
        programs = index.floordiv(total + (_POINTS - 1), _POINTS)
        return programs, _POINTS

    def _along_rows(self) -> tuple[Index, int]:
        inner = self.nest.inner[0]
        if type(inner.size) is not int or inner.size > LONGEST_ROW:
            raise Unsupported("rows that are longer than a block, or of unknown length")
        self._write("row = tl.program_id(0).to(tl.int64)")
        self._unflatten("row", list(self.nest.rows))
        self._write("x = tl.arange(0, BLOCK)")
        self._write(f"inside = x < {inner.size}")
        self.loops[inner] = "x"
        self.varying = frozenset([inner])
        for stage in self.nest.stages:
            for store in stage.before:
                self._store(store)
            for step in stage.body:
                if isinstance(step, Store):
                    self._store(step)
                else:
                    self._fold(step)
        block = 1 << max(inner.size - 1, 1).bit_length()
        return index.product(v.size for v in self.nest.rows), block

    def _write(self, line: str) -> None:
        self.lines.append("    " + line)

    def _unflatten(self, position: str, loops: list[Var]) -> None:
        for n, variable in enumerate(reversed(loops)):
            name = f"i{len(loops) - 1 - n}"
            last = n == len(loops) - 1
            extent = f"({self._index(variable.size)})"
            self._write(f"{name} = {position}" if last else f"{name} = {position} % {extent}")
            position = f"({position} // {extent})"
            self.loops[variable] = name

    # --- statements -----------------------------------------------------------------------------------------------

    def _store(self, store: Store) -> None:
        value = self._name(store.value)
        if store.buffer.kind == "row":
            self.rows[store.buffer] = value
            return
        self.stored[store.buffer, store.position] = value
        spread = bool(index.free(store.position) & self.varying)
        if store.buffer.dtype is not torch.bool:
            value = f"({value}).to({_TYPES[store.buffer.dtype]})" if store.value.op != "const" else value
        where = f"{self._pointer(store.buffer)} + {self._index(store.position)}"
        self._write(f"tl.store({where}, {value}{', mask=inside' if spread else ''})")

    def _fold(self, fold: Fold) -> None:
        kind = str(fold.statement.reduction)
        value = self._name(fold.value)
        dtype = compute_type(fold.value.dtype)
        if not (fold.value.free & self.varying):
            value = f"tl.broadcast_to({value}, (BLOCK,))"
        result = f"r{len(self.results)}"
        if kind in ("any", "all"):
            start, function = ("0", "max") if kind == "any" else ("1", "min")
            text = f"tl.{function}(tl.where(inside, ({value}).to(tl.int32), {start}), axis=0) != 0"
        elif kind == "sum":
            text = f"tl.sum(tl.where(inside, {value}, 0), axis=0)"
        elif kind in ("max", "min", "argmax", "argmin"):
            outside = _extreme(dtype, kind.endswith("max"))
            text = f"tl.{kind}(tl.where(inside, {value}, {outside}), axis=0)"
        else:
            raise Unsupported(f"the reduction {kind!r}")
        self._write(f"{result} = {text}")
        self.results[fold.statement.target] = result

    # --- expressions ----------------------------------------------------------------------------------------------

    def _name(self, node: Node) -> str:
        if node.op == "const":
            return _literal(node.attr, node.dtype)
        if node.op == "result":
            return self.results[node.attr]
        found = self.names.get(node)
        if found is None:
            text = self._expression(node)
            found = self.names[node] = f"v{len(self.names)}"
            self._write(f"{found} = {text}")
        return found

    def _expression(self, node: Node) -> str:
        if node.op == "load":
            return self._load(node)
        if node.op == "index":
            return self._index(node.attr)
        if node.op == "pair":  # the position is what tl.argmax counts itself
            return self._name(node.args[0])
        args = [self._name(a) for a in node.args]
        if node.op == "cast":
            return f"({args[0]}).to({_TYPES[node.dtype]})"
        if node.op == "round":
            return f"({args[0]}).to({_TYPES[node.attr]}).to(tl.float32)"
        if node.op in _INFIX:
            return f"{args[0]} {_INFIX[node.op]} {args[1]}"
        if node.op in COMPARE:
            return f"{args[0]} {_COMPARE[node.op]} {args[1]}"
        if node.op == "where":
            return f"tl.where({', '.join(args)})"
        if node.op == "neg":
            return f"-{args[0]}"
        if node.op == "not":
            return f"{args[0]} == 0"
        if node.op in ("maximum", "minimum"):
            return f"tl.{node.op}({args[0]}, {args[1]}, propagate_nan=tl.PropagateNan.ALL)"
        if node.op == "tanh":
            # Of the absolute value, so that the exponential does not overflow; small arguments lose no digits.
            small = f"{args[0]} * (1 - {args[0]} * {args[0]} / 3)"
            power = f"tl.exp(-2 * tl.abs({args[0]}))"
            large = f"(1 - {power}) / (1 + {power})"
            signed = f"tl.where({args[0]} < 0, -{large}, {large})"
            return f"tl.where(tl.abs({args[0]}) < 0.02, {small}, {signed})"
        if node.op in _FUNCTIONS:
            return f"tl.{node.op}({args[0]})"
        raise Unsupported(f"{node.op} in a Triton kernel")

    def _load(self, node: Node) -> str:
        buffer, position = node.attr
        if buffer.kind == "row":
            return self.rows[buffer]
        if (buffer, position) in self.stored:
            return self.stored[buffer, position]
        where = f"{self._pointer(buffer)} + {self._index(position)}"
        masks = ["inside"] if node.free & self.varying else []
        masks += [self._name(a) for a in node.args]
        text = f"tl.load({where}, mask={' & '.join(masks)}, other=0)" if masks else f"tl.load({where})"
        if buffer.dtype is torch.bool:
            return f"{text} != 0"
        return text if compute_type(buffer.dtype) is buffer.dtype else f"{text}.to(tl.float32)"

    def _pointer(self, buffer: Buffer) -> str:
        return self.buffers.setdefault(buffer, f"p{len(self.buffers)}")

    def _index(self, value: Index) -> str:
        if not isinstance(value, Ix):
            return str(value)
        terms = []
        for mono, coef in value.terms:
            factors = [self._atom(a) for a in mono]
            if coef != 1 or not factors:
                factors.insert(0, str(coef))
            terms.append(" * ".join(factors))
        return "(" + " + ".join(terms) + ")"

    def _atom(self, atom: Any) -> str:
        if isinstance(atom, Var):
            return self.loops[atom]
        if isinstance(atom, (index.Div, index.Rem)):
            if not index.not_negative(atom.left):
                raise Unsupported("an index that may be negative before it is divided")
            return (
                f"({self._index(atom.left)} {'//' if isinstance(atom, index.Div) else '%'} ({self._index(atom.right)}))"
            )
        if isinstance(atom, index.Data):
            raise Unsupported("an index that is read from memory, which must be verified")
        self.sizes[atom.key] = None
        return str(atom.key)


def _extreme(dtype: torch.dtype, lowest: bool) -> str:
    if dtype.is_floating_point:
        return "-float('inf')" if lowest else "float('inf')"
    bounds = torch.iinfo(dtype)
    return str(bounds.min if lowest else bounds.max)


def _literal(value: Any, dtype: torch.dtype) -> str:
    if dtype is torch.bool:
        return "True" if value else "False"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)
