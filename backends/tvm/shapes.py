"""Graphs whose sizes TVM needs to know: one compiled artifact for each shape that appears, up to a limit.

The first shape is compiled immediately, so that TVM's refusals are known before the graph is used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree

from torchmux import torch_internals as internals
from torchmux.registry.errors import FallbackRefused, NodesRefused
from torchmux.registry.spec import ToolFile

from ..common.pipeline.implementation import Told
from .sizes import is_symbolic

fallback = logging.getLogger("torchmux.fallback")
log = logging.getLogger("torchmux.tvm")

Run = Callable[..., Sequence[Any]]


class PerShape:
    """A dynamic part: takes the part's inputs, sizes included, and runs the artifact for these sizes."""

    def __init__(
        self,
        gm: GraphModule,
        example_inputs: Sequence[Any],
        compile_static: Callable[[GraphModule, Sequence[Any]], Any],
        limit: int,
        strict: bool,
        reason: str,
    ) -> None:
        self._gm = gm
        self._compile = compile_static
        self._limit = limit
        self._strict = strict
        self._placeholders = gm.graph.find_nodes(op="placeholder")
        values = [n.meta["val"] for n in self._placeholders]
        self._numbers = frozenset(i for i, v in enumerate(values) if not isinstance(v, torch.Tensor))
        self._tensors = tuple(i for i, v in enumerate(values) if i not in self._numbers)
        self._deciding = tuple(i for i, v in enumerate(values) if is_symbolic(v))
        self._static = {
            i: v for i, v in enumerate(example_inputs) if isinstance(v, torch.Tensor) and not internals.is_fake(v)
        }
        self._known: dict[tuple[Any, ...], Run] = {}
        first = [_hinted(v) for v in values]
        run = self._known[self._key(first)] = self._compiled(first)
        self.cache_hit = Told(run).cache_hit
        self.library_calls = Told(run).library_calls
        self.notes = (*Told(run).notes, f"tvm compiles for each shape, up to {limit}: {reason}")

    @property
    def compiled(self) -> int:
        """How many shapes there is code for."""
        return len(self._known)

    def files(self) -> list[ToolFile]:
        """Those of each shape, which take the tensors alone."""
        return [file for run in self._known.values() for file in Told(run).files()]

    def __call__(self, *args: Any) -> Sequence[Any]:
        key = self._key(args)
        run = self._known.get(key)
        if run is None:
            run = self._new(key, args)
            if run is None:
                return self._gm.forward(*args)
        return run(*(args[i] for i in self._tensors))

    def _key(self, args: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(args[i] if i in self._numbers else args[i].shape for i in self._deciding)

    def _new(self, key: tuple[Any, ...], args: Sequence[Any]) -> Run | None:
        """Code for another shape; None if torch is to run it."""
        reason = f"a part is already compiled for {self._limit} shapes (option 'shape_limit')"
        if len(self._known) < self._limit:
            try:
                self._known[key] = self._compiled(args)
            except NodesRefused as refusal:
                reason = f"this shape is refused: {refusal}"
            else:
                log.info("compiled a part for %s: shape %d of %d", key, len(self._known), self._limit)
                return self._known[key]
        if self._strict:
            raise FallbackRefused(
                f"strict=True forbids a fallback, but torch would run a part of this call: tvm: {reason}."
            )
        fallback.warning("tvm: torch runs a part of this call: %s", reason)
        return None

    def _compiled(self, args: Sequence[Any]) -> Run:
        special = specialize(self._gm, args)
        if refused := _refused(special):
            raise NodesRefused(refused)
        examples = [self._static.get(i) for i in self._tensors]
        return self._compile(special, examples)


def _refused(gm: GraphModule) -> dict[str, str]:
    """The operators that TVM computes otherwise with one of the numbers that sizes have become, such as 0."""
    from .operators import supports

    operators = [n for n in gm.graph.nodes if n.op == "call_function" and isinstance(n.target, internals.OpOverload)]
    of_numbers = [n for n in operators if isinstance(n.meta.get("val"), torch.Tensor) and 0 in n.args[1:]]
    return {n.name: reason for n in of_numbers if isinstance(reason := supports(n), str)}


def _hinted(value: Any) -> Any:
    """A tensor of no contents, or a number, with the sizes of the first call."""
    if not isinstance(value, torch.Tensor):
        return value.node.hint if isinstance(value, torch.SymInt) else value
    sizes, strides = ([s if type(s) is int else s.node.hint for s in v] for v in (value.shape, value.stride()))
    return torch.empty_strided(sizes, strides, dtype=value.dtype, device="meta")


def of_unknown_sizes(gm: GraphModule) -> list[str]:
    """The nodes that read or make sizes which follow from data: before a call there are none to compile for."""
    unknown = {node for node in gm.graph.nodes if _follows_from_data(node.meta.get("val"))}
    computing = [node for node in gm.graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    return [node.name for node in computing if node in unknown or unknown.intersection(node.all_input_nodes)]


def _follows_from_data(value: Any) -> bool:
    for leaf in _pytree.tree_leaves(value):
        numbers = (*leaf.shape, *leaf.stride()) if isinstance(leaf, torch.Tensor) else (leaf,)
        if any(isinstance(n, torch.SymInt) and internals.depends_on_data(n) for n in numbers):
            return True
    return False


def specialize(gm: GraphModule, args: Sequence[Any]) -> GraphModule:
    """``gm`` for the sizes of ``args``: numbers become constants, nodes keep their names and have static values."""
    mode = internals.new_fake_mode()
    graph, copied = Graph(), {}
    values: dict[Any, Any] = {}
    given = iter(args)

    def value(argument: Node) -> Any:
        return values[argument]

    with mode, torch.no_grad(), internals.below_autograd():
        for node in gm.graph.nodes:
            if node.op == "placeholder":
                argument = next(given)
                if not isinstance(argument, torch.Tensor):
                    copied[node] = values[node] = argument
                    continue
                copied[node] = graph.placeholder(node.name)
                values[node] = torch.empty_strided(
                    argument.shape, argument.stride(), dtype=argument.dtype, device=node.meta["val"].device
                )
            elif node.op == "get_attr":
                copied[node] = graph.node_copy(node)
                values[node] = mode.from_tensor(getattr(gm, node.target))
            elif node.op == "call_function":
                copied[node] = graph.create_node(
                    "call_function",
                    node.target,
                    torch.fx.map_arg(node.args, copied.__getitem__),
                    torch.fx.map_arg(dict(node.kwargs), copied.__getitem__),
                    node.name,
                )
                values[node] = node.target(
                    *torch.fx.map_arg(node.args, value), **torch.fx.map_arg(dict(node.kwargs), value)
                )
            else:
                graph.output(torch.fx.map_arg(node.args[0], copied.__getitem__))
                continue
            copied[node].meta = {**node.meta, "val": values[node]}
    return GraphModule(gm, graph)
