"""A graph as statements of the loop IR, abstract operations and calls of torch's operators, in a possible order.

A program says what is computed and where operands lie.  Who computes its products, convolutions and attention
(``products.py``) is settled by the target, afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch

from . import index, operations as ops
from .expressions import Buffer, Node, Statement, make
from .forms import Forms
from .index import Index, Var
from .layout import followed_strides, image_layout, weight
from .values import Place, Value

Extent = tuple[Literal["size", "stride"], int]
"""A size or a stride of a tensor, and of which dimension."""


@dataclass(frozen=True)
class Solved:
    """A number of which an input is ``factor`` times the number plus ``offset``."""

    factor: int
    offset: int


@dataclass(frozen=True)
class Computed:
    """A number that follows from sizes that are named before it."""

    value: Index


@dataclass(frozen=True)
class TensorRef:
    """A tensor on a buffer, as an argument of a call or a result, which may be the conjugate of what the buffer has."""

    buffer: Buffer
    sizes: tuple[Index, ...]
    strides: tuple[Index, ...]
    offset: Index
    conjugated: bool = False

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
class Need:
    """A size that must not be 0 in any call; ``error``, a builtin exception, and ``words`` are what eager raises."""

    size: Index
    error: str
    words: str


class Step(Protocol):
    """Whatever a program is made of besides statements; ``origins`` are the nodes of the graph that it computes."""

    origins: list[Any]

    @property
    def reads(self) -> set[Buffer]: ...

    @property
    def writes(self) -> set[Buffer]: ...


Item = Any  # Statement | Step


class Program:
    """What a graph becomes, built while its nodes are lowered in order."""

    def __init__(self, forms: Forms, device: torch.device, *, padded: bool = False, own_products: bool = True) -> None:
        self.forms = forms  # how the target wants operands to lie
        self.device = device  # where buffers are, unless they say otherwise
        self.padded = padded  # whether there are gaps between the rows of what is written for matrix products
        self.own_products = own_products  # whether products may be computed by other code than the library's
        self.exact: dict[Hashable, Value] = {}  # copies for products of what is stored: in float32, or in rows apart
        self.buffers: list[Buffer] = []
        self.inputs: list[Buffer | str] = []  # a symbol's name for a number
        self.items: list[Item] = []
        self.outputs: list[TensorRef | Index] = []
        # symbol: which input, what of it, divided by what; or how it follows from symbols before it
        self.symbols: dict[str, tuple[int, Extent | Solved | None, int] | Computed] = {}
        self.constants: dict[str, Any] = {}  # the name of a buffer: the attribute of the graph that it is
        self.frozen: dict[Buffer, str] = {}  # those whose values are not part of the code: their attributes
        self.packs: dict[Hashable, Buffer] = {}  # what a target makes of constants when the code is loaded
        self.needs: list[Need] = []
        self.moves: list[tuple[Value, Buffer, Any]] = []  # what is in memory, the input that gets it, and the node
        self.current: Any = None  # the FX node that is being lowered
        self.lays_out_images = False  # whether convolutions choose the order of dimensions in memory

    def buffer(
        self,
        dtype: torch.dtype,
        sizes: Sequence[Index],
        strides: Sequence[Index] | None = None,
        kind: str = "temp",
        device: torch.device | None = None,
    ) -> Buffer:
        sizes = tuple(sizes)
        strides = index.contiguous_strides(sizes) if strides is None else tuple(strides)
        name = f"{'in' if kind == 'input' else 'b'}{len(self.buffers)}"
        part = dtype.to_real() if dtype.is_complex else dtype
        made = Buffer(
            name, part, sizes, strides, self.device if device is None else device, kind, pairs=dtype.is_complex
        )
        self.buffers.append(made)
        return made

    def shown(self, given: Buffer, dtype: torch.dtype) -> Buffer:
        """All memory of an input that is not written to, as elements of ``dtype``."""
        assert type(given.numel) is int
        for made in self.buffers:
            if made.shows is given and made.dtype is dtype:
                return made
        made = self.buffer(dtype, (given.numel * given.dtype.itemsize // dtype.itemsize,), None, "input", given.device)
        made.shows = given
        return made

    def stored(self, buffer: Buffer) -> Value:
        """The value that is a whole buffer."""
        return Value(buffer.sizes, buffer.tensor_dtype, None, Place(buffer, buffer.strides, 0))

    def need(self, size: Index, error: str, words: str) -> None:
        """Refuse calls in which ``size`` is 0 as eager refuses them.

        Raises:
            Unsupported: it is 0 in all of them, which torch's operator says best.
        """
        if type(size) is int:
            if size == 0:
                raise ops.Unsupported(words)
        else:  # also where the capture says so: whoever calls the code may have been told less
            self.needs.append(Need(size, error, words))

    @property
    def returned(self) -> set[Buffer]:
        """What the graph gives to others: its results, and what its inputs are overwritten with."""
        moved = {value.place.buffer for value, _, _ in self.moves if value.place is not None}
        return moved | {ref.buffer for ref in self.outputs if isinstance(ref, TensorRef)}

    # --- statements -----------------------------------------------------------------------------------------------

    def realize(self, value: Value, strides: Sequence[Index] | None = None) -> Value:
        """Put ``value`` into memory, if it is not there, and return it; by default in the order of what it reads."""
        if value.place is None:
            strides = image_layout(value) or followed_strides(value) if strides is None else strides
            buffer = self.buffer(value.dtype, value.sizes, strides)
            self.store(value, buffer, buffer.strides, 0)
            value.put(Place(buffer, buffer.strides, 0))
        return value

    def copy(self, value: Value, strides: Sequence[Index] | None = None) -> Value:
        """A copy of ``value`` in separate memory."""
        buffer = self.buffer(value.dtype, value.sizes, strides)
        self.store(value, buffer, buffer.strides, 0)
        return self.stored(buffer)

    def store(self, value: Value, buffer: Buffer, strides: Sequence[Index], offset: Index) -> None:
        """Write ``value`` to a part of ``buffer``."""
        variables = value.variables()
        position = Place(buffer, tuple(strides), offset).position(variables)
        kept = _loops(variables)
        # The last loop is the one whose elements are adjacent.
        kept.sort(key=lambda v: weight(index.coefficient(position, v)), reverse=True)
        element = value.at(variables)
        if element.op != "complex":
            self._add(Statement(buffer, position, element, tuple(kept)))
            return
        for at, part in enumerate(element.args):
            self._add(Statement(buffer, position * 2 + at, part, tuple(kept)))

    def reduce(
        self, reduction: str, value: Value, dims: Sequence[int], dtype: torch.dtype, element: Callable[[Node], Node]
    ) -> Value:
        """The reduction of ``element(value)`` over ``dims``, which stay with size 1."""
        chosen = {d % value.rank for d in dims} if value.rank else set()
        sizes = [1 if d in chosen else s for d, s in enumerate(value.sizes)]
        if all(type(value.sizes[d]) is int and value.sizes[d] == 1 for d in chosen):  # each result is of one element
            if reduction.startswith("arg"):
                return Value(sizes, dtype, lambda at: ops.const(0, dtype))
            return Value(sizes, dtype, lambda at: ops.cast(ops.of_one(reduction, element(value.at(at))), dtype))
        variables = tuple(index.var(f"{'r' if d in chosen else 'd'}{d}", s) for d, s in enumerate(value.sizes))
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
        self._add(Statement(buffer, position, body, tuple(outer), tuple(reduced), reduction))
        return self.stored(buffer)

    def _add(self, statement: Statement) -> None:
        statement.origins = [self.current]
        empty = any(type(v.size) is int and v.size == 0 for v in (*statement.kept, *statement.reduced))
        if empty and statement.value.op != "pair":  # what is the same for all elements would be read once, though
            statement.value = ops.const(0, statement.value.dtype)
        self.items.append(statement)

    def call(self, op: Any, args: Sequence[Any], kwargs: dict[str, Any], results: list[Buffer | None]) -> None:
        self.items.append(Call(op, tuple(args), kwargs, results, [self.current]))

    def pack(self, pack: Hashable) -> Buffer:
        """The buffer of what a target makes of a constant; equal descriptions have one."""
        found = self.packs.get(pack)
        if found is None:
            found = self.packs[pack] = self.buffer(torch.uint8, (), (), "input")
        return found

    def add(self, step: Step) -> None:
        step.origins = [self.current]
        self.items.append(step)


def _loops(variables: Sequence[Index]) -> list[Var]:
    return [v for i in variables if (v := index.the_var(i)) is not None]
