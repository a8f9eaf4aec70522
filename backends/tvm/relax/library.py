"""torch's own kernels, called from Relax.

A call carries a *recipe*: the operator, its arguments, and for each tensor argument a view of the memory that TVM
passes. Views are free in torch, so a transposed weight or a split of heads is a view of TVM's data, and nothing is
copied.  A recipe is a string constant in the compiled artifact; its function is created once.

Arguments are written ``["t", index, view]`` (a tensor; ``view`` is ``[size, stride, offset]`` or null), ``["l", ...]``
(a list), ``["d", name]`` (a dtype), ``["c", constant]`` or ``["s", index]`` (a number that depends on the call).  The
last also stands for a number within a view; a recipe with some is *sized*, and their values come before the tensors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import torch

CALL_INTO = "torchmux.tvm.call_into"
"""The packed function ``(recipe, [sizes,] *tensors, out)`` that fills ``out``, whose memory TVM plans."""

CALL = "torchmux.tvm.call"
"""The packed function ``(recipe, [sizes,] *tensors)`` that returns tensors which torch allocated."""

_ATEN = torch.ops.aten

# Operators with a kernel that writes its result to a given tensor; the result is contiguous.
INTO = {
    _ATEN.mm.default: _ATEN.mm.out,
    _ATEN.addmm.default: _ATEN.addmm.out,
    _ATEN.bmm.default: _ATEN.bmm.out,
    _ATEN.baddbmm.default: _ATEN.baddbmm.out,
    _ATEN._int_mm.default: _ATEN._int_mm.out,
}

# Operators whose kernels bring their own memory.
RETURNING = frozenset(
    (
        _ATEN.convolution.default,
        _ATEN.convolution_backward.default,
        _ATEN.scaled_dot_product_attention.default,
        _ATEN._scaled_dot_product_flash_attention_for_cpu.default,
        _ATEN._scaled_dot_product_flash_attention_for_cpu_backward.default,
    )
)


# Operators that are torch's whatever the options say.  The first read where data says, and TVM's code for them does not
# look whether that is inside the tensor, where torch's raises IndexError.  The next pick or order numbers, and TVM's
# code passes over nan; of a batch norm, TVM's frontend knows inference alone, and takes training for it.  What reads
# between pixels takes TVM ten times as long.
ALWAYS = frozenset(
    (
        _ATEN.embedding.default,
        _ATEN.gather.default,
        _ATEN.index.Tensor,
        _ATEN.index_select.default,
        _ATEN.take.default,
        _ATEN.embedding_dense_backward.default,
        _ATEN.index_put.default,
        _ATEN.scatter.src,
        _ATEN.scatter.value,
        _ATEN.scatter_add.default,
        _ATEN.amax.default,
        _ATEN.amin.default,
        _ATEN.argmax.default,
        _ATEN.argmin.default,
        _ATEN.max.default,
        _ATEN.max.dim,
        _ATEN.min.default,
        _ATEN.min.dim,
        _ATEN.sort.default,
        _ATEN.sort.stable,
        _ATEN.topk.default,
        _ATEN.cumprod.default,
        _ATEN.max_pool2d_with_indices.default,
        _ATEN.max_pool3d_with_indices.default,
        _ATEN._native_batch_norm_legit.no_stats,
        _ATEN._native_batch_norm_legit_functional.default,
        *(
            getattr(getattr(_ATEN, f"upsample_{name}"), overload)
            for name in ("linear1d", "bilinear2d", "bicubic2d", "trilinear3d")
            for overload in ("vec", "default")
        ),
        *(
            getattr(_ATEN, f"upsample_{name}_backward").default
            for name in ("linear1d", "bilinear2d", "bicubic2d", "trilinear3d")
        ),
    )
)


def has_kernel(op: Any) -> bool:
    """Whether a recipe can call ``op``."""
    return op in INTO or op in RETURNING or op in ALWAYS


def recipe(
    op: Any, arguments: Sequence[Any], keywords: dict[str, Any], kept: Sequence[int | None], order: Any, *, sized: bool
) -> str:
    """The text of a call.

    Args:
        op: the ``OpOverload``.
        arguments, keywords: encoded arguments.
        kept: which results are wanted, by position; ``[None]`` for an operator with one result.
        order: for each of them the order of dimensions in memory, or null for the usual one.
        sized: whether some numbers depend on the call.
    """
    return json.dumps([op.name(), arguments, keywords, list(kept), list(order), sized])


def size_at(index: int) -> list[Any]:
    """The number at ``index`` in the sizes of a call."""
    return ["s", index]


def tensor_at(index: int, view: Sequence[Any] | None, size: Callable[[Any], Any]) -> list[Any]:
    """The tensor at ``index``, as ``view`` shows it (sizes, strides, offset); ``size`` encodes a number of these."""
    if view is None:
        return ["t", index, None]
    sizes, strides, offset = view
    return ["t", index, [[size(s) for s in sizes], [size(s) for s in strides], size(offset)]]


def encode(value: Any, node: Callable[[Any], list[Any]]) -> Any:
    """An operator's argument; ``node`` encodes a graph node.

    Raises:
        ValueError: an argument that a recipe cannot carry.
    """
    if isinstance(value, torch.fx.Node):
        return node(value)
    if isinstance(value, (list, tuple)):
        return ["l", *(encode(v, node) for v in value)]
    if isinstance(value, torch.dtype):
        return ["d", str(value).removeprefix("torch.")]
    if value is None or isinstance(value, (bool, int, float, str)):
        return ["c", value]
    raise ValueError(f"an argument of type {type(value).__name__}")


def _decode(code: Any, tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> Any:
    kind = code[0]
    if kind == "t":
        view = code[2]
        tensor = tensors[code[1]]
        if view is None:
            return tensor
        return tensor.as_strided(*(_numbers(v, sizes) for v in view) if sizes else view)
    if kind == "l":
        return [_decode(c, tensors, sizes) for c in code[1:]]
    if kind == "d":
        return getattr(torch, code[1])
    return sizes[code[1]] if kind == "s" else code[1]


def _numbers(code: Any, sizes: Sequence[int]) -> Any:
    """A number of a view, or a list of them."""
    if isinstance(code, int):
        return code
    return sizes[code[1]] if code[:1] == ["s"] else [_numbers(c, sizes) for c in code]


def _overload(name: str) -> Any:
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(_ATEN, packet), overload or "default")


def _make(text: str) -> Callable[[Sequence[Any]], Any]:
    """The function for a recipe: takes sizes, tensors, and the one to fill, as far as the recipe has them."""
    name, arguments, keywords, kept, orders, sized = json.loads(text)
    op = _overload(name)
    into = INTO.get(op)

    def decoded(given: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        sizes, tensors = (given[0], given[1:]) if sized else ((), given)
        found = [_decode(c, tensors, sizes) for c in arguments]
        return found, {k: _decode(c, tensors, sizes) for k, c in keywords.items()}

    if into is not None:

        def fill(given: Sequence[Any]) -> None:
            found, by_name = decoded(given)
            into(*found, **by_name, out=given[-1])

        return fill

    def call(given: Sequence[Any]) -> Any:
        found, by_name = decoded(given)
        made = op(*found, **by_name)
        if kept == [None]:
            return _compact(made, orders[0])
        return [_compact(made[i], order) for i, order in zip(kept, orders, strict=True)]

    return call


def _compact(tensor: torch.Tensor, order: Sequence[int] | None) -> torch.Tensor:
    """The memory of a result as TVM takes it: contiguous, with the dimensions in the order that was foreseen."""
    return (tensor if order is None else tensor.permute(order)).contiguous()


_made: dict[str, Callable[[Sequence[Any]], Any]] = {}


def _run(text: str, *given: Any) -> Any:
    function = _made.get(text)
    if function is None:
        function = _made[text] = _make(text)
    return function(given)


def _run_into(text: str, *given: Any) -> None:
    _run(text, *given)


def register() -> None:
    """Make the packed functions known to TVM; needed before an artifact is run."""
    import tvm_ffi

    for name, function in ((CALL, _run), (CALL_INTO, _run_into)):
        converted = tvm_ffi.convert_func(function, tensor_cls=torch.Tensor)
        tvm_ffi.register_global_func(name, converted, override=True)
