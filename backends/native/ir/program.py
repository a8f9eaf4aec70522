"""A graph as statements of the loop IR and calls of torch's operators, in an order that can be run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..rewrites.freezing import is_frozen
from ..targets.cpu.packing import Pack
from . import index, operations as ops
from .expressions import Buffer, Node, Statement, make
from .index import Index, Var
from .ordered_loops import Scan, Scatter
from .values import Place, Value


@dataclass(frozen=True)
class TensorRef:
    """A tensor on a buffer, as an argument of a call."""

    buffer: Buffer
    sizes: tuple[Index, ...]
    strides: tuple[Index, ...]
    offset: Index

    @classmethod
    def of(cls, value: Value) -> TensorRef:
        assert value.place is not None
        return cls(value.place.buffer, value.sizes, value.place.strides, value.place.offset)


@dataclass(eq=False)
class Call:
    """A call of one of torch's operators.

    ``args`` and ``kwargs`` hold :class:`TensorRef` for tensors and index expressions for sizes; ``results`` are the
    buffers for its tensors, in order (None: not used).
    """

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[Buffer | None]
    origins: list[Any] = field(default_factory=list)

    @property
    def reads(self) -> set[Buffer]:
        found: set[Buffer] = set()

        def visit(value: Any) -> None:
            if isinstance(value, TensorRef):
                found.add(value.buffer)
            elif isinstance(value, (list, tuple)):
                for item in value:
                    visit(item)

        visit([*self.args, *self.kwargs.values()])
        return found

    @property
    def writes(self) -> set[Buffer]:
        return {b for b in self.results if b is not None}


@dataclass(frozen=True)
class Matrix:
    """A matrix in memory, or ``batch`` of them ``step`` apart: element (i, j) is at ``offset + i*rows + j*columns``."""

    buffer: Buffer
    offset: Index
    rows: Index
    columns: Index
    step: Index = 0


@dataclass(eq=False)
class Product:
    """``target = left @ right`` for ``batch`` matrices, by the library's matrix product; target is contiguous."""

    target: Buffer
    left: Matrix
    right: Matrix
    m: Index
    n: Index
    k: Index
    batch: Index = 1
    packed: Buffer | None = None  # the right operand as ``gemm.h`` packs it
    origins: list[Any] = field(default_factory=list)

    @property
    def reads(self) -> set[Buffer]:
        return {self.left.buffer, self.packed or self.right.buffer}

    @property
    def writes(self) -> set[Buffer]:
        return {self.target}


@dataclass(eq=False)
class Convolution:
    """``target = addend + convolution(image) + bias``, at least 0 with ``relu``, by ``convolution.h``.

    All images are channels last; ``target`` may be the buffer of ``addend``.  ``weight`` is packed; its ``kernel``,
    ``stride`` and ``padding`` are heights and widths.
    """

    target: Buffer
    image: TensorRef
    weight: Buffer
    bias: TensorRef | None
    addend: TensorRef | None
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    relu: bool
    origins: list[Any] = field(default_factory=list)

    @property
    def reads(self) -> set[Buffer]:
        return {self.weight, *(ref.buffer for ref in (self.image, self.bias, self.addend) if ref is not None)}

    @property
    def writes(self) -> set[Buffer]:
        return {self.target}


Item = Any  # Statement | Call | Product | Convolution | Scan | Scatter


class Program:
    """What a graph becomes, built while its nodes are lowered in order."""

    def __init__(self, *, padded: bool = False, own_convolutions: bool = False) -> None:
        self.padded = padded  # whether rows for matrix products begin at multiples of 64 bytes
        self.own_convolutions = own_convolutions  # whether the library's have a rival
        self.buffers: list[Buffer] = []
        self.inputs: list[Buffer | str] = []  # a symbol's name for a number
        self.items: list[Item] = []
        self.outputs: list[TensorRef | Index] = []
        self.symbols: dict[str, tuple[int, int | None]] = {}  # symbol: which input, which of its sizes
        self.constants: dict[str, Any] = {}  # the name of a buffer: the attribute of the graph that it is
        self.packs: dict[Pack, Buffer] = {}  # what is made of constants when the code is loaded
        self.current: Any = None  # the FX node that is being lowered
        self.lays_out_images = False  # whether convolutions choose the order of dimensions in memory

    def buffer(
        self, dtype: torch.dtype, sizes: Sequence[Index], strides: Sequence[Index] | None = None, kind: str = "temp"
    ) -> Buffer:
        sizes = tuple(sizes)
        strides = index.contiguous_strides(sizes) if strides is None else tuple(strides)
        made = Buffer(f"{'in' if kind == 'input' else 'b'}{len(self.buffers)}", dtype, sizes, strides, kind)
        self.buffers.append(made)
        return made

    def stored(self, buffer: Buffer) -> Value:
        """The value that is a whole buffer."""
        return Value(buffer.sizes, buffer.dtype, None, Place(buffer, buffer.strides, 0))

    # --- statements -----------------------------------------------------------------------------------------------

    def realize(self, value: Value, strides: Sequence[Index] | None = None) -> Value:
        """Put ``value`` into memory, if it is not there, and return it."""
        if value.place is None:
            strides = image_layout(value) if strides is None else strides
            buffer = self.buffer(value.dtype, value.sizes, strides)
            self.store(value, buffer, buffer.strides, 0)
            value.put(Place(buffer, buffer.strides, 0))
        return value

    def copy(self, value: Value, strides: Sequence[Index] | None = None) -> Value:
        """A copy of ``value`` in memory of its own."""
        buffer = self.buffer(value.dtype, value.sizes, strides)
        self.store(value, buffer, buffer.strides, 0)
        return self.stored(buffer)

    def store(self, value: Value, buffer: Buffer, strides: Sequence[Index], offset: Index) -> None:
        """Write ``value`` to a part of ``buffer``."""
        variables = value.variables()
        position = Place(buffer, tuple(strides), offset).position(variables)
        kept = _loops(variables)
        # The last loop is the one whose elements lie side by side.
        kept.sort(key=lambda v: _weight(index.coefficient(position, v)), reverse=True)
        self._add(Statement(buffer, position, value.at(variables), tuple(kept)))

    def reduce(
        self, reduction: str, value: Value, dims: Sequence[int], dtype: torch.dtype, element: Callable[[Node], Node]
    ) -> Value:
        """The reduction of ``element(value)`` over ``dims``, which stay with size 1."""
        chosen = {d % value.rank for d in dims} if value.rank else set()
        variables = tuple(index.var(f"{'r' if d in chosen else 'd'}{d}", s) for d, s in enumerate(value.sizes))
        sizes = [1 if d in chosen else s for d, s in enumerate(value.sizes)]
        buffer = self.buffer(dtype, sizes)
        kept = tuple(0 if d in chosen else v for d, v in enumerate(variables))
        position = Place(buffer, buffer.strides, 0).position(kept)
        body = element(value.at(variables))
        if reduction in ("argmax", "argmin"):
            at = index.flatten(
                [i for d, i in enumerate(variables) if d in chosen],
                [s for d, s in enumerate(value.sizes) if d in chosen],
            )
            body = make("pair", (body, ops.from_index(at)), body.dtype)
        reduced = [v for d, i in enumerate(variables) if d in chosen and (v := index.the_var(i)) is not None]
        outer = _loops(kept)
        if not reduced:  # each result is made of one element
            if reduction.startswith("arg"):
                body = ops.const(0, torch.int64)
            self._add(Statement(buffer, position, ops.cast(body, dtype), tuple(outer)))
            return self.stored(buffer)
        self._add(Statement(buffer, position, body, tuple(outer), tuple(reduced), reduction))
        return self.stored(buffer)

    def _add(self, statement: Statement) -> None:
        statement.origins = [self.current]
        self.items.append(statement)

    def call(self, op: Any, args: Sequence[Any], kwargs: dict[str, Any], results: list[Buffer | None]) -> None:
        self.items.append(Call(op, tuple(args), kwargs, results, [self.current]))

    def pack(self, pack: Pack) -> Buffer:
        """The buffer of a packed constant."""
        found = self.packs.get(pack)
        if found is None:
            found = self.packs[pack] = self.buffer(torch.uint8, (), (), "input")
        return found

    def frozen(self, value: Value) -> str | None:
        """Of which frozen constant ``value`` is a part, as the graph's attribute."""
        if value.place is None:
            return None
        name: str | None = self.constants.get(value.place.buffer.name)
        return name if name is not None and is_frozen(name) else None

    def add(self, step: Product | Convolution | Scan | Scatter) -> None:
        step.origins = [self.current]
        self.items.append(step)

    def as_matrix(self, value: Value) -> Value:
        """``value`` in memory such that one of its last two dimensions has stride 1, and the other a usual one."""
        if value.place is None:
            self.realize(value, _padded(value) if self.padded else None)
            return value
        rows, columns = value.place.strides[-2:]
        m, n = value.sizes[-2:]
        if _unit(columns, n) and _leading(rows, n, m):
            return value
        if _unit(rows, m) and _leading(columns, m, n):
            return value
        return self.copy(value)


def _padded(value: Value) -> tuple[int, ...] | None:
    """Strides with which rows begin in cache lines of their own, and not all in the same set of the cache."""
    line = 64 // value.dtype.itemsize
    *outer, last = value.sizes
    if type(last) is not int or any(type(s) is not int for s in outer) or last < line:
        return None
    step = -(-last // line) * line
    if step % (64 * line) == 0:
        step += line
    strides = [1]
    for extent in reversed(outer):
        strides.append(step)
        step *= int(extent)  # type: ignore[arg-type]
    return tuple(reversed(strides))


def channels_last(sizes: Sequence[Index]) -> tuple[Index, ...]:
    """Strides with which the channels of images lie side by side."""
    _, channels, height, width = sizes
    return (height * width * channels, 1, width * channels, channels)


def image_layout(value: Value) -> tuple[Index, ...] | None:
    """Channels last, if that is how all images lie that ``value`` is made of; None for the usual order."""
    if value.rank != 4 or any(type(s) is not int for s in value.sizes):
        return None
    last = channels_last(value.sizes)
    if value.place is not None:
        return last if value.place.strides == last else None
    variables = value.variables()
    usual = index.contiguous_strides(value.sizes)
    images = [(b, at) for b, at in value.at(variables).loads if b.numel == value.numel]
    if any(at == Place(b, usual, 0).position(variables) for b, at in images):
        return None
    return last if any(at == Place(b, last, 0).position(variables) for b, at in images) else None


def _unit(stride: Index, extent: Index) -> bool:
    return (type(stride) is int and stride == 1) or (type(extent) is int and extent == 1)


def _leading(stride: Index, least: Index, extent: Index) -> bool:
    return (type(extent) is int and extent == 1) or index.not_negative(stride - least)


def _loops(variables: Sequence[Index]) -> list[Var]:
    return [v for i in variables if (v := index.the_var(i)) is not None]


def _weight(stride: Index | None) -> int:
    """A number that orders strides: symbolic ones are taken for large."""
    if stride is None:
        return 0
    if type(stride) is int:
        return stride
    assert isinstance(stride, index.Ix)
    return max(coef * 1000 ** len(mono) for mono, coef in stride.terms)
