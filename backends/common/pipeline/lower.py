"""An ATen graph traced again, down to the operators that one of several backends asks for.

A graph that several backends share consists of the operators that all of them take apart alike, and of no smaller ones.
What one of them compiles is lowered to its own table first.  Each new node tells which node it was made from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx

from torchmux import torch_internals as internals
from torchmux.registry.errors import NodesRefused

from . import aot, simplify
from .assemble import extract
from .decompose import Table, corrections, drop_dead_code, kept_whole
from .implementation import Implementation
from .partition import Part

_CARRIER, _MADE_FROM = "custom", "torchmux_made_from"  # torch's tracers copy the dictionary "custom" along


@dataclass(frozen=True)
class Level:
    """What a backend wants taken apart, and what not."""

    table: Table
    whole: frozenset[Any]

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "table", {**{op: f for op, f in self.table.items() if op not in self.whole}, **corrections()}
        )

    def is_reached(self, node: Node) -> bool:
        """Whether ``node`` is what the backend would get of it."""
        target = node.target
        if target in self.table:
            return False
        composite = isinstance(target, internals.OpOverload) and internals.is_composite(target)
        return not composite or target in self.whole


def level_of(implementation: Implementation, *, training: bool) -> Level:
    """The level of one backend; graphs that record gradients have no operators that stay whole."""
    return Level(implementation.decompositions(), frozenset() if training else implementation.keep_whole())


def shared(levels: Sequence[Level]) -> tuple[Table, frozenset[Any]]:
    """What a graph for several backends is traced with: the table that all share, and what any of them wants whole."""
    first, *others = levels
    whole = frozenset().union(*(level.whole for level in levels))
    same = {op: f for op, f in first.table.items() if all(other.table.get(op) is f for other in others)}
    return {op: f for op, f in same.items() if op not in whole}, whole


def lowered(gm: GraphModule, level: Level) -> GraphModule:
    """``gm``, a functional ATen graph, at another level; inputs and the number of outputs stay.

    Raises:
        NodesRefused: an output has another form at that level; its node is named.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    held = gm.graph.find_nodes(op="get_attr")
    for position, node in enumerate(gm.graph.nodes):
        node.meta[_CARRIER] = {**node.meta.get(_CARRIER, {}), _MADE_FROM: position}
    values = [node.meta["val"] for node in placeholders]
    mode = mode_of(gm)
    real = {str(node.target): getattr(gm, str(node.target)) for node in held}
    names = list(real)
    fakes = [mode.from_tensor(tensor, static_shapes=True) for tensor in real.values()]

    def run(*args: Any) -> Any:
        given = dict(zip(names, args[len(values) :], strict=True))
        return tuple(_Held(gm, given).run(*args[: len(values)]))

    with aot.tracing(mode), kept_whole(level.whole):
        traced = make_fx(run, decomposition_table=level.table)(*values, *fakes)
    simplify.drop_detach_in_place(traced.graph)
    _hold(traced, names, real, len(values))
    _keep_outputs(gm, traced)
    drop_dead_code(traced.graph)
    traced.recompile()
    return traced


def position_of(node: Node) -> int | None:
    """The position in the graph that was lowered of the node that ``node`` was made from, if that is known."""
    position: int | None = node.meta.get(_CARRIER, {}).get(_MADE_FROM)
    return position


def alone(node: Node, gm: GraphModule) -> GraphModule:
    """``node`` as a graph of its own."""
    part = Part(0, [node], list(node.all_input_nodes), [node])
    if isinstance(node.meta.get("val"), (tuple, list)):
        part.nodes += [user for user in node.users if user.op == "call_function"]
        part.outputs = part.nodes[1:]
    return extract(part, gm)


class _Held(Interpreter):
    """Runs a graph with stand-ins for the tensors that it holds."""

    def __init__(self, gm: GraphModule, given: Mapping[str, Any]) -> None:
        super().__init__(gm)
        self.given = given

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self.given[str(target)]


def mode_of(gm: GraphModule) -> Any:
    """The fake mode of the values in an ATen graph."""
    for node in gm.graph.nodes:
        found = node.meta.get("val")
        for value in found if isinstance(found, (tuple, list)) else (found,):
            if internals.is_fake(value):
                return value.fake_mode
    return internals.active_fake_mode() or internals.new_fake_mode()


def _hold(traced: GraphModule, names: Sequence[str], real: Mapping[str, torch.Tensor], inputs: int) -> None:
    """Turn the stand-ins for tensors that the graph held into these tensors again, under the names that they had."""
    for node in traced.graph.find_nodes(op="get_attr"):  # what the decompositions brought along
        if str(node.target) in real:
            value, fresh = getattr(traced, str(node.target)), f"lowered_{node.target}"
            setattr(traced, fresh, value)
            node.target = fresh
    for name, node in zip(names, traced.graph.find_nodes(op="placeholder")[inputs:], strict=True):
        setattr(traced, name, real[name])
        with traced.graph.inserting_before(node):
            held = traced.graph.create_node("get_attr", name)
        held.meta = dict(node.meta)
        node.replace_all_uses_with(held)
        traced.graph.erase_node(node)


def _keep_outputs(gm: GraphModule, traced: GraphModule) -> None:
    """Give each output memory of its own where it had that before.

    Raises:
        NodesRefused: it has other strides, another dtype or another shape.
    """
    before, after = (next(n for n in reversed(g.graph.nodes) if n.op == "output") for g in (gm, traced))
    seen: set[Node] = set()
    outputs = []
    for old, new in zip(before.args[0], after.args[0], strict=True):
        if _form(old.meta["val"]) != _form(new.meta["val"]):
            raise NodesRefused({old.name: "taken apart, it has a result of another form"})
        if new.op in ("placeholder", "get_attr") or new in seen:
            with traced.graph.inserting_before(after):
                copy = traced.graph.call_function(torch.ops.aten.clone.default, (new,))
            copy.meta = {"val": new.meta["val"], _CARRIER: dict(old.meta.get(_CARRIER, {}))}
            new = copy
        seen.add(new)
        outputs.append(new)
    after.args = (tuple(outputs),)
    traced.recompile()


def _form(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return str(value)
    return value.dtype, str(value.device), tuple(map(str, value.shape)), tuple(map(str, value.stride()))
