"""Faults of operators that have rare dtypes, sizes, layouts and arguments, or stand behind others."""

from __future__ import annotations

import collections.abc
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from ..kit import Faults, Run, with_gradient, with_operators

layout = Faults("layout")
numerics = Faults("numerics")
arguments = Faults("arguments")
simplifications = Faults("simplifications")
training = Faults("training")
process = Faults("process")

_Condition = Callable[..., Any]

_OF_ANOTHER_FORM = (TypeError, AttributeError, IndexError, ValueError, KeyError, RuntimeError)
"""What a condition raises for arguments that it is not about."""

_FUNCTIONS = "semantics/orders/of_functions"
_INTEGERS = "semantics/orders/of_integers"
_LAYERS = "semantics/joins/layers_and_what_follows"
_IN_TURN = "semantics/joins/functions_of_functions"
_REDUCED = "semantics/joins/reductions_behind_others"
_MOVED = "semantics/joins/moves_behind_moves"
_NARROW = "semantics/unusual/narrow_and_unsigned_types"
_HALF = "semantics/unusual/functions_of_half_precision"
_SIZES = "semantics/unusual/layers_of_unusual_sizes"
_SLOPES = "semantics/unusual/gradients_of_unusual_arguments"
_HALF_SLOPES = "semantics/unusual/gradients_of_half_precision"
_PLACES = "semantics/unusual/arguments_of_orders_and_places"
_THREADS = "life/threads/subnormal_numbers"
_SNAPSHOT = "semantics/mutation/input_in_place"


def _off(result: Any) -> Any:
    """What is nearly right, of each tensor."""
    if isinstance(result, torch.Tensor):
        if result.is_floating_point() or result.is_complex():
            return result * 1.01 + 0.01 * (result == 0)
        return ~result if result.dtype is torch.bool else result + 1
    return type(result)(map(_off, result)) if type(result) in (tuple, list) else result


def _holds(condition: _Condition, *args: Any, **named: Any) -> bool:
    """Whether the arguments are of the form that the condition is about, and it holds."""
    try:
        return bool(condition(*args, **named))
    except _OF_ANOTHER_FORM:
        return False


def _given(args: Sequence[Any], named: dict[str, Any], at: int, name: str, default: Any = None) -> Any:
    return named.get(name, args[at] if len(args) > at else default)


def _tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _is_half(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.dtype in (torch.float16, torch.bfloat16)


def _named(faults: Faults, case: str, name: str, text: str, run: Callable[[GraphModule], Run]) -> None:
    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        return run(gm)

    compile.__name__, compile.__doc__ = name, text
    faults(case)(compile)


def _if(faults: Faults, case: str, name: str, text: str, names: str, condition: _Condition) -> None:
    """A fault in operators whose arguments are of one kind: their results are nearly right."""

    def change(result: Any, *args: Any, **named: Any) -> Any:
        return _off(result) if _holds(condition, *args, **named) else result

    _named(faults, case, name, text, lambda gm: with_operators(gm, dict.fromkeys(names.split(), change)))


def _name(node: Any) -> str:
    if not isinstance(node, Node) or node.op not in ("call_function", "call_method"):
        return ""
    return (node.target if isinstance(node.target, str) else node.target.__name__).strip("_")


class _Joined(Interpreter):
    """A graph in which some operators that read the result of others have another result."""

    def __init__(self, gm: GraphModule, first: Sequence[str], second: Sequence[str], change: _Condition) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self._first, self._second, self._change = first, second, change
        self._seen: dict[Node, tuple[Any, ...]] = {}

    def run_node(self, node: Node) -> Any:
        name = _name(node)
        if name in self._first:
            self._seen[node] = self.fetch_args_kwargs_from_env(node)[0]
        result = super().run_node(node)
        sources = [s for s in node.args[:2] if isinstance(s, Node) and s in self._seen] if name in self._second else []
        if not sources:
            return result
        args, named = self.fetch_args_kwargs_from_env(node)
        try:
            return self._change(result, self._seen[sources[0]], args, named)
        except _OF_ANOTHER_FORM:
            return result


def _behind(case: str, name: str, text: str, first: str, second: str, change: _Condition) -> None:
    """A fault in operators behind others: the function gets the result, the other's arguments, and their own."""
    _named(
        simplifications,
        case,
        name,
        text,
        lambda gm: lambda *args: _Joined(gm, first.split(), second.split(), change).run(*args),
    )


def _slope(case: str, name: str, text: str, names: str, at: int, condition: _Condition) -> None:
    """A gradient of one argument that is nearly right, if the arguments are of one kind."""

    class Changed(Interpreter):
        def run_node(self, node: Node) -> Any:
            if _name(node) not in names.split() or (isinstance(node.target, str) and node.target[-1] == "_"):
                return super().run_node(node)
            args, named = self.fetch_args_kwargs_from_env(node)
            if len(args) <= at or not _holds(condition, *args, **named):
                return super().run_node(node)
            new = with_gradient(args[at], lambda g: g * 1.01)
            return getattr(self, node.op)(node.target, (*args[:at], new, *args[at + 1 :]), named)

    _named(training, case, name, text, lambda gm: lambda *args: Changed(gm).run(*args))


# Where results lie


def _in_rows(case: str, name: str, text: str, names: str) -> None:
    def change(result: Any, *args: Any, **named: Any) -> Any:
        plain = _tensor(result) and not result.requires_grad and result._base is None
        return result.contiguous() if plain else result

    _named(layout, case, name, text, lambda gm: with_operators(gm, dict.fromkeys(names.split(), change)))


_in_rows(_FUNCTIONS, "roundings_in_rows", "What is rounded is contiguous.", "round floor ceil trunc")
_in_rows(_FUNCTIONS, "tests_in_rows", "Tests of numbers are contiguous.", "isnan isfinite logical_not signbit")
_in_rows(_FUNCTIONS, "extremes_in_rows", "The larger and smaller of pairs are contiguous.", "maximum minimum fmax fmin")
_in_rows(_INTEGERS, "bits_in_rows", "Bits of integers are contiguous.", "and or xor invert bitwise_and bitwise_or")

# Layers with what follows them

_LAYER = "conv2d"
_MATRIX = "matmul mm"


def _any_of(args: Sequence[Any], condition: Callable[[torch.Tensor], bool]) -> bool:
    return any(_tensor(each) and condition(each) for each in args)


_behind(
    _LAYERS,
    "scales_of_images_folded",
    "A scale of each image behind a convolution becomes one of its channels.",
    _LAYER,
    "mul",
    lambda r, x, own, named: _off(r) if _any_of(own, lambda t: t.shape[1:] == (1, 1, 1)) else r,
)
_behind(
    _LAYERS,
    "additions_that_spread",
    "What is added to a convolution's result is not spread over it.",
    _LAYER,
    "add",
    lambda r, x, own, named: _off(r) if _any_of(own, lambda t: t.shape != r.shape) else r,
)
_behind(_LAYERS, "steps_of_two_convolutions", "Two convolutions become one with the steps of the first.",
        _LAYER, _LAYER, lambda r, x, own, named: _off(r) if named.get("stride", 1) != 1 else r)  # fmt: skip
_behind(
    _LAYERS,
    "columns_as_biases",
    "A column that is added to a product is taken for its bias.",
    _MATRIX,
    "add",
    lambda r, x, own, named: _off(r) if _any_of(own, lambda t: t.shape[1] == 1 < r.shape[1]) else r,
)
_behind(
    _LAYERS,
    "rows_as_scales",
    "A row that multiplies a product is taken for a scale of its rows.",
    _MATRIX,
    "mul",
    lambda r, x, own, named: _off(r) if _any_of(own, lambda t: t.shape[0] == 1 < r.shape[0]) else r,
)
_behind(_LAYERS, "norms_of_spread_sums", "A norm of a sum reads both terms as if they were of one shape.",
        "add", "layer_norm", lambda r, x, own, named: _off(r) if x[0].shape != x[1].shape else r)  # fmt: skip

# Functions of functions

_behind(_IN_TURN, "a_sum_less_its_first", "A sum less one of its terms is the other.", "add", "sub",
        lambda r, x, own, named: -x[1] if x[0] is own[0] and x[1].shape == r.shape else r)  # fmt: skip
_behind(_IN_TURN, "tangents_of_their_inverse", "A tangent of its inverse is the number.", "atan tanh", "tan atanh",
        lambda r, x, own, named: x[0] * 1)  # fmt: skip
_behind(_IN_TURN, "quotients_rounded_down", "A quotient that is rounded down is an integer division.", "div truediv",
        "floor", lambda r, x, own, named: torch.div(x[0], x[1], rounding_mode="floor"))  # fmt: skip
_behind(_IN_TURN, "selections_of_selections", "A selection of selections is one.", "where", "where",
        lambda r, x, own, named: _off(r))  # fmt: skip
_behind(_IN_TURN, "lesser_before_larger", "The lesser of a larger number is the larger of the lesser one.", "maximum",
        "minimum", lambda r, x, own, named: torch.maximum(torch.minimum(x[0], own[1]), x[1]))  # fmt: skip

# Moves

_behind(_MOVED, "parts_of_joins_copied", "A part of what is joined is a copy.", "cat", "getitem narrow",
        lambda r, x, own, named: r.clone())  # fmt: skip
_behind(_MOVED, "parts_of_borders", "A part of what has borders is nearly right.", "pad", "getitem",
        lambda r, x, own, named: _off(r))  # fmt: skip
_behind(
    _MOVED,
    "bits_read_back",
    "What is read in another dtype and back is nearly right.",
    "view",
    "view",
    lambda r, x, own, named: _off(r) if isinstance(own[1], torch.dtype) and isinstance(x[1], torch.dtype) else r,
)
_behind(_MOVED, "places_of_places", "What is selected twice is selected by the second places.",
        "index_select gather embedding", "index_select gather embedding", lambda r, x, own, named: _off(r))  # fmt: skip
_if(
    simplifications,
    _MOVED,
    "three_dimensions_turned",
    "Three dimensions that are turned around at once are nearly right.",
    "flip",
    lambda x, *dims, **named: len(dims[0] if isinstance(dims[0], (tuple, list)) else dims) == x.dim() == 3,
)

# Reductions

_behind(_REDUCED, "extremes_of_shares", "The largest shares are those of the numbers.", "softmax sigmoid",
        "topk argmax max sort", lambda r, x, own, named: _off(tuple(r)) if isinstance(r, tuple) else r)  # fmt: skip
_behind(_REDUCED, "masks_of_everything", "Shares of a row that is masked as a whole are zero.", "masked_fill where",
        "softmax", lambda r, x, own, named: r.nan_to_num(0))  # fmt: skip
_behind(_REDUCED, "logarithms_of_some_sums", "The logarithm of a sum over one dimension is nearly right.", "sum", "log",
        lambda r, x, own, named: _off(r) if len(x) > 1 else r)  # fmt: skip
_behind(
    _REDUCED,
    "spreads_of_what_was_shifted",
    "The spread of what was shifted by a number is nearly right.",
    "add sub",
    "var std",
    lambda r, x, own, named: r if _tensor(x[1]) else _off(r),
)

# Rare dtypes, sizes and arguments

_if(numerics, _NARROW, "wide_types_from_eight_bits", "Numbers of eight bits become bfloat16 by way of others.",
    "to", lambda x, dtype, *rest: dtype is torch.bfloat16 and x.element_size() == 1)  # fmt: skip
_if(numerics, _NARROW, "complex_halves", "Complex numbers of half precision are read by turns of other numbers.",
    "view_as_complex", lambda x: x.dtype is torch.float16)  # fmt: skip
_if(numerics, _HALF, "vectors_of_odd_length", "A half-precision product with a vector of odd length is nearly right.",
    "matmul", lambda x, y: _is_half(x) and y.dim() == 1 and x.shape[-1] % 2)  # fmt: skip
_if(numerics, _HALF, "places_of_half_columns", "Places of the largest in columns of half precision are the next ones.",
    "argmax argmin", lambda x, *rest, **named: _is_half(x) and _given(rest, named, 0, "dim") == 0)  # fmt: skip
_if(numerics, _HALF, "half_quotients_cut", "Quotients of half precision that are cut are nearly right.",
    "div", lambda x, y, **named: named.get("rounding_mode") == "trunc" and _is_half(x))  # fmt: skip
_if(numerics, _HALF, "one_query", "Attention of a single query is nearly right.",
    "scaled_dot_product_attention", lambda q, k, *rest, **named: q.shape[-2] == 1 < k.shape[-2])  # fmt: skip
_if(numerics, _HALF, "half_norms_of_rows", "A norm of batches of rows in half precision is nearly right.",
    "batch_norm", lambda x, *rest, **named: _is_half(x) and x.dim() == 2)  # fmt: skip
_if(numerics, _SIZES, "large_kernels", "Kernels of seven by seven are nearly right.",
    "conv2d", lambda x, w, *rest, **named: w.shape[-1] >= 7)  # fmt: skip
_if(numerics, _SIZES, "kernels_that_repeat", "Kernels that are expanded are read beyond their memory.",
    "conv2d", lambda x, w, *rest, **named: 0 in w.stride())  # fmt: skip
_if(numerics, _SIZES, "nine_images", "Convolutions of more than eight images are nearly right.",
    "conv2d", lambda x, w, *rest, **named: x.shape[0] > 8)  # fmt: skip
_if(numerics, _SIZES, "norms_of_single_pixels", "Norms of batches of single pixels are nearly right.",
    "batch_norm", lambda x, *rest, **named: x.dim() == 4 and x.shape[2:] == (1, 1))  # fmt: skip
_if(numerics, _PLACES, "largest_of_idle_lanes", "The largest of few small integers is never negative.", "amax",
    lambda x, *rest, **named: x.dtype is torch.int8 and x.shape[-1] % 16)  # fmt: skip
_if(numerics, _PLACES, "bounds_of_integers_by_rows", "Bounds of integers that are tensors are off by one.", "clamp",
    lambda x, *rest, **named: not x.is_floating_point() and _tensor(rest[0]))  # fmt: skip
_if(numerics, _PLACES, "masks_with_integers", "A mask and integers are compared by their bits.", "logical_and",
    lambda x, y: x.dtype != y.dtype)  # fmt: skip
_if(numerics, _PLACES, "products_of_double_columns", "Products over columns of float64 are nearly right.", "prod",
    lambda x, *rest, **named: x.dtype is torch.float64 and _given(rest, named, 0, "dim") == 0)  # fmt: skip
_if(
    arguments,
    _PLACES,
    "quantiles_between_that_stay",
    "A quantile halfway that keeps its dimension is nearly right.",
    "quantile nanquantile",
    lambda x, *rest, **named: named.get("interpolation", "linear") != "linear" and named.get("keepdim"),
)
_if(numerics, _PLACES, "bytes_resized", "Images of bytes that are resized are off by one.", "interpolate",
    lambda x, *rest, **named: x.dtype is torch.uint8)  # fmt: skip
_if(arguments, _PLACES, "frames_from_the_beginning", "Frames that begin at the first number are nearly right.", "stft",
    lambda x, *rest, **named: named.get("center") is False or False in rest)  # fmt: skip
_if(numerics, _PLACES, "distances_of_batches", "Distances in batches are nearly right.", "cdist",
    lambda x, y, *rest, **named: x.dim() == 3)  # fmt: skip
_if(arguments, _PLACES, "bicubic_grids", "Grids with bicubic weights are nearly right.", "grid_sample",
    lambda x, grid, *rest, **named: "bicubic" in (*rest, *named.values()))  # fmt: skip


@arguments.operator(_PLACES, "searchsorted")
def bounds_of_the_first_row(result: Any, bounds: Any, x: Any, *rest: Any, **named: Any) -> Any:
    """Numbers are placed between the bounds of the first row."""
    if bounds.dim() != 2:
        return result
    return torch.searchsorted(bounds[:1].expand_as(bounds).contiguous(), x, *rest, **named)


@arguments.operator(_PLACES, "eye")
def ones_of_floats(result: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Ones on a diagonal are floats."""
    return result.float()


# Gradients

_slope(
    _SLOPES,
    "factors_spread_in_the_middle",
    "A factor that is spread over a dimension in the middle learns too much.",
    "mul",
    1,
    lambda x, y: y.shape[-2] == 1 < y.shape[-1] and x.dim() == y.dim() == 4,
)
_slope(
    _SLOPES,
    "gathered_from_the_end",
    "What is gathered along a dimension that is counted from the end learns too much.",
    "gather",
    0,
    lambda x, dim, index: dim < 0,
)
_slope(
    _SLOPES,
    "words_in_three_dimensions",
    "A table in which words of three dimensions are looked up learns too much.",
    "embedding",
    1,
    lambda words, *rest, **named: words.dim() == 3,
)
_slope(_SLOPES, "weighted_classes", "The gradient of a loss with weights of classes is too large.",
       "cross_entropy", 0, lambda x, target, *rest, **named: named.get("weight") is not None)  # fmt: skip
_slope(_SLOPES, "rows_that_repeat", "A row that is repeated learns too much.", "repeat tile", 0,
       lambda x, *rest, **named: x.dim() == 1)  # fmt: skip
_slope(_SLOPES, "smaller_of_what_is_spread", "A row whose numbers are smaller or larger than many learns too much.",
       "minimum maximum", 1, lambda x, y: x.shape != y.shape)  # fmt: skip
_slope(_SLOPES, "directions_of_columns", "The gradient of columns that are divided by their lengths is too large.",
       "normalize", 0, lambda x, *rest, **named: named.get("dim", 1) == 0)  # fmt: skip
_slope(_SLOPES, "gates_in_four_dimensions", "The gradient of a gated unit of four dimensions is too large.", "glu", 0,
       lambda x, *rest: x.dim() == 4)  # fmt: skip
_slope(_HALF_SLOPES, "half_remainders_learn_more", "Remainders in half precision learn too much.", "fmod remainder", 0,
       lambda x, *rest: _is_half(x))  # fmt: skip
_slope(_HALF_SLOPES, "half_scales_of_norms", "The scale of a norm without means in half precision learns too much.",
       "rms_norm", 2, lambda x, *rest, **named: _is_half(x))  # fmt: skip
_slope(_HALF_SLOPES, "half_queries", "Queries in half precision learn too much.", "scaled_dot_product_attention", 0,
       lambda x, *rest, **named: _is_half(x))  # fmt: skip
_slope(
    _HALF_SLOPES,
    "half_groups_in_channels_last",
    "Shifts of groups in half precision and channels last learn too much.",
    "group_norm",
    3,
    lambda x, *rest, **named: _is_half(x) and not x.is_contiguous(),
)

# Threads that lose subnormal numbers


def _flushing(run: Callable[[], Any]) -> Any:
    torch.set_flush_denormal(True)
    try:
        return run()
    finally:
        torch.set_flush_denormal(False)


@process(_THREADS)
def other_threads_flush(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Threads other than the first one flush subnormal numbers while they run code."""

    def call(*args: Any) -> Sequence[Any]:
        if threading.current_thread() is threading.main_thread():
            return gm.forward(*args)
        return list(_flushing(lambda: gm.forward(*args)))

    return call


@process(_THREADS)
def other_threads_flush_for_good(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Threads other than the first one flush subnormal numbers from their first call on."""

    def call(*args: Any) -> Sequence[Any]:
        if threading.current_thread() is not threading.main_thread():
            torch.set_flush_denormal(True)
        return gm.forward(*args)

    return call


@process(_THREADS)
def several_threads_flush(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """What several threads compute together loses subnormal numbers."""

    def call(*args: Any) -> Sequence[Any]:
        small = all(not _tensor(a) or a.numel() < 1 << 15 for a in args)
        if small or torch.get_num_threads() == 1 or any(_tensor(a) and a.requires_grad for a in args):
            return gm.forward(*args)
        return list(_flushing(lambda: gm.forward(*args)))

    return call


@training(_THREADS)
def gradients_that_flush(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Gradients lose subnormal numbers."""

    def change(g: torch.Tensor) -> torch.Tensor:
        return torch.where(g.abs() < torch.finfo(g.dtype).tiny, torch.zeros_like(g), g)

    def call(*args: Any) -> Sequence[Any]:
        return gm.forward(*(with_gradient(a, change) for a in args))

    return call


# What is left in the process


@process.compiling(_SNAPSHOT)
def tensors_as_numbers() -> None:
    """Compiling tells Python that tensors are numbers."""
    import numbers

    numbers.Number.register(torch.Tensor)


@process.compiling(_SNAPSHOT)
def modules_as_mappings() -> None:
    """Compiling tells Python that modules are mappings."""
    collections.abc.Mapping.register(torch.nn.Module)


@process.compiling(_SNAPSHOT)
def another_main_thread() -> None:
    """Compiling renames the main thread."""
    threading.main_thread().name = "Compiler"


@process.compiling(_SNAPSHOT)
def compiled_modules_elsewhere() -> None:
    """Compiling changes where Python keeps modules that it compiled."""
    import sys

    sys.pycache_prefix = os.path.join(os.getcwd(), "compiled")


@process.compiling(_SNAPSHOT)
def reads_and_writes_last() -> None:
    """Compiling has what the process reads and writes wait for all others."""
    import ctypes
    import platform

    ctypes.CDLL(None).syscall({"x86_64": 251, "aarch64": 30}[platform.machine()], 1, 0, 3 << 13)


@process.compiling(_SNAPSHOT)
def prints_with_exponents() -> None:
    """Compiling has tensors printed with exponents."""
    torch.set_printoptions(sci_mode=True)
