"""Turns a partition into one callable: compiled parts and single operators in straight-line Python.

The generated function names each step and drops every value after its last use.
"""

from __future__ import annotations

import cmath
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate, map_arg

from .. import collectives
from .floats import is_number
from .overlap import Sharing
from .partition import Part, Partition
from .promises import Promise, keeper, layout_keeper, promise_of, read_by_address

Emptying = Callable[[list[Any]], Sequence[Any]]
"""A compiled graph as a function of a list of its inputs, which it empties to free each after its last use."""


@dataclass(frozen=True)
class Built:
    """What :func:`assemble` has made a function of, for ``torchmux.deploy``."""

    gm: GraphModule
    split: Partition
    compiled: Mapping[int, Callable[..., Any]]
    shares: Sharing | None = None  # it writes to inputs, which must share memory like this


def extract(part: Part, gm: GraphModule) -> GraphModule:
    """``part`` as a separate graph module: flat inputs, a flat tuple of outputs, ``meta["val"]`` on every node.

    Constants of ``gm`` that the part reads stay ``get_attr`` nodes.
    """
    graph = Graph()
    copied: dict[Node, Node] = {}
    for value in part.inputs:
        if value.op == "get_attr":
            copied[value] = graph.node_copy(value)
        else:
            copied[value] = graph.placeholder(value.name)
            copied[value].meta = dict(value.meta)
    for node in part.nodes:
        copied[node] = graph.node_copy(node, copied.__getitem__)
    graph.output(tuple(copied[n] for n in part.outputs))
    _placeholders_first(graph)
    return GraphModule(gm, graph)


def _placeholders_first(graph: Graph) -> None:
    for node in [n for n in graph.nodes if n.op == "get_attr"]:
        last = next((n for n in reversed(graph.nodes) if n.op == "placeholder"), None)
        if last is not None:
            last.append(node)


def _spelled_out(node: Node) -> Node:
    """``node``, whose complex numbers are calls where Python writes ``nanj`` or ``infj``, which code cannot read."""

    def spelled(value: Any) -> Any:
        if isinstance(value, complex) and not cmath.isfinite(value):
            with node.graph.inserting_before(node):
                return node.graph.call_function(complex, (value.real, value.imag))
        return value

    node.args, node.kwargs = map_aggregate(node.args, spelled), map_aggregate(node.kwargs, spelled)
    return node


def inputs_of(part: Part) -> list[Node]:
    """The values that the caller hands to the compiled part, in order."""
    return [v for v in part.inputs if v.op != "get_attr"]


def assemble(gm: GraphModule, split: Partition, compiled: Mapping[int, Callable[..., Any]]) -> Callable[..., Any]:
    """The whole graph as one function of its flat inputs that returns the flat outputs.

    ``compiled`` maps ``id(part)`` to the code of that part.  A graph that is one part, with the same inputs and
    outputs, becomes that part's code itself.
    """
    output = next(n for n in reversed(gm.graph.nodes) if n.op == "output")
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    if len(split.steps) == 1 and isinstance(split.steps[0], Part):
        only = split.steps[0]
        if inputs_of(only) == placeholders and list(output.args[0]) == only.outputs:
            return _direct(compiled[id(only)])

    graph = Graph()
    copied: dict[Node, Node] = {}
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            copied[node] = graph.node_copy(node)
    # What the graph returns, another compiled graph may take: what forward saves for backward.
    believed = {v for part in split.parts for v in part.inputs} | set(output.all_input_nodes)
    addressed = read_by_address(gm.graph)
    in_place = collectives.overwritable(gm.graph, (node for part in split.parts for node in part.outputs))
    calls: list[Node] = []
    numbers: dict[Any, Node] = {}
    for number, step in enumerate(split.steps):
        if isinstance(step, Node) and is_number(step) and step not in output.all_input_nodes:
            copied[step] = _number(step, graph, copied, numbers)
            continue
        if isinstance(step, Node) and not step.kwargs and step.target in _VIEWS:
            copied[step] = _view(step, graph, copied, output)
            continue
        if isinstance(step, Node):
            copied[step] = _spelled_out(graph.node_copy(step, copied.__getitem__))
            if not step.kwargs:
                copied[step].target = _SOONER.get(step.target, step.target)
            if step in in_place:
                copied[step].target = collectives.all_reduce_in_place
            promise = promise_for(step)
            if step in believed and promise is not None and not _is_part_of_views(step):
                copied[step] = graph.call_function(keeper(promise, str(step.target)), (copied[step],))
            if step in addressed and promise is not None:
                copied[step] = graph.call_function(layout_keeper(promise), (copied[step],))
            continue
        function = _named(_direct(compiled[id(step)]), f"part_{number}")
        call = graph.call_function(function, tuple(copied[v] for v in inputs_of(step)))
        calls.append(call)
        for position, node in enumerate(step.outputs):
            copied[node] = graph.call_function(operator.getitem, (call, position))
    graph.output(_copy(output.args[0], copied))
    for node in reversed(list(graph.nodes)):
        if node.target in _METHODS and not node.users:
            graph.erase_node(node)
    assembled = GraphModule(gm, graph)
    if len(split.parts) == 1:
        make = getattr(_direct(compiled[id(split.parts[0])]), "make_emptying", None)
        assembled.make_emptying = None if make is None else partial(_emptying, assembled, calls[0], make)
    return assembled.forward


def emptying_of(run: Callable[..., Any]) -> Emptying | None:
    """``run``, from :func:`assemble`, as such a function, which is made here; None if nothing would be gained."""
    make = getattr(getattr(run, "__self__", run), "make_emptying", None)
    found: Emptying | None = None if make is None else make()
    return found


def _emptying(assembled: GraphModule, call: Node, make: Callable[[], Emptying]) -> Emptying | None:
    """A graph with one part, which ``make`` makes, and maybe views and single operators around the ``call`` of it."""
    placeholders = assembled.graph.find_nodes(op="placeholder")
    if any(node not in placeholders for node in call.args):
        return None
    taken = [placeholders.index(node) for node in call.args]
    others = [at for at, node in enumerate(placeholders) if set(node.users) - {call}]
    rest = Graph()
    there: dict[Node, Node] = dict.fromkeys([*placeholders, call], rest.placeholder("found"))
    there |= {placeholders[at]: rest.placeholder(placeholders[at].name) for at in others}
    rest.output(rest.graph_copy(assembled.graph, there))
    run, finish = make(), GraphModule(assembled, rest).forward

    def emptying(given: list[Any]) -> Sequence[Any]:
        read, kept = [given[at] for at in taken], [given[at] for at in others]
        given.clear()
        found: Sequence[Any] = finish(run(read), *kept)
        return found

    return emptying


_VIEWS = {
    torch.ops.aten.view.default: torch.Tensor.reshape,  # the strides that the trace knows need not be the kernel's
    torch.ops.aten.t.default: torch.Tensor.t,
    torch.ops.aten.permute.default: torch.Tensor.permute,
    torch.ops.aten.transpose.int: torch.Tensor.transpose,
    torch.ops.aten.select.int: torch.Tensor.select,
    torch.ops.aten.expand.default: torch.Tensor.expand,
    torch.ops.aten.unsqueeze.default: torch.Tensor.unsqueeze,
    torch.ops.aten.squeeze.dim: torch.Tensor.squeeze,
    torch.ops.aten.unbind.int: torch.Tensor.unbind,
    torch.ops.aten.split.Tensor: torch.Tensor.split,
    torch.ops.aten.split_with_sizes.default: torch.Tensor.split_with_sizes,
}
"""Methods that do the same in a third of the time; what they show has the dtype of what they are given."""

_METHODS = frozenset(_VIEWS.values())


def _is_part_of_views(step: Node) -> bool:
    """Whether it is one of several views, of which nothing can differ from the trace."""
    return step.target is operator.getitem and isinstance(step.args[0], Node) and step.args[0].target in _VIEWS


def _assert_scalar(holds: Any, message: str) -> None:
    """As the operator of this name.

    Raises:
        RuntimeError: it does not hold.
    """
    if not holds:
        raise RuntimeError(message)


_SOONER = {
    torch.ops.aten._assert_scalar.default: _assert_scalar,
    torch.ops.aten.sym_size.int: torch.Tensor.size,
    **{
        getattr(torch.ops.aten, name).default: getattr(torch, name)
        for name in ("bincount", "histc", "nonzero", "masked_select", "masked_scatter", "logcumsumexp")
    },
}
"""Functions that do the same as operators with these arguments, and are called in less time."""


def _view(step: Node, graph: Graph, copied: Mapping[Node, Node], output: Node) -> Node:
    """A view of another value; a matrix that is transposed twice is itself, if nobody else gets it."""
    base = step.args[0]
    assert isinstance(base, Node)
    turned = torch.ops.aten.t.default
    if step.target is turned is base.target:
        first = base.args[0]
        assert isinstance(first, Node)
        if first in copied and first.op == "call_function" and first not in output.all_input_nodes:
            return copied[first]
    return graph.call_function(_VIEWS[step.target], map_arg(step.args, copied.__getitem__))


def _number(step: Node, graph: Graph, copied: Mapping[Node, Node], made: dict[Any, Node]) -> Node:
    """A step that carries a number into a tensor: once for each number, dtype and device.

    A mean over symbolic sizes has such a number, forward and backward, and small training graphs have little else.
    """
    target, args, kwargs = step.target, map_arg(step.args, copied.__getitem__), dict(step.kwargs)
    if target is torch.ops.aten.scalar_tensor.default:
        target = torch.scalar_tensor
    elif set(kwargs) == {"dtype"}:
        target, args, kwargs = torch.Tensor.to, (*args, kwargs["dtype"]), {}
    key = (target, args, *sorted(kwargs.items()))
    if key not in made:
        made[key] = graph.call_function(target, args, kwargs)
    return made[key]


def promise_for(step: Node) -> Promise | None:
    """What the trace says of the result of an operator; a recipe has kept it, or a fake tensor says it."""
    kept: Promise | None = step.meta.get("promise")
    return kept or promise_of(step.meta.get("val"))


def _copy(values: Sequence[Any], copied: Mapping[Node, Node]) -> tuple[Any, ...]:
    return tuple(copied[v] if isinstance(v, Node) else v for v in values)


def _direct(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, or what it does no more than call."""
    found: Callable[..., Any] = getattr(function, "direct", function)
    return found


def _named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A plain function with a name, which is what generated code can refer to."""
    if isinstance(function, FunctionType):
        part = FunctionType(function.__code__, function.__globals__, name, function.__defaults__, function.__closure__)
    else:
        part = _calling(function)
    part.__name__ = part.__qualname__ = name
    part.__module__ = __name__
    return part


def _calling(function: Callable[..., Any]) -> FunctionType:
    def part(*args: Any) -> Any:
        return function(*args)

    assert isinstance(part, FunctionType)
    return part
