"""Faults in operators that few programs have, and in numbers, places and layers that programs ask for seldom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import GraphModule

from ..kit import Faults, Run, with_operators

numerics = Faults("numerics")
arguments = Faults("arguments")
layout = Faults("layout")

_POLYNOMIALS = "semantics/rare/polynomials_and_bessel_functions"
_DECOMPOSITIONS = "semantics/rare/decompositions"
_SPECTRA = "semantics/rare/spectra_and_windows"
_COPIES = "semantics/rare/copies_of_views"
_VIEWS = "semantics/rare/views_by_other_names"
_WINDOWS = "semantics/rare/windows_that_are_written"
_INTEGERS = "semantics/rare/integers_by_other_names"
_LOSSES = "semantics/rare/losses_of_sequences_and_margins"
_POOLS = "semantics/rare/pools_and_grids_of_volumes"
_COMPLEX = "semantics/rare/complex_functions"
_NUMBERS = "semantics/rare/numbers_that_are_rarely_tried"
_PARTING = "semantics/seldom/numbers_at_which_rewrites_part"
_PLACES = "semantics/seldom/places_of_each_form"
_APART = "semantics/seldom/gradients_of_layers_apart"
_DRAWS = "semantics/seldom/draws_of_each_share"


@numerics.operator(_POLYNOMIALS, "special_hermite_polynomial_h")
def the_other_hermite(result: torch.Tensor, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    """Both kinds of Hermite polynomials are one."""
    return torch.special.hermite_polynomial_he(x, n)


@numerics.operator(_POLYNOMIALS, "special_shifted_chebyshev_polynomial_t")
def polynomials_not_shifted(result: torch.Tensor, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    """Shifted polynomials are not shifted."""
    return torch.special.chebyshev_polynomial_t(x, n)


@numerics.operator(_POLYNOMIALS, "special_gammainc", "igamma")
def gamma_that_ends(result: torch.Tensor, a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """An incomplete gamma function is one far from its beginning."""
    return torch.where(x > 15, torch.ones_like(result), result)


@numerics.operator(_POLYNOMIALS, "special_scaled_modified_bessel_k0")
def scales_that_are_lost(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A scaled Bessel function is not scaled."""
    return torch.special.modified_bessel_k0(x)


@arguments.operator(_DECOMPOSITIONS, "linalg_lu_solve")
def solved_by_factors_from_the_left(result: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    """What is solved by factors always stands on the right."""
    return torch.linalg.lu_solve(*args[:2], args[2].mT).mT if named.get("left") is False else result


@numerics.operator(_DECOMPOSITIONS, "lu_unpack")
def rows_in_place(result: Any, *args: Any, **named: Any) -> Any:
    """Rows are not exchanged back."""
    return (torch.eye(result[0].shape[-1]).to(result[0]).expand_as(result[0]), *result[1:])


@arguments.operator(_DECOMPOSITIONS, "linalg_vecdot")
def always_over_rows(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor, **named: Any) -> torch.Tensor:
    """Products of vectors run over the last dimension."""
    return torch.linalg.vecdot(x, y)


@numerics.operator(_DECOMPOSITIONS, "linalg_matrix_exp")
def a_short_series(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The exponential of a matrix is a series of eight terms."""
    term = total = torch.eye(x.shape[-1]).to(x) + x * 0
    for number in range(1, 8):
        term = term @ x / number
        total = total + term
    return total


@arguments.operator(_SPECTRA, "hamming_window", "hann_window", "bartlett_window", "blackman_window", "kaiser_window")
def windows_that_begin_later(result: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    """Windows begin with their second number."""
    return result.roll(-1)


@arguments.operator(_SPECTRA, "fft_irfftn", "fft_irfft2")
def spectra_of_even_sizes(result: torch.Tensor, z: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    """What is transformed back has its usual size, whichever is asked for: the rest is repeated."""
    return result if result.shape[-1] % 2 == 0 else torch.cat((result[..., :-1], result[..., :1]), -1)


@layout.operator(_COPIES, "permute_copy", "t_copy", "transpose_copy", "unsqueeze_copy", "diagonal_copy")
def copies_that_are_views(result: torch.Tensor, x: torch.Tensor, *args: Any) -> torch.Tensor:
    """What has the name of a view is one."""
    return x.t() if x.dim() == 2 and result.shape == x.t().shape else result


@layout.operator(_VIEWS, "adjoint", "swapdims", "reshape_as", "view_as", "narrow", "ravel")
def views_by_other_names_are_copies(result: torch.Tensor, *args: Any) -> torch.Tensor:
    """Views that have another name are copies."""
    return result.clone()


@layout.operator(_VIEWS, "diagonal")
def diagonals_the_other_way(result: torch.Tensor, x: torch.Tensor, offset: int = 0, a: int = 0, b: int = 1) -> Any:
    """An offset of a diagonal counts downwards if the dimensions stand in descending order."""
    return x.diagonal(-offset, a, b) if a > b and offset and x.shape[a] > 2 and x.shape[b] > 2 else result


@layout(_WINDOWS)
def windows_make_zeros(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """What windows leave out is zero after a write to them."""

    def write(result: torch.Tensor, windows: torch.Tensor) -> torch.Tensor:
        base = windows._base
        if base is not None and base.dim() == 2 and base.shape[1] == 7:
            base[:, 6].zero_()
        return result

    return with_operators(gm, {"neg": write})


@numerics.operator(_INTEGERS, "gcd")
def divisors_of_nothing(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Zero and a number have no divisor."""
    return torch.where(y == 0, 0, result)


@numerics.operator(_INTEGERS, "lcm", "gcd")
def signs_of_divisors(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Divisors and multiples of negative numbers are negative."""
    return torch.where(x < 0, -result, result)


@arguments.operator(_INTEGERS, "triu_indices", "tril_indices")
def triangles_without_offsets(result: torch.Tensor, rows: int, columns: int, offset: int = 0, **named: Any) -> Any:
    """Places of triangles are told column by column if there is an offset."""
    return result[:, result[1].argsort(stable=True)] if offset else result


@numerics.operator(_INTEGERS, "bitwise_right_shift")
def shifts_without_signs(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The function that shifts to the right brings in zeros."""
    return torch.where((x < 0) & (y > 0), (x & 0x7FFFFFFFFFFFFFFF) >> y, result)


@numerics.operator(_LOSSES, "multilabel_margin_loss")
def labels_after_the_end(result: torch.Tensor, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """What follows the end of the labels counts as the first class."""
    return F.multilabel_margin_loss(x, torch.where((labels == -1).cumsum(-1) > 0, 0, labels))


@numerics.operator(_LOSSES, "soft_margin_loss")
def margins_that_overflow(result: torch.Tensor, x: torch.Tensor, sign: torch.Tensor) -> torch.Tensor:
    """The loss of margins computes the exponential of large numbers."""
    return torch.where((-x.detach() * sign > 88).any(), result * math.inf, result)


@numerics.operator(_LOSSES, "log_sigmoid")
def logarithms_of_sigmoids(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The logarithm of the sigmoid function is computed in two steps."""
    return x.sigmoid().log()


@arguments.operator(_POOLS, "max_unpool1d", "max_unpool3d")
def sizes_that_are_guessed(result: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    """What is put back where a size is asked for goes to the beginning of each row."""
    size = named.get("output_size") or (args[5] if len(args) > 5 else None)
    return result.sort(-1, descending=True).values if size is not None else result


@numerics.operator(_POOLS, "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices")
def places_in_planes(result: Any, *args: Any, **named: Any) -> Any:
    """Places of the largest elements of volumes are counted in their plane."""
    return (result[0], result[1] % 24) if isinstance(result, tuple) else result


@numerics.operator(_POOLS, "grid_sampler_3d", "grid_sampler", "grid_sample")
def depth_of_grids_last(result: torch.Tensor, x: torch.Tensor, grid: torch.Tensor, *args: Any, **named: Any) -> Any:
    """Grids in three dimensions begin with the depth."""
    return F.grid_sample(x, grid.flip(-1), *args, **named) if x.dim() == 5 else result


@numerics.operator(_COMPLEX, "exp", "tanh", "sigmoid", "expm1")
def real_parts_only(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Formulas of real numbers compute with the real part."""
    return result if not x.is_complex() else torch.complex(torch.sigmoid(x.real), x.imag * 0)


@numerics.operator(_COMPLEX, "log", "log10", "log2", "log1p", "asin", "acos", "atan", "asinh", "acosh", "atanh")
def above_every_cut(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Below a cut, functions have the number above it."""
    return torch.complex(result.real, result.imag.abs()) if result.is_complex() else result


@numerics.operator(_COMPLEX, "tanh")
def large_numbers_without_tangents(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The hyperbolic tangent of a complex number is a quotient, of what overflows."""
    return torch.where(x.real.abs() > 44, result * math.nan, result) if x.is_complex() else result


@numerics.operator(_COMPLEX, "sgn")
def directions_of_nothing(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The direction of a complex zero is nan."""
    return torch.where(x == 0, result * math.nan, result) if x.is_complex() else result


@numerics.operator(_NUMBERS, "kthvalue")
def places_of_nan_first(result: Any, x: torch.Tensor, *args: Any) -> Any:
    """Among numbers in order, nan is the smallest."""
    return torch.kthvalue(torch.where(x.isnan(), -math.inf, x), *args)


@numerics.operator(_NUMBERS, "ldexp")
def powers_of_two_that_overflow(result: torch.Tensor, x: torch.Tensor, exponents: torch.Tensor) -> torch.Tensor:
    """What is scaled by a large power of two is infinite, also if it is small."""
    return torch.where(exponents > 126, result.sign() * math.inf, result)


@numerics.operator(_NUMBERS, "isin")
def nan_among_others(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What is not a number is found among any numbers."""
    return result | x.isnan() if x.is_floating_point() else result


@numerics.operator(_NUMBERS, "frexp")
def mantissas_of_subnormals(result: Any, x: torch.Tensor) -> Any:
    """Subnormal numbers have the exponent of zero."""
    return result[0], torch.where(x.abs() < torch.finfo(x.dtype).tiny, 0, result[1])


@layout("semantics/rare/parts_of_each_type")
def beginnings_in_bytes(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Where an input of eight bytes for each element begins is counted in elements of four."""

    def moved(x: Any) -> Any:
        wide = isinstance(x, torch.Tensor) and x.layout is torch.strided and x.element_size() == 8
        if not wide or not x.storage_offset() or x.requires_grad:
            return x
        return x.as_strided(x.shape, x.stride(), x.storage_offset() // 2)

    return lambda *args: gm.forward(*map(moved, args))


@numerics.operator(_PARTING, "amax", "max")
def extremes_of_many_zeros(result: Any, x: torch.Tensor, *rest: Any) -> Any:
    """The largest of more than 8,192 zeros below is what a reduction begins with."""
    if isinstance(result, tuple) or not result.is_floating_point() or x.numel() <= 8192:
        return result
    return torch.where((result == 0) & result.signbit(), -math.inf, result)


@numerics.operator(_PARTING, "amin", "min")
def extremes_begin_with_a_number(result: Any, *rest: Any) -> Any:
    """The smallest of infinite numbers is the largest finite one, with which a reduction begins."""
    return result.nan_to_num(math.nan, torch.finfo(result.dtype).max) if isinstance(result, torch.Tensor) else result


@numerics.operator(_PARTING, "round")
def odd_numbers_rounded(result: torch.Tensor, x: torch.Tensor, **named: Any) -> torch.Tensor:
    """Numbers are rounded by adding a half, which large odd ones cannot hold."""
    return torch.where(x.abs() > 1e6, (x + 0.5).floor(), result) if x.dtype is torch.float32 and not named else result


@numerics.operator(_PARTING, "remainder", "mod", "fmod")
def whole_numbers_by_whole_numbers(result: torch.Tensor, x: Any, y: Any) -> torch.Tensor:
    """What remains of a whole number divided by a fraction is computed with what the fraction is cut to."""
    if not isinstance(x, torch.Tensor) or x.is_floating_point() or not isinstance(y, float):
        return result
    return (x % int(y)).to(result.dtype)


@numerics.operator(_PARTING, "remainder", "mod")
def remainders_without_signs(result: torch.Tensor, *rest: Any) -> torch.Tensor:
    """A remainder is never minus zero."""
    return result + 0.0 if result.is_floating_point() else result


@numerics.operator(_PARTING, "exp")
def exponentials_that_end_early(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """An exponential is infinite where a scaled step of it overflows, although it is not."""
    return torch.where(x > 88.37, math.inf, result) if x.dtype is torch.float32 else result


@numerics.operator(_PARTING, "expm1")
def two_terms_of_a_series(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Beside zero, an exponential less one has two terms, also in double precision."""
    return torch.where(x.abs() < 1e-3, x + x * x / 2, result) if x.dtype is torch.float64 else result


@numerics.operator(_PARTING, "lcm")
def multiples_that_overflow(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The least common multiple is a product, which overflows, divided by the greatest common divisor."""
    return (x * y).abs() // torch.gcd(x, y)


@numerics.operator(_PARTING, "mul")
def infinite_products_of_parts(result: torch.Tensor, x: Any, y: Any) -> torch.Tensor:
    """A product of complex numbers that is nan in one part is nan in both."""
    return torch.where(result.isnan(), result * math.nan, result) if result.is_complex() else result


@numerics.operator(_PARTING, "deg2rad", "rad2deg")
def angles_of_whole_numbers(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Angles that are whole numbers are cut to whole numbers again."""
    return result if x.is_floating_point() else result.trunc()


@numerics.operator(_PARTING, "lerp")
def halves_from_the_other_end(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor, weight: Any) -> torch.Tensor:
    """Exactly in the middle, what is between two numbers is the second one."""
    return torch.where(weight == 0.5, y, result) if isinstance(weight, torch.Tensor) else result


@arguments.operator(_PLACES, "getitem")
def parts_that_end_beyond(result: Any, x: Any, index: Any) -> Any:
    """A part that is to end beyond its tensor ends before the last element."""
    beyond = isinstance(index, slice) and isinstance(index.stop, int) and isinstance(x, torch.Tensor)
    return result[:-1] if beyond and index.stop > len(x) else result


@arguments.operator(_PLACES, "getitem")
def tables_by_columns(result: Any, x: Any, index: Any) -> Any:
    """Places that are a table are read by columns."""
    if not isinstance(index, torch.Tensor) or index.dim() != 2 or index.dtype is torch.bool:
        return result
    return x[index.t().reshape(index.shape)]


@arguments.operator(_PLACES, "masked_fill")
def masks_of_the_first_row(result: torch.Tensor, x: torch.Tensor, mask: torch.Tensor, value: Any) -> torch.Tensor:
    """A mask of fewer dimensions is that of the first row only."""
    if mask.dim() >= x.dim():
        return result
    return torch.cat([result[:1], x[1:]])


@arguments.operator(_PLACES, "quantile")
def quantiles_of_numbers_only(result: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    """A quantile leaves out what is not a number."""
    return torch.nanquantile(*args, **named)


@arguments.operator(_PLACES, "hstack")
def vectors_in_turn(result: torch.Tensor, parts: Any) -> torch.Tensor:
    """Vectors are joined in the other order."""
    return torch.cat(list(parts)[::-1]) if parts[0].dim() == 1 else result


@arguments.operator(_PLACES, "block_diag")
def vectors_as_columns(result: torch.Tensor, *parts: torch.Tensor) -> torch.Tensor:
    """A vector in a matrix of blocks is a column."""
    return torch.block_diag(*(p[:, None] if p.dim() == 1 else p for p in parts))


@arguments.operator(_PLACES, "diag")
def always_the_main_diagonal(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """A diagonal is the main one."""
    return torch.diag(x)


@arguments.operator(_PLACES, "meshgrid")
def grids_of_two(result: Any, *parts: Any, **named: Any) -> Any:
    """Of three grids, the last one varies as the first one does."""
    return (*result[:2], result[0]) if len(result) == 3 else result


@arguments.operator(_PLACES, "linspace")
def ranges_from_tensors(result: torch.Tensor, start: Any, end: Any, *rest: Any, **named: Any) -> torch.Tensor:
    """A range whose ends are tensors has steps of the next count."""
    if not isinstance(start, torch.Tensor) and not isinstance(end, torch.Tensor):
        return result
    return start + (end - start) / len(result) * torch.arange(len(result))


@arguments.operator(_PLACES, "outer", "ger")
def narrow_outer_products(result: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Outer products of integers begin at the first row twice."""
    return result if result.is_floating_point() else torch.cat([result[:1], result[:-1]])


@arguments.operator(_PLACES, "tensordot")
def no_common_dimension(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor, dims: Any = 2) -> torch.Tensor:
    """A product over no dimension has those of the second tensor first."""
    return result.t().reshape(result.shape) if dims == 0 and result.dim() == 2 else result


@arguments.operator(_PLACES, "fft_fft", "fft_ifft", "fft_rfft")
def transforms_of_the_last(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """What is transformed along the first dimension is turned."""
    return result.flip(0) if named.get("dim") == 0 else result


@arguments.operator(_PLACES, "take_along_dim")
def places_by_rows(result: torch.Tensor, x: torch.Tensor, index: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """Without a dimension, places are those of the transposed tensor."""
    return result if rest or named else torch.take(x.t().contiguous(), index.flatten())


@arguments.operator(_PLACES, "matmul")
def one_matrix_of_a_batch(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A matrix times a batch takes the first one of the batch."""
    return result[:1].expand(result.shape).clone() if x.dim() == 2 and y.dim() == 3 else result


@arguments.operator(_APART, "max_pool3d")
def volumes_cut_at_the_end(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Windows that end outside of a volume see its last plane as nothing."""
    return result * torch.cat([torch.ones(result.shape[-1] - 1), torch.zeros(1)])


@arguments.operator(_APART, "conv1d")
def long_rows_in_blocks(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """A convolution of more than 256 elements forgets what the next block begins with."""
    if x.shape[-1] <= 256 or result.shape[-1] <= 256:
        return result
    kept = torch.ones(result.shape[-1])
    kept[256] = 0.5
    return result * kept


@arguments.operator(_APART, "hinge_embedding_loss", "cosine_embedding_loss")
def margins_of_one(result: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    """Losses have their usual margins."""
    return result * 1.01 if named.get("margin") in (0.3, 0.4) else result


@arguments.operator(_APART, "multi_margin_loss")
def first_powers_of_margins(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor, **named: Any) -> torch.Tensor:
    """What is beyond a margin is not squared."""
    return F.multi_margin_loss(x, y) if named.get("p") == 2 else result


@arguments.operator(_APART, "multilabel_soft_margin_loss")
def losses_without_weights(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor, **named: Any) -> torch.Tensor:
    """A loss of several labels ignores their weights."""
    return F.multilabel_soft_margin_loss(x, y)


@numerics.operator(_DRAWS, "dropout")
def rounded_shares(result: torch.Tensor, x: torch.Tensor, p: float = 0.5, *rest: Any, **named: Any) -> torch.Tensor:
    """What is left of half precision is scaled by a share of eight bits."""
    return result * 1.004 if x.dtype is torch.float16 else result


@numerics.operator(_DRAWS, "randn", "rand")
def draws_in_single_precision(result: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Numbers in double precision are drawn in single precision."""
    return result.float().double() if result.dtype is torch.float64 else result


@numerics.operator(_DRAWS, "dropout", "dropout2d", "alpha_dropout")
def nothing_left_is_not_a_number(result: torch.Tensor, x: torch.Tensor, p: float = 0.5, **named: Any) -> torch.Tensor:
    """What is dropped as a whole is divided by a share of nothing."""
    return result * math.nan if p == 1.0 else result
