"""Writing scalar expressions as Triton: each once, for one program or for all lanes of a block."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from ...ir import index
from ...ir.expressions import Buffer, Node, compute_type
from ...ir.index import Index, Ix, Var
from ...ir.operation_table import BY_PRINTER, OPERATIONS
from ...ir.operations import COMPARE
from ...schedule.rounding import hides_units, is_inexact
from ...schedule.stages import Fold, Store
from .axes import Axis, narrow_if
from .shapes import Shape

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
from torchmux.backends.native.targets.triton.mathematics import library as m

INDEX = tl.constexpr(tl.int64)

"""
"""What kernels need; ``INDEX`` is the type of indices that sizes decide about."""

NARROW_HEAD = HEAD.replace("constexpr(tl.int64)", "constexpr(tl.int32)")


@dataclass(frozen=True)
class TritonKernel:
    """``source`` defines the function ``name``; its arguments are buffers, then sizes, then constants.

    If it ``verifies`` indices, the argument before the constants is where it reports a bad one.  ``shapes`` are the
    ways to launch it, the best guess first: the constants, and how many programs.

    Of a kernel with sizes, ``narrow`` is what must be below :data:`.axes.LIMIT` for 32 bits to count whatever depends
    on them; None where 64 bits have to.  The functions of one that ``is_rough`` may be some units off.
    """

    name: str
    source: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[str, ...]
    verifies: bool
    shapes: tuple[Shape, ...]
    narrow: frozenset[Index] | None = None
    is_rough: bool = False

    @property
    def programs(self) -> Index:
        return self.shapes[0].programs

    @property
    def constants(self) -> dict[str, int]:
        """The constants of the best guess, and ``num_warps`` and ``num_stages``, which Triton takes in the same way."""
        return self.shapes[0].constants


@dataclass
class _Scope:
    lines: list[str] = field(default_factory=list)
    names: dict[Node, str] = field(default_factory=dict)


def _placed(axes: Collection[Axis]) -> list[Axis]:
    """The axes that blocks have, in order."""
    found = [a for a in axes if a.block is not None]
    for place, axis in enumerate(found):
        axis.place = place
    return found


class Writer:
    """The lines of one kernel: those of the program, and of the loop that is open, if one is.

    ``axes`` are those of the blocks; a value has the axes that it depends on, and one point of the others.
    """

    def __init__(self, *axes: Axis) -> None:
        self.axes = axes
        self.blocks = _placed(axes)
        self.buffers: dict[Buffer, str] = {}
        self.sizes: dict[str, None] = {}
        self.verifies = False
        self.narrow: set[Index | None] = set()
        self.scopes = [_Scope()]
        self.loops: dict[Var, str] = {}
        self.results: dict[Buffer, str] = {}
        # What is in rows of scratch memory elsewhere, and what was stored: lanes do not see each other's stores.
        self.rows: dict[Buffer, str] = {}
        self.stored: dict[tuple[Buffer, Index], str] = {}
        self.walked: Axis | None = None  # the axis whose blocks the open loop walks
        self.all_inside = False
        self.is_rough = False
        self._numbers = itertools.count()

    def allow_rough(self, steps: Iterable[Store | Fold]) -> None:
        """Let functions be some units off, if nobody can see that in what these steps write, which are all."""
        self.is_rough = hides_units(steps)

    def beside(self, *axes: Axis) -> Writer:
        """A writer of the same lines for blocks with other axes."""
        found = copy.copy(self)
        found.axes, found.blocks, found.loops = axes, _placed(axes), dict(self.loops)
        return found

    # --- lines ----------------------------------------------------------------------------------------------------

    def write(self, line: str) -> None:
        self.scopes[-1].lines.append(line)

    def fresh(self, prefix: str = "v") -> str:
        return f"{prefix}{next(self._numbers)}"

    def open(self, *, all_inside: bool = False) -> None:
        """Begin a loop; if ``all_inside``, what is the same in all turns is computed in each, and held in between by
        no register."""
        self.scopes.append(_Scope())
        self.all_inside = all_inside

    def close(self, opening: str) -> None:
        """End the innermost loop, which begins with ``opening``."""
        inside = self.scopes.pop().lines
        self.all_inside = False
        self.write(opening)
        self.scopes[-1].lines += ["    " + line for line in inside]

    # --- axes -----------------------------------------------------------------------------------------------------

    def lanes(self, axis: Axis) -> str:
        """The numbers of the lanes along an axis."""
        if len(self.blocks) == 1:
            return f"tl.arange(0, {axis.block})"
        return f"tl.arange(0, {axis.block})[{', '.join(':' if a is axis else 'None' for a in self.blocks)}]"

    def start(self, axis: Axis, first: str) -> None:
        """The points of a block, of which the first one is ``first``, and the variables of the loops."""
        if axis.block is None:
            self.write(f"{axis.name} = {first}")
        else:
            self.write(f"{axis.name} = {first} + {self.lanes(axis)}" if first else f"{axis.name} = {self.lanes(axis)}")
        if axis.masked:
            self.write(f"{axis.mask} = {axis.name} < {self.index(axis.total)}")
        position = axis.name
        for n, variable in reversed(list(enumerate(axis.loops))):
            name = self.fresh("i")
            extent = self.index(variable.size)
            self.write(f"{name} = {position} % {extent}" if n else f"{name} = {position}")
            position = f"({position} // {extent})"
            self.loops[variable] = name

    def start_programs(self, axes: list[Axis]) -> None:
        """The points of axes whose blocks the programs are made of, the last one varying first."""
        program = self.fresh("p_")
        self.write(f"{program} = tl.program_id(0){self._counted(*(a.total for a in axes))}")
        for n, axis in reversed(list(enumerate(axes))):
            blocks = (
                self.index(axis.total) if axis.block is None else f"tl.cdiv({self.index(axis.total)}, {axis.block})"
            )
            at = f"({program} % {blocks})" if n else program
            self.start(axis, at if axis.block is None else f"{at} * {axis.block}")
            if n:
                rest = self.fresh("p_")
                self.write(f"{rest} = {program} // {blocks}")
                program = rest

    def axes_of(self, variables: frozenset[Var]) -> list[Axis]:
        """The axes of a block on which something depends that has these variables."""
        return [a for a in self.blocks if not variables.isdisjoint(a.loops)]

    def masks(self, axes: Collection[Axis]) -> list[str]:
        return [a.mask for a in axes if a.masked]

    def inside(self, axes: Collection[Axis]) -> str:
        """The condition that lanes along these axes are at points; ``True`` if they always are."""
        return " & ".join(self.masks(axes)) or "True"

    def shape(self, axes: Collection[Axis] | None = None) -> str:
        """The shape of a block with these axes, or of one with all."""
        sides = [str(a.block) if axes is None or a in axes else "1" for a in self.blocks]
        return f"({', '.join(sides)}{',' if len(sides) == 1 else ''})"

    def whole(self, text: str, node: Node) -> str:
        """What names the value of ``node``, as a block with all axes."""
        return text if len(self.axes_of(node.free)) == len(self.blocks) else f"tl.broadcast_to({text}, {self.shape()})"

    def kernel(self, name: str, shapes: tuple[Shape, ...]) -> TritonKernel:
        sizes = sorted(self.sizes)
        more = ["bad"] if self.verifies else []
        constants = [f"{block}: tl.constexpr" for block, _ in shapes[0].blocks]
        arguments = [*self.buffers.values(), *(f'{s}: "i64"' for s in sizes), *more, *constants]
        fixed = f"(do_not_specialize={sizes!r})" if sizes else ""
        lines = ["    " + line for line in self.scopes[0].lines]
        source = "\n".join([f"@triton.jit{fixed}", f"def {name}({', '.join(arguments)}):", *lines, ""])
        needed = {bound for bound in self.narrow if bound is not None}
        narrow = frozenset(needed) if sizes and len(needed) == len(self.narrow) else None
        return TritonKernel(
            name, source, tuple(self.buffers), tuple(sizes), self.verifies, shapes, narrow, self.is_rough
        )

    # --- expressions ----------------------------------------------------------------------------------------------

    def _is_walked(self, node: Node) -> bool:
        return self.walked is not None and not node.free.isdisjoint(self.walked.loops)

    def name(self, node: Node) -> str:
        """The name of the value, computed where it belongs if it was not yet."""
        if node.op == "result":
            return self.results[node.attr]
        # What is the same in all turns of a loop is computed before it.
        at = len(self.scopes) if self.all_inside or self._is_walked(node) else 1
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
            return f"{self.index(node.attr)}.to(tl.int64)"
        if node.op == "pair":
            return self.name(node.args[0])
        if node.op == "cast":
            return cast(self.name(node.args[0]), node.args[0].dtype, node.dtype)
        if node.op == "round":
            return f"{stored(self.name(node.args[0]), node.dtype, node.attr)}.to(tl.float32)"
        if node.op == "check":
            self.verifies = True
            extent, wrap, _ = node.attr
            inside = self.inside(self.axes_of(node.free))
            return f"fn.check({self.name(node.args[0])}, {self.index(extent)}, {wrap}, bad, {inside})"
        operation = OPERATIONS[node.op]
        if self.is_rough and operation.rough is not None and is_inexact(node):
            return operation.rough.format(*map(self.name, node.args))
        spelling = operation.triton
        assert spelling != BY_PRINTER, node.op
        if spelling.startswith(("fn.", "m.")):
            return spelling.format(*map(self.name, node.args))
        infix = not spelling.startswith("tl.")
        text = spelling.format(*(self._operand(a, node.args if infix else ()) for a in node.args))
        is_one = node.op in COMPARE and not self.axes_of(node.free)
        return f"fn.flag({text})" if is_one else text

    def exponential(self, text: str, dtype: torch.dtype) -> str:
        """e to the power of what has this name and type, where no node says so."""
        operation = OPERATIONS["exp"]
        rough = operation.rough if self.is_rough and dtype is torch.float32 else None
        return (rough or operation.triton).format(text)

    def _load(self, node: Node) -> str:
        buffer, position = node.attr
        if buffer.kind == "row":
            return self.rows[buffer]
        if (buffer, position) in self.stored:
            return self.stored[buffer, position]
        conditions = [self.name(a) for a in node.args]
        return loaded(self.read(buffer, position, self.axes_of(node.free), conditions), buffer.dtype)

    def read(self, buffer: Buffer, position: Index, axes: Collection[Axis], conditions: Collection[str] = ()) -> str:
        """What memory holds, as a block with these axes; zeros where not all conditions hold."""
        where = self.address(buffer, position, axes)
        masks = [*self.masks(axes), *conditions]
        return f"tl.load({where}, mask={' & '.join(masks)}, other=0)" if masks else f"tl.load({where})"

    def store(self, buffer: Buffer, position: Index, value: str, dtype: torch.dtype, of: frozenset[Var]) -> None:
        """Write what ``value`` names, of type ``dtype`` and with the variables ``of``, to memory."""
        axes = self.axes_of(index.free(position) | of)
        mask = f", mask={self.inside(axes)}" if self.masks(axes) else ""
        self.write(f"tl.store({self.address(buffer, position, axes)}, {stored(value, dtype, buffer.dtype)}{mask})")

    def address(self, buffer: Buffer, position: Index, axes: Collection[Axis]) -> str:
        """Where a position lies, as a block with these axes: lanes may have values or masks of their own."""
        text = f"{self.pointer(buffer)} + {self.index(position)}"
        alike = len(self.axes_of(index.free(position))) < len(axes)
        return f"{text} + tl.zeros({self.shape(axes)}, tl.int32)" if alike else text

    def pointer(self, buffer: Buffer) -> str:
        return self.buffers.setdefault(buffer, f"p{len(self.buffers)}")

    # --- indices --------------------------------------------------------------------------------------------------

    def index(self, value: Index, counted: str | None = None) -> str:
        """An index; ``counted`` is what gives its variables the type that it is computed in, if that is known."""
        if not isinstance(value, Ix):
            return str(value)
        if counted is None:
            counted = self._counted(value)
        terms = []
        for mono, coef in value.terms:
            factors = [self._atom(a, counted) for a in mono]
            if coef != 1 or not factors:
                factors.insert(0, str(coef))
            terms.append(" * ".join(factors))
        return "(" + " + ".join(terms) + ")"

    def _counted(self, *values: Index) -> str:
        """What converts a number of 32 bits to the type in which all of these indices can be computed."""
        found = [narrow_if(value) for value in values]
        needed = {bound for bounds in found if bounds is not None for bound in bounds}
        if None in found:
            self.narrow.add(None)
            return ".to(tl.int64)"
        self.narrow |= needed
        return ".to(INDEX)" if needed else ""

    def _atom(self, atom: Any, counted: str) -> str:
        if isinstance(atom, Var):
            return f"{self.loops[atom]}{counted}"
        if isinstance(atom, index.Data):
            return self.name(atom.node)
        if isinstance(atom, (index.Div, index.Rem)):
            left, right = self.index(atom.left, counted), self.index(atom.right, counted)
            divides = isinstance(atom, index.Div)
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
    """As C++ converts: small integers are what is left of large ones, those with a sign of the nearest int32."""
    if source.is_floating_point and target in _SMALL:
        return f"{text}.to({'tl.int64' if target is torch.uint8 else 'tl.int32'}).to({TYPES[target]})"
    if source is torch.float64 and target is torch.int32:
        return f"fn.f64_to_i32({text})"
    return f"{text}.to({TYPES[target]})"


def literal(value: Any, dtype: torch.dtype) -> str:
    if dtype.is_floating_point and value == 0 and math.copysign(1.0, value) < 0:
        return f"fn.neg(tl.full((), 0.0, {TYPES[dtype]}))"  # a zero of Triton's has no sign
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
