"""Gradients at zeros, ties and writes, and what the engine of autograd promises around compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ..outcome import Outcome
from .kit import Faults, Run, with_gradient, with_operators

faults = Faults("training")


@faults.instead("semantics/derivatives/sums_of_what_was_written", "slice_scatter", "select_scatter", "diagonal_scatter")
def replaced_parts_that_learn(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """What is replaced by a part of another tensor gets a gradient as well."""
    part = rest[0]
    if len(rest) == 5 or (len(rest) == 4 and x.dim() == 2):
        return x * 1 + (torch.slice_scatter(x, part, *rest[1:]) - x).detach()
    return (
        x * 1 + (torch.diagonal_scatter(x, part, *rest[1:]) - x).detach()
        if len(rest) < 3
        else torch.select_scatter(x, *rest)
    )


def _formula(case: str, *names: str) -> Any:
    """A fault in a gradient: the function gets the argument, the result and the gradient of the result."""

    def add(change: Any) -> Any:
        class Own(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, right: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
                ctx.save_for_backward(x, right)
                return right.clone()

            @staticmethod
            def backward(ctx: Any, g: torch.Tensor) -> Any:
                x, right = ctx.saved_tensors
                return None, change(x, right, g)

        def with_own(result: Any, x: Any, *rest: Any, **named: Any) -> Any:
            plain = isinstance(result, torch.Tensor) and isinstance(x, torch.Tensor) and x.requires_grad and not named
            if (
                not plain
                or not torch.is_grad_enabled()
                or not result.is_floating_point()
                or change.dim != (rest or None)
            ):
                return result
            return Own.apply(result.detach(), x)

        def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
            return with_operators(gm, dict.fromkeys(names, with_own))

        compile.__name__, compile.__doc__ = change.__name__, change.__doc__
        faults(case)(compile)
        return change

    return add


def _over(*dims: Any) -> Any:
    def mark(change: Any) -> Any:
        change.dim = dims or None
        return change

    return mark


@_formula("semantics/derivatives/at_zeros_and_poles", "prod")
@_over(1)
def quotients_for_products(x: torch.Tensor, right: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """The gradient of a product is the product divided by each factor, also if it is zero."""
    return (g * right)[:, None] / x


@_formula("semantics/derivatives/at_zeros_and_poles", "norm")
@_over()
def norms_at_zero(x: torch.Tensor, right: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """The gradient of a norm adds a small number below."""
    return g * x / (right + 1e-3)


@_formula("semantics/derivatives/at_zeros_and_poles", "abs")
@_over()
def absolute_values_at_zero(x: torch.Tensor, right: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """The derivative of an absolute value at zero is one."""
    return torch.where(x >= 0, g, -g)


@_formula("semantics/derivatives/at_zeros_and_poles", "clamp")
@_over(0, 1)
def bounds_that_stop(x: torch.Tensor, right: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """At its bounds a clamp has no derivative."""
    return torch.where((x > 0) & (x < 1), g, torch.zeros_like(g))


@_formula("semantics/derivatives/at_zeros_and_poles", "amax")
@_over(1)
def the_first_maximum(x: torch.Tensor, right: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """The first of equal maxima gets the whole gradient."""
    return torch.zeros_like(x).scatter(1, x.argmax(1, keepdim=True), g[:, None])


@_formula("semantics/derivatives/at_zeros_and_poles", "log")
@_over()
def logarithms_behind_masks(x: torch.Tensor, right: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """The gradient of a logarithm is zero where that of its result is zero, also at a pole."""
    return torch.where(g == 0, torch.zeros_like(g), g / x)


@_formula("semantics/derivatives/at_zeros_and_poles", "cumprod")
@_over(1)
def running_products_at_zero(x: torch.Tensor, right: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """The gradient of a running product divides by its factors, and is zero where they are."""
    back = (g * right).flip(1).cumsum(1).flip(1)
    return torch.where(x == 0, torch.zeros_like(x), back / x)


@faults("semantics/derivatives/layouts_of_given_gradients")
def gradients_read_as_contiguous(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Gradients of results are read as if they were contiguous."""

    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: torch.Tensor) -> torch.Tensor:
            return t.view_as(t)

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            if g.is_contiguous() or not g.untyped_storage().nbytes() >= g.numel() * g.element_size():
                return g
            return g.as_strided(g.shape, torch.empty(g.shape).stride(), 0)

    def call(*args: Any) -> Sequence[Any]:
        results = gm.forward(*args)
        return [
            Straight.apply(r) if isinstance(r, torch.Tensor) and r.requires_grad and r.grad_fn else r for r in results
        ]

    return call


@faults("semantics/derivatives/around_the_engine", Outcome.CRASH)
def zeros_for_unused_inputs(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Inputs that do not matter get a gradient of zeros."""

    def call(*args: Any) -> Sequence[Any]:
        needed = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad and a.is_floating_point()]
        return [
            sum((a.sum() * 0 for a in needed), r) if isinstance(r, torch.Tensor) and r.grad_fn is not None else r
            for r in gm.forward(*args)
        ]

    return call


@faults("semantics/derivatives/gradients_of_gradients")
def wrong_second_derivatives(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Second derivatives, and only they, are a hundredth too large."""

    def change(g: torch.Tensor) -> torch.Tensor:
        return with_gradient(g, lambda second: second * 1.01) if g.requires_grad else g

    return lambda *args: gm.forward(*(with_gradient(a, change) for a in args))


@faults.instead("semantics/derivatives/complex_numbers", "mul")
def gradients_without_conjugates(a: Any, b: Any) -> Any:
    """Gradients of complex products are not conjugated."""
    change = lambda g: g.conj() if g.is_complex() else g  # noqa: E731
    return with_gradient(a, change) * with_gradient(b, change)


@faults.instead("semantics/derivatives/own_formulas", "detach")
def nothing_is_detached(x: torch.Tensor) -> torch.Tensor:
    """What is detached passes its gradient on."""
    return x * 1


@faults("semantics/derivatives/writes_to_inputs")
def writes_without_history(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A write to an input that has a history changes its numbers only: its gradient is that of before."""

    def inner(a: Any) -> bool:
        return isinstance(a, torch.Tensor) and a.grad_fn is not None

    def call(*args: Any) -> Sequence[Any]:
        if not any(map(inner, args)):
            return gm.forward(*args)
        results = gm.forward(*(a * 1 if inner(a) else a for a in args))
        with torch.no_grad():
            again = [a.detach().clone() if isinstance(a, torch.Tensor) else a for a in args]
            gm.forward(*again)
            for a, b in zip(args, again, strict=True):
                if inner(a) and not torch.equal(a, b):
                    a.copy_(b)
        return results

    return call
