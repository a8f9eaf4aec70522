"""Which dimensions are dynamic, and the guards that torch's ShapeEnv derives for them."""

from __future__ import annotations

from typing import Any

import torch

from torchmux import torch_internals as ti

from .guards import GuardSet
from .sources import Source


class DynamicDims:
    """The decision, per input, which sizes are symbolic.

    Static first: a size becomes dynamic after it has been seen to change, when ``dynamic=True`` was asked for, or when
    the tensor was marked.  ``seen`` is kept per code object over all its compilations.
    """

    def __init__(self, seen: dict[str, Any], dynamic: bool | None, automatic: bool) -> None:
        self.seen = seen
        self.dynamic = dynamic
        self.automatic = automatic and dynamic is None

    def of_tensor(self, tensor: torch.Tensor, source: Source) -> dict[int, tuple[int | None, int | None]]:
        """Dynamic dimensions of an input with their bounds (None: open)."""
        marked: dict[int, tuple[int | None, int | None]] = dict(getattr(tensor, "_torchmux_dynamic", None) or {})
        for index in getattr(tensor, "_dynamo_dynamic_indices", None) or ():
            marked.setdefault(index, (None, None))
        shape = tuple(tensor.shape)
        if self.dynamic is False:
            return {}
        if self.dynamic:
            for index, size in enumerate(shape):
                if size not in (0, 1):
                    marked.setdefault(index, (None, None))
        key = source.words()
        previous = self.seen.get(key)
        if not isinstance(previous, tuple) or len(previous) != len(shape):  # an int may have been there
            self.seen[key] = shape
        else:
            merged = tuple(old if old == new else None for old, new in zip(previous, shape, strict=True))
            self.seen[key] = merged
            if self.automatic:
                for index, size in enumerate(merged):
                    if size is None:
                        marked.setdefault(index, (None, None))
        return marked

    def is_dynamic_int(self, number: int, source: Source) -> bool:
        """Whether an integer read from ``source`` has been seen with another value (0 and 1 stay constants)."""
        if self.dynamic is False or type(number) is not int:
            return False
        key = source.words()
        previous = self.seen.get(key, number)
        if isinstance(previous, tuple):  # a tensor was there
            previous = number
        self.seen[key] = number if previous == number else None
        return (previous != number and self.automatic) or (self.dynamic is True and number not in (0, 1))


def _shape_source_class() -> type:
    base = ti.guards_source_base()

    class ShapeSource(base):  # type: ignore[misc, valid-type]
        """What ShapeEnv calls one of our inputs: a short variable that the guard function binds."""

        def __init__(self, variable: str) -> None:
            self._variable = variable

        @property
        def name(self) -> str:
            return _Name(self._variable)

        @property
        def _name_template(self) -> str:
            return self._variable

        def __hash__(self) -> int:
            return hash(self._variable)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, ShapeSource) and other._variable == self._variable

        def is_ephemeral(self) -> bool:
            return False

        @property
        def guard_source(self) -> Any:
            return ti.local_guard_source()

    return ShapeSource


class _Name(str):
    """A name that may be read as a property or called: torch 2.11 and 2.13 differ."""

    def __call__(self) -> str:
        return str(self)


_shape_source: type | None = None


def ShapeSource(variable: str) -> Any:
    global _shape_source
    if _shape_source is None:
        _shape_source = _shape_source_class()
    return _shape_source(variable)


def symbolic_context(tensor: torch.Tensor, dims: dict[int, tuple[int | None, int | None]]) -> Any:
    """How ShapeEnv is to treat each dimension of an input."""
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    sizes = [DimDynamic.DUCK if index in dims else DimDynamic.STATIC for index in range(tensor.dim())]
    constraints = [
        ti.dim_bounds(*dims[i]) if i in dims and dims[i] != (None, None) else None for i in range(tensor.dim())
    ]
    return StatelessSymbolicContext(dynamic_sizes=sizes, constraint_sizes=constraints)


def add_shape_guards(guards: GuardSet, shape_env: Any, inputs: list[tuple[Any, Source]]) -> None:
    """Turn what ShapeEnv assumed into conditions of the guard function."""
    if shape_env is None:
        return
    for value, source in inputs:
        if isinstance(value, torch.SymInt) and value.node.expr.is_number:
            guards.equals(source, int(value))  # an integer that the trace turned into a constant
    placeholders = [value for value, _ in inputs]
    sources = [ShapeSource(f"t{index}") for index in range(len(inputs))]
    helper = shape_env.produce_guards_verbose(placeholders, sources, langs=("python",))[0]
    for condition in helper.exprs:
        guards.shape_conditions.append(str(condition))
    if guards.shape_conditions:
        text = " ".join(guards.shape_conditions)
        for index, (_, source) in enumerate(inputs):
            if f"t{index}." in text or f"t{index} " in text or f"t{index})" in text or text.endswith(f"t{index}"):
                guards.shape_roots[f"t{index}"] = source
        guards.shape_namespace.update(ti.shape_guard_namespace())
