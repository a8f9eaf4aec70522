"""How torch's kernels order the dimensions of their results in memory, where torch's fakes of them have another order.

A program sees it in ``stride()``, and so do the operators that get the result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

_aten = torch.ops.aten
_HALF = (torch.bfloat16, torch.float16)

ROWS_RESIZED = tuple(
    getattr(packet, name)
    for packet in (_aten.upsample_nearest1d, _aten._upsample_nearest_exact1d)
    for name in ("default", "vec")
)
"""Operators whose results are contiguous."""


def laid_out(mode: Any, func: Any, args: Sequence[Any], result: Any) -> Any:
    """What ``func`` makes of fake tensors of ``mode``, with the strides of what its kernel makes."""
    layout = LAYOUTS.get(func)
    if layout is not None:
        return _in_layout(mode, args, result, layout, everywhere=func in ROWS_RESIZED)
    if func in IMAGES and result.device.type == IMAGES[func]:
        return _as_image(mode, func, args, result)
    return _as_a_sum(mode, func, args, result) if func in _AS_SUMS or _is_half_and_expanded(func, args) else result


def _is_half_and_expanded(func: Any, args: Sequence[Any]) -> bool:
    """Whether an operator on all elements gets an expanded operand, and half precision, in which fakes have others."""
    is_half = len(args) > 1 and all(isinstance(a, torch.Tensor) for a in args[:2]) and args[0].dtype in _HALF
    if not is_half or torch.Tag.pointwise not in func.tags or func._schema.is_mutable:
        return False
    return any(type(s) is int and s == 0 for a in args if isinstance(a, torch.Tensor) for s in a.stride())


def _as_a_sum(mode: Any, func: Any, args: Sequence[Any], result: Any) -> Any:
    """``result`` with the strides of the operands' sum, whose fake is right in float32."""
    given = [a for a in args if isinstance(a, torch.Tensor)]
    if len(given) < 2:
        return result
    with mode:
        if func is _aten.ldexp.Tensor:  # its kernel multiplies by powers, which are contiguous
            given[1] = torch.empty(given[1].shape, device=given[1].device)
        strides = strides_of_sum(*given)
        return result if strides == result.stride() else result.new_empty_strided(result.shape, strides)


def strides_of_sum(*given: torch.Tensor) -> tuple[Any, ...]:
    """The strides of a result whose elements one kernel computes from those of ``given``."""
    wide = [torch.empty_strided(a.shape, a.stride(), dtype=torch.float32, device=a.device) for a in given]
    return tuple(functools.reduce(torch.add, wide).stride())


def _in_layout(mode: Any, args: Sequence[Any], result: Any, layout: Callable[..., Any], *, everywhere: bool) -> Any:
    """The results in the order of dimensions that ``layout`` has for them, on the CPU, or ``everywhere``."""
    results = result if isinstance(result, tuple) else (result,)
    if results[0].device.type != "cpu" and not everywhere:
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


def _of_image(at: int) -> Callable[[Sequence[Any], Any], Any]:
    """As the tensor at ``at``, if it is an image in channels last; statistics are no images."""

    def layout(args: Sequence[Any], value: Any) -> Any:
        order = suggested_layout(args[at])
        if order is torch.contiguous_format or value.dim() != args[at].dim():
            return value
        return torch.empty_like(value, memory_format=order)

    return layout


def _of_spectrum(args: Sequence[Any], value: Any) -> Any:
    """As MKL leaves a Fourier transform: what stays comes first, then what is transformed, each as it was ordered."""
    x, dims = args[0], list(args[1])
    if not torch.backends.mkl.is_available():
        return _usual(args, value)
    if not dims or value.dim() < 2:
        return value
    strides = x.stride()
    if value.dtype.is_complex:
        last = [] if x.dtype.is_complex else [dims.pop()]  # that of a real tensor is transformed first
        order = _ordered(strides, dims) + last
    else:  # the last one comes after the others, whose result is complex
        *dims, last = dims
        if dims:
            strides = _dense(x, _kept(strides, dims) + _ordered(strides, dims)).stride()
        dims, order = [last], [last]
    return _dense(value, _kept(strides, order) + order)


def _kept(strides: Sequence[Any], dims: Sequence[int]) -> list[int]:
    return _ordered(strides, [d for d in range(len(strides)) if d not in dims])


def _ordered(strides: Sequence[Any], dims: Sequence[int]) -> list[int]:
    """Some dimensions, from the outermost to the innermost."""
    return sorted(dims, key=lambda d: strides[d], reverse=True)


def _dense(value: Any, order: Sequence[int]) -> Any:
    """A tensor of the sizes of ``value`` without gaps, whose dimensions lie in this order."""
    made = value.new_empty([value.shape[d] for d in order])
    return made.permute([order.index(d) for d in range(len(order))])


def suggested_layout(tensor: torch.Tensor) -> torch.memory_format:
    """The layout that torch's kernels give results of this tensor: channels last, if it is an image like that."""
    from torch._prims_common import suggest_memory_format

    return suggest_memory_format(tensor)


def _as_image(mode: Any, func: Any, args: Sequence[Any], result: Any) -> Any:
    """A result in channels last, if the first tensor is; torch's fake is not."""
    layout = suggested_layout(args[0])
    is_flat = func is _aten.roll.default and (len(args) < 3 or not args[2])
    if layout is torch.contiguous_format or is_flat:
        return result
    with mode:
        return torch.empty_like(result, memory_format=layout)


def in_usual_layout(mode: Any, result: Any) -> Any:
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


IMAGES = {
    _aten.roll.default: "cpu",
    _aten.channel_shuffle.default: "cpu",
    _aten.upsample_bilinear2d.default: "cuda",
    _aten.upsample_bilinear2d.vec: "cuda",
    _aten.upsample_nearest2d.vec: "cuda",
    _aten._upsample_nearest_exact2d.vec: "cuda",
    **{
        overload: "cuda"
        for packet in (_aten.upsample_nearest3d, _aten._upsample_nearest_exact3d, _aten.upsample_trilinear3d)
        for overload in (packet.default, packet.vec)
    },
}
"""Operators that make images of images on one kind of device, although torch's fakes of them are none, or not all."""

LAYOUTS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(
        (
            _aten.mse_loss_backward.default,
            _aten.smooth_l1_loss_backward.default,
            _aten.huber_loss_backward.default,
            _aten.log_sigmoid_forward.default,
            _aten._log_softmax_backward_data.default,
            _aten.pow.Scalar,
            _aten.rrelu_with_noise.default,
            *ROWS_RESIZED,
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
    **dict.fromkeys(
        (
            _aten.max_unpool2d.default,
            _aten.native_group_norm.default,  # torch 2.14 says that it is contiguous
            _aten.reflection_pad2d.default,
            _aten.reflection_pad3d.default,
            _aten.replication_pad2d.default,
            _aten.replication_pad3d.default,
        ),
        _of_image(0),
    ),
    **dict.fromkeys(
        (
            _aten.reflection_pad2d_backward.default,
            _aten.reflection_pad3d_backward.default,
            _aten.replication_pad2d_backward.default,
            _aten.replication_pad3d_backward.default,
        ),
        _of_image(1),
    ),
    # torch 2.11 orders them as the input, for some of these transforms.
    **dict.fromkeys((_aten._fft_c2c.default, _aten._fft_c2r.default, _aten._fft_r2c.default), _of_spectrum),
}
"""Operators whose kernels order the dimensions of their results otherwise than torch's fakes."""

_AS_SUMS = frozenset(
    (
        _aten.copysign.Tensor,
        _aten.div.Tensor_mode,
        _aten.floor_divide.default,
        _aten.heaviside.default,
        _aten.ldexp.Tensor,
        _aten.logaddexp.default,
        _aten.logaddexp2.default,
        _aten.logical_and.default,
        _aten.logical_or.default,
        _aten.logical_xor.default,
        _aten.special_xlog1py.default,
        _aten.xlogy.Tensor,
    )
)
"""Operators on all elements whose fakes are formulas of several steps, which order the dimensions otherwise."""
