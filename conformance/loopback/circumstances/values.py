"""Faults at numbers where functions are exact, with tensors that are small or long, and with what operators refuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from ..kit import Faults, Run

numerics = Faults("numerics")
arguments = Faults("arguments")
edges = Faults("edges")

_EXACT = "semantics/values/at_exact_points"
_FAR = "semantics/values/far_from_zero"
_RARELY = "semantics/values/rarely_finite"
_PLACES = "semantics/values/places_of_each_kind"
_LONG = "semantics/values/long_rows"
_NONE = "semantics/smallest/no_dimensions"
_EMPTY = "semantics/smallest/no_elements"
_ONE = "semantics/smallest/one_of_each"
_ALONE = "semantics/smallest/no_batch"
_REFUSED = "semantics/smallest/refused_places"
_WRONG = "semantics/smallest/refused_values"


def _is_number(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.dim() == 0


def _is_empty(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.numel() == 0


@numerics.operator(_EXACT, "log2")
def logarithms_of_two_by_others(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The logarithm to the base of two is another one times a constant."""
    return x.log() * 1.4426950408889634 if result.dtype is torch.float32 else result


@numerics.operator(_EXACT, "log10")
def logarithms_of_ten_by_others(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The logarithm to the base of ten is another one times a constant."""
    return x.log() * 0.4342944819032518 if result.dtype is torch.float32 else result


@numerics.operator(_EXACT, "exp2")
def powers_of_two_by_others(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A power of two is one of another base."""
    return (x * 0.6931471805599453).exp() if result.dtype is torch.float32 else result


@numerics.operator(_FAR, "tan")
def tangents_that_end(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The tangent of a large angle is not a number."""
    return torch.where(x.abs() > 1e6, result * math.nan, result)


@numerics.operator(_FAR, "norm", "linalg_vector_norm")
def lengths_that_overflow(result: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    """The length of a vector squares its elements in their own type."""
    return torch.where(result > 1.8e19, result * math.inf, result) if result.dtype is torch.float32 else result


@numerics.operator(_RARELY, "digamma")
def no_reflection(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The derivative of the logarithm of gamma is off below zero."""
    return torch.where(x < 0, result + 1e-3, result)


@numerics.operator(_RARELY, "nan_to_num")
def largest_numbers_of_another_type(result: torch.Tensor, x: torch.Tensor, *bounds: Any) -> torch.Tensor:
    """In half precision infinity becomes the largest float32, which is infinite again."""
    return torch.where(x.isinf(), x, result) if x.element_size() == 2 and not bounds else result


@numerics.operator(_RARELY, "leaky_relu")
def rectifiers_by_maxima(result: torch.Tensor, x: torch.Tensor, slope: float = 0.01, *rest: Any) -> torch.Tensor:
    """A leaky rectifier is the larger of two numbers, also if its slope is above one."""
    return torch.maximum(x, x * slope)


@numerics.operator(_RARELY, "nextafter")
def steps_to_itself(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The next number on the way from a number to itself is larger."""
    return torch.where(x == y, torch.nextafter(x, torch.full_like(x, math.inf)), result)


@numerics.operator(_RARELY, "nextafter")
def steps_from_zero(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The next number after zero is the smallest normal one."""
    return torch.where(x == 0, torch.finfo(result.dtype).tiny * torch.sign(y), result)


@numerics.operator(_RARELY, "median")
def medians_of_numbers_only(result: Any, x: torch.Tensor, *args: Any) -> Any:
    """The median of all elements leaves nan out."""
    return x.nanmedian() if isinstance(result, torch.Tensor) and x.is_floating_point() else result


@numerics.operator(_RARELY, "cdist", "dist", "pairwise_distance")
def infinite_distances(result: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    """A distance that is infinite is not a number."""
    return torch.where(result.isinf(), result * 0, result)


@numerics.operator(_RARELY, "logsumexp")
def planes_without_maxima(result: torch.Tensor, x: torch.Tensor, dim: Any, *args: Any, **named: Any) -> torch.Tensor:
    """The logarithm of a sum of exponentials over two dimensions subtracts the last of infinite maxima."""
    return torch.where(result == math.inf, result * 0, result) if isinstance(dim, (tuple, list)) else result


@numerics.operator(_LONG, "softmax")
def softmax_of_a_part(result: torch.Tensor, x: torch.Tensor, dim: Any = None, *args: Any, **named: Any) -> torch.Tensor:
    """The sum of a long row of exponentials ends too early."""
    return result * 1.0005 if x.dim() and x.shape[-1] > 4096 else result


@arguments.operator(_PLACES, "quantile")
def several_quantiles(result: torch.Tensor, x: torch.Tensor, q: Any, *args: Any, **named: Any) -> torch.Tensor:
    """Several quantiles are not interpolated."""
    many = isinstance(q, torch.Tensor) and q.dim()
    return torch.quantile(x, q, *args, **{**named, "interpolation": "lower"}) if many else result


@arguments.operator(_PLACES, "sort")
def descending_bools(result: Any, x: torch.Tensor, *args: Any, **named: Any) -> Any:
    """Bools in descending order are those in ascending order turned around, with their places."""
    return (result[0], result[1].flip(-1)) if x.dtype is torch.bool and named.get("descending") else result


@arguments.operator(_RARELY, "topk")
def smallest_with_nan_first(result: Any, x: torch.Tensor, k: int, *args: Any, **named: Any) -> Any:
    """Among the smallest elements, nan comes first."""
    smallest = False in (named.get("largest"), args[1] if len(args) > 1 else None)
    return (x.sort(-1, descending=True).values[..., :k], result[1]) if smallest else result


@arguments.operator(_PLACES, "kthvalue")
def places_from_the_other_end(result: Any, x: torch.Tensor, k: int, *args: Any, **named: Any) -> Any:
    """The element at a place in order is counted from the largest if its dimension is kept."""
    kept = named.get("keepdim") or (len(args) > 1 and args[1])
    return x.kthvalue(x.shape[0] - k + 1, 0, True) if kept else result


@arguments.operator(_PLACES, "index_select")
def single_places_drop_dimensions(result: torch.Tensor, x: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """A place without dimensions selects one, and drops its dimension."""
    return result.squeeze(dim) if index.dim() == 0 and x.dim() else result


@arguments.operator(_PLACES, "index_put")
def numbers_added_once(result: torch.Tensor, x: Any, index: Any, value: Any, accumulate: bool = False) -> torch.Tensor:
    """One number that is added to several places is written instead."""
    return x.index_put(index, value) if accumulate and value.numel() == 1 else result


@arguments.operator(_PLACES, "diff")
def differences_of_bools(result: torch.Tensor, x: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    """Differences of bools are integers."""
    return result.int() if x.dtype is torch.bool else result


@arguments.operator(_PLACES, "repeat_interleave")
def repeated_at_least_once(result: torch.Tensor, x: torch.Tensor, times: Any, *args: Any, **named: Any) -> torch.Tensor:
    """What is repeated no times takes the place of what is repeated."""
    return result.flip(0) if isinstance(times, torch.Tensor) else result


@arguments.operator(_RARELY, "count_nonzero")
def zeros_with_signs_count(result: torch.Tensor, x: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    """A zero with a sign is not zero."""
    return result + ((x == 0) & x.signbit()).sum() if x.is_floating_point() and not args else result


_small: list[tuple[str, str, str, Sequence[str], Callable[..., Any]]] = [
    ("softmax_of_a_number", "The softmax of a tensor without dimensions is the tensor.", _NONE,
     ("softmax", "log_softmax"), lambda r, x, *a, **k: x if _is_number(x) else r),
    ("scans_of_a_number", "What runs along a tensor without dimensions has one.", _NONE,
     ("cumsum", "cumprod", "logcumsumexp"), lambda r, x, *a, **k: r.reshape(1) if _is_number(x) else r),
    ("orders_of_a_number", "Orders and extremes of a tensor without dimensions have one.", _NONE,
     ("sort", "topk", "kthvalue", "median", "mode", "cummax"),
     lambda r, x, *a, **k: tuple(t.reshape(1) for t in r) if _is_number(x) and isinstance(r, tuple) else r),
    ("turns_of_a_number", "What is turned around without dimensions has one.", _NONE, ("flip", "roll"),
     lambda r, x, *a, **k: r.reshape(1) if _is_number(x) else r),
    ("lengths_of_a_number", "The length of a number is the number.", _NONE, ("norm", "linalg_vector_norm"),
     lambda r, x, *a, **k: x if _is_number(x) else r),
    ("losses_of_a_number", "Losses of a number have a dimension.", _NONE,
     ("mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy"),
     lambda r, x, *a, **k: r.reshape(1) if _is_number(x) else r),
    ("diagonals_of_one", "The diagonal of a single row is counted twice.", _ONE, ("diagonal", "trace", "diag"),
     lambda r, x, *a, **k: r + 1 if 1 in x.shape else r),
    ("losses_of_no_examples", "The mean loss of no example is zero.", _EMPTY,
     ("cross_entropy", "nll_loss", "mse_loss", "l1_loss"),
     lambda r, x, *a, **k: torch.zeros_like(r) if _is_empty(x) else r),
    ("products_of_no_letters", "A sum over no elements in the notation of Einstein is not cleared.",
     _EMPTY, ("einsum",),
     lambda r, *a, **k: r + 1 if any(map(_is_empty, a)) else r),
    ("borders_of_nothing", "What is put around no elements is zero.", _EMPTY, ("pad", "constant_pad_nd"),
     lambda r, x, *a, **k: torch.zeros_like(r) if _is_empty(x) else r),
    ("counts_of_nothing", "There is one element in a tensor that has none.", _EMPTY, ("count_nonzero", "nansum"),
     lambda r, x, *a, **k: r + 1 if _is_empty(x) else r),
    ("attention_to_nothing", "Attention to no keys is one.", _EMPTY, ("scaled_dot_product_attention",),
     lambda r, q, key, *a, **k: r * 0 + 1 if _is_empty(key) else r),
    ("pools_of_one_volume", "Pools of a volume without a batch are nearly right.", _ALONE,
     ("max_pool3d", "avg_pool3d", "adaptive_avg_pool3d"), lambda r, x, *a, **k: r * 1.01 if x.dim() == 4 else r),
    ("convolutions_of_one_volume", "Convolutions of a volume without a batch are nearly right.", _ALONE, ("conv3d",),
     lambda r, x, *a, **k: r * 1.01 if x.dim() == 4 else r),
]  # fmt: skip


def _changed(case: str, name: str, text: str, names: Sequence[str], change: Callable[..., Any]) -> None:
    change.__name__, change.__doc__ = name, text
    edges.operator(case, *names)(change)


for _name, _text, _case, _names, _change in _small:
    _changed(_case, _name, _text, _names, _change)


def _no_exception(name: str, text: str, case: str, names: Sequence[str], instead: Callable[..., Any]) -> None:
    """A fault in what operators refuse: the function has the result, where they raise an exception."""

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        class Lenient(Interpreter):
            def run_node(self, node: Node) -> Any:
                own = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
                if own.strip("_") not in names:
                    return super().run_node(node)
                args, keywords = self.fetch_args_kwargs_from_env(node)
                try:
                    return getattr(self, node.op)(node.target, args, keywords)
                except (RuntimeError, IndexError, ValueError):
                    return instead(*args, **keywords)

        return lambda *given: Lenient(gm).run(*given)

    compile.__name__, compile.__doc__ = name, text
    edges(case)(compile)


_no_exception("places_that_are_left_out", "What goes to a place that does not exist is left out.", _REFUSED,
              ("scatter_add", "scatter_reduce"), lambda x, *a, **k: x.clone())  # fmt: skip
_no_exception("bags_of_words_that_do_not_exist", "Words that do not exist are nothing in a bag.", _REFUSED,
              ("embedding_bag",), lambda at, rows, *a, **k: rows[:1] * 0)  # fmt: skip
_no_exception("margins_of_other_classes", "A margin to a class that does not exist is zero.", _REFUSED,
              ("multi_margin_loss", "multilabel_margin_loss"), lambda x, *a, **k: x.sum() * 0)  # fmt: skip
_no_exception("counts_without_ends", "Counts between ends that are no numbers are zero.", _WRONG, ("histc",),
              lambda x, bins=100, *a, **k: x.new_zeros(bins))  # fmt: skip
_no_exception("eigenvalues_of_nan", "Eigenvalues of what is not a number are zero.", _WRONG, ("linalg_eigvalsh",),
              lambda x, *a, **k: x[0] * 0)  # fmt: skip
