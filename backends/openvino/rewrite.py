"""Rewrites nodes that OpenVINO's frontend rejects only because of a detail into a form that it accepts."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import Graph, Node

from ..common.adapter import attention
from . import integers

_aten = torch.ops.aten


def rewrite(graph: Graph) -> None:
    """Rewrite such nodes in place.  New nodes have no ``meta["val"]``, except those that replace another."""
    attention.clear_masked_rows(graph)
    for node in list(graph.nodes):
        rule = _RULES.get(node.target) if node.op == "call_function" else None
        if rule is not None:
            rule(graph, node)
    graph.eliminate_dead_code()


def _repeat_shared_heads(graph: Graph, node: Node) -> None:
    """Give every query head its own key and value; the frontend does not know that heads may share them."""
    query, key, value, *rest = node.args
    heads, shared = query.meta["val"].shape[-3], key.meta["val"].shape[-3]
    if heads == shared:
        return
    with graph.inserting_before(node):
        repeated = [
            graph.call_function(_aten.repeat_interleave.self_int, (n, heads // shared, -3)) for n in (key, value)
        ]
    node.args = (query, *repeated, *rest)
    node.kwargs = {name: given for name, given in node.kwargs.items() if name != "enable_gqa"}


def _count_from_the_front(graph: Graph, node: Node) -> None:
    """Make negative indices positive where there are several: the frontend gathers as if there were none."""
    sizes, indices = node.args[0].meta["val"].shape, list(node.args[1])
    longs = [d for d, index in enumerate(indices) if index is not None and integers.is_long(index.meta["val"])]
    if len(longs) < 2:
        return
    for dim in longs:
        index, size = indices[dim], sizes[dim]
        if integers.bounds(index)[0] >= 0 or type(size) is not int:
            continue
        with graph.inserting_before(node):
            is_negative = graph.call_function(_aten.lt.Scalar, (index, 0))
            counted = graph.call_function(_aten.add.Tensor, (index, size))
            indices[dim] = graph.call_function(_aten.where.self, (is_negative, counted, index))
    node.args = (node.args[0], indices)


def _count_in_integers(graph: Graph, node: Node) -> None:
    """Sum up bools as int64: the frontend would make bools of the sums."""
    if node.args[0].meta["val"].dtype is torch.bool and not node.kwargs:
        with graph.inserting_before(node):
            numbers = graph.call_function(_aten._to_copy.default, (node.args[0],), {"dtype": torch.int64})
        node.args = (numbers, *node.args[1:])


def _name_the_correction(graph: Graph, node: Node) -> None:
    """Say that one is taken off the count, as it is where nothing is said: the frontend divides by all of it."""
    if node.kwargs.get("correction") is None:
        node.kwargs = {**node.kwargs, "correction": 1}


def _compute_statistics(graph: Graph, node: Node) -> None:
    """Compute what ``native_layer_norm`` returns besides its result: the mean, and one over the deviation."""
    used = _elements(node)
    if not used.keys() & {1, 2}:
        return
    x, shape, _, _, epsilon = node.args
    dims = list(range(-len(shape), 0))
    with graph.inserting_after(node):
        mean = graph.call_function(_aten.mean.dim, (x, dims, True))
    with graph.inserting_after(mean):
        variance = graph.call_function(_aten.var.correction, (x, dims), {"correction": 0, "keepdim": True})
    with graph.inserting_after(variance):
        shifted = graph.call_function(_aten.add.Tensor, (variance, epsilon))
    with graph.inserting_after(shifted):
        inverse = graph.call_function(_aten.rsqrt.default, (shifted,))
    for position, replacement in ((1, mean), (2, inverse)):
        if position in used:
            replacement.meta["val"] = used[position].meta["val"]
            used[position].replace_all_uses_with(replacement)


def _normalize_by_batch(graph: Graph, node: Node) -> None:
    """Spell out a batch norm in training: the frontend returns the result, not the statistics that go with it."""
    x, weight, bias, mean, variance, training, momentum, epsilon = node.args
    used, value = _elements(node), x.meta["val"]
    if not training or any(type(size) is not int for size in value.shape):
        return
    dims = [d for d in range(value.dim()) if d != 1]
    count = value.numel() // value.shape[1]
    across = [1, -1] + [1] * (value.dim() - 2)

    with graph.inserting_before(node):
        own_mean = graph.call_function(_aten.mean.dim, (x, dims))
        spread = graph.call_function(_aten.var.correction, (x, dims), {"correction": 0})
        shifted = graph.call_function(_aten.add.Tensor, (spread, epsilon))
        inverse = graph.call_function(_aten.rsqrt.default, (shifted,))

        def stretched(value: Node) -> Node:
            return graph.call_function(_aten.view.default, (value, across))

        result = graph.call_function(_aten.sub.Tensor, (x, stretched(own_mean)))
        result = graph.call_function(_aten.mul.Tensor, (result, stretched(inverse)))
        if weight is not None:
            result = graph.call_function(_aten.mul.Tensor, (result, stretched(weight)))
        if bias is not None:
            result = graph.call_function(_aten.add.Tensor, (result, stretched(bias)))
        unbiased = graph.call_function(_aten.mul.Tensor, (spread, count / (count - 1)))
        results = {0: result, 1: own_mean, 2: inverse}
        for position, running, own in ((3, mean, own_mean), (4, variance, unbiased)):
            kept = graph.call_function(_aten.mul.Tensor, (running, 1 - momentum))
            added = graph.call_function(_aten.mul.Tensor, (own, momentum))
            results[position] = graph.call_function(_aten.add.Tensor, (kept, added))
    for position, taken in used.items():
        results[position].meta["val"] = taken.meta["val"]
        taken.replace_all_uses_with(results[position])


def _keep_all_digits(graph: Graph, node: Node) -> None:
    """Compute erf by two polynomials: OpenVINO's has no digits near zero, and is three units off in the last place."""
    (x,) = node.args

    def call(op: Any, *args: Any) -> Node:
        return graph.call_function(op, args)

    def polynomial(coefficients: tuple[float, ...], t: Node) -> Node:
        total: Any = coefficients[0]
        for coefficient in coefficients[1:]:
            total = call(_aten.add.Tensor, call(_aten.mul.Tensor, t, total), coefficient)
        return total

    with graph.inserting_before(node):
        if not _is_float(x):
            x = graph.call_function(_aten._to_copy.default, (x,), {"dtype": node.meta["val"].dtype})
        square = call(_aten.mul.Tensor, x, x)
        near = call(_aten.add.Tensor, x, call(_aten.mul.Tensor, x, polynomial(_ERF_NEAR, square)))
        size = call(_aten.clamp_max.default, call(_aten.maximum.default, x, call(_aten.neg.default, x)), _ERF_IS_ONE)
        rest = call(_aten.exp.default, call(_aten.neg.default, polynomial(_ERF_FAR, size)))
        far = call(_aten.rsub.Scalar, rest, 1.0)
        far = call(_aten.where.self, call(_aten.lt.Scalar, x, 0.0), call(_aten.neg.default, far), far)
        is_near = call(_aten.lt.Scalar, square, _ERF_FROM**2)
        result = call(_aten.where.self, is_near, near, far)
        is_nan = call(_aten.ne.Tensor, x, x)
    node.target, node.args = _aten.where.self, (is_nan, x, result)


def _spell_out_known_sizes(graph: Graph, node: Node) -> None:
    """Spell out ``abs`` of numbers that depend on no input, which OpenVINO 2026.4 takes to be positive.

    It leaves the ``abs`` of ``range(-2, 3)`` out of the model.
    """
    (x,) = node.args
    if _reads_inputs(x):
        return
    with graph.inserting_before(node):
        negated = graph.call_function(_aten.rsub.Scalar, (x, 0))
        is_positive = graph.call_function(_aten.gt.Scalar, (x, 0))
    node.target, node.args = _aten.where.self, (is_positive, x, negated)


def _reads_inputs(node: Node) -> bool:
    """Whether the numbers in a tensor come from an input tensor of the graph."""
    pending, seen = [node], {node}
    while pending:
        found = pending.pop()
        if found.op == "placeholder" and isinstance(found.meta["val"], torch.Tensor):
            return True
        new = [n for n in found.all_input_nodes if n not in seen]
        seen.update(new)
        pending += new
    return False


def _hand_nan_on(graph: Graph, node: Node) -> None:
    """Put nan where an argument has it: OpenVINO's vector code compares as a processor does, and loses it."""
    inputs = [a for a in node.args[: 2 if node.target in _OF_TWO else 1] if _is_float(a)]
    if not inputs or not _is_float(node):
        return
    result = node
    for x in inputs:
        with graph.inserting_after(result):
            unequal = graph.call_function(_aten.ne.Tensor, (x, x))
        with graph.inserting_after(unequal):
            chosen = graph.call_function(_aten.where.self, (unequal, x, result))
        chosen.meta["val"] = node.meta["val"]
        result.replace_all_uses_with(chosen, delete_user_cb=lambda user, chosen=chosen: user is not chosen)
        result = chosen


def _compare_the_other_way(graph: Graph, node: Node) -> None:
    """Spell ``a > b`` as ``b < a``: OpenVINO has nan larger than everything, but nothing smaller."""
    a, b = node.args
    if not _is_float(a):
        return
    if isinstance(b, Node):
        node.target, node.args = _TURNED[node.target], (b, a)
    elif isinstance(b, (int, float)):
        with graph.inserting_before(node):
            negative = graph.call_function(_aten.neg.default, (a,))
        node.target, node.args = _TURNED[node.target], (negative, -b)


def _keep_scatters_apart(graph: Graph, node: Node) -> None:
    """Put a detour between a scatter and the scatter whose result it writes.

    The frontend takes two that follow each other for one assignment to a slice of a slice, and reads nothing of what
    the first one writes into.
    """
    written = node.args[1]
    if isinstance(written, Node) and written.target in _SCATTERS:
        with graph.inserting_before(node):
            longer = graph.call_function(_aten.unsqueeze.default, (written, 0))
            same = graph.call_function(_aten.squeeze.dim, (longer, 0))
        node.args = (node.args[0], same, *node.args[2:])


def _keep_means_apart(graph: Graph, node: Node) -> None:
    """Put a detour behind a mean, where the same tensor has statistics over other dimensions.

    OpenVINO takes ``(x - x.mean(0)) / (x.var(1) + epsilon).sqrt()`` for a norm, whatever the dimensions of the first
    mean are.
    """
    x, *dims = node.args[:2]
    alike = (other.args[1:2] for other in graph.nodes if other.target in _STATISTICS and _is_same(other.args[0], x))
    if all(_dimensions(others, node) == _dimensions(dims, node) for others in alike):
        return
    with graph.inserting_after(node):
        longer = graph.call_function(_aten.unsqueeze.default, (node, 0))
    with graph.inserting_after(longer):
        same = graph.call_function(_aten.mean.dim, (longer, [0]))
    same.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(same, delete_user_cb=lambda user: user is not longer)


def _is_same(a: Node, b: Node) -> bool:
    """Whether OpenVINO makes one of two, which it does where both compute the same of the same."""
    return a is b or (a.op == "call_function" == b.op and (a.target, a.args, a.kwargs) == (b.target, b.args, b.kwargs))


def _dimensions(dims: Sequence[Any], node: Node) -> set[int]:
    """The dimensions of a statistic of what ``node`` reads; none that are given stand for all."""
    count = node.args[0].meta["val"].dim()
    return {d % count for d in dims[0]} if dims and dims[0] and count else set(range(count))


def _keep_from_gelu(graph: Graph, node: Node) -> None:
    """Turn the signs around a hyperbolic tangent that may stand in GELU with other numbers.

    OpenVINO takes any numbers that are near those of GELU for them.
    """
    if node.args[0].target not in _PRODUCTS:
        return
    pending, seen = [node.args[0]], set()
    numbers: set[float] = set()
    while pending:
        found = pending.pop()
        if found in seen or found.target not in _ARITHMETIC:
            continue
        seen.add(found)
        given = [a for a in (*found.args, *found.kwargs.values()) if isinstance(a, (int, float)) and a != 3]
        numbers.update(float(np.float32(a)) for a in given)
        pending += found.all_input_nodes
    if numbers == _OF_GELU or not any(n.target in _SUMS for n in seen):
        return
    with graph.inserting_before(node):
        turned = graph.call_function(_aten.neg.default, (node.args[0],))
        same = graph.call_function(_aten.tanh.default, (turned,))
    node.target, node.args = _aten.neg.default, (same,)


def _spare_broadcasts_of_nothing(graph: Graph, node: Node) -> None:
    """Leave out a broadcast to a tensor of no dimension, which ends the process in OpenVINO's compiler."""
    value = node.meta["val"]
    if value.dim() == 0:
        node.target, node.args, node.kwargs = _aten._to_copy.default, node.args[:1], {"dtype": value.dtype}


def _is_float(value: Any) -> bool:
    return isinstance(value, Node) and value.meta["val"].is_floating_point()


_PRODUCTS = frozenset((_aten.mul.Tensor, _aten.div.Tensor))
_SUMS = frozenset((_aten.add.Tensor, _aten.sub.Tensor))
_ARITHMETIC = _PRODUCTS | _SUMS | {_aten.pow.Tensor_Scalar, _aten.neg.default}
_OF_GELU = {float(np.float32(math.sqrt(2 / math.pi))), float(np.float32(0.044715))}
_SCATTERS = frozenset((_aten.slice_scatter.default, _aten.select_scatter.default))
_MEANS = _aten.mean.dim, _aten.mean.default
_SPREADS = _aten.var.correction, _aten.var_mean.correction, _aten.std.correction
_STATISTICS = frozenset((*_MEANS, *_SPREADS))
_OF_TWO = frozenset((_aten.maximum.default, _aten.minimum.default))
_TURNED = {
    _aten.gt.Tensor: _aten.lt.Tensor,
    _aten.ge.Tensor: _aten.le.Tensor,
    _aten.gt.Scalar: _aten.lt.Scalar,
    _aten.ge.Scalar: _aten.le.Scalar,
}

# Fitted for the least largest error, with the coefficient of the highest power first: (erf(x) - x) / x in x**2 up to
# _ERF_FROM, and -log(1 - erf(x)) in x from there to _ERF_IS_ONE.  Both are small corrections, so that results are
# within 1.3 units in the last place.
_ERF_FROM, _ERF_IS_ONE = 0.927734375, 4.0
_ERF_NEAR = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
_ERF_FAR = (-1.94072185e-4, 3.02506192e-3, -2.21551564e-2, 0.103784077, 0.637348711, 1.12757778, 2.19099369e-4)


def _elements(node: Node) -> dict[int, Any]:
    return {user.args[1]: user for user in node.users if user.target is operator.getitem}


_RULES = {
    **dict.fromkeys(_TURNED, _compare_the_other_way),
    **dict.fromkeys(_SCATTERS, _keep_scatters_apart),
    **dict.fromkeys(
        (
            _aten.exp.default,
            _aten.clamp.default,
            _aten.clamp_min.default,
            _aten.clamp_max.default,
            _aten.hardtanh.default,
            *_OF_TWO,
        ),
        _hand_nan_on,
    ),
    _aten.expand.default: _spare_broadcasts_of_nothing,
    _aten.abs.default: _spell_out_known_sizes,
    _aten.erf.default: _keep_all_digits,
    _aten.tanh.default: _keep_from_gelu,
    _aten.scaled_dot_product_attention.default: _repeat_shared_heads,
    _aten.index.Tensor: _count_from_the_front,
    _aten.cumsum.default: _count_in_integers,
    **dict.fromkeys(_MEANS, _keep_means_apart),
    **dict.fromkeys(_SPREADS, _name_the_correction),
    _aten.native_layer_norm.default: _compute_statistics,
    _aten._native_batch_norm_legit_functional.default: _normalize_by_batch,
}
