"""Which values of an ATen graph share memory, read from operator schemas.

In a functional graph, memory is shared only through view operators, whose schema marks the result as an alias of an
argument.  Every value therefore has one root: the placeholder, constant or computed value whose memory it shares.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
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
