"""The host side of a graph as a plan, which ``calls.cpp`` follows; :mod:`.extension` asks for one.

A plan says the same as the text of ``run``, in nested lists of numbers.  Only what small graphs do is in it: one
launch, and no call of torch's operators.  Other graphs have no plan, and Python runs them.
"""

from __future__ import annotations

from typing import Any

from ....ir import index
from ....ir.expressions import Buffer
from ....ir.index import Index
from ....ir.program import Solved, TensorRef
from ....schedule.host import (
    Allocate,
    ComputeSize,
    FitInput,
    GiveBack,
    Launch,
    MakeArena,
    Overwrite,
    ReadSize,
    Release,
    Require,
    Return,
)
from ...host import HostPrinter, view_of
from .extension import COUNTED

# As in calls.cpp.
_NUMBER, _SYMBOL, _ADD, _MULTIPLY, _DIVIDE, _REMAINDER, _AT_LEAST_ONE = range(7)
_IS_NUMBER, _IS_SIZE, _IS_STRIDE, _IS_COMPUTED = range(4)
_INPUT, _MADE, _CONSTANT = range(3)
_AS_IT_IS, _TRANSPOSED, _VIEWED, _STRIDED = range(4)


class _NoPlan(Exception):
    """It takes more than a plan can say."""


def plan_of(printer: HostPrinter, symbols: list[str], *, verifies: bool, arena_from: int | None) -> list[Any] | None:
    """The plan that does what ``printer`` prints, in terms that JSON has; None if there is none.

    The code takes ``symbols`` and, if it ``verifies`` indices, may report a fault.  It gets an arena of more than
    ``arena_from`` bytes; None if it has one of its own.
    """
    try:
        return _Planner(printer, symbols).plan(verifies, arena_from)
    except _NoPlan:
        return None


class _Planner:
    def __init__(self, printer: HostPrinter, symbols: list[str]) -> None:
        self.printer, self.host = printer, printer.host
        self.position = {name: at for at, name in enumerate(symbols)}
        parameters = enumerate(self.host.parameters)
        self.parameter = {b: at for at, b in parameters if isinstance(b, Buffer)}
        self.made: dict[Buffer, int] = {}

    def plan(self, verifies: bool, arena_from: int | None) -> list[Any]:
        symbols, needs, inputs, made, written, launches, arena, results = [], [], [], [], [], [], None, []
        for step in self.host.steps:
            match step:
                case ReadSize() | ComputeSize():
                    symbols.append(self._symbol(step))
                case Require(need):
                    needs.append(self.expression(need.size))
                case FitInput(buffer):
                    inputs.append(self._input(buffer))
                case MakeArena(size) if arena_from is not None and not (type(size) is int and size == 0):
                    arena = [self.expression(size), arena_from]
                case Allocate(buffer):
                    made.append(self._made(buffer))
                case Overwrite(buffers):
                    written += [self.parameter[b] for b in buffers]
                case Launch():
                    launches.append(step)
                case Return(found):
                    results = [self._result(each) for each in found]
                case MakeArena() | GiveBack() | Release():  # no input is copied, and all else goes in the end
                    pass
                case _:
                    raise _NoPlan
        if len(launches) != 1 or list(self.position) != [step.name for step in self._sizes()]:
            raise _NoPlan
        table = [self.place(b) for b in launches[0].tensors]
        return [
            len(self.host.parameters), symbols, needs, inputs, made, written, table, arena, int(verifies), results,
        ]  # fmt: skip

    def _sizes(self) -> list[ReadSize | ComputeSize]:
        return [step for step in self.host.steps if isinstance(step, (ReadSize, ComputeSize))]

    # --- numbers --------------------------------------------------------------------------------------------------

    def expression(self, value: Index) -> Any:
        """A number, or the steps that compute one on a stack."""
        return value if not isinstance(value, index.Ix) else self._steps(value)

    def _steps(self, value: Index) -> list[list[int]]:
        if not isinstance(value, index.Ix):
            return [[_NUMBER, value]]
        steps: list[list[int]] = []
        for at, (mono, coef) in enumerate(value.terms):
            steps.append([_NUMBER, coef])
            for atom in mono:
                steps += [*self._atom(atom), [_MULTIPLY, 0]]
            steps += [[_ADD, 0]] if at else []
        return steps

    def _atom(self, atom: index.Atom) -> list[list[int]]:
        if isinstance(atom, (index.Div, index.Rem)):
            last = _DIVIDE if isinstance(atom, index.Div) else _REMAINDER
            return [*self._steps(atom.left), *self._steps(atom.right), [last, 0]]
        if not isinstance(atom, index.Size) or atom.key not in self.position:
            raise _NoPlan
        return [[_SYMBOL, self.position[atom.key]]]

    def _symbol(self, step: ReadSize | ComputeSize) -> list[Any]:
        if isinstance(step, ComputeSize):
            return [_IS_COMPUTED, self.expression(step.value)]
        match step.extent:
            case None:
                return [_IS_NUMBER, step.input, 0, 0, 1, step.factor]
            case Solved(factor, offset):
                return [_IS_NUMBER, step.input, 0, offset, factor, step.factor]
            case kind, dimension:
                return [_IS_SIZE if kind == "size" else _IS_STRIDE, step.input, dimension, 0, 1, step.factor]

    # --- tensors --------------------------------------------------------------------------------------------------

    def _input(self, buffer: Buffer) -> list[Any]:
        if buffer.strides == index.contiguous_strides(buffer.sizes):
            strides = None
        else:
            strides = [self.expression(s) for s in buffer.strides]
        return [self.parameter[buffer], str(buffer.tensor_dtype), strides]

    def _made(self, buffer: Buffer) -> list[Any]:
        if buffer.device.type != "cpu":
            raise _NoPlan
        self.made[buffer] = len(self.made)
        whole = self.printer.returned.get(buffer)
        shape = buffer if whole is None else whole
        sizes = [self.expression(s) for s in shape.sizes]
        return [str(buffer.tensor_dtype), sizes, self._strides(shape)]

    def _strides(self, shape: Buffer | TensorRef) -> list[Any]:
        """Those of a new tensor, as :mod:`..host` prints them."""
        if shape.strides != index.contiguous_strides(shape.sizes):
            return [self.expression(s) for s in shape.strides]
        strides: list[Any] = []
        for at, stride in enumerate(shape.strides):
            if not isinstance(stride, index.Ix):
                strides.append(stride)
                continue
            steps = [[_NUMBER, 1]]
            for size in shape.sizes[at + 1 :]:
                counted = [] if type(size) is int else [[_AT_LEAST_ONE, 0]]
                steps += [*self._steps(size), *counted, [_MULTIPLY, 0]]
            strides.append(steps)
        return strides

    def place(self, buffer: Buffer) -> list[Any]:
        if buffer in self.made:
            return [_MADE, self.made[buffer]]
        if buffer in self.parameter:
            return [_INPUT, self.parameter[buffer]]
        return [_CONSTANT, buffer.name]

    def _result(self, ref: TensorRef | Index) -> list[Any]:
        if not isinstance(ref, TensorRef):
            return [COUNTED, self.expression(ref)]
        if ref.conjugated:
            raise _NoPlan
        place = self.place(ref.buffer)
        whole = self.printer.returned.get(ref.buffer) is ref
        text = ref.buffer.name if whole else view_of(ref)
        if text == ref.buffer.name:
            return [_AS_IT_IS, place]
        if text == f"{ref.buffer.name}.t()":
            return [_TRANSPOSED, place]
        sizes = [self.expression(s) for s in ref.sizes]
        if text.startswith(f"{ref.buffer.name}.view("):
            return [_VIEWED, place, sizes]
        return [_STRIDED, place, sizes, [self.expression(s) for s in ref.strides], self.expression(ref.offset)]
