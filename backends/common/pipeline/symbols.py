"""Rewrites sizes that a graph computes so that they depend only on the graph's inputs.

A traced graph may read a size from an intermediate value (``view(x, [sym_size(y, 0), -1])``).  Such a node runs in
Python between two compiled parts; unchanged, it would split every graph with a dynamic size into pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node, Proxy
from torch.fx.proxy import GraphAppendingTracer

from torchmux import torch_internals as internals

from .decompose import drop_dead_code
from .partition import Partition

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def is_symbolic(node: Node) -> bool:
    """Whether ``node`` is a number that is known only when the graph runs."""
    return isinstance(node.meta.get("val"), _SYMBOLIC)


def has_symbols(placeholder: Node) -> bool:
    """Whether an input of a captured graph is a tensor with sizes or strides that are numbers of the call."""
    known = placeholder.meta.get("example_value")
    return isinstance(known, torch.Tensor) and any(type(n) is not int for n in (*known.shape, *known.stride()))


def hoist(graph: Graph) -> None:
    """Recompute, right after the inputs, each size that the inputs' own sizes determine."""
    computed = [n for n in graph.nodes if n.op == "call_function" and is_symbolic(n)]
    if not computed:
        return
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    first = next(n for n in graph.nodes if n.op != "placeholder")
    with graph.inserting_before(first):
        symbols = _bind(graph, placeholders)
        made: dict[Any, Any] = {}
        for node in computed:
            expr = node.meta["val"].node.expr
            if any(s not in symbols for s in expr.free_symbols):
                continue  # depends on data: stays where it is
            if expr not in made:
                try:
                    value = internals.rebuild_symbolic(expr, {s: symbols[s] for s in expr.free_symbols})
                except NotImplementedError:
                    continue  # is computed where it stands
                made[expr] = value.node if isinstance(value, Proxy) else value
            _replace(node, made[expr])
    _fill_values(graph)
    drop_dead_code(graph)


def _bind(graph: Graph, placeholders: list[Node]) -> dict[Any, Proxy]:
    """Every symbol that is itself an input or a size of one, as a proxy; made where the caller inserts."""
    symbols: dict[Any, Proxy] = {}
    tracer = GraphAppendingTracer(graph)  # a single tracer, because a function of two proxies requires it
    for node in placeholders:
        value = node.meta.get("val")
        if isinstance(value, _SYMBOLIC) and value.node.expr.is_symbol:
            symbols.setdefault(value.node.expr, Proxy(node, tracer))
    for node in placeholders:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        for position, size in enumerate(value.shape):
            if isinstance(size, torch.SymInt) and size.node.expr.is_symbol and size.node.expr not in symbols:
                read = graph.call_function(torch.ops.aten.sym_size.int, (node, position))
                read.meta["val"] = size
                symbols[size.node.expr] = Proxy(read, tracer)
    return symbols


def hand_on(split: Partition, graph: Graph) -> None:
    """Give each part, as inputs more, the symbols of its sizes that its own inputs do not show.

    Behind a convolution in torch, the sizes of all that a part takes may be quotients of the sizes of a graph's input.
    """
    found: dict[Any, Node] = {}
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    for part in split.parts:
        shown = {symbol for value in part.inputs for symbol in _shown_by(value)}
        needed = {symbol: None for node in (*part.inputs, *part.nodes) for symbol in _symbols_of(node)}
        for symbol in needed:
            if symbol not in shown and (source := _source(symbol, placeholders, found)) is not None:
                if source.op != "placeholder" and source not in split.steps:
                    split.steps.insert(0, source)
                part.inputs.append(source)


def _sizes(node: Node) -> list[Any]:
    """The expressions of symbols that the sizes of a tensor are, or a number is."""
    held = node.meta.get("val")
    sizes = held.shape if isinstance(held, torch.Tensor) else (held,)
    return [size.node.expr for size in sizes if isinstance(size, torch.SymInt)]


def _symbols_of(node: Node) -> list[Any]:
    return sorted({symbol for expr in _sizes(node) for symbol in expr.free_symbols}, key=str)


def _shown_by(node: Node) -> list[Any]:
    """The symbols that are a size, or a divisor of one: what compilers read from what they are given."""
    return [next(iter(e.free_symbols)) for e in _sizes(node) if e.is_symbol or (e.is_Mul and _is_multiple(e))]


def _is_multiple(product: Any) -> bool:
    return len(product.args) == 2 and product.args[0].is_Integer and product.args[1].is_symbol


def _source(symbol: Any, placeholders: Sequence[Node], found: dict[Any, Node]) -> Node | None:
    """An input of the graph that is the symbol, or a new node that reads it from the sizes of one."""
    for node in placeholders:
        sizes = _sizes(node)
        if symbol in found or symbol not in sizes:
            continue
        if not isinstance(node.meta["val"], torch.Tensor):
            found[symbol] = node
            continue
        dim = [s.node.expr if isinstance(s, torch.SymInt) else s for s in node.meta["val"].shape].index(symbol)
        with node.graph.inserting_after(placeholders[-1]):
            found[symbol] = read = node.graph.call_function(torch.ops.aten.sym_size.int, (node, dim))
        read.meta["val"] = node.meta["val"].shape[dim]
    return found.get(symbol)


def _replace(node: Node, value: Any) -> None:
    if isinstance(value, Node):
        node.replace_all_uses_with(value)
        if "val" not in value.meta:
            value.meta["val"] = node.meta["val"]
        return

    def constant(argument: Node) -> Any:
        return value if argument is node else argument

    for user in list(node.users):
        user.args = torch.fx.map_arg(user.args, constant)
        user.kwargs = torch.fx.map_arg(user.kwargs, constant)


def _fill_values(graph: Graph) -> None:
    """Give the intermediate steps of rebuilt expressions their symbolic value."""
    for node in graph.nodes:
        if node.op == "call_function" and "val" not in node.meta:
            args = torch.fx.map_arg(node.args, lambda n: n.meta["val"])
            kwargs = torch.fx.map_arg(node.kwargs, lambda n: n.meta["val"])
            node.meta["val"] = node.target(*args, **kwargs)
