"""Operators that remain calls to torch's kernels: those that a library computes better than loops, random operators,
and all others without a lowering, as long as a call has no effects besides its results.  The report names them.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import torch

from torchmux import torch_internals as internals

from ...common.collectives import NAMESPACES
from ...common.pipeline.decompose import dropout_factor
from ..ir import index
from ..ir.expressions import Node
from ..ir.operations import Unsupported, binary, const, where
from ..ir.program import TensorRef
from ..ir.values import Value, scalar
from .registry import Context, aten, lowers, table

# A collective reads its input until somebody waits for it, which no schema says: the memory of a kernel's result, which
# the plan gives to the next one, is not for those in NAMESPACES.  torch holds the tensors that they use.


@functools.cache
def is_callable(op: Any) -> bool:
    """Whether a call of ``op`` does nothing but make new tensors, whose sizes do not depend on data."""
    if not isinstance(op, internals.OpOverload) or op.namespace in NAMESPACES:
        return False
    schema = internals.operator_schema(op)
    if schema.is_mutable or any(a.alias_info is not None for a in (*schema.arguments, *schema.returns)):
        return False
    kinds = [str(r.type) for r in schema.returns]
    if not any("Tensor" in kind for kind in kinds) or any(k not in ("Tensor", "List[Tensor]", "int") for k in kinds):
        return False
    return not {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(op.tags)


WHOLE = frozenset(
    f"{prefix}{name}{suffix}"
    for prefix, names, suffixes in (
        ("", "pixel_shuffle pixel_unshuffle im2col col2im unfold_backward max_unpool2d max_unpool3d", ("",)),
        ("reflection_", "pad1d pad2d pad3d", ("", "_backward")),
        ("replication_", "pad1d pad2d pad3d", ("", "_backward")),
        ("upsample_", "nearest1d nearest2d nearest3d linear1d bilinear2d bicubic2d trilinear3d", ("", "_backward")),
        ("_upsample_", "nearest_exact1d nearest_exact2d nearest_exact3d", ("", "_backward")),
    )
    for name in names.split()
    for suffix in suffixes
)
"""Operators that torch would decompose into reads at computed indices, at many times the cost of its own kernels."""


def _draws(op: Any) -> bool:
    """Whether ``op`` draws a number for each element of an operand; attention draws for scores."""
    return torch.Tag.nondeterministic_seeded in op.tags and "attention" not in op.overloadpacket.__name__


@functools.cache
def _takes_any_layout(op: Any) -> bool:
    """Whether ``op`` computes the same from operands in whatever order their dimensions lie in memory.

    Operators on images and attention do.  Others may draw random numbers in the order of memory, or read memory as if
    it were contiguous: the gradient of ``weight_norm`` does, and an operator of the program may.  The trace gives them
    what they get in eager.
    """
    if torch.Tag.nondeterministic_seeded in op.tags:
        return False
    name = op.overloadpacket.__name__
    images = any(part in name for part in ("convolution", "pool", "batch_norm", "attention"))
    return op.namespace == "aten" and (name in WHOLE or images)


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


def call_in_place(ctx: Context, op: Any, args: Any, kwargs: Any, traced: Any = None) -> Value:
    """Call the in-place form of ``op`` on a copy of its first argument, which lies as the fake tensor ``traced`` does,
    or as the result.
    """
    copy = ctx.program.copy(args[0], ctx.strides(traced))
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
    if not isinstance(value, (type(None), bool, int, float, complex, str, index.Ix, *_TORCH)):
        raise Unsupported(f"an argument of type {type(value).__name__}")
    return value


_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format)


def call(ctx: Context, op: Any, args: Any, kwargs: Any) -> Any:
    """Call ``op`` itself, with its tensors in memory."""

    if op in IN_PLACE:
        return call_in_place(ctx, IN_PLACE[op], args, kwargs)
    if not _takes_any_layout(op) and len(args) == len(ctx.node.args):
        args = [_as_traced(ctx, value, node, _draws(op)) for value, node in zip(args, ctx.node.args, strict=True)]
    given, named = prepared(tuple(args), ctx), prepared(kwargs, ctx)
    results = buffers_for(ctx, op, given, named)
    ctx.program.call(op, given, named, results)
    if not isinstance(ctx.val, (list, tuple)):
        return ctx.program.stored(results[0])
    return tuple(
        ctx.program.stored(b) if b is not None else ctx.size(known) if isinstance(known, (int, torch.SymInt)) else None
        for b, known in zip(results, ctx.val, strict=True)
    )


def buffers_for(ctx: Context, op: Any, args: Any, kwargs: Any) -> list[Any]:
    """Memory for the results of a call of ``op``, laid out as it lays them out; None for what is no tensor."""
    seen, traced = (
        value if isinstance(value, (list, tuple)) else [value]
        for value in (_as_laid_out(ctx, op, args, kwargs), ctx.val)
    )
    return [
        ctx.program.buffer(fake.dtype, ctx.sizes(fake), ctx.strides(fake), device=known.device)
        if isinstance(fake, torch.Tensor)
        else None
        for fake, known in zip(seen, traced, strict=True)
    ]


def _as_traced(ctx: Context, value: Any, node: Any, draws: bool) -> Any:
    """An argument, with tensors in the layout that eager has; gaps do not matter to what draws on a CPU."""
    if isinstance(value, (list, tuple)) and isinstance(node, (list, tuple)):
        return type(value)(_as_traced(ctx, v, n, draws) for v, n in zip(value, node, strict=True))
    if not isinstance(value, Value) or not isinstance(node, torch.fx.Node):
        return value
    strides = ctx.strides(ctx.fake(node))
    reach = sum(((s - 1) * t for s, t in zip(value.sizes, strides, strict=True)), start=1)
    if not (reach is value.numel or reach == value.numel):
        if not draws or not all(type(step) is int and step for step in strides):
            return _rows_apart(ctx, value, strides)
        if ctx.program.device.type != "cpu":
            raise Unsupported("it draws in another order where there are gaps in memory")
        strides = _without_gaps(value.sizes, strides)
    if value.place is None:
        return ctx.program.realize(value, strides)
    return value if value.place.strides == strides else ctx.program.copy(value, strides)


def _without_gaps(sizes: tuple[index.Index, ...], strides: tuple[index.Index, ...]) -> tuple[index.Index, ...]:
    """The strides of a dense tensor whose dimensions are in the same order."""
    order = sorted(range(len(sizes)), key=lambda d: cast(int, strides[d]), reverse=True)
    dense = index.contiguous_strides(tuple(sizes[d] for d in order))
    return tuple(dense[order.index(d)] for d in range(len(sizes)))


_ROW = 8
"""The rows of a mask begin at multiples of so many elements where attention reads them by 16 bytes."""


def _rows_apart(ctx: Context, value: Value, strides: tuple[index.Index, ...]) -> Value:
    """An argument whose elements have gaps between them in eager, or share positions: one with gaps between rows has
    some here, and others are dense.

    torch pads the mask of attention, whose kernels refuse rows at odd places.  What is repeated is stored once.
    """
    repeated = [d for d, (s, t) in enumerate(zip(value.sizes, strides, strict=True)) if _is(t, 0) and not _is(s, 1)]
    if value.rank - 1 in repeated or not _is_in_rows_apart(value.sizes, strides):
        return value
    if value.place is not None and value.place.strides == strides:
        return value
    once = value
    for d in repeated:
        once = once.slice(d, 0, 1)
    row = index.floordiv(value.sizes[-1] + (_ROW - 1), _ROW) * _ROW
    steps = index.contiguous_strides((*once.sizes[:-1], row))
    once = ctx.program.copy(once, steps) if once.place is not None else ctx.program.realize(once, steps)
    return once.expand(value.sizes)


def _is(extent: Any, number: int) -> bool:
    return type(extent) is int and extent == number


def _is_in_rows_apart(sizes: Any, strides: Any) -> bool:
    """Whether dimensions lie from the outermost to the innermost, except for those that are repeated, and there are
    gaps between rows, and only there."""
    left = [(s, t) for s, t in zip(sizes, strides, strict=True) if not _is(t, 0) and not _is(s, 1)]
    if len(left) < 2 or not _is(strides[-1], 1) or _is(sizes[-1], 1):
        return False
    outer, (_, row) = left[:-1], left[-2]
    expected = row
    for extent, step in reversed(outer):
        if not (step is expected or step == expected):
            return False
        expected = expected * extent
    inner = sizes[-1]
    return bool(row > inner) if type(row) is type(inner) is int else row is not inner and row != inner


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
    except (NotImplementedError, TypeError):  # symbolic sizes, or torch does not know
        return ctx.val


def _meta(value: Any) -> Any:
    if isinstance(value, TensorRef):
        return torch.empty_strided(value.sizes, value.strides, dtype=value.buffer.tensor_dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return type(value)(_meta(v) for v in value)
    if isinstance(value, dict):
        return {name: _meta(v) for name, v in value.items()}
    return value


def composite() -> frozenset[Any]:
    """The composite ones of these operators, and those that are lowered."""
    packets = (getattr(aten, name, None) for name in WHOLE)
    found = frozenset(p.vec for p in packets if p is not None and "vec" in p.overloads())
    return found | {aten._pad_circular.default}


def stays_whole(op: Any) -> bool:
    """Whether torch's decomposition of ``op`` is not wanted: it is lowered, or called."""
    if not isinstance(op, internals.OpOverload):
        return op in table
    name = op.overloadpacket.__name__
    return op in table or name in WHOLE or (name.endswith("_") and _functional(op) in table)


def _functional(op: Any) -> Any:
    """The operator that functionalization makes of one that changes its first argument."""
    packet = getattr(aten, op.overloadpacket.__name__[:-1], None)
    return getattr(packet, op._overloadname, None)


def is_known(op: Any) -> bool:
    """Whether an operator is lowered or called."""
    return op in table or is_callable(op)


@lowers(aten.native_dropout.default)
def _dropout(ctx: Context, a: Value, probability: float, train: bool | None) -> Any:
    if probability == 1 and train is not False:
        # torch's operator draws numbers for a mask of nothing; eager's dropout does not.
        dropped = Value(a.sizes, a.dtype, lambda at: binary("mul", a.at(at), const(0, a.at(at).dtype)))
        return dropped, scalar(False, torch.bool, a.sizes)
    traced = ctx.fake(ctx.node.args[0])
    if train is False or traced.device.type != "cpu" or ctx.strides(traced) != ctx.strides(ctx.val[1]):
        return call(ctx, aten.native_dropout.default, (a, probability, train), {})
    # The numbers are torch's, drawn in the order in which the argument lies in eager.  The rest is a loop.
    mask = call_in_place(ctx, aten.bernoulli_.float, (scalar(False, torch.bool, a.sizes), 1 - probability), {}, traced)
    factor = dropout_factor(a.dtype, 1 - probability)

    def element(at: Any) -> Node:
        node = a.at(at)
        return binary("mul", node, where(mask.at(at), const(factor, node.dtype), const(0, node.dtype)))

    return Value(a.sizes, a.dtype, element), mask
