"""torch's ShapeEnv: how it receives inputs, and the guards that it derives for them."""

from __future__ import annotations

from typing import Any

import torch

from torchmux import torch_internals as ti
from torchmux.registry.errors import ConstraintViolation

from ..guards.guards import GuardSet, ShapeCondition, ShapePart
from ..guards.sources import Source
from .dynamic import Dims


def ShapeSource(variable: str) -> Any:
    """What ShapeEnv calls one of our inputs: a short variable that the guard function binds."""
    return ti.named_source(variable)


def symbolic_context(tensor: torch.Tensor, dims: Dims) -> Any:
    """How ShapeEnv is to treat each dimension of an input."""
    from torch.fx.experimental.symbolic_shapes import StatelessSymbolicContext

    kinds = ti.dim_kinds()
    how = {"auto": kinds.DYNAMIC, "dynamic": kinds.DYNAMIC, "duck": kinds.DUCK, "unbacked": kinds.UNBACKED}
    rank = range(tensor.dim())
    constraints = []
    for index in rank:
        mark = dims.marked.get(index)
        bounded = mark is not None and dims.sizes[index] == "dynamic" and (mark.low, mark.high) != (None, None)
        constraints.append(ti.dim_bounds(mark.low, mark.high) if mark is not None and bounded else None)
    return StatelessSymbolicContext(
        dynamic_sizes=[how[dims.sizes[i]] if i in dims.sizes else kinds.STATIC for i in rank],
        dynamic_strides=[kinds.DYNAMIC if i in dims.strides else kinds.INFER_STRIDE for i in rank],
        constraint_sizes=constraints,
        constraint_strides=[None] * len(rank),
    )


def check_bounds(tensor: torch.Tensor, dims: Dims, source: Source) -> None:
    """That a tensor is within its own marks."""
    for index, mark in dims.marked.items():
        size = tensor.shape[index]
        if (mark.low is not None and size < mark.low) or (mark.high is not None and size > mark.high):
            raise ConstraintViolation(
                f"Dimension {index} of {source.words()} is marked with bounds {mark.low} to {mark.high}, but it is "
                f"{size}. Widen the bounds of the mark, or mark only tensors with sizes in these bounds."
            )


def check_constraints(shape_env: Any, marked: list[tuple[torch.Tensor, Any, Dims, Source]]) -> None:
    """That what was marked dynamic has stayed so; ``marked`` holds real and fake tensors.

    Raises ConstraintViolation with the line of the program that needs a certain size.
    """
    for real, fake, dims, source in marked:
        for index, mark in dims.marked.items():
            if mark.kind != "dynamic":
                continue
            size, what = fake.shape[index], f"Dimension {index} of {source.words()} is marked dynamic"
            if not isinstance(size, torch.SymInt):
                raise ConstraintViolation(
                    f"{what}, but it is {size}, and sizes 0 and 1 are always constants, because operators treat them "
                    f"specially. Call with another size first, or use torchmux.maybe_mark_dynamic."
                )
            symbol = getattr(size.node, "_expr", size.node.expr)
            if size.node.expr.is_number:
                raise ConstraintViolation(
                    f"{what}, but the code needs it to be {real.shape[index]}{_because(shape_env, symbol)}. Remove "
                    f"the dependence on this size, or mark it with torchmux.maybe_mark_dynamic to compile each size."
                )
            bounds = shape_env.bound_sympy(size.node.expr)
            low, high = max(2, mark.low or 0), mark.high
            if (mark.low is not None and bounds.lower > low) or (high is not None and bounds.upper < high):
                raise ConstraintViolation(
                    f"{what} between {low} and {high}, but the code is compiled for {bounds.lower} to {bounds.upper} "
                    f"only{_because(shape_env, symbol)}. Narrow the mark's bounds, or mark it with "
                    f"torchmux.maybe_mark_dynamic."
                )


def _because(shape_env: Any, symbol: Any) -> str:
    """Where in the program the last guard on ``symbol`` comes from."""
    found = shape_env.replacements_slocs.get(symbol)
    if found is not None and found.maybe_user_loc:
        return f" at {found.maybe_user_loc}"
    for guard in reversed(shape_env.guards):
        if symbol in guard.expr.free_symbols and guard.sloc.maybe_user_loc:
            return f" at {guard.sloc.maybe_user_loc}"
    return ""


def _line_of(explained: str) -> str:
    """The line of the program in what ShapeEnv says about a guard; ours are ``file:line``, followed by ``()``."""
    reason = explained.partition("  # ")[2].partition(" and ")[0]
    return reason.removesuffix(" ()") if reason.endswith(" ()") and reason != " ()" else ""


def _line_of_equality(shape_env: Any, fakes: dict[str, Any], pieces: tuple[str | ShapePart, ...]) -> str:
    """The line that needs a size to equal another one: ShapeEnv has put one symbol in place of the other."""
    for piece in pieces:
        if isinstance(piece, ShapePart) and piece.method == "size":
            size = fakes[piece.variable].shape[piece.index]
            where = shape_env.replacements_slocs.get(size.node._expr) if isinstance(size, torch.SymInt) else None
            if where is not None and where.maybe_user_loc:
                return where.maybe_user_loc
    return ""


class _Printed:
    """Keeps what ShapeEnv speaks of apart from the text that it prints: each number stands in it as a mark."""

    _MARK = "\0"  # in no expression of Python

    def __init__(self, sources: dict[str, Source]) -> None:
        self._sources = sources
        self._parts: list[ShapePart] = []

    def mark(self, printed: Any) -> str:
        """What ShapeEnv is to print for one of its own sources."""
        variable, method, index = ti.printed_source(printed)
        self._parts.append(ShapePart(variable, self._sources[variable], method, index))
        return f"{self._MARK}{len(self._parts) - 1}{self._MARK}"

    def pieces(self, text: str) -> tuple[str | ShapePart, ...]:
        """What ShapeEnv has printed, with the numbers in the place of their marks."""
        turns = enumerate(text.split(self._MARK))  # text and marks in turns
        return tuple(self._parts[int(piece)] if turn % 2 else piece for turn, piece in turns if piece)


def add_shape_guards(guards: GuardSet, shape_env: Any, inputs: list[tuple[Any, Source]]) -> None:
    """Turn what ShapeEnv assumed into conditions of the guard function."""
    if shape_env is None:
        return
    for value, source in inputs:
        if isinstance(value, torch.SymInt) and value.node.expr.is_number:
            guards.equals(source, int(value))  # an integer that the trace turned into a constant
        elif isinstance(value, torch.SymFloat) and value.node.expr.is_number:
            guards.equals(source, value.node.hint)
    fakes = {f"t{index}": value for index, (value, _) in enumerate(inputs)}
    sources = {f"t{index}": source for index, (_, source) in enumerate(inputs)}
    printed = _Printed(sources)
    plain, verbose = shape_env.produce_guards_verbose(
        list(fakes.values()), list(map(ShapeSource, fakes)), printed.mark, langs=("python", "verbose_python")
    )
    for text, explained in zip(plain.exprs, verbose.exprs, strict=True):
        pieces = printed.pieces(str(text))
        match pieces:
            case ("2 <= ", ShapePart(method="size")):  # ShapeEnv's way to say that 0 and 1 are constants
                condition = ShapeCondition(pieces, is_lower_bound=True)
            case _:
                where = _line_of(str(explained)) or _line_of_equality(shape_env, fakes, pieces)
                condition = ShapeCondition(pieces, where)
        guards.shape_conditions.append(condition)
    if guards.shape_conditions:
        used = {part.variable for condition in guards.shape_conditions for part in condition.parts()}
        guards.shape_roots.update((variable, source) for variable, source in sources.items() if variable in used)
        guards.shape_namespace.update(ti.shape_guard_namespace())
