"""What one trace took for granted, collected while it reads.  ``check`` makes the check of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from .closed import is_kind
from .kinds.equality import equals
from .kinds.guard import Guard
from .kinds.objects import Is, SameObject, TypeIs
from .sources import Source


@dataclass(frozen=True)
class ShapePart:
    """A number that ShapeEnv speaks of: the value of a source, or a size, a stride or the offset of a tensor."""

    variable: str  # what the check calls the source's value
    source: Source
    method: str = ""  # "size", "stride", "storage_offset", or nothing for a number
    index: int | None = None

    @property
    def text(self) -> str:
        return self._print(self.variable)

    def words(self) -> str:
        return self._print(self.source.words())

    def _print(self, value: str) -> str:
        call = f"{value}.{self.method}()" if self.method else value
        return call if self.index is None else f"{call}[{self.index}]"


@dataclass(frozen=True)
class ShapeCondition:
    """What ShapeEnv took for granted: its text, with the numbers that it is about as parts."""

    pieces: tuple[str | ShapePart, ...]
    where: str = ""  # the line of the program that needs it, if one does
    is_lower_bound: bool = False  # all that it says is that a size is neither 0 nor 1

    @property
    def text(self) -> str:
        """The Python of the check."""
        return "".join(piece.text if isinstance(piece, ShapePart) else piece for piece in self.pieces)

    def words(self) -> str:
        return "".join(piece.words() if isinstance(piece, ShapePart) else piece for piece in self.pieces)

    def parts(self) -> list[ShapePart]:
        """The numbers, each once."""
        return list(dict.fromkeys(piece for piece in self.pieces if isinstance(piece, ShapePart)))


@dataclass
class TensorGuard:
    """A tensor input must look like ``tensor``, except where a size or stride of its ``fake`` twin is symbolic.

    That is read when the check is made, at the end of the trace: a size that the trace turned into a constant on the
    way is one that the check must hold to.
    """

    source: Source
    tensor: Any  # None when the trace has let go of the program's objects
    fake: Any

    @property
    def sizes(self) -> list:
        return [_constant(s) for s in self.fake.shape]

    @property
    def strides(self) -> list:
        return [_constant(s) for s in self.fake.stride()]


@dataclass(frozen=True)
class TensorFacts:
    """What a :class:`TensorGuard` compares, without the tensor.  None is a size or stride that may be any."""

    source: Source
    cls: type
    dtype: Any
    device: Any
    layout: Any
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    shape: tuple[int, ...]
    requires_grad: bool
    is_inference: bool
    is_special: bool  # conjugated, negated, or quantized

    @classmethod
    def of(cls, guard: TensorGuard) -> TensorFacts:
        tensor = guard.tensor
        dense = tensor.layout is torch.strided
        return cls(
            guard.source,
            type(tensor),
            tensor.dtype,
            tensor.device,
            tensor.layout,
            tuple(guard.sizes),
            tuple(guard.strides) if dense else (),
            tuple(int(size) for size in tensor.shape),
            tensor.requires_grad,
            tensor.is_inference(),
            not dense or tensor.is_conj() or tensor.is_neg() or tensor.is_quantized,
        )


def _constant(size: Any) -> int | None:
    """The number, or None for a symbol that is still open."""
    node = getattr(size, "node", None)
    if node is None:
        return size
    return int(node.expr) if node.expr.is_number else None


def no_snapshot() -> None:
    return None


@dataclass
class FrameInputs:
    """What a frame function loads ahead of its graph; ``snapshot`` knows most of it without loading."""

    roots: tuple[Source, ...] = ()  # where the sources lead from
    sources: tuple[Source, ...] = ()
    more: tuple[Source, ...] = ()  # what the graph takes one behind the other: one tuple of values, after the others
    latest: Callable[[], Any] = no_snapshot  # weak reference to the snapshot that held in the last check


@dataclass
class GuardSet:
    """All guards of one trace, in the order in which they were read."""

    guards: dict[Guard, None] = field(default_factory=dict)  # ordered
    tensors: dict[Source, TensorGuard] = field(default_factory=dict)
    global_state: bool = True  # whether grad mode, torch's modes and the like are checked
    devices: tuple = ()  # the default devices in force, see torch_internals.default_devices
    distinct: list[list[Source]] = field(default_factory=list)  # groups of objects that must all differ
    shape_conditions: list[ShapeCondition] = field(default_factory=list)
    shape_roots: dict[str, Source] = field(default_factory=dict)
    shape_namespace: dict[str, Any] = field(default_factory=dict)
    inputs: FrameInputs = field(default_factory=FrameInputs)

    def add(self, guard: Guard) -> None:
        """Take one more thing for granted.

        Raises:
            TypeError: it is no guard of a declared kind.
        """
        if not is_kind(type(guard), Guard):
            raise TypeError(f"{type(guard).__name__} is no kind of guard")
        self.guards.setdefault(guard)

    def same(self, source: Source, other: Source) -> None:
        """Two paths lead to one object."""
        self.add(SameObject(source, other))

    def type_is(self, source: Source, cls: type) -> None:
        self.add(TypeIs(source, cls))

    def is_object(self, source: Source, obj: Any) -> None:
        self.add(Is(source, obj))

    def equals(self, source: Source, value: Any) -> None:
        """Same type and equal; a nan, which is equal to none, the same object, as containers look for that."""
        if isinstance(value, float) and value != value:
            self.is_object(source, value)
            return
        self.add(equals(source, value))
