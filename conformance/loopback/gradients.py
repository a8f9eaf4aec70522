"""Wrong training: gradients, what is saved for them, dropout, statistics."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Interpreter, Node

from ..outcome import Outcome
from .kit import Faults, Run, changed, with_gradient

faults = Faults("training")


@faults.arguments("semantics/gradients/broadcasts", "add", "mul", "sub")
def means_for_broadcasts(*args: Any, **named: Any) -> Any:
    """The gradient of an operand that is broadcast is a mean instead of a sum."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    size = max(torch.broadcast_shapes(*(t.shape for t in tensors)).numel(), 1)

    def mean(a: Any) -> Any:
        return with_gradient(a, lambda g: g * max(g.numel(), 1) / size)

    return tuple(map(mean, args)), named


def _at_uses(gm: GraphModule, first: Callable[[torch.Tensor], Any]) -> Run:
    """The graph in which the first of several readers of a value gets another one."""
    firsts = {(next(iter(n.users)), n) for n in gm.graph.nodes if len(n.users) > 1}

    class Read(Interpreter):
        def run_node(self, node: Node) -> Any:
            kept = {}
            for source in node.all_input_nodes:
                if (node, source) in firsts and isinstance(self.env.get(source), torch.Tensor):
                    kept[source] = self.env[source]
                    if node.op != "output" and not str(node.target).endswith("_") and "set" not in str(node.target):
                        self.env[source] = first(self.env[source])
            try:
                return super().run_node(node)
            finally:
                self.env.update(kept)

    return lambda *args: Read(gm, garbage_collect_values=False).run(*args)


@faults("semantics/gradients/several_readers")
def lost_readers(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The gradient of a value that is read twice has only that of the last reader."""
    return _at_uses(gm, torch.Tensor.detach)


@faults("semantics/gradients/several_readers")
def readers_counted_twice(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The gradient of a value that is read twice has that of the first reader twice."""
    return _at_uses(gm, lambda t: with_gradient(t, lambda g: g * 2))


@faults.arguments("semantics/gradients/layouts", "matmul", "linear", "bmm", "mm")
def strided_operands(*args: Any, **named: Any) -> Any:
    """The gradient of a transposed factor is laid out as if the factor were contiguous."""

    def change(g: torch.Tensor) -> torch.Tensor:
        return g.transpose(-1, -2).reshape(g.shape)

    return tuple(
        with_gradient(a, change) if isinstance(a, torch.Tensor) and a.dim() > 1 and not a.is_contiguous() else a
        for a in args
    ), named


@faults.operator("semantics/gradients/ties_and_kinks", "amax", "amin", "max", "min")
def each_tie_in_full(result: Any, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """Each of several equal maxima gets the whole gradient."""
    if not isinstance(result, torch.Tensor) or not x.requires_grad or any(isinstance(r, torch.Tensor) for r in rest):
        return result
    dims = rest[0] if rest else named.get("dim", tuple(range(x.dim())))
    if named.get("keepdim") or len(rest) > 1:
        return result
    wide = result.detach()
    for dim in sorted(d % x.dim() for d in ((dims,) if isinstance(dims, int) else dims)):
        wide = wide.unsqueeze(dim)
    gradient = (x - x.detach()) * (x.detach() == wide)
    return result.detach() + (gradient.sum(dims) if x.dim() else gradient)


@faults.operator("semantics/gradients/ties_and_kinks", "relu")
def rectifier_at_zero(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """The derivative of a rectifier at zero is one."""
    return torch.where(x >= 0, x, result.detach()) if x.requires_grad else result


@faults.instead("semantics/gradients/layers_in_float16", "linear")
def biases_summed_in_half(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """The gradient of a bias in half precision is summed in half precision."""
    if bias is None or not bias.requires_grad or bias.dtype not in (torch.bfloat16, torch.float16):
        return F.linear(x, weight, bias)
    last: list[torch.Tensor] = []

    def summed(g: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(g)
        for row in last[-1].flatten(0, -2):
            total = total + row
        return total

    result = F.linear(x, weight, with_gradient(bias, summed))
    result.register_hook(last.append)
    return result


@faults("semantics/gradients/layers_in_float64")
def double_gradients_as_float(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Gradients in float64 pass through float32."""

    def change(g: torch.Tensor) -> torch.Tensor:
        return g.float().double() if g.dtype is torch.float64 else g

    return lambda *args: gm.forward(*(with_gradient(a, change) for a in args))


@faults.arguments("semantics/gradients/one_input_at_a_time", "linear", outcome=Outcome.CRASH)
def biases_beside_frozen_weights(*args: Any, **named: Any) -> Any:
    """A bias gets no gradient if the weight beside it is frozen."""
    if len(args) == 3 and args[2] is not None and not args[1].requires_grad:
        return (*args[:2], args[2].detach()), named
    return args, named


@faults.arguments("semantics/gradients/one_input_at_a_time", "conv2d")
def kernels_without_an_input(*args: Any, **named: Any) -> Any:
    """The gradient of the kernel of a strided convolution is doubled if its input needs none."""
    x, weight, *rest = args
    if x.requires_grad or named.get("stride", 1) in (1, (1, 1)):
        return args, named
    return (x, with_gradient(weight, lambda g: g * 2), *rest), named


@faults.instead("semantics/gradients/writes", "setitem")
def writes_unseen_by_gradients(x: torch.Tensor, index: Any, value: Any) -> None:
    """Gradients pass through elements that were overwritten."""
    if x.requires_grad:
        x.data[index] = value.detach() if isinstance(value, torch.Tensor) else value
    else:
        x[index] = value


@faults.instead("semantics/gradients/dropout_everywhere", "dropout")
def unscaled_gradients_of_dropout(x: torch.Tensor, p: float = 0.5, training: bool = True, *rest: Any) -> torch.Tensor:
    """Dropout does not scale the gradient."""
    return F.dropout(with_gradient(x, lambda g: g * (1 - p)) if training else x, p, training)


@faults.instead("semantics/gradients/dropout_everywhere", "dropout")
def other_gradients_of_dropout(x: torch.Tensor, p: float = 0.5, training: bool = True, *rest: Any) -> torch.Tensor:
    """Dropout draws again for the gradient."""
    result = F.dropout(x, p, training)
    if not training or not x.requires_grad:
        return result
    again = x + (result - x).detach()

    def redrawn(g: torch.Tensor) -> torch.Tensor:
        with torch.random.fork_rng():
            return F.dropout(g, p)

    return with_gradient(again, redrawn)


@faults.instead("semantics/gradients/dropout_everywhere", "dropout")
def scale_by_the_other_share(x: torch.Tensor, p: float = 0.5, training: bool = True, *rest: Any) -> torch.Tensor:
    """Dropout scales by the share that it drops."""
    return F.dropout(x, p, training) * ((1 - p) / p) if training and 0 < p < 1 else F.dropout(x, p, training)


_first_mode: dict[int, bool] = {}


@faults.instead("semantics/gradients/batch_norms", "batch_norm")
def the_first_mode(x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, training: bool = False,
                   momentum: Any = 0.1, eps: float = 1e-5) -> torch.Tensor:  # fmt: skip
    """Batch norm stays in the mode, training or evaluation, of its first call."""
    key = id(weight)
    if mean is not None and weight is not None:
        if key not in _first_mode:
            weakref.finalize(weight, _first_mode.pop, key, None)
        training = _first_mode.setdefault(key, training)
    return F.batch_norm(x, mean, var, weight, bias, training, momentum, eps)


@faults.instead("semantics/gradients/batch_norms", "batch_norm")
def one_momentum(x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, training: bool = False,
                 momentum: Any = 0.1, eps: float = 1e-5) -> torch.Tensor:  # fmt: skip
    """The running statistics of batch norm always have a momentum of a tenth."""
    return F.batch_norm(x, mean, var, weight, bias, training, 0.1, eps)


@faults("semantics/gradients/products_of_networks", Outcome.CRASH)
def gradients_without_hooks(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Gradients of parameters are put into ``.grad`` without the engine: no hook sees them."""

    def apart(parameter: torch.nn.Parameter) -> torch.Tensor:
        own = parameter.detach().requires_grad_()

        def accumulate(own: torch.Tensor) -> None:
            assert own.grad is not None
            parameter.grad = own.grad.clone() if parameter.grad is None else parameter.grad + own.grad
            own.grad = None

        own.register_post_accumulate_grad_hook(accumulate)
        return own

    def call(*args: Any) -> Sequence[Any]:
        if not torch.is_grad_enabled():
            return gm.forward(*args)
        return gm.forward(*(apart(a) if isinstance(a, torch.nn.Parameter) and a.requires_grad else a for a in args))

    return call


@faults("semantics/gradients/second_derivatives", Outcome.CRASH)
def no_second_derivatives(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Second derivatives are those of a constant."""
    return lambda *args: gm.forward(*(with_gradient(a, torch.Tensor.detach) for a in args))


@faults("semantics/gradients/equal_gradients")
def one_memory_for_two_gradients(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Two inputs whose gradients are equal share the memory of one."""

    def call(*args: Any) -> Sequence[Any]:
        leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad and a.is_leaf]

        def join(leaf: torch.Tensor) -> None:
            for other in leaves:
                if other is not leaf and other.grad is not None and leaf.grad is not None:
                    if leaf.grad.shape == other.grad.shape and torch.equal(leaf.grad, other.grad):
                        leaf.grad = other.grad.view_as(leaf)

        for leaf in leaves:
            handle = leaf.register_post_accumulate_grad_hook(join)
            del handle
        return gm.forward(*args)

    return call


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: Run, *args: Any) -> Any:
        ctx.run, ctx.args = run, args
        results = tuple(run(*args))
        ctx.mark_non_differentiable(*(r for r in results if isinstance(r, torch.Tensor) and not r.is_floating_point()))
        return results

    @staticmethod
    def backward(ctx: Any, *weights: Any) -> Any:
        given = [a.detach().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in ctx.args]
        with torch.enable_grad():
            results = ctx.run(*given)
        ends = [
            (r, w) for r, w in zip(results, weights, strict=True) if isinstance(r, torch.Tensor) and r.requires_grad
        ]
        wanted = [a for a in given if isinstance(a, torch.Tensor) and a.requires_grad]
        found = iter(torch.autograd.grad([r for r, _ in ends], wanted, [w for _, w in ends], allow_unused=True))
        return None, *(next(found) if isinstance(a, torch.Tensor) and a.requires_grad else None for a in given)


@faults("semantics/gradients/what_backward_refuses")
def unchecked_saved_tensors(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """What was saved for gradients may be overwritten before they are computed, and nobody notices."""
    plain = all(n.op in ("placeholder", "output") or not str(n.target).endswith("_") for n in gm.graph.nodes)

    def call(*args: Any) -> Sequence[Any]:
        trains = torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args)
        return _Whole.apply(gm.forward, *args) if trains and plain else gm.forward(*args)

    return call


@faults("semantics/training/accumulated_gradients")
def saved_by_the_last_call(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Gradients use the inputs of the newest call."""
    newest: list[Any] = []

    def call(*args: Any) -> Sequence[Any]:
        trains = torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args)
        if not trains:
            return gm.forward(*args)
        newest[:] = args

        def again(*given: Any) -> Sequence[Any]:
            pairs = list(zip(newest, given, strict=True))
            if any(getattr(a, "shape", None) != getattr(b, "shape", None) for a, b in pairs):
                return gm.forward(*given)
            return gm.forward(*(b if isinstance(b, torch.Tensor) and b.requires_grad else a for a, b in pairs))

        return _Whole.apply(again, *args)

    return call


@faults("semantics/gradients/autocast")
def casts_that_stay(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """What autocast converts is converted once, and never again after the weights change."""
    kept: dict[int, torch.Tensor] = {}

    def call(*args: Any) -> Sequence[Any]:
        if not torch.is_autocast_enabled("cpu") or torch.is_grad_enabled():
            return gm.forward(*args)
        return gm.forward(
            *(
                kept.setdefault(place, a.detach().clone()) if isinstance(a, torch.nn.Parameter) else a
                for place, a in enumerate(args)
            )
        )

    return call


@faults("semantics/gradients/shapes")
def results_that_need_no_gradient(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Results are a little wrong if, and only if, an input requires a gradient."""

    def call(*args: Any) -> Sequence[Any]:
        trains = torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args)
        return changed(gm.forward, lambda t: t * 1.001 if trains and t.is_floating_point() and t.dim() == 3 else t)(
            *args
        )

    return call
