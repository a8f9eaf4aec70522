"""Activation functions and their derivatives."""

from __future__ import annotations

import math
from typing import Any

from ..ir.expressions import Node, compute_type
from ..ir.operations import binary, compare, const, unary, where
from ..ir.values import Value
from .pointwise import bounded, sigmoid
from .registry import Context, aten, combine, elementwise, lowers


def _num(x: Node, value: float) -> Node:
    return const(value, x.dtype)


def _scaled(x: Node, factor: float) -> Node:
    return binary("mul", x, _num(x, factor))


def _plus(x: Node, value: float) -> Node:
    return binary("add", x, _num(x, value))


@lowers(aten.relu.default)
def _relu(ctx: Context, a: Value) -> Value:
    return elementwise(ctx, lambda x: bounded("maximum", x, _num(x, 0)), a)


@lowers(aten.silu.default)
def _silu(ctx: Context, a: Value) -> Value:
    return elementwise(ctx, lambda x: binary("div", x, _plus(unary("exp", unary("neg", x)), 1)), a)


@lowers(aten.gelu.default)
def _gelu(ctx: Context, a: Value, *, approximate: str = "none") -> Value:
    def element(x: Node) -> Node:
        if approximate == "none":
            return binary("mul", x, unary("normal_cdf", x))
        return binary("mul", _scaled(x, 0.5), _plus(unary("tanh", _gelu_inner(x)), 1))

    return elementwise(ctx, element, a)


def _gelu_inner(x: Node) -> Node:
    cube = binary("mul", binary("mul", x, x), x)
    return _scaled(binary("add", x, _scaled(cube, 0.044715)), math.sqrt(2 / math.pi))


@lowers(aten.gelu_backward.default)
def _gelu_backward(ctx: Context, grad: Value, a: Value, *, approximate: str = "none") -> Value:
    def element(g: Node, x: Node) -> Node:
        if approximate == "none":
            return binary("mul", g, binary("add", unary("normal_cdf", x), binary("mul", x, unary("normal_pdf", x))))
        t = unary("tanh", _gelu_inner(x))
        left = _scaled(_plus(t, 1), 0.5)
        inner = _scaled(_plus(_scaled(binary("mul", x, x), 3 * 0.044715), 1), math.sqrt(2 / math.pi))
        slope = binary("mul", binary("sub", _num(x, 1), binary("mul", t, t)), inner)
        return binary("mul", g, binary("add", left, binary("mul", _scaled(x, 0.5), slope)))

    return elementwise(ctx, element, grad, a)


@lowers(aten.threshold_backward.default)
def _threshold_backward(ctx: Context, grad: Value, a: Value, threshold: Any) -> Value:
    return elementwise(ctx, lambda g, x: where(compare("le", x, _num(x, threshold)), _num(g, 0), g), grad, a)


@lowers(aten.threshold.default)
def _threshold(ctx: Context, a: Value, threshold: Any, value: Any) -> Value:
    return elementwise(ctx, lambda x: where(compare("le", x, _num(x, threshold)), _num(x, value), x), a)


@lowers(aten.hardtanh.default)
def _hardtanh(ctx: Context, a: Value, low: Any = -1, high: Any = 1) -> Value:
    def element(x: Node) -> Node:
        return bounded("minimum", bounded("maximum", x, _num(x, low)), _num(x, high))

    return elementwise(ctx, element, a)


@lowers(aten.hardtanh_backward.default)
def _hardtanh_backward(ctx: Context, grad: Value, a: Value, low: Any, high: Any) -> Value:
    """Where ``a`` is not a number, the gradient is zero in eager on a CPU, and passes on a GPU."""

    def element(g: Node, x: Node) -> Node:
        if ctx.program.device.type != "cpu":
            outside = binary("or", compare("le", x, _num(x, low)), compare("ge", x, _num(x, high)))
            return where(outside, _num(g, 0), g)
        inside = binary("and", compare("gt", x, _num(x, low)), compare("lt", x, _num(x, high)))
        return where(inside, g, _num(g, 0))

    return elementwise(ctx, element, grad, a)


@lowers(aten.elu_backward.default)
def _elu_backward(
    ctx: Context, grad: Value, alpha: Any, scale: Any, input_scale: Any, is_result: bool, a: Value
) -> Value:
    """What is not a number has no slope in eager on a CPU, and the slope of positive numbers on a GPU."""

    def element(g: Node, x: Node) -> Node:
        low = _scaled(g, input_scale)
        if is_result:
            low = binary("mul", low, _plus(x, alpha * scale))
        else:
            low = binary("mul", _scaled(low, alpha * scale), unary("exp", _scaled(x, input_scale)))
        if ctx.program.device.type != "cpu":
            return where(compare("le", x, _num(x, 0)), low, _scaled(g, scale))
        return where(compare("gt", x, _num(x, 0)), _scaled(g, scale), low)

    return elementwise(ctx, element, grad, a)


@lowers(aten.hardswish_backward.default)
def _hardswish_backward(ctx: Context, grad: Value, a: Value) -> Value:
    """What is not a number has no slope in eager on a CPU, and passes the gradient on a GPU."""

    def element(g: Node, x: Node) -> Node:
        between = binary("mul", g, _plus(binary("div", x, _num(x, 3)), 0.5))
        if ctx.program.device.type != "cpu":
            high = where(compare("lt", x, _num(x, 3)), between, g)
        else:
            high = where(compare("ge", x, _num(x, 3)), g, between)
        return where(compare("le", x, _num(x, -3)), _num(g, 0), high)

    return elementwise(ctx, element, grad, a)


@lowers(aten.softshrink.default)
def _softshrink(ctx: Context, a: Value, threshold: Any = 0.5) -> Value:
    def element(x: Node) -> Node:
        low = where(compare("lt", x, _num(x, -threshold)), _plus(x, threshold), _num(x, 0))
        shrunk = where(compare("gt", x, _num(x, threshold)), _plus(x, -threshold), low)
        return where(compare("ne", x, x), x, shrunk)

    return elementwise(ctx, element, a)


@lowers(aten.leaky_relu.default)
def _leaky_relu(ctx: Context, a: Value, slope: Any = 0.01) -> Value:
    return elementwise(ctx, lambda x: where(compare("gt", x, _num(x, 0)), x, _scaled(x, slope)), a)


@lowers(aten.elu.default)
def _elu(ctx: Context, a: Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Value:
    def element(x: Node) -> Node:
        low = _scaled(unary("expm1", _scaled(x, input_scale)), alpha * scale)
        return where(compare("le", x, _num(x, 0)), low, _scaled(x, scale))

    return elementwise(ctx, element, a)


@lowers(aten.hardsigmoid.default)
def _hardsigmoid(ctx: Context, a: Value) -> Value:
    return elementwise(ctx, lambda x: _sixth(ctx, _up_to_six(x)), a)


@lowers(aten.hardsigmoid_backward.default)
def _hardsigmoid_backward(ctx: Context, grad: Value, a: Value) -> Value:
    def element(g: Node, x: Node) -> Node:
        inside = where(compare("lt", x, _num(x, 3)), _scaled(g, _SIXTH), _num(g, 0))
        return where(compare("gt", x, _num(x, -3)), inside, _num(g, 0))

    return elementwise(ctx, element, grad, a)


_SIXTH = 0.16666667163372040
"""A sixth in float32, which is what eager multiplies by in float64 as well, but for what CPUs divide by six."""


def _sixth(ctx: Context, x: Node) -> Node:
    """A sixth of ``x`` as eager's forward passes have it."""
    return binary("div", x, _num(x, 6)) if ctx.program.device.type == "cpu" else _scaled(x, _SIXTH)


def _up_to_six(x: Node) -> Node:
    return binary("minimum", binary("maximum", _plus(x, 3), _num(x, 0)), _num(x, 6))


@lowers(aten.hardswish.default)
def _hardswish(ctx: Context, a: Value) -> Value:
    return elementwise(ctx, lambda x: _sixth(ctx, binary("mul", x, _up_to_six(x))), a)


@lowers(aten.softplus.default)
def _softplus(ctx: Context, a: Value, beta: Any = 1, threshold: Any = 20) -> Value:
    def element(x: Node) -> Node:
        inner = _scaled(x, beta)
        soft = binary("div", unary("log1p", unary("exp", inner)), _num(x, beta))
        return where(compare("gt", inner, _num(x, threshold)), x, soft)

    return elementwise(ctx, element, a)


@lowers(aten.log_sigmoid_forward.default)
def _log_sigmoid(ctx: Context, a: Value) -> tuple[Value, Value]:
    """With the buffer that eager keeps on the CPU: the exponential of minus the magnitude."""
    out, kept = ctx.val

    def small(x: Node) -> Node:
        return unary("exp", unary("neg", unary("abs", x)))

    def element(x: Node) -> Node:
        return binary("sub", binary("minimum", x, _num(x, 0)), unary("log1p", small(x)))

    if kept.numel() == 0:
        buffer = Value(ctx.sizes(kept), kept.dtype, lambda at: const(0.0, kept.dtype))
    else:
        buffer = combine(ctx.sizes(kept), kept.dtype, small, [a], compute_type(a.dtype))
    return combine(ctx.sizes(out), out.dtype, element, [a], compute_type(a.dtype)), buffer


@lowers(aten.sigmoid_backward.default)
def _sigmoid_backward(ctx: Context, grad: Value, out: Value) -> Value:
    return elementwise(ctx, lambda g, y: binary("mul", binary("mul", g, binary("sub", _num(y, 1), y)), y), grad, out)


@lowers(aten.tanh_backward.default)
def _tanh_backward(ctx: Context, grad: Value, out: Value) -> Value:
    return elementwise(ctx, lambda g, y: binary("mul", g, binary("sub", _num(y, 1), binary("mul", y, y))), grad, out)


@lowers(aten.silu_backward.default)
def _silu_backward(ctx: Context, grad: Value, a: Value) -> Value:
    def element(g: Node, x: Node) -> Node:
        s = sigmoid(x)
        slope = _plus(binary("mul", x, binary("sub", _num(x, 1), s)), 1)
        return binary("mul", g, binary("mul", s, slope))

    return elementwise(ctx, element, grad, a)


@lowers(aten.soft_margin_loss_backward.default)
def _soft_margin_loss_backward(ctx: Context, grad: Value, a: Value, target: Value, reduction: int) -> Value:
    """torch's decomposition subtracts 1 from a sigmoid, which leaves few digits."""
    count = a.numel if reduction == 1 else 1

    def element(g: Node, x: Node, t: Node) -> Node:
        z = unary("exp", unary("neg", binary("mul", t, x)))
        part = binary("mul", unary("neg", t), binary("div", z, _plus(z, 1)))
        return binary("div", binary("mul", part, g), const(count, x.dtype))

    return elementwise(ctx, element, grad, a, target)
