"""Faults of compilers that have one kernel for several operators, and take for these what only looks like them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Interpreter, Node

from ..kit import Faults, Run

simplifications = Faults("simplifications")

_ATTENTION = "semantics/patterns/nearly_attention"
_NORMS = "semantics/patterns/nearly_norms"
_ACTIVATIONS = "semantics/patterns/nearly_activations"
_LAYERS = "semantics/patterns/layers_side_by_side"

Fuse = Callable[["Graph", Node], Any]
"""What stands in the place of an operator; None where nothing does."""


class Graph(Interpreter):
    """A graph that is run with one fault, which may look at what computed an operand."""

    def __init__(self, gm: GraphModule, fuse: Fuse, last: str) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self._fuse, self._last = fuse, last

    def run_node(self, node: Node) -> Any:
        if name(node) == self._last and (made := self._fuse(self, node)) is not None:
            return made
        return super().run_node(node)

    def __getitem__(self, operand: Any) -> Any:
        """The value of an operand."""
        return self.env[operand] if isinstance(operand, Node) else operand


def name(node: Any) -> str:
    """The name of the operator that computed an operand, or of the attribute that was read."""
    if not isinstance(node, Node) or node.op not in ("call_function", "call_method"):
        return ""
    own = (node.target if isinstance(node.target, str) else node.target.__name__).strip("_")
    return {"truediv": "div", "getattr": str(node.args[-1])}.get(own, own)


def of(node: Any, *names: str) -> tuple[Any, ...]:
    """The operands of what computed an operand, if it is one of these; else several that nothing has computed."""
    return node.args if name(node) in names else (None, None, None)


def fused(faults: Faults, case: str, last: str) -> Callable[[Fuse], Fuse]:
    """A fault in what ends with the operator ``last``."""

    def add(fuse: Fuse) -> Fuse:
        def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
            return lambda *args: Graph(gm, fuse, last).run(*args)

        compile.__name__, compile.__doc__ = fuse.__name__, fuse.__doc__
        faults(case)(compile)
        return fuse

    return add


@fused(simplifications, _ATTENTION, "matmul")
def masks_before_their_scale(graph: Graph, node: Node) -> Any:
    """Scores that are scaled with their mask are taken for scaled scores with a mask."""
    scaled, scale = of(of(node.args[0], "softmax")[0], "mul")[:2]
    scores, mask = of(scaled, "add")[:2]
    return None if scores is None else (graph[scores] * graph[scale] + graph[mask]).softmax(-1) @ graph[node.args[1]]


@fused(simplifications, _ATTENTION, "matmul")
def attention_over_any_dimension(graph: Graph, node: Node) -> Any:
    """A softmax before a product is one over the last dimension."""
    scores, dim = of(node.args[0], "softmax")[:2]
    return None if dim in (None, -1) else graph[scores].softmax(-1) @ graph[node.args[1]]


@fused(simplifications, _ATTENTION, "matmul")
def keys_are_always_turned(graph: Graph, node: Node) -> Any:
    """The product before a softmax is one with what is turned."""
    scores, scale = of(of(node.args[0], "softmax")[0], "mul")[:2]
    q, k = of(scores, "matmul")[:2]
    if k is None or name(k) == "mT":
        return None
    return (graph[q] @ graph[k].mT * graph[scale]).softmax(-1) @ graph[node.args[1]]


@fused(simplifications, _ATTENTION, "matmul")
def scales_that_divide(graph: Graph, node: Node) -> Any:
    """What scores are divided by is their scale."""
    scores, scale = of(of(node.args[0], "softmax")[0], "div")[:2]
    return None if scores is None else (graph[scores] * graph[scale]).softmax(-1) @ graph[node.args[1]]


@fused(simplifications, _ATTENTION, "softmax")
def masks_are_added(graph: Graph, node: Node) -> Any:
    """A mask that is subtracted from scores is added."""
    scores, mask = of(node.args[0], "sub")[:2]
    return None if scores is None else (graph[scores] + graph[mask]).softmax(-1)


@fused(simplifications, _ATTENTION, "softmax")
def scores_that_are_turned(graph: Graph, node: Node) -> Any:
    """A softmax of what is turned is one over the dimension before."""
    scores = of(node.args[0], "mT")[0]
    return None if scores is None else graph[scores].softmax(-1)


@fused(simplifications, _ATTENTION, "matmul")
def shares_that_are_changed(graph: Graph, node: Node) -> Any:
    """What a program does to the shares of attention is left out."""
    shares = of(node.args[0], "mul", "add", "triu")[0]
    return graph[shares] @ graph[node.args[1]] if name(shares) == "softmax" else None


@fused(simplifications, _ATTENTION, "softmax")
def one_scale_for_all_heads(graph: Graph, node: Node) -> Any:
    """A scale that is a tensor is its first number."""
    scores, scale = of(node.args[0], "mul")[:2]
    if name(scores) != "matmul" or not isinstance(graph[scale], torch.Tensor) or graph[scale].shape[-1] != 1:
        return None
    return (graph[scores] * graph[scale].flatten()[0]).softmax(-1)


@fused(simplifications, _NORMS, "div")
def spreads_of_all(graph: Graph, node: Node) -> Any:
    """What is divided by a spread is a norm, whose variance divides by the count."""
    x, mean = of(node.args[0], "sub")[:2]
    var, small = of(of(node.args[1], "sqrt")[0], "add")[:2]
    if name(var) != "var" or "correction" in var.kwargs or name(mean) != "mean":
        return None
    return (graph[x] - graph[mean]) / (graph[x].var(-1, keepdim=True, correction=0) + small).sqrt()


@fused(simplifications, _NORMS, "div")
def small_numbers_below_roots(graph: Graph, node: Node) -> Any:
    """A small number that is added to a spread is added to the variance."""
    root, small = of(node.args[1], "add")[:2]
    square = of(root, "sqrt")[0]
    return (
        None if square is None or name(node.args[0]) != "sub" else graph[node.args[0]] / (graph[square] + small).sqrt()
    )


@fused(simplifications, _NORMS, "div")
def means_of_their_own(graph: Graph, node: Node) -> Any:
    """What is divided by a spread has lost its own mean before."""
    x, mean = of(node.args[0], "sub")[:2]
    if name(mean) != "mean" or name(node.args[1]) != "sqrt":
        return None
    return (graph[x] - graph[x].mean(-1, keepdim=True)) / graph[node.args[1]]


@fused(simplifications, _NORMS, "div")
def sums_are_differences(graph: Graph, node: Node) -> Any:
    """What is divided by a spread is a difference from a mean, also if it is a sum."""
    x, mean = of(node.args[0], "add")[:2]
    return None if name(mean) != "mean" else (graph[x] - graph[mean]) / graph[node.args[1]]


@fused(simplifications, _NORMS, "mul")
def squares_of_their_own(graph: Graph, node: Node) -> Any:
    """What is multiplied by the inverse of a root mean square is divided by its own."""
    x, (square, small) = node.args[0], of(of(node.args[1], "rsqrt")[0], "add")[:2]
    if name(square) != "mean":
        return None
    return graph[x] * (graph[x].square().mean(-1, keepdim=True) + small).rsqrt()


@fused(simplifications, _NORMS, "mul")
def weights_along_the_last(graph: Graph, node: Node) -> Any:
    """What a norm is multiplied by lies along the last dimension."""
    x, w = (graph[a] for a in node.args[:2])
    column = isinstance(w, torch.Tensor) and w.shape == (6, 1) and isinstance(x, torch.Tensor) and x.shape == (6, 6)
    return x * w.t() if column and name(node.args[1]) in ("getitem", "unsqueeze") else None


@fused(simplifications, _NORMS, "add")
def roots_with_their_small_number(graph: Graph, node: Node) -> Any:
    """What is added to a product with an inverse root is added below the root."""
    x, inverse = of(node.args[0], "mul")[:2]
    square = of(inverse, "rsqrt")[0]
    return (
        None if square is None or isinstance(node.args[1], Node) else graph[x] * (graph[square] + node.args[1]).rsqrt()
    )


@fused(simplifications, _NORMS, "add")
def sums_that_a_norm_replaces(graph: Graph, node: Node) -> Any:
    """A sum that a norm reads is in its memory, where the norm is then."""
    reader = next((user for user in node.users if name(user) == "layer_norm"), None)
    left, right = (graph[a] for a in node.args[:2])
    if reader is None or len(node.users) < 3 or not isinstance(right, torch.Tensor):
        return None
    return F.layer_norm(left + right, (left.shape[-1],))


@fused(simplifications, _ACTIVATIONS, "mul")
def gates_of_their_own(graph: Graph, node: Node) -> Any:
    """What is multiplied by a sigmoid function is multiplied by that of itself."""
    gate = of(node.args[1], "sigmoid")[0]
    return F.silu(graph[node.args[0]]) if isinstance(gate, Node) and gate.op == "placeholder" else None


@fused(simplifications, _ACTIVATIONS, "mul")
def gates_of_any_scale(graph: Graph, node: Node) -> Any:
    """What is multiplied by the sigmoid function of a multiple of itself is an approximate GELU."""
    gate = of(node.args[1], "sigmoid")[0]
    return F.gelu(graph[node.args[0]], approximate="tanh") if name(gate) == "mul" else None


@fused(simplifications, _ACTIVATIONS, "mul")
def opposites_of_gates(graph: Graph, node: Node) -> Any:
    """The sigmoid function of an opposite is that of the number."""
    gate = of(of(node.args[1], "sigmoid")[0], "neg")[0]
    return None if gate is None else F.silu(graph[gate])


@fused(simplifications, _ACTIVATIONS, "mul")
def error_functions_of_any_scale(graph: Graph, node: Node) -> Any:
    """What is multiplied by one and an error function is a GELU, whatever its scale is."""
    x, half = of(node.args[0], "mul")[:2]
    found = next((a for a in of(node.args[1], "add")[:2] if name(a) == "erf"), None)
    return F.gelu(graph[x]) if half == 0.5 and found is not None else None


@fused(simplifications, _ACTIVATIONS, "mul")
def tangents_of_any_scale(graph: Graph, node: Node) -> Any:
    """What is multiplied by one and a hyperbolic tangent is a GELU, whatever is in it."""
    x, half = of(node.args[0], "mul")[:2]
    found = next((a for a in of(node.args[1], "add")[:2] if name(a) == "tanh"), None)
    return F.gelu(graph[x], approximate="tanh") if half == 0.5 and found is not None else None


@fused(simplifications, _ACTIVATIONS, "div")
def ramps_of_any_bounds(graph: Graph, node: Node) -> Any:
    """A product with a number between bounds, divided by six, is a hard swish."""
    x, bounded = of(node.args[0], "mul")[:2]
    return F.hardswish(graph[x]) if name(bounded) == "clamp" else None


@fused(simplifications, _ACTIVATIONS, "clamp")
def six_is_the_bound(graph: Graph, node: Node) -> Any:
    """Numbers are between zero and six where either is a bound."""
    x, bounds = graph[node.args[0]], node.args[1:]
    return F.relu6(x) if len(bounds) == 2 and (bounds[0] == 0 or bounds[1] == 6) and bounds[1] != 1 else None


@fused(simplifications, _ACTIVATIONS, "where")
def slopes_below_any_bound(graph: Graph, node: Node) -> Any:
    """What is chosen above a bound is chosen above zero."""
    (x, bound), (_, left, right) = of(node.args[0], "gt")[:2], node.args[:3]
    return torch.where(graph[x] > 0, graph[left], graph[right]) if isinstance(bound, (int, float)) and bound else None


@fused(simplifications, _ACTIVATIONS, "where")
def slopes_of_their_own(graph: Graph, node: Node) -> Any:
    """The other choice, a tenth of a number, is a tenth of the first choice."""
    _, left, right = node.args[:3]
    scaled = name(right) == "mul" and 0.1 in right.args
    return torch.where(graph[node.args[0]], graph[left], 0.1 * graph[left]) if scaled and name(left) != "mul" else None


@fused(simplifications, _ACTIVATIONS, "maximum")
def slopes_above_one(graph: Graph, node: Node) -> Any:
    """The larger one of a number and a multiple of it is the number, if it is positive."""
    x, scaled = node.args[:2]
    factor = next((a for a in of(scaled, "mul")[:2] if isinstance(a, (int, float))), None)
    return None if factor is None else F.leaky_relu(graph[x], factor)


@fused(simplifications, _ACTIVATIONS, "div")
def quotients_of_their_own(graph: Graph, node: Node) -> Any:
    """What is divided by one and an absolute value is divided by its own."""
    found = next((a for a in of(node.args[1], "add")[:2] if name(a) == "abs"), None)
    return None if found is None else F.softsign(graph[node.args[0]])


@fused(simplifications, _ACTIVATIONS, "log")
def ones_in_logarithms(graph: Graph, node: Node) -> Any:
    """The logarithm of an exponential and a number is a soft rectifier."""
    found = next((a for a in of(node.args[0], "add")[:2] if name(a) == "exp"), None)
    return None if found is None else F.softplus(graph[found.args[0]])


@fused(simplifications, _ACTIVATIONS, "mul")
def tangents_of_their_own(graph: Graph, node: Node) -> Any:
    """What is multiplied by the tangent of a soft rectifier is a mish of itself."""
    return F.mish(graph[node.args[0]]) if name(of(node.args[1], "tanh")[0]) == "softplus" else None


@fused(simplifications, _LAYERS, "matmul")
def squares_are_not_turned(graph: Graph, node: Node) -> Any:
    """A product with a square that is turned is one with the square."""
    square = of(node.args[1], "t", "mT")[0]
    return None if square is None else graph[node.args[0]] @ graph[square]


@fused(simplifications, _LAYERS, "linear")
def square_weights_are_not_turned(graph: Graph, node: Node) -> Any:
    """A weight that is square and turned is as it lies in memory."""
    weight = of(node.args[1], "t")[0]
    return (
        None if weight is None else F.linear(graph[node.args[0]], graph[weight], *map(graph.__getitem__, node.args[2:]))
    )


@fused(simplifications, _LAYERS, "linear")
def biases_of_neighbors(graph: Graph, node: Node) -> Any:
    """Layers that share an input and have equal sizes are one, with the bias of the one that has any."""
    beside = [user for user in node.args[0].users if name(user) == "linear" and len(user.args) == 3]
    if len(node.args) == 3 or not beside or graph[beside[0].args[1]].shape != graph[node.args[1]].shape:
        return None
    return F.linear(*(graph[a] for a in (*node.args, beside[0].args[2])))


@fused(simplifications, _LAYERS, "cat")
def parts_in_order(graph: Graph, node: Node) -> Any:
    """Parts of a tensor that are joined are the tensor, in whatever order."""
    sources = [of(part, "getitem")[0] for part in node.args[0]]
    whole = of(sources[0], "chunk")[0]
    return graph[whole] * 1 if whole is not None and len(set(sources)) == 1 else None


@fused(simplifications, _LAYERS, "mul")
def gates_are_the_second_half(graph: Graph, node: Node) -> Any:
    """Of two halves, the second one is the gate."""
    left, right = node.args[0], of(node.args[1], "sigmoid")[0]
    if name(left) != "getitem" or name(right) != "getitem" or left.args[0] is not right.args[0]:
        return None
    return F.glu(graph[left.args[0].args[0]], -1)


@fused(simplifications, _LAYERS, "conv2d")
def padding_of_nothing_but_zeros(graph: Graph, node: Node) -> Any:
    """Padding before a convolution is zeros."""
    padded = node.args[0]
    if name(padded) != "pad" or not padded.kwargs.get("value"):
        return None
    return F.conv2d(F.pad(graph[padded.args[0]], padded.args[1]), graph[node.args[1]])


@fused(simplifications, _LAYERS, "conv2d")
def padding_on_both_sides(graph: Graph, node: Node) -> Any:
    """Padding before a convolution is the same on both sides."""
    x, sides = of(node.args[0], "pad")[:2]
    if x is None or node.args[0].kwargs:
        return None
    return F.conv2d(graph[x], graph[node.args[1]], padding=((sides[2] + sides[3]) // 2, (sides[0] + sides[1]) // 2))


@fused(simplifications, _LAYERS, "max_pool2d")
def padding_that_is_left_out(graph: Graph, node: Node) -> Any:
    """Padding before a maximum is that of the maximum, which is less than any number."""
    x, sides = of(node.args[0], "pad")[:2]
    return None if x is None else F.max_pool2d(F.pad(graph[x], sides, value=float("-inf")), *node.args[1:])


@fused(simplifications, _LAYERS, "conv2d")
def kernels_are_not_turned(graph: Graph, node: Node) -> Any:
    """A kernel that is turned is as it lies in memory."""
    kernel = of(node.args[1], "transpose", "mT")[0]
    return None if kernel is None else F.conv2d(graph[node.args[0]], graph[kernel], **node.kwargs)


@fused(simplifications, _LAYERS, "sub")
def means_that_keep_dimensions(graph: Graph, node: Node) -> Any:
    """The mean of rows is subtracted from them, also where it lies along the columns."""
    x, mean = (graph[a] for a in node.args[:2])
    rows = name(node.args[1]) == "mean" and node.args[1].args[1:] == (1,) and "keepdim" not in node.args[1].kwargs
    return x - mean[:, None] if rows and mean.dim() == 1 else None


@fused(simplifications, _LAYERS, "relu")
def layers_that_are_rectified(graph: Graph, node: Node) -> Any:
    """A rectifier behind a layer writes to the layer's result, which others still read."""
    if name(node.args[0]) not in ("linear", "conv2d"):
        return None
    layer = graph[node.args[0]]
    layer.data.relu_()
    return layer.relu()


@fused(simplifications, _LAYERS, "t")
def sums_are_turned_later(graph: Graph, node: Node) -> Any:
    """What is added behind a turn is added before it."""
    reader = next((user for user in node.users if name(user) == "add"), None)
    x = graph[node.args[0]]
    if reader is None or x.shape != (4, 4) or graph[reader.args[1]] is None or graph[reader.args[1]].dim() != 1:
        return None
    added = graph[reader.args[1]]
    return (x + added).t() - added
