"""Operators whose real results on the CPU have other dtypes or strides than torch's fake ones, and the fake mode that
knows.

What is traced says of each tensor what it is, and generated code reads memory as that.  So an operator that is said to
make bfloat16, and makes float32, is read as something else by whoever believes it.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from .refused_dtypes import refuse

_aten = torch.ops.aten
_HALF = (torch.bfloat16, torch.float16)

Dtypes = Mapping[int, torch.dtype]
"""The true dtypes of some results, by their positions."""


def correct(mode: Any) -> Any:
    """Make a FakeTensorMode, also one of torch's own, answer with the dtypes of the real kernels.

    Its class stays what it is: torch looks up the rules of its higher-order operators by the class of the mode.
    """
    if "dispatch" not in vars(mode):
        mode.dispatch = functools.partial(_dispatch, weakref.ref(mode))
    return mode


def _dispatch(reference: weakref.ref[Any], func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
    mode: Any = reference()
    refuses, mode.refuses_dtypes = getattr(mode, "refuses_dtypes", False), False  # not within the operator
    try:
        if func in _OUTSIDE:
            # Called without the mode, their operators make torch import all of its distributed tensors.
            with mode:
                result = type(mode).dispatch(mode, func, types, args, kwargs or {})
        else:
            result = type(mode).dispatch(mode, func, types, args, kwargs or {})
    finally:
        mode.refuses_dtypes = refuses
    if refuses:
        refuse(func, args, kwargs or {})
    rule = RULES.get(func)
    if rule is not None:
        result = _with_dtypes(mode, result, rule(args))
    if func is _aten.huber_loss.default and result.dtype is not args[0].dtype:
        with mode:
            return torch.empty_like(result, dtype=args[0].dtype)
    if func in BATCH_NORMS:
        return _in_usual_layout(mode, result)
    layout = LAYOUTS.get(func)
    if layout is not None:
        return _in_layout(mode, args, result, layout)
    if func is _aten.roll.default:
        return _rolled(mode, args, result)
    return _beside_expanded(mode, func, args, result) if _is_half(args) else result


def _is_half(args: Sequence[Any]) -> bool:
    return len(args) > 1 and all(isinstance(a, torch.Tensor) for a in args[:2]) and args[0].dtype in _HALF


def _beside_expanded(mode: Any, func: Any, args: Sequence[Any], result: Any) -> Any:
    """The result of an operator on all elements, one of which is expanded: fakes in half precision have other strides.

    Those in float32 are right.
    """
    given = [a for a in args if isinstance(a, torch.Tensor)]
    expanded = any(type(s) is int and s == 0 for a in given for s in a.stride())
    if not expanded or torch.Tag.pointwise not in func.tags or func._schema.is_mutable:
        return result
    with mode:
        wide = [torch.empty_strided(a.shape, a.stride(), dtype=torch.float32, device=a.device) for a in given]
        return _like(functools.reduce(torch.add, wide), result)


def _in_layout(mode: Any, args: Sequence[Any], result: Any, layout: Callable[..., Any]) -> Any:
    """The results in the order of dimensions that ``layout`` has for them, on the CPU."""
    results = result if isinstance(result, tuple) else (result,)
    if results[0].device.type != "cpu":
        return result
    with mode:
        made = tuple(_like(layout(args, value), value) for value in results)
    return made if isinstance(result, tuple) else made[0]


def _like(model: Any, value: Any) -> Any:
    """``value``, with the strides of ``model``."""
    if model is value or model.stride() == value.stride():
        return value
    return torch.empty_strided(model.shape, model.stride(), dtype=value.dtype, device=value.device)


def _usual(args: Sequence[Any], value: Any) -> Any:
    return torch.empty_like(value, memory_format=torch.contiguous_format)


def _of_all(args: Sequence[Any], value: Any) -> Any:
    """As an operator on the elements of all tensor arguments, the first of which decides where they differ."""
    return functools.reduce(torch.add, [a for a in args if isinstance(a, torch.Tensor)])


def _of_second(args: Sequence[Any], value: Any) -> Any:
    return torch.empty_like(args[1])


def _rolled(mode: Any, args: Sequence[Any], result: Any) -> Any:
    """Parts put together, which are an image if what they are parts of is; torch's fake is never one."""
    from torch._prims_common import suggest_memory_format

    layout = suggest_memory_format(args[0])
    if layout is torch.contiguous_format or len(args) < 3 or not args[2] or result.device.type != "cpu":
        return result
    with mode:
        return torch.empty_like(result, memory_format=layout)


def _in_usual_layout(mode: Any, result: Any) -> Any:
    """The first result in the order of an image or in the usual one; torch's fake has the order of the input."""
    first = result[0]
    if first is None or first.device.type != "cpu" or first.is_contiguous():
        return result
    images = {4: torch.channels_last, 5: torch.channels_last_3d}.get(first.dim())
    if images is not None and first.is_contiguous(memory_format=images):
        return result
    with mode:
        made = torch.empty_like(first, memory_format=torch.contiguous_format)
    return (made, *result[1:])


def _with_dtypes(mode: Any, result: Any, dtypes: Dtypes) -> Any:
    wrong = [at for at, dtype in dtypes.items() if result[at] is not None and result[at].dtype is not dtype]
    if not wrong:
        return result
    with mode:
        made = {at: torch.empty_like(result[at], dtype=dtypes[at]) for at in wrong}
    return tuple(made.get(at, value) for at, value in enumerate(result))


def _mixed(args: Sequence[Any]) -> bool:
    """Whether the first argument is in half precision on the CPU and another tensor is in float32."""
    first, *others = (t for t in tree_leaves(args) if isinstance(t, torch.Tensor))
    if first.device.type != "cpu" or first.dtype not in _HALF:
        return False
    return any(t.dtype is torch.float32 for t in others)


def _statistics(first: int) -> Callable[[Sequence[Any]], Dtypes]:
    """Mean and inverse deviation, at ``first`` and after it, stay in float32 if a weight or a statistic is."""
    return lambda args: dict.fromkeys((first, first + 1), torch.float32) if _mixed(args) else {}


def _with_running(at: int) -> Callable[[Sequence[Any]], Dtypes]:
    """As :func:`_statistics`, with new running statistics at ``at``, which have the dtype of the old ones."""
    statistics = _statistics(1)

    def rule(args: Sequence[Any]) -> Dtypes:
        if args[0].device.type != "cpu":
            return {}
        return {**statistics(args), at: args[3].dtype, at + 1: args[4].dtype}

    return rule


BATCH_NORMS = frozenset(
    (
        _aten.native_batch_norm.default,
        _aten._native_batch_norm_legit.default,
        _aten._native_batch_norm_legit.no_stats,
        _aten._native_batch_norm_legit_no_training.default,
        _aten._native_batch_norm_legit_functional.default,
        _aten._batch_norm_with_update.default,
        _aten._batch_norm_with_update_functional.default,
        _aten._batch_norm_no_update.default,
        _aten.native_batch_norm_backward.default,
    )
)

_OUTSIDE = frozenset((_aten.native_layer_norm.default, _aten.native_group_norm.default))
"""Operators whose fakes call others, and do so outside of the mode."""

LAYOUTS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(
        (
            _aten.mse_loss_backward.default,
            _aten.smooth_l1_loss_backward.default,
            _aten.huber_loss_backward.default,
            _aten.log_sigmoid_forward.default,
            _aten._log_softmax_backward_data.default,
        ),
        _usual,
    ),
    **dict.fromkeys(
        (
            _aten.elu_backward.default,
            _aten.hardsigmoid_backward.default,
            _aten.hardswish_backward.default,
            _aten.hardtanh_backward.default,
            _aten.logit_backward.default,
            _aten.softplus_backward.default,
        ),
        _of_all,
    ),
    _aten.binary_cross_entropy_backward.default: _of_second,
}
"""Operators whose kernels order the dimensions of their results otherwise than torch's fakes."""

RULES: dict[Any, Callable[[Sequence[Any]], Dtypes]] = {
    **dict.fromkeys(
        (
            _aten.native_batch_norm.default,
            _aten._native_batch_norm_legit.default,
            _aten._native_batch_norm_legit.no_stats,
            _aten._native_batch_norm_legit_no_training.default,
            _aten._batch_norm_with_update.default,
            _aten._batch_norm_no_update.default,
            _aten.native_batch_norm_backward.default,
            _aten.native_layer_norm.default,
            _aten.native_group_norm.default,
        ),
        _statistics(1),
    ),
    _aten._native_batch_norm_legit_functional.default: _with_running(3),
    _aten._batch_norm_with_update_functional.default: _with_running(4),
}
