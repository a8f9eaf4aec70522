"""Writing scalar expressions as Triton: each once, for one program or for all lanes of a block."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import torch

from ...ir import index
from ...ir.expressions import Buffer, Node, compute_type
from ...ir.index import Index, Ix, Var
from ...ir.operation_table import BY_PRINTER, OPERATIONS, NoSpelling
from ...ir.operations import COMPARE, Unsupported

TYPES: dict[torch.dtype, str] = {
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
_SMALL = (torch.int8, torch.uint8, torch.int16)
_PLAIN = (torch.float32, torch.int32)
"""What Triton takes a number for that stands alone."""

HEAD = """\
import triton
import triton.language as tl

from torchmux.backends.native.targets.triton import functions as fn

"""


@dataclass(frozen=True)
class TritonKernel:
    """``source`` defines the function ``name``; its arguments are buffers, then sizes, then ``BLOCK``.

    ``programs`` is how many are launched, as an index expression; ``block`` is the value for ``BLOCK``.  If it
    ``verifies`` indices, the argument before ``BLOCK`` is where it reports a bad one.
    """

    name: str
    source: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[str, ...]
    verifies: bool
    programs: Index
    block: int


@dataclass
class _Scope:
    lines: list[str] = field(default_factory=list)
    names: dict[Node, str] = field(default_factory=dict)


class Writer:
    """The lines of one kernel: those of the program, and of the loop that is open, if one is."""

    def __init__(self) -> None:
        self.buffers: dict[Buffer, str] = {}
        self.sizes: dict[str, None] = {}
        self.verifies = False
        self.scopes = [_Scope()]
        self.loops: dict[Var, str] = {}
        self.results: dict[Buffer, str] = {}
        # What is in rows of scratch memory elsewhere, and what was stored: lanes do not see each other's stores.
        self.rows: dict[Buffer, str] = {}
        self.stored: dict[tuple[Buffer, Index], str] = {}
        self.varying: frozenset[Var] = frozenset()  # the loops whose points are side by side
        self._count = 0

    # --- lines ----------------------------------------------------------------------------------------------------

    def write(self, line: str) -> None:
        self.scopes[-1].lines.append(line)

    def fresh(self, prefix: str = "v") -> str:
        self._count += 1
        return f"{prefix}{self._count - 1}"

    def open(self) -> None:
        self.scopes.append(_Scope())

    def close(self, opening: str) -> None:
        """End the innermost loop, which begins with ``opening``."""
        inside = self.scopes.pop().lines
        self.write(opening)
        self.scopes[-1].lines += ["    " + line for line in inside]

    def unflatten(self, position: str, loops: Collection[Var]) -> None:
        """The variables of ``loops`` from a number that counts all their points."""
        for n, variable in reversed(list(enumerate(loops))):
            name = self.fresh("i")
            extent = f"({self.index(variable.size)})"
            self.write(f"{name} = {position} % {extent}" if n else f"{name} = {position}")
            position = f"({position} // {extent})"
            self.loops[variable] = name

    def kernel(self, name: str, programs: Index, block: int) -> TritonKernel:
        sizes = sorted(self.sizes)
        more = ["bad"] if self.verifies else []
        arguments = [*self.buffers.values(), *(f'{s}: "i64"' for s in sizes), *more, "BLOCK: tl.constexpr"]
        fixed = f"(do_not_specialize={sizes!r})" if sizes else ""
        lines = ["    " + line for line in self.scopes[0].lines]
        source = "\n".join([f"@triton.jit{fixed}", f"def {name}({', '.join(arguments)}):", *lines, ""])
        return TritonKernel(name, source, tuple(self.buffers), tuple(sizes), self.verifies, programs, block)

    # --- expressions ----------------------------------------------------------------------------------------------

    def varies(self, node: Node) -> bool:
        return bool(node.free & self.varying)

    def name(self, node: Node) -> str:
        """The name of the value, computed where it belongs if it was not yet."""
        if node.op == "result":
            return self.results[node.attr]
        # What is the same for all lanes is computed before the loop.
        at = len(self.scopes) if self.varies(node) else 1
        found = next((s.names[node] for s in self.scopes[:at] if node in s.names), None)
        if found is None:
            text = self._constant(node) if node.op == "const" else self._expression(node)
            found = self.fresh()
            self.scopes[at - 1].lines.append(f"{found} = {text}")
            self.scopes[at - 1].names[node] = found
        return found

    def _constant(self, node: Node) -> str:
        return f"tl.full((), {literal(node.attr, node.dtype)}, {TYPES[node.dtype]})"

    def _operand(self, node: Node, others: Collection[Node]) -> str:
        """As :meth:`name`; a number that takes its type from where it stands is written there."""
        if node.op != "const" or node.dtype is torch.bool:
            return self.name(node)
        takes = node.dtype in _PLAIN or any(o.op != "const" and o.dtype is node.dtype for o in others)
        return literal(node.attr, node.dtype) if takes else self.name(node)

    def _expression(self, node: Node) -> str:
        if node.op == "load":
            return self._load(node)
        if node.op == "index":
            return self.index(node.attr)
        if node.op == "pair":
            return self.name(node.args[0])
        if node.op == "cast":
            return cast(self.name(node.args[0]), node.args[0].dtype, node.dtype)
        if node.op == "round":
            return f"{stored(self.name(node.args[0]), node.dtype, node.attr)}.to(tl.float32)"
        if node.op == "check":
            self.verifies = True
            extent, wrap, _ = node.attr
            inside = "inside" if self.varies(node) else "True"
            return f"fn.check({self.name(node.args[0])}, {self.index(extent)}, {wrap}, bad, {inside})"
        spelling = OPERATIONS[node.op].triton
        if isinstance(spelling, NoSpelling):
            raise Unsupported(spelling.reason)
        assert spelling != BY_PRINTER, node.op
        if spelling.startswith("fn."):
            return spelling.format(*map(self.name, node.args))
        infix = not spelling.startswith("tl.")
        text = spelling.format(*(self._operand(a, node.args if infix else ()) for a in node.args))
        is_one = node.op in COMPARE and node.args[0].dtype.is_floating_point and not self.varies(node)
        return f"fn.flag({text})" if is_one else text

    def _load(self, node: Node) -> str:
        buffer, position = node.attr
        if buffer.kind == "row":
            return self.rows[buffer]
        if (buffer, position) in self.stored:
            return self.stored[buffer, position]
        where = self.address(buffer, position, self.varies(node))
        masks = ["inside"] if self.varies(node) else []
        masks += [self.name(a) for a in node.args]
        text = f"tl.load({where}, mask={' & '.join(masks)}, other=0)" if masks else f"tl.load({where})"
        return loaded(text, buffer.dtype)

    def store(self, buffer: Buffer, position: Index, value: str, dtype: torch.dtype, *, by_lanes: bool = False) -> None:
        """Write what ``value`` names, of type ``dtype``, to memory: each lane, or the program once for all of them."""
        by_lanes = by_lanes or bool(index.free(position) & self.varying)
        mask = ", mask=inside" if by_lanes else ""
        self.write(f"tl.store({self.address(buffer, position, by_lanes)}, {stored(value, dtype, buffer.dtype)}{mask})")

    def address(self, buffer: Buffer, position: Index, by_lanes: bool) -> str:
        """Where a position lies; for each lane, even if they are all the same, if they have values or masks of their
        own."""
        text = f"{self.pointer(buffer)} + {self.index(position)}"
        alike = by_lanes and not index.free(position) & self.varying
        return f"{text} + tl.zeros((BLOCK,), tl.int64)" if alike else text

    def pointer(self, buffer: Buffer) -> str:
        return self.buffers.setdefault(buffer, f"p{len(self.buffers)}")

    # --- indices --------------------------------------------------------------------------------------------------

    def index(self, value: Index) -> str:
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
        if isinstance(atom, index.Data):
            return self.name(atom.node)
        if isinstance(atom, (index.Div, index.Rem)):
            left, right, divides = self.index(atom.left), self.index(atom.right), isinstance(atom, index.Div)
            if index.not_negative(atom.left):
                return f"({left} {'//' if divides else '%'} {right})"
            return f"fn.{'floor_div' if divides else 'floor_rem'}({left}, {right})"
        self.sizes[atom.key] = None
        return str(atom.key)


def loaded(text: str, dtype: torch.dtype) -> str:
    """What was read from memory, in the type that it is computed in."""
    if dtype is torch.bool:
        return f"{text} != 0"
    return text if compute_type(dtype) is dtype else f"{text}.to(tl.float32)"


def stored(text: str, source: torch.dtype, target: torch.dtype) -> str:
    """A value of type ``source`` as memory of type ``target`` holds it."""
    if target is source:
        return text
    if target is not torch.bfloat16:
        return f"{text}.to({TYPES[target]})"
    return f"fn.bf16({text if source is torch.float32 else f'{text}.to(tl.float32)'})"


def cast(text: str, source: torch.dtype, target: torch.dtype) -> str:
    """As C++ converts: small integers are what is left of large ones."""
    if source.is_floating_point and target in _SMALL:
        return f"{text}.to(tl.int64).to({TYPES[target]})"
    return f"{text}.to({TYPES[target]})"


def literal(value: Any, dtype: torch.dtype) -> str:
    if dtype is torch.float32 and abs(value) > 3.4028235677973366e38:  # and what is rounded to infinity
        value = math.copysign(math.inf, value)
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)


def worst(dtype: torch.dtype, most: bool) -> str:
    """What every value is at least (or at most) as good as."""
    if dtype.is_floating_point:
        return "-float('inf')" if most else "float('inf')"
    bounds = torch.iinfo(dtype)
    return str(bounds.min if most else bounds.max)
