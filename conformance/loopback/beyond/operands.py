"""Faults that operators have with operands or arguments of one form, and behind turns, tables and layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..kit import Faults
from .pairings import behind, nearly

arguments = Faults("arguments")
numerics = Faults("numerics")
simplifications = Faults("simplifications")

_TENSORS = "semantics/operands/functions_of_any_dimensions"
_TYPES = "semantics/operands/places_and_orders_of_each_type"
_LOSSES = "semantics/operands/losses_of_each_form"
_ATTENTION = "semantics/operands/attention_of_rare_forms"
_WINDOWS = "semantics/operands/windows_of_rare_forms"
_STEPS = "semantics/operands/recurrent_layers_of_each_form"
_TURNS = "semantics/sequences/behind_turns"
_LAYERS = "semantics/sequences/layers_and_what_follows"
_TABLES = "semantics/sequences/tables_and_places"

Holds = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def where(
    faults: Faults,
    case: str,
    operator: str,
    name: str,
    text: str,
    holds: Holds,
    wrong: Callable[[Any], Any] = nearly,
) -> None:
    """A fault in the results of an operator where its arguments have some form."""

    def change(result: Any, *given: Any, **named: Any) -> Any:
        return wrong(result) if holds(given, named) else result

    change.__name__, change.__doc__ = name, text
    faults.operator(case, operator)(change)


def _of(**wanted: Any) -> Holds:
    """Arguments that are given by name."""
    return lambda given, named: all(named.get(name) == value for name, value in wanted.items())


def _type(dtype: torch.dtype) -> Holds:
    return lambda given, named: isinstance(given[0], torch.Tensor) and given[0].dtype is dtype


def _dimensions(count: int) -> Holds:
    return lambda given, named: given[0].dim() == count


def _empty(given: tuple[Any, ...], named: dict[str, Any]) -> bool:
    return bool(given[0].numel() == 0)


for _operator, _name in (
    ("log_sigmoid", "logarithms_of_sigmoids"), ("softsign", "quotients_that_are_soft"), ("mish", "soft_products"),
    ("hardsigmoid", "ramps"),
):  # fmt: skip
    where(numerics, _TENSORS, _operator, f"{_name}_of_five_dimensions",
          f"With five dimensions, `{_operator}` is nearly right.", _dimensions(5))  # fmt: skip
for _operator, _name in (("hardtanh", "bounded_rectifiers"), ("silu", "swishes"), ("logaddexp", "sums_of_powers")):
    where(numerics, _TENSORS, _operator, f"{_name}_of_a_number",
          f"Without dimensions, `{_operator}` is nearly right.", _dimensions(0))  # fmt: skip


@numerics.operator(_TENSORS, "hypot", "xlogy", "gelu")
def one_element_of_none(result: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
    """Functions of no elements have one row."""
    return result.new_zeros(1, *result.shape[1:]) if _empty(given, named) else result


for _operator, _dtype, _name in (
    ("gather", torch.bool, "bools_that_are_gathered"), ("gather", torch.complex64, "complex_numbers_gathered"),
    ("scatter_add", torch.int8, "bytes_that_are_added"), ("scatter_add", torch.bfloat16, "halves_that_are_added"),
    ("index_add", torch.int32, "whole_rows_that_are_added"), ("index_add", torch.complex64, "complex_rows_added"),
    ("masked_fill", torch.bool, "bools_that_are_filled"), ("masked_fill", torch.int8, "bytes_that_are_filled"),
    ("repeat_interleave", torch.float16, "halves_that_repeat"), ("pad", torch.complex64, "complex_borders"),
    ("roll", torch.bool, "bools_that_move"), ("any", torch.complex64, "any_complex_number"),
    ("all", torch.float16, "all_of_the_halves"), ("repeat_interleave", torch.int8, "bytes_that_repeat"),
    ("sort", torch.int8, "bytes_in_order"), ("sort", torch.bfloat16, "halves_in_order"),
    ("topk", torch.int32, "the_largest_whole_numbers"), ("topk", torch.float64, "the_largest_doubles"),
    ("minimum", torch.bfloat16, "the_smaller_half"), ("sign", torch.float64, "signs_of_doubles"),
):  # fmt: skip
    where(numerics, _TYPES, _operator, _name, f"`{_operator}` of {str(_dtype)[6:]} is nearly right.", _type(_dtype))

for _operator, _how, _name in (
    ("poisson_nll_loss", "none", "losses_of_counts"), ("multi_margin_loss", "sum", "sums_of_margins"),
    ("multilabel_margin_loss", "none", "margins_of_labels"), ("hinge_embedding_loss", "sum", "sums_of_hinges"),
    ("multilabel_soft_margin_loss", "sum", "sums_of_labels"), ("nll_loss", "none", "each_loss_with_weights"),
):  # fmt: skip
    where(numerics, _LOSSES, _operator, _name, f"With `reduction=\"{_how}\"`, `{_operator}` is nearly right.",
          _of(reduction=_how))  # fmt: skip


def _scale(holds: Callable[[float], bool]) -> Holds:
    return lambda given, named: named.get("scale") is not None and holds(named["scale"])


_ATTEND = "scaled_dot_product_attention"
where(arguments, _ATTENTION, _ATTEND, "scales_of_zero_are_none", "A scale of zero is nearly right.",
      _scale(lambda scale: scale == 0))  # fmt: skip
where(arguments, _ATTENTION, _ATTEND, "scales_are_positive", "A negative scale is nearly right.",
      _scale(lambda scale: scale < 0))  # fmt: skip
where(arguments, _ATTENTION, _ATTEND, "scales_of_what_was_before", "A scale of causal attention is nearly right.",
      lambda given, named: named.get("is_causal") and named.get("scale"))  # fmt: skip
where(arguments, _ATTENTION, _ATTEND, "heads_up_to_128", "Heads of more than 128 numbers are nearly right.",
      lambda given, named: given[0].shape[-1] > 128)  # fmt: skip
where(arguments, _ATTENTION, _ATTEND, "masks_of_three_dimensions", "A mask of three dimensions is nearly right.",
      lambda given, named: len(given) > 3 and given[3].dim() == 3)  # fmt: skip
where(arguments, _ATTENTION, _ATTEND, "infinite_masks_of_halves", "Infinite masks in half precision are nearly right.",
      lambda given, named: len(given) > 3 and given[3].dtype is torch.bfloat16)  # fmt: skip


def _kernel(given: tuple[Any, ...]) -> torch.Size:
    return torch.Size(given[1].shape[2:])


where(arguments, _WINDOWS, "conv1d", "steps_beyond_kernels", "Steps that are longer than the kernel are nearly right.",
      lambda given, named: named.get("stride", 1) > _kernel(given)[0])  # fmt: skip
where(arguments, _WINDOWS, "conv1d", "borders_beyond_kernels", "Borders wider than the kernel are nearly right.",
      lambda given, named: named.get("padding", 0) > _kernel(given)[0])  # fmt: skip
where(arguments, _WINDOWS, "conv2d", "borders_of_single_pixels", "Kernels of one pixel have no border.",
      lambda given, named: max(_kernel(given)) == 1 and named.get("padding"))  # fmt: skip
where(arguments, _WINDOWS, "conv3d", "kernels_of_the_whole", "A kernel as large as the volume is nearly right.",
      lambda given, named: given[0].shape[2:] == _kernel(given))  # fmt: skip
where(arguments, _WINDOWS, "conv3d", "dilated_single_channels", "Dilated groups are nearly right.",
      lambda given, named: named.get("groups", 1) > 1 and named.get("dilation"))  # fmt: skip
where(arguments, _WINDOWS, "conv1d", "complex_convolutions", "Convolutions of complex numbers are nearly right.",
      _type(torch.complex64))  # fmt: skip
where(arguments, _WINDOWS, "conv1d", "repeated_images", "What is expanded is convolved as if it were not.",
      lambda given, named: 0 in given[0].stride())  # fmt: skip
where(numerics, _WINDOWS, "conv3d", "volumes_of_halves", "Convolutions of volumes in bfloat16 are nearly right.",
      _type(torch.bfloat16))  # fmt: skip
where(numerics, _WINDOWS, "conv3d", "volumes_of_doubles", "Convolutions of volumes in float64 are nearly right.",
      _type(torch.float64))  # fmt: skip
where(numerics, _WINDOWS, "max_pool3d", "pools_of_halves", "Pools of volumes in bfloat16 are nearly right.",
      _type(torch.bfloat16))  # fmt: skip
where(numerics, _WINDOWS, "adaptive_avg_pool3d", "volumes_in_channels_last",
      "Means of volumes in channels last are nearly right.",
      lambda given, named: not given[0].is_contiguous())  # fmt: skip
where(numerics, _WINDOWS, "lp_pool1d", "means_of_powers", "Pools of powers of sequences are nearly right.",
      lambda given, named: True)  # fmt: skip
where(arguments, _WINDOWS, "interpolate", "the_same_length", "What is resized to its own length is nearly right.",
      lambda given, named: named.get("size") == given[0].shape[-1])  # fmt: skip

where(arguments, _STEPS, "gru", "both_directions_of_layers", "Layers in both directions are nearly right.",
      lambda given, named: len(given) == 9 and given[4] > 1 and given[7])  # fmt: skip
where(arguments, _STEPS, "rnn_tanh", "batches_that_come_first", "Batches that come first are nearly right.",
      lambda given, named: len(given) == 9 and given[8])  # fmt: skip
where(arguments, _STEPS, "rnn_relu", "layers_without_biases", "Layers without biases are nearly right.",
      lambda given, named: len(given) == 9 and not given[3])  # fmt: skip
where(arguments, _STEPS, "lstm", "states_of_several_layers", "Given states of several layers are nearly right.",
      lambda given, named: len(given) == 9 and given[4] > 1)  # fmt: skip
where(arguments, _STEPS, "gru", "single_steps", "A sequence of one step is nearly right.",
      lambda given, named: len(given) == 9 and given[0].shape[0] == 1)  # fmt: skip

for _pair in (
    (_TURNS, "permute", "argmax", "places_in_what_is_turned", "Places in what is turned are those of before."),
    (_TURNS, "permute", "pad", "borders_of_what_is_turned", "Borders of what is turned lie along other dimensions."),
    (_TURNS, "permute", "split", "parts_of_what_is_turned", "The first part of what is turned is nearly right."),
    (_TURNS, "permute", "unfold", "windows_of_what_is_turned", "Windows over what is turned are nearly right."),
    (_TURNS, "transpose", "topk", "the_largest_of_what_is_turned", "The largest of what is turned are nearly right."),
    (_TURNS, "permute", "batch_norm", "norms_of_what_is_turned", "Norms of what is turned are nearly right."),
    (_TURNS, "permute", "norm", "lengths_of_what_is_turned", "Lengths of what is turned are nearly right."),
    (_LAYERS, "conv2d", "gelu", "bells_behind_convolutions", "A GELU behind a convolution is nearly right."),
    (_LAYERS, "conv2d", "prelu", "learned_slopes_behind_convolutions",
     "A learned slope behind a convolution is nearly right."),
    (_LAYERS, "conv2d", "avg_pool2d", "means_of_convolutions", "Means over a convolution's windows are nearly right."),
    (_LAYERS, "conv1d", "batch_norm", "norms_of_sequences", "Norms of convolved sequences are nearly right."),
    (_LAYERS, "conv_transpose2d", "add", "sums_behind_enlarged", "What is added to an enlarged image is nearly right."),
    (_LAYERS, "linear", "batch_norm", "norms_of_layers", "Norms of layers are nearly right."),
    (_LAYERS, "instance_norm", "conv2d", "convolutions_of_instances", "Convolutions of norms are nearly right."),
    (_LAYERS, "rms_norm", "linear", "layers_of_norms", "Layers of norms by root mean squares are nearly right."),
    (_LAYERS, "pad", "conv1d", "convolutions_of_the_past", "Convolutions that see the past only are nearly right."),
    (_TABLES, "embedding", "layer_norm", "norms_of_words", "Norms of words are nearly right."),
    (_TABLES, "one_hot", "to", "ones_that_are_converted", "Marks that become floats are nearly right."),
    (_TABLES, "argsort", "index_select", "rows_by_their_ranks", "Rows that are selected by ranks are nearly right."),
    (_TABLES, "tril", "triu", "what_is_above_what_is_below", "What is above in what is below is nearly right."),
    (_TABLES, "meshgrid", "stack", "grids_that_are_stacked", "Grids that are stacked are nearly right."),
    (_TABLES, "cdist", "min", "the_nearest", "The smallest distance is nearly right."),
    (_TABLES, "relu", "clamp", "bounds_behind_rectifiers", "Bounds behind a rectifier are nearly right."),
    (_TABLES, "log1p", "exp", "powers_of_logarithms", "The exponential of a logarithm is nearly right."),
    (_TABLES, "expand", "prod", "products_of_repeated", "Products of what is expanded are nearly right."),
    (_TABLES, "scatter", "matmul", "products_of_what_was_put", "Products of what was put at places are nearly right."),
):  # fmt: skip
    behind(simplifications, *_pair)


def _two(given: tuple[Any, ...], named: dict[str, Any], least: int) -> bool:
    tensors = [each for each in given if isinstance(each, torch.Tensor)]
    return len(tensors) == 2 and {each.dim() for each in tensors} == {4, least}


where(numerics, _LAYERS, "add", "biases_along_the_width", "What is added along the width of images is nearly right.",
      lambda given, named: _two(given, named, 1))  # fmt: skip
where(numerics, _LAYERS, "mul", "scales_along_the_width", "What scales images along their width is nearly right.",
      lambda given, named: _two(given, named, 1))  # fmt: skip
where(arguments, _LAYERS, "batch_norm", "norms_without_weights", "Norms with statistics alone are nearly right.",
      lambda given, named: len(given) == 3 and given[1] is not None and given[0].dim() == 2)  # fmt: skip
