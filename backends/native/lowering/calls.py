"""Operators that stay calls of torch's kernels, because a library does them better than loops, or random numbers.

Which are called is an explicit list: an operator that is in neither table is refused, and the report says so.
"""

from __future__ import annotations

from typing import Any

import torch

from ..program import TensorRef
from ..values import Value
from .registry import Context, aten, table


def _overloads(names: str) -> list[Any]:
    """``name`` stands for its default overload, ``name.overload`` for another; what this torch lacks is left out."""
    found = []
    for name in names.split():
        packet, _, overload = name.partition(".")
        op = getattr(getattr(aten, packet, None), overload or "default", None)
        if op is not None:
            found.append(op)
    return found


LIBRARY = frozenset(
    _overloads(
        "convolution convolution_backward _scaled_dot_product_flash_attention_for_cpu "
        "_scaled_dot_product_flash_attention_for_cpu_backward sort sort.stable topk cumsum cumprod cummax cummin "
        "logcumsumexp max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices "
        "max_pool3d_with_indices_backward avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward "
        "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d adaptive_max_pool2d "
        "adaptive_max_pool2d_backward upsample_bilinear2d upsample_bicubic2d upsample_nearest2d upsample_linear1d "
        "upsample_trilinear3d upsample_bilinear2d.vec upsample_nearest2d.vec upsample_bicubic2d.vec "
        "upsample_bilinear2d_backward upsample_nearest2d_backward upsample_bicubic2d_backward "
        "index_put scatter.src scatter.value scatter_add scatter_reduce.two index_add index_copy "
        "embedding_dense_backward "
        "_embedding_bag _cdist_forward _fft_r2c grid_sampler_2d grid_sampler_3d "
        "addmv mv dot searchsorted.Tensor bucketize.Tensor histc median.dim nanmedian.dim kthvalue mode "
        "linalg_cholesky_ex linalg_solve_triangular linalg_inv_ex _linalg_svd _linalg_eigh linalg_qr "
        "native_dropout bernoulli bernoulli.p rand randn randint randint.low rand_like randn_like randint_like "
        "randint_like.low_dtype randperm normal_functional uniform normal.Tensor_float multinomial exponential "
        "rrelu_with_noise_functional poisson"
    )
)


# Functional operators that copy their first argument and change the copy: here a kernel writes the copy, which may be
# no more than zeros, and the operator changes it.
IN_PLACE = {
    getattr(getattr(aten, name), overload): getattr(getattr(aten, f"{name}_"), overload)
    for name, overload in (
        ("index_put", "default"),
        ("scatter", "src"),
        ("scatter", "value"),
        ("scatter_add", "default"),
        ("scatter_reduce", "two"),
        ("index_add", "default"),
        ("index_copy", "default"),
    )
}


def call_in_place(ctx: Context, op: Any, args: Any, kwargs: Any) -> Value:
    """Call the in-place form of ``op`` on a copy of its first argument."""
    copy = ctx.program.copy(args[0], ctx.strides())
    assert copy.place is not None
    ctx.program.call(op, prepared((copy, *args[1:]), ctx), prepared(kwargs, ctx), [copy.place.buffer])
    return copy


def prepared(value: Any, ctx: Context) -> Any:
    """Arguments of a call, with tensors in memory."""
    if isinstance(value, Value):
        return TensorRef.of(ctx.program.realize(value))
    if isinstance(value, (list, tuple)):
        return type(value)(prepared(v, ctx) for v in value)
    if isinstance(value, dict):
        return {name: prepared(v, ctx) for name, v in value.items()}
    return value


def call(ctx: Context, op: Any, args: Any, kwargs: Any) -> Any:
    """Call ``op`` itself, with its tensors in memory."""

    if op in IN_PLACE:
        return call_in_place(ctx, IN_PLACE[op], args, kwargs)
    given, named = prepared(tuple(args), ctx), prepared(kwargs, ctx)
    seen = _as_laid_out(ctx, op, given, named)
    fakes = seen if isinstance(seen, (list, tuple)) else [seen]
    results: list[Any] = []
    for fake in fakes:
        if isinstance(fake, torch.Tensor):
            results.append(ctx.program.buffer(fake.dtype, ctx.sizes(fake), ctx.strides(fake)))
        else:
            results.append(None)
    ctx.program.call(op, given, named, results)
    values = tuple(ctx.program.stored(b) if b is not None else None for b in results)
    return values if isinstance(ctx.val, (list, tuple)) else values[0]


def _as_laid_out(ctx: Context, op: Any, args: Any, kwargs: Any) -> Any:
    """The results as tensors that hold nothing.

    Operators on images hand the layout on that they are given, which may be another one here than in the trace.
    """
    fakes = [ctx.fake(a) for a in ctx.node.args]
    images = [
        (ref, fake)
        for ref, fake in zip(args, fakes, strict=False)
        if isinstance(ref, TensorRef) and len(ref.sizes) == 4
    ]
    if not any(ref.strides != ctx.strides(fake) for ref, fake in images):
        return ctx.val
    try:
        return op(*_meta(args), **_meta(kwargs))
    except (NotImplementedError, TypeError):  # symbolic sizes, or torch cannot tell
        return ctx.val


def _meta(value: Any) -> Any:
    if isinstance(value, TensorRef):
        return torch.empty_strided(value.sizes, value.strides, dtype=value.buffer.dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return type(value)(_meta(v) for v in value)
    if isinstance(value, dict):
        return {name: _meta(v) for name, v in value.items()}
    return value


def is_known(op: Any) -> bool:
    """Whether an operator is lowered or called."""
    return op in table or op in LIBRARY
