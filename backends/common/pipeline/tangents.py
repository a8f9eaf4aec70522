"""Backward passes from only some of the results.

A result that the program does not differentiate gets no gradient, and autograd computes nothing from it.  AOTAutograd
computes with zeros instead.  This differs in two ways: an input that affects no other result gets zeros where eager
leaves None, and where a derivative is infinite, zero times infinity is nan.  Before the backward pass runs, autograd is
therefore asked which results have a gradient.  For each combination that occurs, the backward graph is compiled without
the other results.  Other combinations are not compiled: a program seldom needs gradients of both the logits and the
loss that a model returns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchmux.compile_lock import shared
from torchmux.garbage import full_collections_wait

from ..adapter.graphs import copy_graph
from . import aliasing
from .assemble import Emptying, emptying_of
from .decompose import drop_dead_code

_aten = torch.ops.aten

Run = Callable[..., Sequence[Any]]

on_failure: ContextVar[Callable[[Exception], Exception] | None] = ContextVar("on_failure", default=None)
"""While a graph is compiled: makes the error that users see of an exception that its backward code raises."""


class Tangents:
    """The gradients of results with which one backward graph begins, which AOTAutograd calls tangents."""

    def __init__(self) -> None:
        self.count = 0
        self.traced: Sequence[torch.Tensor] = ()
        self.failed = on_failure.get()
        self._positions: tuple[int, ...] | None = None  # of the tangents among what autograd's node gets
        self._shown_by = 0  # a result that autograd's node made
        self._now = threading.local()

    def counted(self, split: Callable[..., Any]) -> Callable[..., Any]:
        """The partitioner ``split``, noticed how many tangents the graph has that it gets."""

        def counting(joint: GraphModule, inputs: Any, **settings: Any) -> Any:
            self.traced = inputs[1]
            self.count = len(self.traced)
            return split(joint, inputs, **settings)

        return counting

    def watched(self, forward: Run) -> Run:
        """``forward``, whose results show :meth:`missing` which of them have a gradient when backward starts."""
        if not self.count:
            return forward

        def call(*args: Any) -> Sequence[Any]:
            outside = _nodes(args) if self._positions is None else {}
            results = forward(*args)
            if self._positions is None:
                self._find(results, outside)
            if self._positions:
                made = _made_by(results[self._shown_by])
                if made is not None:
                    made[0].register_prehook(self._note)
            return results

        return call

    def note(self, missing: tuple[int, ...]) -> None:
        """Say which tangents have no gradient in the backward pass that starts next in this thread."""
        self._now.missing = missing

    def missing(self) -> tuple[int, ...]:
        """Which tangents of the backward pass that starts in this thread have no gradient."""
        found = getattr(self._now, "missing", ())
        self._now.missing = ()
        return found

    def without_made_up(self, gradients: Sequence[Any]) -> list[Any]:
        """The gradients that autograd's node gets, with None for those that AOTAutograd made up."""
        positions = self._positions or ()
        missing = {positions[tangent] for tangent in self.missing()} if positions else ()
        return [None if at in missing else gradient for at, gradient in enumerate(gradients)]

    def _find(self, results: Sequence[Any], outside: Mapping[Any, Any]) -> None:
        """Where autograd's node has its tangents.

        Results that are inputs, or views of them, lead to nodes ``outside``, or to none.  If the graph changes inputs,
        these also have tangents, and no other choice is made.
        """
        nodes = {node: found for node, found in _nodes(results).items() if node not in outside}
        if not nodes:
            return  # a call that records no gradients
        found = next(iter(nodes.values()))
        self._positions = tuple(sorted(found)) if len(nodes) == 1 and len(found) == self.count else ()
        self._shown_by = next(iter(found.values()))

    def _note(self, gradients: Sequence[torch.Tensor | None]) -> None:
        self.note(tuple(i for i, p in enumerate(self._positions or ()) if gradients[p] is None))


def _made_by(value: Any) -> tuple[Any, int] | None:
    """The node of an ``autograd.Function`` that made a tensor, directly or through views, and as which result."""
    node, number = getattr(value, "grad_fn", None), getattr(value, "output_nr", 0)
    while node is not None and not isinstance(node, torch.autograd.function.BackwardCFunction):
        if len(node.next_functions) != 1:
            return None
        ((node, number),) = node.next_functions
    return None if node is None else (node, number)


def _nodes(values: Sequence[Any]) -> dict[Any, dict[int, int]]:
    """The nodes that made these tensors: for each of their results, the first of the ``values`` that it leads to."""
    nodes: dict[Any, dict[int, int]] = {}
    for at, value in enumerate(values):
        if isinstance(value, torch.Tensor) and (made := _made_by(value)) is not None:
            nodes.setdefault(made[0], {}).setdefault(made[1], at)
    return nodes


class Backward:
    """A backward graph, compiled for each choice of results without a gradient that occurs."""

    def __init__(
        self, tangents: Tangents, make: Callable[[tuple[int, ...]], Run | None], *, results: int, writes: bool
    ) -> None:
        """``make`` compiles it without some tangents; without none if it ``writes`` to what it is given.

        It returns None where it cannot, which only :meth:`is_ready` asks for.
        """
        self._tangents, self._make, self._results, self._writes = tangents, make, results, writes
        self._runs: dict[tuple[int, ...], tuple[Run, Emptying | None]] = {}  # by the tangents that are missing

    @classmethod
    def of_graph(
        cls, gm: GraphModule, tangents: Tangents, lower: Callable[[GraphModule, tuple[int, ...]], Run]
    ) -> Backward:
        """The backward graph ``gm``, of which ``lower`` compiles what is left; at once if there is no choice."""
        writes = any(aliasing.writes(n) for n in gm.graph.nodes)
        chooses = tangents.count > 1 and not writes

        def make(missing: tuple[int, ...]) -> Run:
            part = gm
            if chooses:
                part = copy_graph(gm)
                leave_out(part, missing)
            return lower(part, missing)

        made = cls(tangents, make, results=len(gm.graph.output_node().args[0]), writes=writes)
        if not chooses:
            made.is_ready(())
        return made

    def _choice(self, missing: tuple[int, ...]) -> tuple[int, ...]:
        return missing if self._tangents.count > 1 and not self._writes else ()

    def _is_nothing(self, missing: tuple[int, ...]) -> bool:
        """Whether autograd only passes through."""
        return bool(missing) and len(missing) == self._tangents.count and not self._writes

    def is_ready(self, missing: tuple[int, ...]) -> bool:
        """Whether :meth:`run` has code for these missing tangents; it is made here."""
        choice = self._choice(missing)
        if self._is_nothing(missing) or choice in self._runs:
            return True
        with shared.lock, full_collections_wait():
            run = self._make(choice)
        if run is None:
            return False
        self._runs[choice] = run, emptying_of(run)
        return True

    def boxed(self, args: list[Any]) -> Sequence[Any]:
        """As :meth:`run`, where autograd says what is missing."""
        return self.run(args, self._tangents.missing())

    def run(self, args: list[Any], missing: tuple[int, ...]) -> Sequence[Any]:
        """The gradients of all inputs; those tangents among ``args`` count as ``missing`` that have no gradient.

        ``args`` may be emptied: what forward has saved is then freed after its last use.
        """
        if missing:
            if self._is_nothing(missing):
                return [None] * self._results
            missing = self._choice(missing)
        found = self._runs.get(missing)
        if found is None:
            self.is_ready(missing)
            found = self._runs[missing]
        run, emptying = found
        try:
            return run(*args) if emptying is None else emptying(args)
        except Exception as error:
            if self._tangents.failed is None:
                raise
            raise self._tangents.failed(error) from error


def leave_out(gm: GraphModule, missing: Sequence[int]) -> None:
    """Rewrite a backward graph for tangents that are no gradients; what only they lead to is None.

    A backward graph is linear in its tangents: what depends on nothing but missing ones is no gradient either, and
    where something else is added to it, that is the sum.
    """
    graph = gm.graph
    tangents = [n for n in graph.find_nodes(op="placeholder") if n.name.startswith("tangents")]
    gone = {tangents[position] for position in missing}
    there = {node for node in tangents if node not in gone}
    for node in list(graph.nodes):
        if node.op == "output":
            node.args = (tuple(None if v in gone else v for v in node.args[0]),)
        if node.op != "call_function" or not _is_gradient(node):
            continue
        inputs = node.all_input_nodes
        if any(i in there for i in inputs):
            there.add(node)
            if any(i in gone for i in inputs):
                _add_nothing(node, gone)
        elif any(i in gone for i in inputs):
            gone.add(node)
    drop_dead_code(graph)
    gm.recompile()


def _is_gradient(node: Node) -> bool:
    """Sizes that are read from a tangent are no gradients."""
    return isinstance(node.meta.get("val"), (torch.Tensor, tuple, list))


def _add_nothing(node: Node, gone: set[Node]) -> None:
    """Let ``node``, which combines a gradient with a missing one, continue without the latter."""
    if node.target is _aten.add.Tensor and not node.kwargs:
        (kept,) = (a for a in node.args if a not in gone)
        there, result = kept.meta["val"], node.meta["val"]
        # Views of the sum depend on its strides, which may be those of the missing one.
        alike = tuple(map(str, there.stride())) == tuple(map(str, result.stride()))
        if alike and there.shape == result.shape and there.dtype is result.dtype:
            node.replace_all_uses_with(kept)
            return
    for nothing in [i for i in node.all_input_nodes if i in gone]:
        with node.graph.inserting_before(node):
            zeros = node.graph.call_function(_aten.full_like.default, (nothing, 0))
        zeros.meta = dict(nothing.meta)
        node.replace_input_with(nothing, zeros)
