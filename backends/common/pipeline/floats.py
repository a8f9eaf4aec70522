"""Floats that are known only at run time, passed to operators as tensors.

Compilers that accept only tensors would have to leave the product of a tensor and such a float to torch.  torch
therefore converts the float to a tensor without dimensions before the operator, which gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node

from torchmux import torch_internals as internals

aten = torch.ops.aten

# Operators that take a tensor where a Python number stands, and do the same with it.
_TAKES_TENSORS = {aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor, aten.div.Tensor, aten.floor_divide.default}
# Operators of a tensor and a number behind it, and those that do the same with a tensor in its place.
_OF_TENSORS = {
    aten.eq.Scalar: aten.eq.Tensor, aten.ne.Scalar: aten.ne.Tensor, aten.lt.Scalar: aten.lt.Tensor,
    aten.le.Scalar: aten.le.Tensor, aten.gt.Scalar: aten.gt.Tensor, aten.ge.Scalar: aten.ge.Tensor,
    aten.remainder.Scalar: aten.remainder.Tensor, aten.masked_fill.Scalar: aten.masked_fill.Tensor,
    aten.fill.Scalar: aten.fill.Tensor, aten.clamp_min.default: aten.maximum.default,
    aten.clamp_max.default: aten.minimum.default, aten.fmod.Scalar: aten.fmod.Tensor,
    aten.lerp.Scalar: aten.lerp.Tensor, aten.pow.Scalar: aten.pow.Tensor_Tensor,
    aten.mul.Scalar: aten.mul.Tensor, aten.div.Scalar: aten.div.Tensor,
}  # fmt: skip
_ALL = {*_OF_TENSORS.values(), aten.clamp.default}


class _Formulas:
    """Operators of numbers by operators of tensors, step by step as eager's kernels compute them.

    A power is none of them: eager's takes a square root where the exponent happens to be a half.
    """

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph, self._node = graph, node

    def _call(self, target: Any, *args: Any, **options: Any) -> Node:
        with self._graph.inserting_before(self._node):
            made = self._graph.call_function(target, args, options)
        made.meta = dict(self._node.meta)
        made.meta["val"] = target(*torch.fx.map_arg(args, lambda n: n.meta["val"]), **options)
        return made

    def add(self, x: Any, y: Any, *, alpha: Any) -> Node:
        return self._call(aten.add.Tensor, x, self._call(aten.mul.Tensor, y, alpha))

    def sub(self, x: Any, y: Any, *, alpha: Any) -> Node:
        return self._call(aten.sub.Tensor, x, self._call(aten.mul.Tensor, y, alpha))

    def addcmul(self, x: Any, y: Any, z: Any, *, value: Any) -> Node:
        scaled = self._call(aten.mul.Tensor, y, value)
        return self._call(aten.add.Tensor, x, self._call(aten.mul.Tensor, scaled, z))

    def addcdiv(self, x: Any, y: Any, z: Any, *, value: Any) -> Node:
        scaled = self._call(aten.mul.Tensor, y, value)
        return self._call(aten.add.Tensor, x, self._call(aten.div.Tensor, scaled, z))

    def leaky_relu(self, x: Any, slope: Any) -> Node:
        low = self._call(aten.mul.Tensor, x, slope)
        return self._call(aten.where.self, self._call(aten.gt.Scalar, x, 0), x, low)

    def elu(self, x: Any, alpha: Any) -> Node:
        low = self._call(aten.mul.Tensor, self._call(aten.expm1.default, x), alpha)
        return self._call(aten.where.self, self._call(aten.le.Scalar, x, 0), low, x)

    def softplus(self, x: Any, beta: Any, threshold: float = 20.0) -> Node:
        scaled = self._call(aten.mul.Tensor, x, beta)
        near = self._call(aten.log1p.default, self._call(aten.exp.default, scaled))
        far = self._call(aten.gt.Scalar, scaled, threshold)
        return self._call(aten.where.self, far, x, self._call(aten.div.Tensor, near, beta))

    def threshold(self, x: Any, bound: Any, value: Any) -> Node:
        is_low = self._call(aten.le.Tensor if isinstance(bound, Node) else aten.le.Scalar, x, bound)
        fill = aten.masked_fill.Tensor if isinstance(value, Node) else aten.masked_fill.Scalar
        return self._call(fill, x, is_low, value)

    def addmm(self, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Node:
        return self._sum(aten.mm.default, x, a, b, beta, alpha)

    def baddbmm(self, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Node:
        return self._sum(aten.bmm.default, x, a, b, beta, alpha)

    def _sum(self, multiply: Any, x: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Node:
        if beta == 0:
            raise TypeError("nothing of the tensor counts, not even nan")
        product = self._call(multiply, a, b)
        scaled = product if alpha == 1 else self._call(aten.mul.Tensor, product, alpha)
        return self._call(aten.add.Tensor, x if beta == 1 else self._call(aten.mul.Tensor, x, beta), scaled)

    def full_like(self, x: Any, value: Any, **options: Any) -> Node:
        return self._call(aten.mul.Tensor, self._call(aten.full_like.default, x, 1.0, **options), value)


_FORMULAS: dict[Any, Callable[..., Node]] = {
    aten.add.Tensor: _Formulas.add, aten.sub.Tensor: _Formulas.sub, aten.addcmul.default: _Formulas.addcmul,
    aten.addcdiv.default: _Formulas.addcdiv, aten.leaky_relu.default: _Formulas.leaky_relu,
    aten.elu.default: _Formulas.elu, aten.softplus.default: _Formulas.softplus,
    aten.full_like.default: _Formulas.full_like, aten.threshold.default: _Formulas.threshold,
    aten.addmm.default: _Formulas.addmm, aten.baddbmm.default: _Formulas.baddbmm,
}  # fmt: skip
_DTYPES = (torch.float32, torch.float64)
_HALF = (torch.float16, torch.bfloat16)
# In half precision, torch computes products in float32 with the number in full, and rounds what comes out.
_PRODUCTS = {aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar}
# These, too, on a GPU; its kernels for a CPU round the number first.
_OTHERS = {
    aten.add.Tensor, aten.sub.Tensor, aten.rsub.Scalar, aten.eq.Scalar, aten.ne.Scalar, aten.lt.Scalar, aten.le.Scalar,
    aten.gt.Scalar, aten.ge.Scalar, aten.clamp_min.default, aten.clamp_max.default, aten.clamp.default,
    aten.hardtanh.default,
}  # fmt: skip
# These have the number as it is stored.
_FILLS = {aten.masked_fill.Scalar, aten.fill.Scalar}


def as_tensors(graph: Graph) -> None:
    """Give operators tensors instead of floats, where that computes the same."""
    made: Made = {}
    for node in list(graph.nodes):
        numbers = list(filter(_is_float, node.args))
        if numbers and node.target is aten.full.default and _fits(numbers[0], node.meta["val"].dtype):
            _multiply_ones(graph, node)
        if node.target in _FORMULAS and _is_all_of_its_dtype(node) and _replace(graph, node, made):
            continue
        if not numbers or node.kwargs:
            continue
        of_result = node.target in _TAKES_TENSORS or node.target is aten.pow.Scalar
        like = node.meta.get("val") if of_result else _value(node.args[0])
        if not internals.is_fake(like) or not _is_known(node, like.dtype):
            continue
        is_wide = like.dtype in _HALF and _is_computed_in_float32(node, like.device)
        users = _take_tensors(graph, node)
        if not users:
            continue
        for number in numbers:
            for user in users:
                dtype = torch.float32 if is_wide else like.dtype
                user.replace_input_with(number, _once(graph, number, like, made, dtype))
        for user in users if is_wide else ():
            _widen(graph, user, like.dtype)


def _is_known(node: Node, dtype: torch.dtype) -> bool:
    """Whether a tensor can stand for the number in a dtype."""
    if dtype in _HALF:
        tensors = [v for n in node.all_input_nodes if internals.is_fake(v := n.meta.get("val"))]
        return node.target in _PRODUCTS | _OTHERS | _FILLS and all(v.dtype in (dtype, torch.bool) for v in tensors)
    return dtype in _DTYPES


def _is_computed_in_float32(node: Node, device: torch.device) -> bool:
    return node.target in _PRODUCTS or (node.target in _OTHERS and device.type != "cpu")


def _widen(graph: Graph, node: Node, dtype: torch.dtype) -> None:
    """Compute a node with operands of ``dtype`` in float32, and round its result."""
    before = node.meta["val"]
    with before.fake_mode:
        for tensor in node.all_input_nodes:
            if internals.is_fake(value := tensor.meta["val"]) and value.dtype is dtype:
                with graph.inserting_before(node):
                    node.replace_input_with(tensor, _converted(graph, tensor, torch.float32))
        node.meta = {**node.meta, "val": node.target(*torch.fx.map_arg(node.args, lambda n: n.meta["val"]))}
        if before.dtype is dtype:
            with graph.inserting_after(node):
                rounded = _converted(graph, node, dtype)
            node.replace_all_uses_with(rounded, lambda user: user is not rounded)


def _converted(graph: Graph, tensor: Node, dtype: torch.dtype) -> Node:
    made = graph.call_function(aten._to_copy.default, (tensor,), {"dtype": dtype})
    made.meta = {**tensor.meta, "val": made.target(tensor.meta["val"], dtype=dtype)}
    return made


Made = dict[tuple[Node, torch.dtype, torch.device], Node]


def _once(graph: Graph, number: Node, like: Any, made: Made, dtype: torch.dtype) -> Node:
    key = (number, dtype, like.device)
    if key not in made:
        with like.fake_mode:
            made[key] = _tensor(graph, number, dtype, like.device)
    return made[key]


def _is_all_of_its_dtype(node: Node) -> bool:
    """Whether an operator has floats that are known at run time, and computes with nothing else but one dtype."""
    numbers = list(filter(_is_float, node.all_input_nodes))
    values = [n.meta.get("val") for n in (*node.all_input_nodes, node) if n not in numbers]
    tensors = all(internals.is_fake(v) and v.dtype is values[0].dtype and v.device == values[0].device for v in values)
    known = tensors and values[0].dtype in _DTYPES
    return bool(numbers) and known and isinstance(node.args[0], Node)


def _replace(graph: Graph, node: Node, made: Made) -> bool:
    """Replace a node of :data:`_FORMULAS` by what it comes to; False if its formula does not have these arguments."""
    like = node.meta["val"]

    def given(number: Node) -> Node:
        return _once(graph, number, like, made, like.dtype) if _is_float(number) else number

    args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), given)
    with like.fake_mode:
        try:
            result = _FORMULAS[node.target](_Formulas(graph, node), *args, **kwargs)
        except TypeError:
            return False
    node.replace_all_uses_with(result)
    graph.erase_node(node)
    return True


def _fits(number: Node, dtype: torch.dtype) -> bool:
    """Whether ``full`` takes the number: what is computed of a float may be too large for float32, an error."""
    symbol = number.meta["val"].node
    return dtype is torch.float64 or (symbol.expr.is_symbol and symbol.has_hint())


def _multiply_ones(graph: Graph, node: Node) -> None:
    """Make ``full`` a product, which takes a tensor; each compiler has it, and it keeps zero's sign."""
    with graph.inserting_before(node):
        ones = graph.call_function(aten.full.default, (node.args[0], 1.0), dict(node.kwargs))
    ones.meta = dict(node.meta)
    node.target, node.args, node.kwargs = aten.mul.Tensor, (ones, node.args[1]), {}


def _take_tensors(graph: Graph, node: Node) -> list[Node]:
    """The nodes that take tensors where ``node`` took numbers, if there is an operator for that."""
    before = []
    if node.target is aten.pow.Scalar and _value(node.args[1]).dtype is not node.meta["val"].dtype:
        return []
    if node.target is aten.hardtanh.default and len(node.args) == 3:
        node.target = aten.clamp.default
    if node.target is aten.clamp.default:
        before = _bound_by_bound(graph, node)
    elif node.target in _OF_TENSORS:
        node.target = _OF_TENSORS[node.target]
    elif node.target is aten.rsub.Scalar and len(node.args) == 2:
        node.target, node.args = aten.sub.Tensor, node.args[::-1]
    return [*before, node] if node.target in _TAKES_TENSORS or node.target in _ALL else []


def _value(argument: Any) -> Any:
    return argument.meta.get("val") if isinstance(argument, Node) else None


def _bound_by_bound(graph: Graph, node: Node) -> list[Node]:
    """Make ``clamp`` one operator for each bound: the node, and those before it."""
    tensor, low, high = (*node.args, None)[:3]
    before = []
    if low is not None and high is not None:
        with graph.inserting_before(node):
            first = graph.call_function(*_bounded(tensor, low, None))
        first.meta = dict(node.meta)
        tensor, low = first, None
        before.append(first)
    node.target, node.args = _bounded(tensor, low, high)
    return before


def _bounded(tensor: Node, low: Any, high: Any) -> tuple[Any, tuple]:
    if _is_float(low) or _is_float(high):
        return (aten.maximum.default, (tensor, low)) if high is None else (aten.minimum.default, (tensor, high))
    return aten.clamp.default, (tensor, low, high)


def is_number(node: Node) -> bool:
    """Whether ``node`` only carries a number into a tensor."""
    if node.target is aten._to_copy.default:
        node = node.args[0]
        if not isinstance(node, Node):
            return False  # vmap hands on plain numbers
    return node.target is aten.scalar_tensor.default and _is_float(node.args[0])


def _is_float(value: Any) -> bool:
    return isinstance(value, Node) and isinstance(value.meta.get("val"), torch.SymFloat)


def _tensor(graph: Graph, number: Node, dtype: torch.dtype, device: torch.device) -> Node:
    """The number as a tensor; one that is too large for float32 is infinity there, as it is in eager's arithmetic."""
    node = _call(graph, aten.scalar_tensor.default, number, dtype=torch.float64, device=device)
    if dtype is not torch.float64:
        node = _call(graph, aten._to_copy.default, node, dtype=dtype)
    return node


def _call(graph: Graph, target: Any, argument: Node, **options: Any) -> Node:
    inputs = [n for n in graph.nodes if n.op == "placeholder"] if argument.op == "placeholder" else [argument]
    with graph.inserting_after(inputs[-1]):  # of all inputs: what else is computed first may read any
        node = graph.call_function(target, (argument,), options)
    node.meta["val"] = target(argument.meta["val"], **options)
    return node
