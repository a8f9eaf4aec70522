"""Gradients of one argument of one operator that are wrong, mostly in a few places only."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from ..kit import Faults, Run, with_gradient

faults = Faults("training")

_Slope = Callable[[torch.Tensor, torch.Tensor, Any, tuple[Any, ...], dict[str, Any]], torch.Tensor]

_FUNCTIONS = "semantics/slopes/of_functions"
_KINKS = "semantics/slopes/at_kinks"
_TIES = "semantics/slopes/at_ties"
_BOTH = "semantics/slopes/of_both_arguments"
_REDUCTIONS = "semantics/slopes/of_reductions"
_MOVES = "semantics/slopes/of_moves"
_MATRICES = "semantics/slopes/of_matrices"
_SPECTRA = "semantics/slopes/of_spectra"


def _with_slope(gm: GraphModule, names: Sequence[str], argument: int, change: _Slope) -> Run:
    """The graph with another gradient of one argument of some operators, which do not write."""

    class Changed(Interpreter):
        def run_node(self, node: Node) -> Any:
            if node.op not in ("call_function", "call_method"):
                return super().run_node(node)
            own = node.target if isinstance(node.target, str) else node.target.__name__
            args, keywords = self.fetch_args_kwargs_from_env(node)
            if own.strip("_") not in names or len(args) <= argument or (node.op == "call_method" and own[-1] == "_"):
                return super().run_node(node)
            given = args[argument]
            found: list[Any] = []

            def changed(g: torch.Tensor) -> torch.Tensor:
                return change(g, given, found[0], args, keywords)

            new = (*args[:argument], with_gradient(given, changed), *args[argument + 1 :])
            found.append(getattr(self, node.op)(node.target, new, keywords))
            return found[0]

    return lambda *given: Changed(gm).run(*given)


def _slope(name: str, text: str, case: str, names: Sequence[str], argument: int, change: _Slope) -> None:
    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        return _with_slope(gm, names, argument, change)

    compile.__name__, compile.__doc__ = name, text
    faults(case)(compile)


def _asked(keywords: dict[str, Any], args: tuple[Any, ...], name: str, position: int) -> Any:
    return keywords.get(name, args[position] if len(args) > position else None)


def _nearly(g: torch.Tensor, *rest: Any) -> torch.Tensor:
    return g * 1.001


def _nothing(g: torch.Tensor, *rest: Any) -> torch.Tensor:
    return g * 0


def _where(condition: Callable[..., torch.Tensor], otherwise: Callable[[torch.Tensor], torch.Tensor]) -> _Slope:
    return lambda g, x, r, a, k: torch.where(condition(x, r), otherwise(g), g)


def _if(condition: Callable[[tuple[Any, ...], dict[str, Any]], Any]) -> _Slope:
    return lambda g, x, r, a, k: g * 1.001 if condition(a, k) else g


def _one(g: torch.Tensor) -> torch.Tensor:
    return g * 0 + 1


for _fault in (
    ("flat_error_functions", "An error function has no slope beyond two.", _FUNCTIONS, ("erf", "erfc"), 0,
     _where(lambda x, r: x.abs() > 2, _nothing)),
    ("slopes_of_other_betas", "The slope of a softplus with a factor is steeper above one.",
     _FUNCTIONS, ("softplus",), 0,
     lambda g, x, r, a, k: torch.where(x > 1, g * 1.01, g) if _asked(k, a, "beta", 1) not in (None, 1) else g),
    ("no_slopes_of_lengths_at_zero", "The length of a pair has a slope of zero at zero.", _KINKS, ("hypot",), 0,
     lambda g, x, r, a, k: torch.nan_to_num(g)),
    ("divisors_that_do_not_learn", "The divisor of a remainder gets no gradient.",
     _BOTH, ("remainder", "mod"), 1, _nothing),
    ("divisors_in_c_that_do_not_learn", "The divisor of a remainder as in C gets no gradient.",
     _BOTH, ("fmod",), 1, _nothing),
    ("extremes_beside_nan_do_not_learn", "A number that is larger than nan gets no gradient.",
     _KINKS, ("fmax", "fmin"), 0,
     lambda g, x, r, a, k: torch.where(x.isnan(), _one(g), g)),
    ("signs_given_to_nothing", "A zero that gets a sign has a slope.", _KINKS, ("copysign",), 0,
     _where(lambda x, r: x == 0, _one)),
    ("scans_of_exponentials_backwards", "The gradient of a running sum of exponentials over rows is in reverse order.",
     _REDUCTIONS, ("logcumsumexp",), 0, lambda g, x, r, a, k: g.flip(0) if a[1] == 0 else g),
    ("largest_norms_divide", "Elements that are all the largest get more than their part.", _TIES,
     ("norm", "linalg_vector_norm"), 0,
     lambda g, x, r, a, k: g * 1.5 if math.inf in (a[1:2] or (None,))[0:1] or k.get("ord") == math.inf else g),
    ("cubes_without_signs", "The gradient of a norm of order three has no sign.", _REDUCTIONS, ("norm",), 0,
     lambda g, x, r, a, k: g.abs() if _asked(k, a, "p", 1) == 3 else g),
    ("medians_that_do_not_learn", "The median of all elements gets no gradient.", _REDUCTIONS, ("median",), 0,
     lambda g, x, r, a, k: g * 0 if isinstance(r, torch.Tensor) else g),
    ("frequent_numbers_learn_twice", "The gradient of the most frequent number is doubled.", _REDUCTIONS, ("mode",), 0,
     lambda g, x, r, a, k: g * 2),
    ("largest_of_columns_do_not_learn", "The largest elements of columns get no gradient.", _REDUCTIONS, ("topk",), 0,
     lambda g, x, r, a, k: g * 0 if _asked(k, a, "dim", 2) == 0 else g),
    ("sorted_columns_learn_backwards", "The gradient of sorted columns is in reverse order.", _REDUCTIONS, ("sort",), 0,
     lambda g, x, r, a, k: g.flip(0) if _asked(k, a, "dim", 1) == 0 else g),
    ("extremes_so_far_learn_once", "An element that is the extreme of many learns from one.", _REDUCTIONS,
     ("cummax", "cummin"), 0, lambda g, x, r, a, k: g.clamp(max=1.0)),
    ("slopes_of_quantiles", "The gradient of a quantile is nearly right.", _REDUCTIONS, ("quantile",), 0, _nearly),
    ("slopes_of_second_differences", "The gradient of second differences is nearly right.", _REDUCTIONS, ("diff",), 0,
     _if(lambda a, k: (_asked(k, a, "n", 1) or 1) > 1)),
    ("slopes_of_limited_rows", "The gradient of rows whose norm is limited is nearly right.",
     _REDUCTIONS, ("renorm",), 0,
     _nearly),
    ("taken_twice_learns_once", "An element that is taken more than once learns from one reader.", _MOVES, ("take",), 0,
     lambda g, x, r, a, k: g.clamp(max=1.4)),
    ("slopes_of_largest_in_place", "What was in a place of which the largest is taken learns too much.", _MOVES,
     ("scatter_reduce",), 0, _if(lambda a, k: "amax" in a)),
    ("slopes_of_largest_that_come", "What comes to a place of which the largest is taken learns too much.", _MOVES,
     ("scatter_reduce",), 3, _if(lambda a, k: "amax" in a)),
    ("slopes_of_factors_that_come", "What a place is multiplied by learns too much.", _MOVES, ("scatter_reduce",), 3,
     _if(lambda a, k: "prod" in a)),
    ("slopes_of_means_that_come", "What a place has the mean of learns too much.", _MOVES, ("scatter_reduce",), 3,
     _if(lambda a, k: "mean" in a)),
    ("slopes_without_alpha", "Rows that are added with a factor learn without it.", _MOVES, ("index_add",), 3,
     lambda g, x, r, a, k: g / k["alpha"] if "alpha" in k else g),
    ("copied_rows_learn_more", "Rows that are copied by index learn too much.", _MOVES, ("index_copy",), 3, _nearly),
    ("scattered_numbers_learn_elsewhere", "What a mask scatters learns in reverse order.",
     _MOVES, ("masked_scatter",), 2,
     lambda g, x, r, a, k: g.flip(0)),
    ("filling_numbers_do_not_learn", "The tensor that fills a mask gets no gradient.",
     _MOVES, ("masked_fill",), 2, _nothing),
    ("numbers_put_learn_more", "What is put to places learns too much.", _MOVES, ("put",), 2, _nearly),
    ("hard_sigmoids_at_their_ends", "A sigmoid of lines has its slope at its ends.", _KINKS, ("hardsigmoid",), 0,
     _where(lambda x, r: x.abs() == 3, lambda g: g * 0 + 1 / 6)),
    ("hard_swishes_at_their_ends", "A swish of lines has a slope of a half at its ends.", _KINKS, ("hardswish",), 0,
     _where(lambda x, r: x.abs() == 3, lambda g: g * 0 + 0.5)),
    ("shrunk_numbers_at_their_ends", "What is shrunk to zero has a slope at the end.", _KINKS,
     ("softshrink", "hardshrink"), 0, _where(lambda x, r: x.abs() == 0.5, _one)),
    ("exponential_units_at_zero", "An exponential unit with a factor has a slope of one at zero.", _KINKS, ("elu",), 0,
     _where(lambda x, r: x == 0, _one)),
    ("rectified_nan_without_slopes", "A rectifier has no slope at nan.", _KINKS, ("relu",), 0,
     _where(lambda x, r: x.isnan(), lambda g: g * 0 - 1)),
    ("bicubic_slopes", "The gradient of bicubic resizing is nearly right.", _MOVES, ("interpolate",), 0,
     _if(lambda a, k: "bicubic" in k.values())),
    ("certain_losses_without_slopes", "The loss of a probability has no slope at zero and one.", _KINKS,
     ("binary_cross_entropy",), 0, _where(lambda x, r: (x == 0) | (x == 1), _nothing)),
    ("distances_of_nothing_have_slopes", "Points that are equal push each other.", _TIES,
     ("pdist", "pairwise_distance", "cdist"), 0, _where(lambda x, r: torch.ones_like(x).bool(), lambda g: g + 1e-3)),
    ("bilinear_weights", "The weights of a bilinear layer learn too much.", _BOTH, ("bilinear",), 2, _nearly),
    ("broadcast_factors", "A matrix that multiplies a batch of batches learns too much.", _BOTH, ("matmul",), 1,
     lambda g, x, r, a, k: g * 1.001 if x.dim() == 2 and a[0].dim() > 3 else g),
    ("biases_of_one_row", "The bias of a layer learns too much from a single row.", _BOTH, ("linear",), 2,
     lambda g, x, r, a, k: g * 1.001 if a[0].dim() == 1 else g),
    ("right_sides_learn_more", "The right side of an equation learns too much.",
     _MATRICES, ("linalg_solve",), 1, _nearly),
    ("slopes_of_orthogonal_factors", "The gradient of a decomposition in an orthogonal factor is nearly right.",
     _MATRICES,
     ("linalg_qr",), 0, _nearly),
    ("slopes_of_pseudoinverses", "The gradient of a pseudoinverse is nearly right.", _MATRICES, ("linalg_pinv",), 0,
     _nearly),
    ("slopes_of_spectra", "The gradient of a Fourier transform is nearly right.", _SPECTRA,
     ("fft_rfft", "fft_irfft", "fft_fft"), 0, _nearly),
    ("slopes_of_plane_spectra", "The gradient of a Fourier transform over two dimensions is nearly right.", _SPECTRA,
     ("fft_rfft2", "fft_fft2", "fft_rfftn", "fft_fftn", "fft_irfftn"), 0, _nearly),
    ("slopes_of_frames", "The gradient of a transform of frames is nearly right.", _SPECTRA, ("stft",), 0, _nearly),
    ("complex_lengths_at_zero", "The length of a complex zero has a slope.", _SPECTRA, ("abs",), 0,
     lambda g, x, r, a, k: torch.where(x == 0, g + 1, g) if x.is_complex() else g),
    ("complex_divisors_not_conjugated", "The gradient of a complex divisor is not conjugated.", _SPECTRA,
     ("truediv", "div"), 1, lambda g, x, r, a, k: g.conj() if x.is_complex() else g),
    ("slopes_of_wider_sums", "The gradient of a sum in a wider type is nearly right.", _REDUCTIONS, ("sum", "mean"), 0,
     _if(lambda a, k: "dtype" in k)),
    ("slopes_of_areas", "The gradient of an area is nearly right.", _REDUCTIONS,
     ("trapezoid", "cumulative_trapezoid", "gradient"), 0, _nearly),
    ("second_points_learn_more", "The second of two sets of points learns too much.", _BOTH, ("cdist",), 1, _nearly),
    ("flat_powers_at_zero", "A power has no slope at zero.", _KINKS, ("pow",), 0,
     lambda g, x, r, a, k: torch.where(x == 0, 0.0, g)),
    ("spreads_of_planes", "The gradient of a variance over two dimensions is too large.", _REDUCTIONS, ("var",), 0,
     lambda g, x, r, a, k: g * 1.05 if isinstance(_asked(k, a, "dim", 1), (tuple, list)) else g),
    ("all_extremes_learn_whole", "Each of several equal extremes gets the whole gradient.", _TIES, ("max", "min"), 0,
     lambda g, x, r, a, k: torch.where(x == r, g * (x == r).sum(), g) if isinstance(r, torch.Tensor) else g),
    ("large_divisors_do_not_learn", "A divisor whose square overflows gets no gradient.", _BOTH, ("truediv", "div"), 1,
     lambda g, x, r, a, k: g if x.is_complex() else torch.where(x.abs() > 1e11, g * 0, g)),
):  # fmt: skip
    _slope(*_fault)
