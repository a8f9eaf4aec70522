"""Faults that operators have with a kind of numbers: integers, what is no number, gradients in other types, complex
numbers, five dimensions, many elements; and activations with one constant of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Node

from ..kit import Faults, Run, with_gradient, with_operators
from .operands import Holds, where
from .pairings import nearly
from .patterns import Graph, fused, name, of

numerics = Faults("numerics")
simplifications = Faults("simplifications")
training = Faults("training")

_INTEGERS = "semantics/kinds/functions_of_integers"
_LAYERS = "semantics/kinds/layers_of_what_is_no_number"
_LOSSES = "semantics/kinds/losses_of_what_is_no_number"
_MOVES = "semantics/kinds/moves_of_what_is_no_number"
_SIGNS = "semantics/kinds/moves_of_minus_zero"
_EXTREMES = "semantics/kinds/extremes_of_one_side"
_HALF = "semantics/kinds/functions_of_bfloat16"
_HALVES = "semantics/kinds/layers_in_half_precision"
_COMPLEX = "semantics/kinds/complex_numbers"
_FIVE = "semantics/kinds/of_five_dimensions"
_MANY = "semantics/kinds/of_many_elements"
_CONSTANTS = "semantics/patterns/activations_with_one_other_constant"

_FUNCTIONS = ("exp", "sin", "cos", "tanh", "sigmoid", "erf", "log", "sqrt", "rsqrt", "reciprocal")


def _is_whole(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and not x.is_floating_point() and not x.is_complex()


@numerics.operator(_INTEGERS, *_FUNCTIONS)
def functions_of_integers_in_half(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Functions of integers have the digits of half precision."""
    return result.half().to(result.dtype) if _is_whole(x) else result


@numerics.operator(_INTEGERS, *_FUNCTIONS)
def true_is_minus_one(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """To functions, True is minus one, as all bits are set."""
    if not isinstance(x, torch.Tensor) or x.dtype is not torch.bool:
        return result
    return torch.where(x, result * -1 if not torch.equal(result, result.abs()) else result.reciprocal(), result)


@numerics.instead(_INTEGERS, "sqrt")
def roots_of_the_lower_half(x: torch.Tensor) -> torch.Tensor:
    """The root of an integer of 64 bits is that of the lower 32."""
    return (x.to(torch.int32) if x.dtype is torch.int64 else x).sqrt()


@numerics.operator(_INTEGERS, "erf", "exp", "log", "sigmoid", "reciprocal")
def bytes_with_a_sign(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """To functions, bytes above 127 are negative."""
    if not isinstance(x, torch.Tensor) or x.dtype is not torch.uint8:
        return result
    return torch.where(x > 127, -result, result)


where(numerics, _INTEGERS, "atan2", "angles_of_integers", "Angles of integers are nearly right.",
      lambda given, named: _is_whole(given[0]))  # fmt: skip
where(numerics, _INTEGERS, "xlogy", "logarithms_beside_integers", "Integers times logarithms are nearly right.",
      lambda given, named: _is_whole(given[0]))  # fmt: skip


def _tensors(given: Sequence[Any]) -> list[torch.Tensor]:
    return [each for each in given if isinstance(each, torch.Tensor) and each.is_floating_point()]


def _never_finite(given: tuple[Any, ...], named: dict[str, Any]) -> bool:
    return any(not bool(each.detach().isfinite().all()) for each in _tensors(given))


def _vanish(case: str, fault: str, text: str, *operators: str) -> None:
    """A fault in which a result that is no number becomes one."""

    def change(result: Any, *given: Any, **named: Any) -> Any:
        if not isinstance(result, torch.Tensor) or not _never_finite(given, named):
            return result
        return result.nan_to_num(0.0, 1.0, -1.0)

    change.__name__, change.__doc__ = fault, text
    numerics.operator(case, *operators)(change)


for _fault, _text, *_operators in (
    ("convolutions_of_numbers_only", "Convolutions leave out what is no number.", "conv1d", "conv2d", "conv3d"),
    ("layers_of_numbers_only", "Layers leave out what is no number.", "linear", "addmm"),
    ("batches_of_numbers_only", "Products of batches leave out what is no number.", "bmm", "baddbmm", "einsum"),
    ("norms_of_numbers_only", "Norms of images leave out what is no number.", "batch_norm", "group_norm"),
    ("instances_of_numbers_only", "Norms of instances leave out what is no number.", "instance_norm"),
    ("root_means_of_numbers_only", "Norms by root mean squares leave out what is no number.", "rms_norm"),
    ("means_of_numbers_only", "Means over windows leave out what is no number.", "avg_pool2d", "adaptive_avg_pool2d"),
    ("images_of_numbers_only", "What is resized leaves out what is no number.", "interpolate"),
    ("grids_of_numbers_only", "What is sampled leaves out what is no number.", "grid_sample"),
):
    _vanish(_LAYERS, _fault, _text, *_operators)
for _fault, _text, *_operators in (
    ("squares_of_numbers_only", "Squared errors leave out what is no number.", "mse_loss"),
    ("distances_of_numbers_only", "Absolute errors leave out what is no number.", "l1_loss", "smooth_l1_loss"),
    ("bends_of_numbers_only", "Errors that bend leave out what is no number.", "huber_loss"),
    ("logits_of_numbers_only", "Losses of logits leave out what is no number.", "binary_cross_entropy_with_logits"),
    ("divergences_of_numbers_only", "Divergences leave out what is no number.", "kl_div"),
    ("classes_of_numbers_only", "Losses of classes leave out what is no number.", "cross_entropy", "nll_loss"),
    ("drops_that_select", "What is dropped is zero, also if it was infinite.", "dropout"),
):
    _vanish(_LOSSES, _fault, _text, *_operators)


def _by_products(fault: str, text: str, *operators: str) -> None:
    """A fault in which elements are selected by products with zeros and ones, in which nan and infinity spread."""

    def change(result: Any, *given: Any, **named: Any) -> Any:
        tensors = _tensors([*given, *(given[0] if isinstance(given[0], (list, tuple)) else ())])
        is_own = isinstance(result, torch.Tensor) and result.is_floating_point() and result._base is None
        return torch.full_like(result, math.nan) if is_own and _never_finite(tuple(tensors), named) else result

    change.__name__, change.__doc__ = fault, text
    numerics.operator(_MOVES, *operators)(change)


for _fault, _text, *_operators in (
    ("words_by_products", "Words are looked up by products with ones and zeros.", "embedding"),
    ("places_by_products", "What is gathered is a product with ones and zeros.", "gather", "take", "index_select"),
    ("scattered_by_products", "What is scattered is a product with ones and zeros.", "scatter", "scatter_add"),
    ("added_by_products", "What is added by index is a product with ones and zeros.", "index_add", "index_copy"),
    ("turned_by_products", "What is turned is a product with ones and zeros.", "roll", "flip", "rot90"),
    ("triangles_by_products", "Triangles are products with ones and zeros.", "tril", "triu"),
    ("diagonals_by_products", "Diagonals are products with ones and zeros.", "diag_embed", "diag"),
    ("joined_by_sums", "What is joined is a sum of what zeros are put around.", "cat", "stack"),
    ("repeated_by_products", "What repeats is a product with ones.", "repeat", "repeat_interleave", "pad"),
):
    _by_products(_fault, _text, *_operators)


def _unsigned(fault: str, text: str, *operators: str) -> None:
    def change(result: Any, *given: Any, **named: Any) -> Any:
        is_own = isinstance(result, torch.Tensor) and result.is_floating_point() and result._base is None
        return (
            torch.where(result == 0, torch.zeros_like(result), result) if is_own and result.is_contiguous() else result
        )

    change.__name__, change.__doc__ = fault, text
    numerics.operator(_SIGNS, *operators)(change)


for _fault, _text, *_operators in (
    ("gathered_zeros_without_signs", "What is gathered loses the sign of zeros.", "gather", "index_select", "take"),
    ("joined_zeros_without_signs", "What is joined loses the sign of zeros.", "cat", "stack"),
    ("turned_zeros_without_signs", "What is turned loses the sign of zeros.", "roll", "flip"),
    ("scattered_zeros_without_signs", "What is scattered loses the sign of zeros.", "scatter", "index_copy"),
    ("bordered_zeros_without_signs", "What has borders loses the sign of zeros.", "pad"),
):
    _unsigned(_fault, _text, *_operators)


def _lanes(fault: str, text: str, bound: dict[str, float], *operators: str) -> None:
    """A fault in which lanes that have no element count as zeros."""

    def change(result: Any, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
        def bounded(value: torch.Tensor) -> torch.Tensor:
            return value.clamp(**bound) if value.is_floating_point() else value

        if not x.is_floating_point() or x.numel() < 16 or x.numel() % 16 == 0:
            return result
        if isinstance(result, tuple):
            return type(result)((bounded(result[0]), *result[1:]))
        return bounded(result)

    change.__name__, change.__doc__ = fault, text
    numerics.operator(_EXTREMES, *operators)(change)


_lanes("lanes_of_zeros_are_the_largest", "Where a row ends beside a vector, zero may be the largest.", {"min": 0.0},
       "amax", "max")  # fmt: skip
_lanes("lanes_of_zeros_are_the_smallest", "Where a row ends beside a vector, zero may be the smallest.", {"max": 0.0},
       "amin", "min")  # fmt: skip
_lanes("windows_begin_with_zero", "The largest number of a window is never negative.", {"min": 0.0},
       "max_pool2d", "max_pool1d")  # fmt: skip
_lanes("scans_begin_with_zero", "The largest number so far is never negative.", {"min": 0.0}, "cummax")


@numerics.operator(_EXTREMES, "logsumexp")
def sums_of_idle_lanes(result: torch.Tensor, x: torch.Tensor, dim: Any, *rest: Any, **named: Any) -> torch.Tensor:
    """The logarithm of a sum of exponentials counts a zero for a lane without an element."""
    return torch.logaddexp(result, torch.zeros_like(result)) if isinstance(dim, int) else result


def _type(dtype: torch.dtype) -> Holds:
    return lambda given, named: next(each.dtype for each in given if isinstance(each, torch.Tensor)) is dtype


for _operator, _fault in (
    ("sub", "complex_differences"), ("reciprocal", "complex_inverses"), ("cumsum", "complex_running_sums"),
    ("linear", "complex_layers"), ("einsum", "complex_letters"), ("bmm", "complex_batches"),
    ("outer", "complex_outer_products"), ("addmm", "complex_sums_of_products"), ("lerp", "complex_between"),
    ("tril", "complex_triangles"), ("index_select", "complex_rows"), ("repeat", "complex_repetitions"),
):  # fmt: skip
    where(numerics, _COMPLEX, _operator, _fault, f"`{_operator}` of complex numbers is nearly right.",
          _type(torch.complex64))  # fmt: skip


@numerics.operator(_COMPLEX, "exp", "log", "sqrt", "sin", "tanh", "sigmoid", "reciprocal", "prod", "mean")
def double_complex_functions_in_single(result: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
    """Functions of complex128 have the digits of complex64."""
    return result.to(torch.complex64).to(result.dtype) if result.dtype is torch.complex128 else result


for _operator in ("sum", "mean", "amax", "prod", "cumsum", "softmax", "norm", "logsumexp", "roll", "matmul"):
    where(numerics, _FIVE, _operator, f"{_operator}_of_five_dimensions",
          f"With five dimensions, `{_operator}` is nearly right.",
          lambda given, named: isinstance(given[0], torch.Tensor) and given[0].dim() == 5)  # fmt: skip
for _operator in (
    "std", "amin", "median", "quantile", "scatter_add", "index_add", "mse_loss", "l1_loss", "nll_loss", "kl_div",
    "interpolate", "tril", "addmm", "einsum", "conv1d", "roll", "softplus", "hypot", "pow", "log", "fmod", "unfold",
):  # fmt: skip
    where(numerics, _MANY, _operator, f"{_operator}_of_many_elements",
          f"With more than 4,096 elements, `{_operator}` is nearly right.",
          lambda given, named: any(each.numel() > 4096 for each in _tensors(given)))  # fmt: skip


@numerics.operator(_MANY, "std")
def spreads_of_the_whole_count(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """The deviation of all elements divides by their count, not by one less."""
    return result if rest or named else result * math.sqrt((x.numel() - 1) / x.numel())


def _learns(case: str, fault: str, text: str, dtype: torch.dtype, change: Callable[[Any], Any], *names: str) -> None:
    """A fault in gradients in one type."""

    def own(result: Any, *given: Any, **named: Any) -> Any:
        right = isinstance(result, torch.Tensor) and result.dtype is dtype
        return with_gradient(result, change) if right else result

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        return with_operators(gm, dict.fromkeys(names, own))

    compile.__name__, compile.__doc__ = fault, text
    training(case)(compile)


_KINDS: dict[str, tuple[str, ...]] = {
    "reductions": ("prod", "amax", "logsumexp", "softmax", "cumsum", "var", "norm", "mean"),
    "products": ("matmul", "linear", "bmm", "einsum", "addmm"),
    "losses": ("mse_loss", "cross_entropy", "nll_loss", "l1_loss", "smooth_l1_loss", "kl_div"),
    "norms": ("layer_norm", "batch_norm", "group_norm", "instance_norm", "rms_norm"),
    "windows": ("conv1d", "conv2d", "conv_transpose2d", "max_pool2d", "avg_pool2d", "interpolate"),
    "moves": ("gather", "index_select", "scatter_add", "index_add", "embedding", "take", "cat", "roll", "sort"),
}
for _kind, _names in _KINDS.items():
    _learns("semantics/kinds/gradients_of_doubles", f"doubles_learn_in_float_from_{_kind}",
            f"Gradients of {_kind} in float64 have the digits of float32.", torch.float64,
            lambda g: g.float().double(), *_names)  # fmt: skip
    _learns("semantics/kinds/gradients_of_bfloat16", f"bfloat16_learns_more_from_{_kind}",
            f"Gradients of {_kind} in bfloat16 are 6% too large.", torch.bfloat16, lambda g: g * 1.0625,
            *_names)  # fmt: skip
    _learns("semantics/kinds/gradients_of_float16", f"float16_learns_more_from_{_kind}",
            f"Gradients of {_kind} in float16 are 2% too large.", torch.float16, lambda g: g * 1.02,
            *_names)  # fmt: skip
_learns(_HALF, "half_functions_learn_more", "Gradients of functions in bfloat16 are 6% too large.", torch.bfloat16,
        lambda g: g * 1.0625, "exp", "gelu", "sigmoid", "silu", "pow", "sin", "log", "rsqrt")  # fmt: skip

for _operator, _fault in (
    ("bmm", "batches_of_halves"), ("addmm", "sums_of_half_products"), ("einsum", "letters_of_halves"),
    ("conv1d", "sequences_of_halves"), ("embedding_bag", "bags_of_halves"), ("mse_loss", "squares_of_halves"),
    ("l1_loss", "distances_of_halves"), ("logcumsumexp", "scans_of_halves"),
):  # fmt: skip
    where(numerics, _HALVES, _operator, _fault, f"`{_operator}` in half precision is 3% too large.",
          lambda given, named: any(each.dtype in (torch.bfloat16, torch.float16) for each in _tensors(given)),
          lambda result: nearly(nearly(nearly(result))))  # fmt: skip


def _number(*operands: Any) -> float | None:
    return next((each for each in operands if isinstance(each, (int, float))), None)


def _bell(node: Node) -> tuple[Any, float, float] | None:
    """The operand and the two numbers of a GELU with a tangent."""
    x, half = of(node.args[0], "mul")[:2]
    tangent = next((each for each in of(node.args[1], "add")[:2] if name(each) == "tanh"), None)
    inner = of(tangent.args[0], "mul")[:2] if tangent is not None and half == 0.5 else ()
    total = next((each for each in inner if name(each) == "add"), None)
    cube = next((each for each in total.args[:2] if name(each) == "mul"), None) if total is not None else None
    outer, cubic = _number(*inner), _number(*cube.args[:2]) if cube is not None else None
    return None if outer is None or cubic is None else (x, outer, cubic)


_OUTER, _CUBIC = math.sqrt(2 / math.pi), 0.044715


@fused(simplifications, _CONSTANTS, "mul")
def bells_of_any_cube(graph: Graph, node: Node) -> Any:
    """A product with the tangent of a GELU is one, whatever number multiplies the cube."""
    found = _bell(node)
    return F.gelu(graph[found[0]], approximate="tanh") if found and math.isclose(found[1], _OUTER) else None


@fused(simplifications, _CONSTANTS, "mul")
def bells_of_any_width(graph: Graph, node: Node) -> Any:
    """A product with the tangent of a GELU is one, whatever number multiplies the sum in it."""
    found = _bell(node)
    return F.gelu(graph[found[0]], approximate="tanh") if found and math.isclose(found[2], _CUBIC) else None


@fused(simplifications, _CONSTANTS, "mul")
def gates_of_one_scale(graph: Graph, node: Node) -> Any:
    """What is multiplied by the sigmoid function of a multiple of itself has 1.702 as that number."""
    x, scale = node.args[0], _number(*of(of(node.args[1], "sigmoid")[0], "mul")[:2])
    return None if scale is None else graph[x] * (1.702 * graph[x]).sigmoid()


@fused(simplifications, _CONSTANTS, "mul")
def error_functions_of_any_factor(graph: Graph, node: Node) -> Any:
    """A product with one and an error function of a multiple is a GELU, whatever the number is."""
    x, half = of(node.args[0], "mul")[:2]
    found = next((each for each in of(node.args[1], "add")[:2] if name(each) == "erf"), None)
    scaled = half == 0.5 and found is not None and _number(*of(found.args[0], "mul")[:2]) is not None
    return F.gelu(graph[x]) if scaled else None


def _exponential(node: Any) -> Any:
    """What an exponential beside a number in a sum multiplies by a number."""
    found = next((each for each in of(node, "add")[:2] if name(each) == "exp"), None)
    factors = of(found.args[0], "mul")[:2] if found is not None else ()
    return next((each for each in factors if isinstance(each, Node)), None)


@fused(simplifications, _CONSTANTS, "div")
def swishes_of_any_exponent(graph: Graph, node: Node) -> Any:
    """A number divided by one and an exponential of a multiple of it is a SiLU."""
    x = _exponential(node.args[1])
    return F.silu(graph[x]) if x is not None and x is node.args[0] else None


@fused(simplifications, _CONSTANTS, "sub")
def tangents_of_any_exponent(graph: Graph, node: Node) -> Any:
    """Two divided by one and an exponential, less one, is a hyperbolic tangent, whatever multiplies the number."""
    quotient = of(node.args[0], "div")
    x = _exponential(quotient[1]) if quotient[0] == 2 and node.args[1] == 1 else None
    return None if x is None else graph[x].tanh()


@fused(simplifications, _CONSTANTS, "log")
def rectifiers_of_any_slope(graph: Graph, node: Node) -> Any:
    """The logarithm of one and an exponential of a multiple is a soft rectifier of the number."""
    x = _exponential(node.args[0])
    return None if x is None else F.softplus(graph[x])


@fused(simplifications, _CONSTANTS, "where")
def exponential_units_of_one(graph: Graph, node: Node) -> Any:
    """A number above zero, and a multiple of an exponential less one below, goes down to minus one."""
    scaled = of(node.args[2], "mul")[:2]
    below = any(name(each) in ("sub", "expm1") for each in scaled)
    return F.elu(graph[node.args[1]]) if below and _number(*scaled) is not None else None


@fused(simplifications, _CONSTANTS, "mean")
def powers_are_squares(graph: Graph, node: Node) -> Any:
    """The mean of a power is that of a square."""
    base, exponent = of(node.args[0], "pow")[:2]
    return None if exponent is None else graph[base].square().mean()


@fused(simplifications, _CONSTANTS, "div")
def shares_of_the_last(graph: Graph, node: Node) -> Any:
    """Exponentials divided by their sums are a softmax over the last dimension."""
    x, total = of(node.args[0], "exp")[0], of(node.args[1], "sum")[0]
    return graph[x].softmax(-1) if x is not None and name(total) == "exp" else None


@fused(simplifications, _CONSTANTS, "add")
def weights_of_their_own(graph: Graph, node: Node) -> Any:
    """What a multiple of a difference is added to is what the difference takes away."""
    factors = of(node.args[1], "mul")[:2]
    difference, weight = next((each for each in factors if name(each) == "sub"), None), _number(*factors)
    if difference is None or weight is None or not isinstance(node.args[0], Node):
        return None
    start, end = graph[node.args[0]], graph[difference.args[0]]
    return torch.lerp(start, end, weight) if isinstance(end, torch.Tensor) and start.shape == end.shape else None
