"""Traces a call into a separate graph, which an operator of the outer graph then runs.

While a region is open, operators are recorded into its graph.  A tensor or symbolic number from outside that they use
becomes an input, a *capture*.  Tensors from outside the program become inputs of the whole graph as usual, and captures
of the region.  Guards and the rest of the trace are shared.

A region ends in the state in which it started: an exception that would leave it, a context that stays open, and an
in-place change of a tensor from outside end the graph.  A region that does not run exactly once at its position (a
branch, a backward pass) must be *pure*: it must not change objects that exist outside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, GraphModule, Node

from torchmux import torch_internals as ti

from .. import breaks
from ..breaks import GraphBreak
from ..values.base import GraphValue, Raised, Value
from ..values.constants import SymValue, sym_result
from ..values.containers.iteration import IteratorValue
from ..values.contexts import UNKNOWN_GRAD
from ..values.tensors import TensorValue
from .forward_mode import in_level

if TYPE_CHECKING:
    from ..trace.tracer import OpenRegion, Tracer

# Slots of values that hold real objects, or lead back to the trace.
_NOT_VALUES = frozenset({"source", "obj", "fn", "code", "globals", "example", "node", "tr"})


class Region:
    """One graph inside another.

    ``what`` names it in reasons for graph breaks.  ``beside`` is an earlier, closed region whose values this one may
    also use: the forward pass of a backward pass.  ``transform`` tells which transform runs it, such as "vmap".
    """

    def __init__(
        self,
        tr: Tracer,
        what: str,
        *,
        pure: bool,
        roots: list[Value],
        beside: Region | None = None,
        transform: str = "",
    ) -> None:
        self.tr = tr
        self.what = what
        self.pure = pure
        self.beside = beside
        self.transform = transform
        self.graph = Graph()
        self.outer: Graph = tr.graph
        self.parent: OpenRegion | None = tr.region
        self.parameters: list[Node] = []
        self.captures: dict[Node, Node] = {}  # a node of an outer graph -> its placeholder here
        self.modules: dict[str, GraphModule] = {}
        self._versions: dict[Node, tuple[Any, int | None]] = {}
        self._last: Node | None = None
        self._grad_mode: Node | None = None
        self._roots = roots
        self._outside: set[int] = set()
        self._changed: dict[int, Value] = {}  # what exists outside and was changed here

    # --- what comes in ---------------------------------------------------------------------------------------------

    def _placeholder(self, name: str, example: Any) -> Node:
        where = self.graph.inserting_after(self._last) if self._last is not None else self._at_the_front()
        with where:
            node = self.graph.placeholder(name)
        node.meta["example_value"] = example
        self._last = node
        return node

    def _at_the_front(self) -> Any:
        return self.graph.inserting_before(next(iter(self.graph.nodes), None))

    def parameter(self, example: Any, name: str, *, unchanged: bool = False) -> Value:
        """An input of the region that exists nowhere around it; ``unchanged`` if it shares memory with what does."""
        node = self._placeholder(name, example)
        if unchanged:
            self._versions[node] = (example, _version(example))
        self.parameters.append(node)
        if isinstance(example, torch.Tensor):
            return TensorValue(node, example)
        return sym_result(self.tr, example, node)

    def lift(self, node: Node) -> Node:
        """The node of this graph that represents ``node``, which may belong to an outer graph."""
        if node.graph is self.graph:
            return node
        known = self.captures.get(node)
        if known is None:
            self._check_reachable(node)
            example = node.meta["example_value"]
            known = self.captures[node] = self._placeholder(node.name, example)
            known.meta["captured"] = node
            self._versions[node] = (example, _version(example))
        return known

    def _check_reachable(self, node: Node) -> None:
        region: OpenRegion | None = self
        while region is not None:
            if node.graph is region.outer or (region.beside is not None and node.graph is region.beside.graph):
                return
            region = region.parent
        raise GraphBreak(breaks.REGION, f"{self.what} uses a tensor that another region created")

    # --- while it is open ------------------------------------------------------------------------------------------

    def __enter__(self) -> Region:
        tr = self.tr
        if in_level(tr):
            raise GraphBreak(breaks.REGION, f"{self.what} in a level of forward derivatives")
        self._outside.update(_reachable(self._roots, self._refuse_iterator))
        tr.graph, tr.region = self.graph, self
        tr.effects.region = self
        self._grad, self._contexts = (tr.grad_enabled, torch.is_grad_enabled()), list(tr.active_contexts)
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        tr = self.tr
        tr.graph, tr.region = self.outer, self.parent
        tr.effects.region = self.parent
        tr.grad_enabled, real = self._grad
        ti.set_grad_enabled(real)
        if isinstance(error, Raised):
            stop = GraphBreak(breaks.EXCEPTION, f"{tr.describe_exception(error)} leaves {self.what}")
            stop.frames = error.frames
            raise stop from None
        if error is None and tr.active_contexts != self._contexts:
            raise GraphBreak(breaks.REGION, f"a context manager is still open at the end of {self.what}")

    def assume_grad(self, enabled: Any) -> None:
        """What the operator that runs the region sets the grad mode to, ahead of its graph."""
        self.tr.grad_enabled = enabled
        ti.set_grad_enabled(bool(enabled))

    def grad_argument(self, enabled: Any) -> Any:
        """The mode to set, as an argument in the graph: a node if the mode is known only when the graph runs."""
        if self._grad_mode is None and self.tr.grad_enabled is UNKNOWN_GRAD:
            self._grad_mode = self.graph.create_node("call_function", torch.is_grad_enabled, (), {})
        if enabled is not UNKNOWN_GRAD:
            return enabled
        if self._grad_mode is None:
            raise GraphBreak(breaks.REGION, f"{self.what} depends on the grad mode in which it will run")
        return self._grad_mode

    def changed(self, value: Value) -> None:
        """``value`` is about to change."""
        if value.source is not None or id(value) in self._outside:
            if self.pure:
                raise GraphBreak(breaks.REGION, f"{self.what} changes {value.describe()}, which exists outside it")
            self._changed[id(value)] = value
        if self.parent is not None:
            self.parent.changed(value)

    def changed_global(self, name: str) -> None:
        if self.pure:
            raise GraphBreak(breaks.REGION, f"{self.what} changes global {name}")
        if self.parent is not None:
            self.parent.changed_global(name)

    def _refuse_iterator(self, value: Value) -> None:
        if self.pure and isinstance(value, IteratorValue):
            raise GraphBreak(breaks.REGION, f"{self.what} receives a {value.pytype().__name__}, which it may advance")

    # --- the end ---------------------------------------------------------------------------------------------------

    def changed_tensors(self) -> list[Node]:
        """The nodes of tensors from outside that the region has changed in place."""
        return [node for node, (example, version) in self._versions.items() if version != _version(example)]

    def left_behind(self) -> list[Any]:
        """The tensors and symbolic numbers made here that objects from outside lead to now."""
        return self.made_in(*self._changed.values())

    def made_in(self, *results: Value) -> list[Any]:
        """The tensors and symbolic numbers made here that ``results`` lead to."""
        found: list[Value] = []

        def visit(value: Value) -> None:
            if isinstance(value, GraphValue) and value.node.graph is self.graph:
                found.append(value)

        for _ in _reachable(list(results), visit):
            pass
        return found

    def close(
        self, outputs: list[Node], captures: list[Node] | None = None, written: Collection[Node] = ()
    ) -> GraphModule:
        """The finished graph module: it takes the parameters and then ``captures``, by default all that there are.

        It returns ``outputs``, which may lie in graphs around it, as a flat tuple.  It may write to
        ``written`` from outside.
        """
        for node in self.changed_tensors():
            if node not in written:
                raise GraphBreak(breaks.REGION, f"{self.what} changes {node.name}, a tensor from outside it, in place")
        results = [self.lift(node) for node in outputs]
        order = list(self.captures) if captures is None else captures
        placeholders = [*self.parameters, *(self.lift(node) for node in order)]
        graph = Graph()
        copied: dict[Node, Node] = {}
        for node in placeholders:
            copied[node] = graph.placeholder(node.name)
            copied[node].meta = {key: value for key, value in node.meta.items() if key != "captured"}
        for node in self.graph.nodes:
            if node.op != "placeholder":
                copied[node] = graph.node_copy(node, copied.__getitem__)
        graph.output(tuple(copied[node] for node in results))
        graph.lint()
        return GraphModule(dict(self.modules), graph)


def _version(example: Any) -> int | None:
    """How often a tensor was changed in place; inference tensors do not count."""
    if not isinstance(example, torch.Tensor) or example.is_inference():
        return None
    return example._version


def _reachable(roots: list[Value], visit: Callable[[Value], None]) -> Iterator[int]:
    """The ids of all values that a program can come to from ``roots``."""
    pending: list[Any] = list(roots)
    seen: set[int] = set()
    while pending:
        value = pending.pop()
        if isinstance(value, (list, tuple)):
            pending.extend(value)
        elif isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, Value) and id(value) not in seen:
            seen.add(id(value))
            visit(value)
            yield id(value)
            for cls in type(value).__mro__:
                for slot in cls.__dict__.get("__slots__", ()):
                    if slot not in _NOT_VALUES:
                        pending.append(getattr(value, slot, None))


def node_of(tr: Tracer, module: GraphModule, name: str) -> Node:
    """The node by which the graph being recorded refers to ``module``."""
    held = tr.region.modules if tr.region is not None else tr.modules
    count = sum(key.rpartition("_")[0] == name for key in held)
    held[f"{name}_{count}"] = module
    return tr.graph.create_node("get_attr", f"{name}_{count}", (), {})


def run_operator(tr: Tracer, target: Callable, args: tuple, fakes: tuple) -> list[Value]:
    """Record a call of ``target``, which runs regions and returns a flat tuple; its results."""
    try:
        results = tr.propagate("call_function", target, list(fakes), {})
    except GraphBreak as broke:
        if not isinstance(broke.cause, AssertionError) or not any(isinstance(fake, torch.SymInt) for fake in fakes):
            raise
        # torch's decompositions take no symbol beside a tensor of a transform
        numbers = {index: int(fake) for index, fake in enumerate(fakes) if isinstance(fake, torch.SymInt)}
        fakes = tuple(numbers.get(index, fake) for index, fake in enumerate(fakes))
        args = tuple(numbers.get(index, arg) for index, arg in enumerate(args))
        results = tr.propagate("call_function", target, list(fakes), {})
    node = tr.create_node("call_function", target, args, {})
    node.meta["example_value"] = results
    tr.op_count += 1
    return tr.wrap_result(results, node).unpack(tr)


def rebind(values: list[Any], results: list[Value]) -> None:
    """Bind values of a closed region to the results of the operator that runs it."""
    for value, result in zip(values, results, strict=True):
        if not isinstance(result, GraphValue):
            raise GraphBreak(breaks.REGION, "a symbolic number in a region is a constant outside it")
        value.node = result.node
        if isinstance(value, TensorValue):
            assert isinstance(result, TensorValue)
            value.example = result.example
        else:
            assert isinstance(result, SymValue)
            value.sym = result.sym


def operator_name(node: Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def examples(nodes: list[Node]) -> tuple:
    return tuple(node.meta["example_value"] for node in nodes)


def _enclosing(tr: Tracer) -> Iterator[OpenRegion]:
    region = tr.region
    while region is not None:
        yield region
        region = region.parent


def in_transform(tr: Tracer, *except_for: str) -> bool:
    """Whether the traced code runs inside ``vmap`` or a similar transform other than those named."""
    return any(region.transform and region.transform not in except_for for region in _enclosing(tr))


def in_backward(tr: Tracer) -> bool:
    """Whether what is traced now is the backward pass of something."""
    return any(region.beside is not None for region in _enclosing(tr))
