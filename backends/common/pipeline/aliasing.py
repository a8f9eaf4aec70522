"""Which values of an ATen graph share memory, read from operator schemas.

In a functional graph, memory is shared only through view operators, whose schema marks the result as an alias of an
argument.  Every value therefore has one root: the placeholder, constant or computed value whose memory it shares.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.multiprocessing.reductions import StorageWeakRef

from torchmux import torch_internals as internals

from .decompose import drop_dead_code

_UNMARKED = frozenset(
    (
        torch.ops.aten.unsafe_chunk.default,
        torch.ops.aten.unsafe_split.Tensor,
        torch.ops.aten.unsafe_split_with_sizes.default,
    )
)
"""Operators whose results show their argument's memory, which their schemas do not say."""


def is_view(node: Node) -> bool:
    """Whether ``node`` only shows the memory of one of its arguments."""
    return viewed(node) is not None


def viewed(node: Node) -> Node | None:
    """The argument whose memory ``node`` shows, or None if it makes its own.

    An element of a tuple of views (``split(x)[0]``) shows what the tuple shows.
    """
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        base = node.args[0]
        return base if isinstance(base, Node) and is_view(base) else None
    if not isinstance(node.target, internals.OpOverload):
        return None
    if node.target in _UNMARKED:
        return node.args[0]
    schema = internals.operator_schema(node.target)
    marks = [r.alias_info for r in schema.returns]
    if not marks or marks[0] is None or marks[0].is_write:
        return None
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None:
            value = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            return value if isinstance(value, Node) else None
    return None


def writes(node: Node) -> bool:
    """Whether ``node`` changes one of its arguments (``add_``, ``copy_``, a ``batch_norm`` with running statistics)."""
    return (
        node.op == "call_function"
        and isinstance(node.target, internals.OpOverload)
        and internals.operator_schema(node.target).is_mutable
    )


BY_ADDRESS = "it selects elements by their position in torch's memory"
BY_ADDRESS_OPERATORS = frozenset(
    getattr(torch.ops.aten, name).default for name in ("as_strided", "as_strided_copy", "as_strided_scatter")
)


def reads_by_address(node: Node) -> bool:
    """Whether ``node`` takes elements by where they lie in memory, and a runtime's memory would not do.

    A runtime has memory of its own, in which tensors are contiguous and nothing lies around them.  So what such a node
    shows the memory of is made by torch as well, as far as it consists of views: a view that comes out of a runtime
    does not lie in what it is a view of.
    """
    if node.target in BY_ADDRESS_OPERATORS and _needs_memory_of_torch(node):
        return True
    return is_view(node) and any(
        reads_by_address(user) for user in node.users if viewed(user) is node or _takes(user, node)
    )


def _takes(user: Node, node: Node) -> bool:
    return user.target in BY_ADDRESS_OPERATORS and user.args[0] is node


def _needs_memory_of_torch(node: Node) -> bool:
    argument = node.args[0]
    assert isinstance(argument, Node)
    value, given = argument.meta["val"], node.kwargs.get("storage_offset")
    offset = given if len(node.args) <= _offset_position(node) else node.args[_offset_position(node)]
    size, stride = node.args[_offset_position(node) - 2 : _offset_position(node)]
    if not value.is_contiguous() or (offset is not None and offset != value.storage_offset()):
        return True
    known = [*size, *stride, *value.shape]
    if not all(type(n) is int for n in known):
        return True
    reach = sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    return reach >= value.numel()


def _offset_position(node: Node) -> int:
    return 4 if node.target is torch.ops.aten.as_strided_scatter.default else 3


def roots(graph: Graph) -> dict[Node, Node]:
    """Each node's root, itself if it makes its own memory."""
    found: dict[Node, Node] = {}
    for node in graph.nodes:
        base = viewed(node)
        found[node] = node if base is None else found[base]
    return found


def split_off_output_views(graph: Graph) -> set[Node]:
    """Turn the views that a caller can distinguish from copies into separate nodes, and return those.

    If an output shares memory with an input or with another output, a compiler that returns fresh tensors would break
    that.  The chain of views between the shared memory and such an output is copied to the end of the graph; the
    copies are to be run by torch, while a compiler may still take the originals for its own use.
    """
    output = next(n for n in reversed(graph.nodes) if n.op == "output")
    root = roots(graph)
    distinct: dict[Node, dict[Node, None]] = {}  # in the order of the results: the copies must not change places
    for node in output.all_input_nodes:
        distinct.setdefault(root[node], {})[node] = None

    copies: dict[Node, Node] = {}

    def copy(node: Node) -> Node:
        if node is root[node]:
            return node
        if node not in copies:
            with graph.inserting_before(output):
                copies[node] = graph.node_copy(node, lambda n: copy(n) if n is viewed(node) else n)
        return copies[node]

    for base, shown in distinct.items():
        if base.op in ("placeholder", "get_attr") or len(shown) > 1:
            for node in shown:
                if node is not base:
                    output.replace_input_with(node, copy(node))
    drop_dead_code(graph)
    return set(copies.values())


def sharing(values: Sequence[Any]) -> tuple[int, ...]:
    """Which of these tensors, real or fake, share a storage: for each the position of the first one on its storage.

    Values that are not tensors are omitted.  Two lists with equal answers overlap in the same way, as far as storages
    show.
    """
    first: dict[StorageWeakRef, int] = {}
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    return tuple(first.setdefault(StorageWeakRef(t.untyped_storage()), i) for i, t in enumerate(tensors))


# --- results of a graph that show an input to which it writes, as in ``return cache[:, :length]`` --------------------

# Functionalization would compute such a result anew, apart from the input.  It is therefore left out while a graph is
# made functional, and shown again at the end, when the input has its new contents.

Views = Mapping[int, tuple[int, list[Node]]]
"""Of some results, by their position: the position of the input, and the views that lead from it to the result."""


def returned_inputs(traced: Graph) -> Views:
    """The results that show an input through views whose arguments are constants; ``traced`` may write in place."""
    placeholders = {node: at for at, node in enumerate(traced.find_nodes(op="placeholder"))}
    found: dict[int, tuple[int, list[Node]]] = {}
    for at, result in enumerate(traced.output_node().args[0]):
        views: list[Node] = []
        node = result if isinstance(result, Node) and isinstance(result.meta.get("val"), torch.Tensor) else None
        while node is not None and node not in placeholders:
            base = viewed(node)
            if base is not None:
                views.insert(0, node)
            node = _changed(node) if base is None else base if node.all_input_nodes == [base] else None
        if node is not None:
            found[at] = placeholders[node], views
    return found


def _changed(node: Node) -> Node | None:
    """The tensor that an in-place operator changes and returns."""
    if not writes(node):
        return None
    schema = internals.operator_schema(node.target)
    first, returned = schema.arguments[0].alias_info, [r.alias_info for r in schema.returns]
    if first is None or len(returned) != 1 or returned[0] is None or returned[0].before_set != first.before_set:
        return None
    return node.args[0]


def return_inputs(functional: Graph, shown: Views) -> None:
    """Return these results as well, from the inputs of a functional graph, at the end of it."""
    placeholders, output = functional.find_nodes(op="placeholder"), functional.output_node()
    computed = iter(output.args[0])
    results = []
    for at in range(len(output.args[0]) + len(shown)):
        if at not in shown:
            results.append(next(computed))
            continue
        position, views = shown[at]
        last = placeholders[position]
        with functional.inserting_before(output):
            for view in views:
                base = last
                last = functional.node_copy(view, lambda _, base=base: base)
                last.meta = {**view.meta, "val": view.target(*_with(view.args, base), **_with(view.kwargs, base))}
        results.append(last)
    output.args = (tuple(results),)


def _with(arguments: Any, base: Node) -> Any:
    return torch.fx.map_arg(arguments, lambda _: base.meta["val"])


def lay_out_results(functional: Graph, results: Sequence[Any]) -> None:
    """Give the results of a functional graph the strides of ``results``, which come from the graph that writes.

    What is changed in place keeps its strides, and the functional form of an operator may have others.  A part of a
    tensor is left as it is, since its strides are those of the whole.  Works in the fake mode of the graph.

    Raises:
        LookupError: a result has sizes that depend on data, and nothing tells which of them are those of ``results``.
    """
    output = functional.output_node()
    pairs = list(zip(output.args[0], results, strict=True))
    renamed = _renamed_sizes(pairs)
    with functional.inserting_before(output):
        output.args = (tuple(_laid_out(functional, *pair, renamed) for pair in pairs),)


def _renamed_sizes(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    """What sizes that depend on data are in the graph that writes: each trace has symbols of its own for them."""
    found: dict[Any, Any] = {}
    for node, result in pairs:
        value = node.meta.get("val") if isinstance(node, Node) else None
        if isinstance(value, torch.Tensor) and isinstance(result, torch.Tensor) and value.dim() == result.dim():
            for ours, theirs in zip(value.shape, result.shape, strict=True):
                if internals.depends_on_data(ours) and _expression(ours).is_symbol:
                    found[_expression(ours)] = _expression(theirs)
    return found


def _laid_out(functional: Graph, node: Any, result: Any, renamed: Mapping[Any, Any]) -> Any:
    found = node.meta.get("val") if isinstance(node, Node) else None
    if not isinstance(found, torch.Tensor) or not isinstance(result, torch.Tensor):
        return node
    if found.layout is not torch.strided or result.layout is not torch.strided:
        return node

    def number(of_functional: Any) -> Any:
        expression = _expression(of_functional)
        return expression.xreplace(renamed) if isinstance(of_functional, torch.SymInt) else expression

    if list(map(number, found.shape)) != list(map(_expression, result.shape)):
        if any(map(internals.depends_on_data, (*found.shape, *result.shape))):
            raise LookupError("the strides of a result whose sizes depend on data are not known")
        if found.shape != result.shape:
            return node
    sizes, strides, now = list(result.shape), list(result.stride()), found.stride()
    wide = [d for d, size in enumerate(sizes) if type(size) is not int or size > 1]
    is_there = all(number(now[d]) == _expression(strides[d]) for d in wide)
    order = None if is_there or any(type(size) is int and size == 0 for size in sizes) else _dense(sizes, strides, wide)
    if order is None:
        return node

    def call(op: Any, source: Node, *args: Any, **kwargs: Any) -> Node:
        made = functional.call_function(op, (source, *args), kwargs)
        made.meta = {**node.meta, "val": op(source.meta["val"], *args, **kwargs)}
        return made

    aten = torch.ops.aten
    moved = call(aten.permute.default, node, order)
    copy = call(aten.clone.default, moved, memory_format=torch.contiguous_format)
    return call(aten.permute.default, copy, [order.index(d) for d in range(len(order))])


def _dense(sizes: Sequence[Any], strides: Sequence[Any], wide: Sequence[int]) -> list[int] | None:
    """The order of dimensions, the outermost one first, in which these strides leave no gaps; None if there is none.

    Numbers may be symbolic: what only some sizes would show is not asked, as that would be a guard.
    """
    inner: list[int] = []
    reach: Any = 1
    for _ in wide:
        here = [d for d in wide if d not in inner and _expression(strides[d]) == _expression(reach)]
        if len(here) != 1:
            return None
        inner += here
        reach = reach * sizes[here[0]]
    order = inner[::-1]
    for d in sorted(set(range(len(sizes))).difference(wide), key=lambda d: (_number(strides[d]), -d)):
        order.insert(sum(_number(strides[w]) > _number(strides[d]) for w in order), d)
    return order


def _expression(number: Any) -> Any:
    """A symbolic number as something that is equal to another one only if they are equal for all values."""
    return number.node.expr if isinstance(number, torch.SymInt) else number


def _number(stride: Any) -> float:
    """A stride for comparisons that only sort dimensions of one element: a symbolic one counts as large."""
    return stride if type(stride) is int else float("inf")
