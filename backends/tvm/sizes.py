"""Symbolic sizes: torch's symbols as TVM variables, and their values at a call.

``main`` takes the values of all variables as its first argument, so none has to be deduced from tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from torchmux import torch_internals as internals

from ..common.adapter.results import hint_of

Source = tuple[int, int | None]
"""Where a call provides the value of a variable: an argument, and its dimension (None: the argument is the number)."""


def is_dynamic(gm: GraphModule) -> bool:
    """Whether some size of an input is known only when the graph runs."""
    return any(is_symbolic(n.meta["val"]) for n in gm.graph.find_nodes(op="placeholder"))


def is_symbolic(value: Any) -> bool:
    """Whether a number, or some size or stride of a tensor, is known only when the graph runs."""
    if isinstance(value, torch.Tensor):
        return any(type(s) is not int for s in (*value.shape, *value.stride()))
    return isinstance(value, torch.SymInt)


class Sizes:
    """The variables of a graph, and torch's sizes as expressions of them.

    A size that is computed from symbols which no input shows alone (the rows of ``x.view(s0 * s1, 64)``, where that is
    all there is) is a variable itself.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        """``values`` are those of the placeholders: fake tensors and numbers."""
        self.variables: list[Any] = []
        self.sources: list[Source] = []
        self._known: dict[Any, Any] = {}
        given = [(size, (at, dim)) for at, value in enumerate(values) for size, dim in _sizes_of(value)]
        for size, source in given:
            if size.node.expr.is_Symbol:
                self._add(size, source)
        for size, source in given:
            if not size.node.expr.free_symbols <= self._known.keys():
                self._add(size, source)

    def __call__(self, size: int | torch.SymInt) -> Any:
        """A size as TVM takes it: an integer, or an expression.

        Raises:
            TypeError: it cannot be expressed by the variables.
        """
        if not isinstance(size, torch.SymInt):
            return size
        expr = size.node.expr
        found = self._known.get(expr)
        if found is None:
            try:
                found = internals.rebuild_symbolic(expr, self._known)
            except Exception as error:  # a function that TVM has no operator for, a symbol that no input shows
                raise TypeError(f"the size {expr} cannot be expressed in TVM") from error
            self._known[expr] = found
        return found

    def _add(self, size: torch.SymInt, source: Source) -> None:
        expr = size.node.expr
        if expr in self._known:
            return
        if hint_of(size) is None:
            raise TypeError(f"nothing is known about the size {expr}")
        if not never_negative(size):  # TVM assumes that no variable of a shape is
            raise TypeError(f"the number {expr} may be negative")
        from tvm import tirx  # here, so that running what is compiled does without it

        self._known[expr] = tirx.Var(f"n{len(self.variables)}", "int64")
        self.variables.append(self._known[expr])
        self.sources.append(source)


def never_negative(size: int | torch.SymInt) -> bool:
    """Whether a number cannot be negative in any call."""
    if not isinstance(size, torch.SymInt):
        return size >= 0
    return internals.is_never_negative(size.node.shape_env, size.node.expr)


def _sizes_of(value: Any) -> list[tuple[torch.SymInt, int | None]]:
    if isinstance(value, torch.Tensor):
        return [(size, dim) for dim, size in enumerate(value.shape) if isinstance(size, torch.SymInt)]
    return [(value, None)] if isinstance(value, torch.SymInt) else []


def values(sources: Sequence[Source], args: Sequence[Any]) -> list[int]:
    """What the variables are in a call with ``args``."""
    return [args[at] if dim is None else args[at].shape[dim] for at, dim in sources]
