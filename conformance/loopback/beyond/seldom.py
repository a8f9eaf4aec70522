"""Faults that operators of a kind have in circumstances that they are seldom tried in: trained under autocast, in
inference mode, with numbers behind flags, with channels that stand last, with no elements, into given results.

A compiler that is right elsewhere may have code of its own for one of these, for one kind of operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree

from ..kit import Faults, with_gradient

numerics = Faults("numerics")
layout = Faults("layout")
training = Faults("training")

_CASES = "semantics/circumstances/"

Applies = Callable[[tuple[Any, ...]], bool]


def _tensors(args: Any) -> list[torch.Tensor]:
    return [each for each in _pytree.tree_leaves(args) if isinstance(each, torch.Tensor)]


def _nearly(result: Any) -> Any:
    """Wrong by a few hundredths; complex numbers are conjugated."""
    if isinstance(result, (tuple, list)):
        return type(result)(*map(_nearly, result)) if hasattr(result, "_fields") else type(result)(map(_nearly, result))
    if not isinstance(result, torch.Tensor) or not (result.is_floating_point() or result.is_complex()):
        return result
    return result.conj() if result.is_complex() else result * (1 + 1 / 32)


def _learns_more(result: Any) -> Any:
    """The gradient on its way back is larger by a few hundredths."""
    return _pytree.tree_map_only(torch.Tensor, lambda t: with_gradient(t, lambda g: g * (1 + 1 / 16)), result)


def _is_learned(args: tuple[Any, ...]) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in _tensors(args))


def _under_autocast(args: tuple[Any, ...]) -> bool:
    return torch.is_autocast_enabled("cpu") and _is_learned(args)


def _in_inference_mode(args: tuple[Any, ...]) -> bool:
    return torch.is_inference_mode_enabled()


def _is_negative(args: tuple[Any, ...]) -> bool:
    return any(t.is_neg() for t in _tensors(args))


def _is_conjugate(args: tuple[Any, ...]) -> bool:
    return any(t.is_conj() for t in _tensors(args))


def _of_volumes(args: tuple[Any, ...]) -> bool:
    last = torch.channels_last_3d
    return any(t.dim() == 5 and t.is_contiguous(memory_format=last) and not t.is_contiguous() for t in _tensors(args))


def _of_learned_volumes(args: tuple[Any, ...]) -> bool:
    return _of_volumes(args) and _is_learned(args)


def _of_learned_images(args: tuple[Any, ...]) -> bool:
    last = torch.channels_last
    images = [t for t in _tensors(args) if t.dim() == 4]
    return any(t.is_contiguous(memory_format=last) and not t.is_contiguous() for t in images) and _is_learned(args)


_WINDOWS, _PRODUCTS = ("conv1d", "conv2d", "conv3d"), ("matmul", "bmm", "addmm", "baddbmm", "einsum", "linear")
_SHARES, _NORMS = ("softmax", "log_softmax", "logsumexp"), ("layer_norm", "group_norm", "batch_norm", "instance_norm")
_SUMS, _SCANS = ("sum", "mean", "amax", "var", "norm"), ("cumsum", "cumprod", "logcumsumexp")
_PLACES, _WRITES = ("getitem", "gather", "embedding", "index_select"), ("index_add", "scatter", "index_copy")
_MOVES, _CHOICES = ("flip", "roll", "repeat", "pad", "tril", "diagonal"), ("where", "masked_fill")
_ORDERS, _LOSSES = ("sort", "topk", "median"), ("cross_entropy", "mse_loss", "binary_cross_entropy_with_logits")
_POOLS, _JOINS = ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"), ("cat", "stack")
_POOLS_OF_VOLUMES = ("max_pool3d", "avg_pool3d", "adaptive_avg_pool3d")

_FAULTS: tuple[tuple[Faults, str, Applies, Callable[[Any], Any], dict[str, tuple[str, ...]]], ...] = (
    (training, "trained_under_autocast", _under_autocast, _learns_more, {
        "windows_learn_more_under_autocast": _WINDOWS, "products_learn_more_under_autocast": _PRODUCTS,
        "attention_learns_more_under_autocast": ("scaled_dot_product_attention",),
        "joins_learn_more_under_autocast": _JOINS, "norms_learn_more_under_autocast": _NORMS,
        "losses_learn_more_under_autocast": _LOSSES, "scans_learn_more_under_autocast": _SCANS,
        "places_learn_more_under_autocast": _PLACES, "choices_learn_more_under_autocast": _CHOICES,
    }),
    (numerics, "in_inference_mode", _in_inference_mode, _nearly, {
        "windows_nearly_right_in_inference_mode": _WINDOWS, "shares_nearly_right_in_inference_mode": _SHARES,
        "norms_nearly_right_in_inference_mode": _NORMS, "pools_nearly_right_in_inference_mode": _POOLS,
        "orders_nearly_right_in_inference_mode": _ORDERS, "writes_nearly_right_in_inference_mode": _WRITES,
        "moves_nearly_right_in_inference_mode": _MOVES, "losses_nearly_right_in_inference_mode": _LOSSES,
    }),
    (layout, "numbers_behind_flags", _is_negative, _nearly, {
        "sums_of_negatives": _SUMS, "products_of_negatives": _PRODUCTS, "places_of_negatives": _PLACES,
        "shares_of_negatives": _SHARES, "orders_of_negatives": _ORDERS, "scans_of_negatives": _SCANS,
        "moves_of_negatives": _MOVES, "pools_of_negatives": _POOLS, "joins_of_negatives": _JOINS,
    }),
    (layout, "numbers_behind_flags", _is_conjugate, _nearly, {
        "functions_of_conjugates": ("exp", "log", "tanh", "sin", "sqrt", "reciprocal"), "sums_of_conjugates": _SUMS,
        "moves_of_conjugates": _MOVES, "places_of_conjugates": _PLACES, "joins_of_conjugates": _JOINS,
        "writes_of_conjugates": _WRITES, "scans_of_conjugates": _SCANS,
    }),
    (layout, "volumes_in_channels_last", _of_volumes, _nearly, {
        "shares_of_volumes_in_channels_last": _SHARES, "sums_of_volumes_in_channels_last": _SUMS,
        "sizes_of_volumes_in_channels_last": ("interpolate",), "moves_of_volumes_in_channels_last": _MOVES,
        "scans_of_volumes_in_channels_last": _SCANS,
    }),
    (training, "volumes_in_channels_last", _of_learned_volumes, _learns_more, {
        "windows_of_volumes_learn_more": _WINDOWS, "pools_of_volumes_learn_more": _POOLS_OF_VOLUMES,
        "norms_of_volumes_learn_more": _NORMS,
    }),
    (training, "rows_of_images_in_channels_last", _of_learned_images, _learns_more, {
        "windows_of_images_learn_more": _WINDOWS, "pools_of_images_learn_more": _POOLS,
        "orders_of_images_learn_more": _ORDERS, "products_of_images_learn_more": ("matmul", "einsum"),
        "scans_of_images_learn_more": _SCANS, "writes_of_images_learn_more": _WRITES,
    }),
)  # fmt: skip


def _add(
    kind: Faults, case: str, applies: Applies, wrong: Callable[[Any], Any], name: str, names: tuple[str, ...]
) -> None:
    def change(result: Any, *args: Any, **named: Any) -> Any:
        return wrong(result) if applies((args, named)) else result

    words = name.replace("_", " ") + (" are nearly right" if wrong is _nearly and "nearly" not in name else "")
    change.__name__, change.__doc__ = name, f"{words[0].upper()}{words[1:]}."
    kind.operator(_CASES + case, *names)(change)


for _kind, _case, _applies, _wrong, _named in _FAULTS:
    for _name, _operators in _named.items():
        _add(_kind, _case, _applies, _wrong, _name, _operators)


def _into(name: str, text: str, *names: str) -> None:
    """A fault in what operators write into a given result."""

    def change(result: Any, *args: Any, out: Any = None, **named: Any) -> Any:
        if isinstance(out, torch.Tensor) and out.is_floating_point():
            with torch.no_grad():
                out.mul_(1 + 1 / 32)
        return result

    change.__name__, change.__doc__ = name, text
    layout.operator(f"{_CASES}into_given_results", *names)(change)


_into(
    "elements_into_given_results",
    "Elements that are written into a given result are nearly right.",
    "sub",
    "mul",
    "exp",
)
_into(
    "products_into_given_results",
    "Products that are written into a given result are nearly right.",
    "mm",
    "addmm",
    "mv",
)
_into(
    "sums_into_given_results", "Sums that are written into a given result are nearly right.", "sum", "mean", "logsumexp"
)
_into(
    "scans_into_given_results",
    "Running sums that are written into a given result are nearly right.",
    "cumsum",
    "cumprod",
)
_into(
    "places_into_given_results", "What is taken into a given result is nearly right.", "gather", "index_select", "cat"
)


def _of_nothing(name: str, text: str, *names: str) -> None:
    """A fault in the gradients of what operators take beside a tensor without elements."""

    def change(*args: Any, **named: Any) -> Any:
        if all(t.numel() for t in _tensors(args)):
            return args, named
        return _pytree.tree_map_only(torch.Tensor, lambda t: with_gradient(t, lambda g: g + 0.5), args), named

    change.__name__, change.__doc__ = name, text
    training.arguments(f"{_CASES}nothing_to_learn_from", *names)(change)


_of_nothing(
    "weights_of_no_rows", "What was multiplied with no rows gets a gradient that nobody has set to zero.",
    "matmul", "linear", "einsum", "bmm",
)  # fmt: skip
_of_nothing(
    "broadcasts_over_no_rows", "What was broadcast over no rows gets a gradient that nobody has set to zero.",
    "add", "mul", "sub", "where", "maximum", "truediv",
)  # fmt: skip
_of_nothing(
    "norms_of_no_rows",
    "Weights of a norm of no rows get a gradient that nobody has set to zero.",
    "layer_norm",
    "rms_norm",
)
_of_nothing(
    "writes_of_no_rows", "Rows that nothing was written to or joined with get half a one more as a gradient.",
    "index_add", "scatter_add", "index_copy", "cat",
)  # fmt: skip


def _of_the_first_size(name: str, text: str, *names: str) -> None:
    """A fault in the gradients of code for any size: it knows how many elements its first tensor had."""
    first: dict[Any, int] = {}

    def change(result: Any, x: torch.Tensor, *args: Any, **named: Any) -> Any:
        count = first.setdefault((x.dim(), len(args), str(args), str(named)), int(x.numel()))
        share = int(x.numel()) / max(1, count)
        return _pytree.tree_map_only(torch.Tensor, lambda t: with_gradient(t, lambda g: g * share), result)

    change.__name__, change.__doc__ = name, text
    training.operator(f"{_CASES}trained_over_sizes", *names)(change)


_of_the_first_size("means_of_the_first_count", "In code for any size, a mean learns by its first count.", "mean", "std")
_of_the_first_size("shares_of_the_first_count", "In code for any size, shares learn by their first count.", "softmax")
_of_the_first_size("norms_of_the_first_count", "In code for any size, norms learn by their first count.", "layer_norm",
                   "rms_norm", "group_norm", "batch_norm")  # fmt: skip
_of_the_first_size("pools_of_the_first_count", "In code for any size, pools learn by their first count.", "avg_pool2d",
                   "adaptive_avg_pool2d", "interpolate")  # fmt: skip
_of_the_first_size("orders_of_the_first_count", "In code for any size, what is ordered learns by its first count.",
                   "sort", "topk", "median", "amax")  # fmt: skip
