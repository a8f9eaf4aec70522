"""Attention that a program writes out, as one operation.

``softmax(query @ key.mT * scale + mask) @ value`` is found in the captured graph, where torch still handles
gradients, and becomes the operator ``torchmux::attention`` (``attention_operator.py``), where the target says that it
is worth it.  It stores no matrix of weights (FlashAttention: Dao et al., 2022, arXiv:2205.14135).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from torchmux import torch_internals as internals

from ...common.adapter.graphs import copy_graph
from ...common.adapter.results import hint_of
from .attention_operator import attend

_HALF = frozenset((torch.bfloat16, torch.float16))
_DTYPES = frozenset((torch.float32, torch.float64, *_HALF))

# Functions and methods by name, of which those that change their argument are none.
_OWN = frozenset(("torch", "_operator", "builtins"))
_PRODUCTS = frozenset(("matmul", "bmm"))
_FACTORS = frozenset(("mul", "div", "truediv"))
_CONVERSIONS = frozenset(("to", "type", "type_as", "float", "half", "bfloat16"))
_IN_PLACE = frozenset(
    ("setitem", "delitem", "setattr", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul",
     "iand", "ior", "ixor", "ilshift", "irshift", "iconcat")
)  # fmt: skip


Attends = Callable[[torch.Tensor, int], bool]
"""Whether attention is worth it for a query, as a fake tensor, with so many scores in each head."""


def fused(gm: GraphModule, attends: Attends) -> GraphModule:
    """``gm``, a captured graph, or a copy of it in which attention is fused where the target ``attends``."""
    if not any(_name(n) == "softmax" for n in gm.graph.nodes):
        return gm
    made = copy_graph(gm)
    changed = False
    for node in list(made.graph.nodes):
        found = _match(node, attends)
        if found is not None:
            _replace(made.graph, node, found)
            changed = True
    if not changed:
        return gm
    made.recompile()
    return made


@dataclass
class _Attention:
    """What is computed; ``chain`` are the nodes that only compute that, users before what they use.

    ``blocked`` says where scores are -inf or the lowest number, ``fill``, or where not, if ``inverted``; ``bias`` is
    added to them.  The key has its last two dimensions exchanged if ``turned``.
    """

    query: Node
    key: Node
    value: Node
    scale: float
    bias: Node | None
    blocked: Node | None
    fill: float
    chain: list[Node]
    inverted: bool = False
    turned: bool = False


def _match(node: Node, attends: Attends) -> _Attention | None:
    """The attention whose result is ``node``; None if it is something else, or better left unchanged."""
    weights, value = _operands(node)
    if not (isinstance(weights, Node) and isinstance(value, Node)):
        return None
    chain: list[Node] = [node]
    at: Any = weights
    if _name(at) in _CONVERSIONS and _dtype(at) in _DTYPES:
        at = _step(at, chain)
    if _name(at) != "softmax" or not _is_over_last(at):
        return None
    at = _step(at, chain)
    if _name(at) in _CONVERSIONS and _dtype(at) is torch.float32:  # which the fused kernel computes with anyway
        at = _step(at, chain)
    masked = at
    bias = blocked = None
    fill = -math.inf
    inverted = False
    if _name(at) == "where" and len(at.args) == 3 and not at.kwargs:
        blocked, scores, fill = at.args
        inverted = True
        if not isinstance(fill, float) or not _hides(fill, _dtype(at)):
            return None
        at = _step(at, chain, scores)
    elif _name(at) == "masked_fill" and len(at.args) == 3 and not at.kwargs:
        _, blocked, fill = at.args
        if not isinstance(fill, float) or not _hides(fill, _dtype(at)):
            return None
        at = _step(at, chain)
    elif _name(at) == "add" and len(at.args) == 2 and not at.kwargs:
        one, other = at.args
        scores, bias = (one, other) if _is_score(one) else (other, one)
        if not isinstance(bias, Node):
            return None
        at = _step(at, chain, scores)
    scale = 1.0
    if _name(at) in _FACTORS and len(at.args) == 2 and not at.kwargs:
        factor = at.args[1]
        if type(factor) not in (int, float) or not factor:
            return None
        scale = float(factor) if _name(at) == "mul" else 1.0 / factor
        at = _step(at, chain)
    query, key = _operands(at)
    if not (isinstance(query, Node) and isinstance(key, Node)):
        return None
    chain.append(at)
    swapped = _swaps_last(key)
    if any(_may_write(between) for between in _between(at, node) if between not in chain):
        return None
    key = key.args[0] if swapped else key
    found = _Attention(query, key, value, scale, bias, blocked, fill, chain, inverted, not swapped)
    return found if _is_alone(chain) and _is_known(found, at, masked, attends) else None


def _hides(fill: float, dtype: torch.dtype | None) -> bool:
    """Whether a score of ``dtype`` to which ``fill`` is added is ``fill``.

    Scores are added in float32, in which the lowest number of float16 is a number like others.
    """
    if fill == -math.inf or dtype is None or dtype is torch.float16:
        return fill == -math.inf
    return fill <= torch.finfo(dtype).min / 2


def _step(node: Node, chain: list[Node], to: Any = None) -> Any:
    chain.append(node)
    return node.args[0] if to is None else to


def _is_score(node: Any) -> bool:
    """Whether ``node`` is a product of matrices, perhaps scaled: the operand of a sum that is not the mask."""
    while isinstance(node, Node) and _name(node) in _FACTORS:
        node = node.args[0]
    return _name(node) in _PRODUCTS


def _drops_nothing(node: Node) -> bool:
    if _name(node) != "dropout":
        return False
    given = dict(zip(("input", "p", "training"), node.args, strict=False)) | node.kwargs
    return given.get("p") == 0.0 or given.get("training") is False


def _is_over_last(softmax: Node) -> bool:
    given = dict(zip(("input", "dim", "_stacklevel", "dtype"), softmax.args, strict=False)) | softmax.kwargs
    value = _value(softmax)
    if value is None or given.get("dim") not in (-1, value.dim() - 1):
        return False
    source = _value(softmax.args[0]) if softmax.args else None
    if source is None or value.dtype is source.dtype:
        return source is not None
    return value.dtype is torch.float32 and source.dtype in _HALF  # which is what the fused kernel does anyway


def _swaps_last(node: Node) -> bool:
    """Whether ``node`` is its first argument with the last two of three or four dimensions exchanged."""
    name, rest, value = _name(node), list(node.args[1:]), _value(node)
    rank = 0 if value is None else value.dim()
    if name in ("transpose", "swapaxes", "swapdims"):
        return not node.kwargs and rank > 2 and sorted(d % rank for d in rest if type(d) is int) == [rank - 2, rank - 1]
    if name == "permute":
        dims: Any = rest[0] if len(rest) == 1 else rest
        usual = list(range(rank))
        return rank > 2 and [d % rank for d in dims if type(d) is int] == [*usual[:-2], rank - 1, rank - 2]
    return name == "getattr" and rest == ["mT"]


def _is_alone(chain: Sequence[Node]) -> bool:
    """Whether nothing else uses the values between the first and the last product."""
    inside = set(chain)
    return all(user in inside or _is_idle(user) for node in chain[1:] for user in node.users)


def _between(first: Node, last: Node) -> Iterator[Node]:
    """The nodes that run after ``first`` and before ``last``."""
    node = first.next
    while node is not last:
        yield node
        node = node.next


def _may_write(node: Node) -> bool:
    """Whether ``node`` may change a tensor in place: then what attention reads is not the same any more at its end."""
    if node.op not in ("call_function", "call_method") or _is_idle(node):
        return False
    if isinstance(node.target, internals.OpOverload):
        return internals.operator_schema(node.target).is_mutable
    if "out" in node.kwargs or any(value is True for value in (*node.args, *node.kwargs.values())):
        return True  # a flag may be ``inplace``
    name = _name(node)
    return not name or name.endswith("_") or name.startswith("__") or name in _IN_PLACE


def _is_idle(node: Node) -> bool:
    """Whether ``node`` is a call whose result the capture has seen to be its argument, and which changes nothing."""
    return not node.users and (_drops_nothing(node) or _name(node) in _CONVERSIONS)


def _is_known(found: _Attention, scores: Node, masked: Node, attends: Attends) -> bool:
    """Whether tensors are like those of attention, and the target computes it."""
    query, key, value, product = (_value(n) for n in (found.query, found.key, found.value, scores))
    if query is None or key is None or value is None or product is None or query.dtype not in _DTYPES:
        return False
    rank = product.dim()
    if rank not in (3, 4) or any(
        t.dim() != rank or t.dtype is not query.dtype or t.device != query.device for t in (query, key, value)
    ):
        return False
    if product.dtype is not query.dtype:
        return False  # a product has another dtype under autocast
    columns_of_key, size_of_key = (-1, -2) if found.turned else (-2, -1)
    outer = range(rank - 2)
    if not (_same(query, value, (*outer, -1)) and _same(query, key, outer)):
        return False
    if str(query.shape[-1]) != str(key.shape[size_of_key]) or str(key.shape[columns_of_key]) != str(value.shape[-2]):
        return False
    for mask, dtype in ((found.bias, query.dtype), (found.blocked, torch.bool)):
        if mask is not None:
            shown = _value(mask)
            if shown is None or shown.dim() > rank or shown.requires_grad or shown.dtype is not dtype:
                return False
    seen = _value(masked)
    if seen is None or seen.dim() != rank or not _same(seen, product, range(rank)):
        return False  # a mask that is larger than the scores
    rows, columns = hint_of(product.shape[-2]), hint_of(product.shape[-1])
    return rows is not None and columns is not None and attends(query, rows * columns)


def _same(one: torch.Tensor, other: torch.Tensor, dims: Sequence[int]) -> bool:
    """Whether sizes are equal, without asking that of symbolic ones, which would be a guard."""
    return all(str(one.shape[d]) == str(other.shape[d]) for d in dims)


def _replace(graph: Graph, node: Node, found: _Attention) -> None:
    with graph.inserting_before(node):
        key, blocked = found.key, found.blocked
        if found.turned:
            key = graph.call_method("transpose", (key, -2, -1))
        if blocked is not None and found.inverted:
            blocked = graph.call_function(torch.logical_not, (blocked,))
        arguments = (found.query, key, found.value, found.scale, found.bias, blocked, found.fill)
        made = graph.call_function(attend, arguments)
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    for old in found.chain:
        for idle in [user for user in old.users if _is_idle(user)]:
            graph.erase_node(idle)
        graph.erase_node(old)


def _operands(node: Any) -> tuple[Any, Any]:
    """What a product of matrices is made of."""
    if _name(node) in _PRODUCTS and len(node.args) == 2 and not node.kwargs:
        return node.args[0], node.args[1]
    return None, None


def _name(node: Any) -> str:
    """The name of the function or method that a node calls, if that is torch's or an operator."""
    if not isinstance(node, Node):
        return ""
    if node.op == "call_method":
        return str(node.target)
    if node.op != "call_function":
        return ""
    module = getattr(node.target, "__module__", None) or "torch"
    return getattr(node.target, "__name__", "") if module.partition(".")[0] in _OWN else ""


def _value(node: Any) -> torch.Tensor | None:
    value = node.meta.get("example_value") if isinstance(node, Node) else None
    return value if isinstance(value, torch.Tensor) else None


def _dtype(node: Any) -> torch.dtype | None:
    value = _value(node)
    return None if value is None else value.dtype
