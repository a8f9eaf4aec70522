"""Decides which sizes and numbers are symbolic: those seen to change, those marked, and those requested."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from ..guards.cached_results import is_of_a_cache
from ..guards.kinds.numbers import LARGEST_FLOAT32
from ..guards.sources import Source
from ..marks import tensor_marks
from ..marks.shapes_spec import Shapes
from ..marks.tensor_marks import Mark, marks_of

_INT64 = 1 << 63


@dataclass
class Dims:
    """What is symbolic of one tensor."""

    # dimension -> how: "auto" and "dynamic" (a symbol of its own), "duck" (one symbol for equal sizes), "unbacked"
    sizes: dict[int, str] = field(default_factory=dict)
    strides: set[int] = field(default_factory=set)
    marked: dict[int, Mark] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.sizes or self.strides)


_FEW_TEXTS = 3


class DynamicDims:
    """The decision, per input, which sizes, strides and numbers are symbolic.

    Sizes are static at first.  A size becomes dynamic after it was seen to change, under ``dynamic=True``, or if
    the tensor is marked.  ``seen`` is kept per code object over all its compilations.
    """

    def __init__(
        self,
        seen: dict[Any, Any],
        dynamic: bool | None,
        automatic: bool,
        scalars: bool = False,
        dynamic_outputs: bool = False,
        fixed_lengths: bool = False,
        fixed: frozenset[str] = frozenset(),
        shapes: Shapes | None = None,
    ) -> None:
        self.seen = seen
        self.dynamic = dynamic
        self.automatic = automatic and dynamic is None
        self.scalars = scalars  # whether numbers read from tensors are captured
        self.dynamic_outputs = dynamic_outputs  # and operators whose output size depends on data
        self.fixed_lengths = fixed_lengths  # and recurrent layers, each length of which is code of its own
        self.fixed = fixed  # floats that are constants whatever changes, because a backend needs that
        self.shapes = shapes  # what the compile() call says about the arguments

    def of_tensor(self, tensor: torch.Tensor, source: Source) -> Dims:
        """What is symbolic of an input."""
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        key = (source.words(), len(shape))
        sizes_seen, strides_seen = self.seen.get(key, (shape, strides))
        sizes_seen = _merge(sizes_seen, shape)
        strides_seen = _merge(strides_seen, strides)
        self.seen[key] = sizes_seen, strides_seen
        dims = Dims()
        marked = marks_of(tensor) if self.shapes is None else self.shapes.marks(tensor, source)
        for index, size in enumerate(shape):
            mark = marked.get(index)
            if mark is not None and mark.kind != tensor_marks.STATIC:
                dims.sizes[index] = "unbacked" if mark.kind == tensor_marks.UNBACKED else "dynamic"
                dims.marked[index] = mark
            elif mark is not None:
                continue
            elif self.automatic and sizes_seen[index] is None:
                dims.sizes[index] = "auto"
            elif self.dynamic and size not in (0, 1):
                dims.sizes[index] = "duck"
        if self.automatic and None not in sizes_seen and not dims.sizes:
            # strides alone change: another part of a larger tensor
            dims.strides.update(index for index, stride in enumerate(strides_seen) if stride is None)
        return dims

    def is_dynamic_number(self, number: int | float, source: Source, *, given: bool) -> bool:
        """Whether a number read from ``source`` is symbolic: another one has been seen there, or it is ``given`` to the
        function and everything that is shall be."""
        if is_of_a_cache(source):  # for other arguments, it is another number
            return False
        key = (source.words(), "number")
        previous = self.seen.get(key, number)
        changed = previous != number or type(previous) is not type(number)
        self.seen[key] = None if changed else number
        is_wanted = (changed and (self.automatic or self.dynamic)) or (given and self.dynamic)
        return bool(is_wanted) and self._may_be_symbolic(number, source)

    def has_moved(self, position: Any, source: Source) -> bool:
        """Whether an iterator has been seen to stand elsewhere."""
        return self.seen.setdefault((source.words(), "position"), position) != position

    def is_one_of_many(self, text: str, source: Source) -> bool:
        """Whether a text that Python computes has been another one in several compilations: then it names many things,
        each of which would be a graph."""
        texts = self.seen.setdefault((source.words(), "text"), set())
        if len(texts) < _FEW_TEXTS:
            texts.add(text)
        return text not in texts and not self.fixed_lengths

    def takes_data(self, number: int | float, source: Source) -> bool:
        """Whether a number that is most likely data, or counts, is symbolic before it has changed."""
        return self._may_be_symbolic(number, source) and (self.dynamic is True or self.automatic)

    def _may_be_symbolic(self, number: int | float, source: Source) -> bool:
        if type(number) is float:
            return source.words() not in self.fixed and 0 < abs(number) <= LARGEST_FLOAT32
        return type(number) is int and -_INT64 <= number < _INT64


def _merge(old: tuple, new: tuple) -> tuple:
    return tuple(a if a == b else None for a, b in zip(old, new, strict=True))
