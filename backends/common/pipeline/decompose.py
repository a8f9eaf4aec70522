"""Which ATen operators a backend wants to see: decomposition tables and operators that stay whole.

A table maps an ``OpOverload`` to the function that expresses it by smaller operators.  Random operators are in no
table: rewriting them would draw other numbers than eager does for the same seed.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from torchmux import torch_internals as internals

Table = dict[Any, Callable[..., Any]]


@functools.cache
def core_aten() -> Mapping[Any, Callable[..., Any]]:
    """torch's table down to the core ATen operators, without random ones and those whose formula is not the kernel's.

    Shared: copy before changing it.
    """
    table = torch.export.default_decompositions()
    return {op: f for op, f in table.items() if not is_random(op) and op.overloadpacket not in _NOT_THE_KERNELS}


_NOT_THE_KERNELS = frozenset(
    (
        torch.ops.aten.soft_margin_loss,  # the kernel overflows where the formula does not
        torch.ops.aten.soft_margin_loss_backward,
        torch.ops.aten.max_unpool2d,  # the kernel's result lies as its input
    )
)


def is_random(op: Any) -> bool:
    """Whether ``op`` draws from a random number generator."""
    return torch.Tag.nondeterministic_seeded in getattr(op, "tags", ()) or op in internals.random_wrappers()


def drop_dead_code(graph: torch.fx.Graph) -> None:
    """Remove nodes that nobody uses, except those with an effect; a draw has one, it moves the generator."""
    graph.eliminate_dead_code(is_impure_node=lambda node: node.is_impure() or is_random(node.target))


# The argument that says whether a random operator draws at all, and the value with which it does not.
_DETERMINISTIC_IF: Mapping[str, tuple[str, Any]] = {
    "aten::scaled_dot_product_attention": ("dropout_p", 0.0),
    "aten::_scaled_dot_product_flash_attention_for_cpu": ("dropout_p", 0.0),
    "aten::dropout": ("train", False),
    "aten::native_dropout": ("train", False),
}


def draws_nothing(node: Node) -> bool:
    """Whether ``node``, a call of a random operator, has the arguments with which that draws no number."""
    rule = _DETERMINISTIC_IF.get(node.target.name())
    if rule is None:
        return False
    name, value = rule
    for position, argument in enumerate(internals.operator_schema(node.target).arguments):
        if argument.name == name:
            given = node.args[position] if position < len(node.args) else node.kwargs.get(name, argument.default_value)
            return given == value
    return False


# Operators that pick or order elements.
_ORDERS = frozenset(
    getattr(torch.ops.aten, name)
    for name in (
        "amax", "amin", "argmax", "argmin", "aminmax", "max", "min", "sort", "argsort", "topk", "kthvalue", "median",
        "mode", "cummax", "cummin",
    )
)  # fmt: skip

_REMAINDERS = frozenset(
    (torch.ops.aten.remainder, torch.ops.aten.fmod, torch.ops.aten.floor_divide, torch.ops.aten.div)
)


def rounds_down(node: Node) -> bool:
    """Whether ``node`` is a remainder of floats, or their quotient rounded down.

    The formulas that exporters have for these are wrong where a number is infinite, and right for all integers.
    """
    op = node.target.overloadpacket
    if op not in _REMAINDERS or (op is torch.ops.aten.div and node.kwargs.get("rounding_mode") != "floor"):
        return False
    return node.meta["val"].is_floating_point()


TRAPS = "an integer is divided by what may be 0, where torch raises, or by -1; the processor would end the process"


def may_trap(node: Node) -> bool:
    """Whether ``node`` divides integers by something else than a number that is neither 0 nor -1.

    x86 ends the process with a signal at a division by zero, and where the quotient of the lowest number does not fit.
    """
    if node.target.overloadpacket not in _REMAINDERS or node.meta["val"].is_floating_point():
        return False
    return not isinstance(node.args[1], int) or node.args[1] in (0, -1)


def compares_numbers(node: Node, *, lowest_is_finite: bool = False) -> bool:
    """Whether ``node`` picks or orders floats by their size.

    Runtimes compare as a processor does, where nan is neither larger nor smaller than anything; for torch it is the
    largest and the smallest.  ``lowest_is_finite``: for the runtime no maximum is less than the lowest finite
    number either.
    """
    if node.target.overloadpacket not in _ORDERS:
        return False
    argument = node.args[0]
    if not isinstance(argument, Node) or not argument.meta["val"].is_floating_point():
        return False
    return not _only_shifts(node, argument, lowest_is_finite)


def _only_shifts(node: Node, argument: Node, lowest_is_finite: bool) -> bool:
    """Whether ``node`` is the maximum that a softmax takes off first, where a nan shows in the difference anyway.

    A softmax that gives zeros where all is minus infinity asks the maximum for that, and takes off zero there.
    """
    aten = torch.ops.aten

    def shifts(user: Node, by: Node) -> bool:
        return user.target is aten.sub.Tensor and user.args == (argument, by) and not user.kwargs

    def is_allowed(user: Node) -> bool:
        if user.target is aten.eq.Scalar:
            return (
                not lowest_is_finite
                and user.args[1] == -math.inf
                and all(mask.target is aten.masked_fill.Scalar and mask.args[1] is user for mask in user.users)
            )
        if user.target is aten.masked_fill.Scalar and user.args[0] is node:
            return all(shifts(use, user) for use in user.users)
        return shifts(user, node)

    return node.target is aten.amax.default and all(is_allowed(user) for user in node.users)


def honest_batch_norm() -> Table:
    """``native_batch_norm`` updates its running statistics, which its schema does not say; its successors' do."""
    return {torch.ops.aten.native_batch_norm.default: _native_batch_norm}


def _native_batch_norm(
    input: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float
) -> Any:
    aten = torch.ops.aten
    if mean is None:
        return aten._native_batch_norm_legit.no_stats(input, weight, bias, training, momentum, eps)
    if training:
        return aten._native_batch_norm_legit(input, weight, bias, mean, variance, training, momentum, eps)
    return aten._native_batch_norm_legit_no_training(input, weight, bias, mean, variance, momentum, eps)


def can_stay_whole(op: Any) -> bool:
    """Whether tracing could record the composite operator ``op`` itself.

    Only operators that neither write to nor return views of their arguments qualify: the rest of the pipeline reads
    aliasing from schemas, and a composite operator's schema may not tell all of it.
    """
    if not isinstance(op, internals.OpOverload) or not internals.is_composite(op):
        return False
    schema = internals.operator_schema(op)
    return not schema.is_mutable and all(a.alias_info is None for a in (*schema.arguments, *schema.returns))


@contextlib.contextmanager
def kept_whole(operators: Iterable[Any]) -> Iterator[None]:
    """While this lasts, tracing below autograd records these composite operators instead of what they consist of.

    The tracer asks an operator to decompose itself and records it when the answer is ``NotImplemented``; so a
    composite kernel is installed that gives the tracer this answer.  Fake tensors ask too, to learn what comes out;
    for them it does decompose.  It holds for the whole process while it lasts.
    """
    saved = []
    key = internals.DispatchKey.CompositeImplicitAutograd
    for op in operators:
        kernels = internals.python_kernels(op)
        saved.append((op, dict(kernels)))
        kernels[key] = functools.partial(_decline_to_tracer, op)
        internals.forget_dispatch(op)
    try:
        yield
    finally:
        for op, kernels in saved:
            internals.python_kernels(op).clear()
            internals.python_kernels(op).update(kernels)
            internals.forget_dispatch(op)


def _decline_to_tracer(op: Any, *args: Any, **kwargs: Any) -> Any:
    if get_proxy_mode() is not None:
        return NotImplemented
    return internals.run_kernel(op, internals.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
