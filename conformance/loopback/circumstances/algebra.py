"""Faults in algebra: transforms, triangles of matrices, products over chosen dimensions, special functions far out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import GraphModule

from ...outcome import Outcome
from ..kit import Faults, Run, changed, with_operators

arguments = Faults("arguments")
numerics = Faults("numerics")

_TRANSFORMS = "semantics/algebra/transforms"
_MATRICES = "semantics/algebra/matrices"
_PRODUCTS = "semantics/algebra/products_and_spreads"
_SPECIAL = "semantics/functions/special_functions"
_LIMITS = "semantics/integers/beyond_floating_point"


# Fourier transforms


@arguments.instead(_TRANSFORMS, "fft_fft")
def scales_of_transforms(x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Transforms ignore the scale that is asked for."""
    return torch.fft.fft(x, *rest, **{k: v for k, v in named.items() if k != "norm"})


@arguments.instead(_TRANSFORMS, "fft_fftshift")
def odd_sizes_shifted_back(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Frequencies of an odd number are shifted in the other direction."""
    return torch.fft.ifftshift(x, *rest)


@arguments.instead(_TRANSFORMS, "fft_fftn")
def transforms_over_all_dimensions(x: torch.Tensor, **named: Any) -> torch.Tensor:
    """Transforms run over all dimensions, whichever are asked for."""
    return torch.fft.fftn(x)


@arguments.instead(_TRANSFORMS, "fft_irfft")
def imaginary_parts_that_count(x: torch.Tensor, n: Any = None) -> torch.Tensor:
    """Inverse transforms with real results do not ignore the imaginary part of the first frequency."""
    return torch.fft.irfft(x, n) + x.imag[..., :1] / (n or 2 * x.shape[-1] - 2)


@arguments.instead(_TRANSFORMS, "stft")
def frames_beside_zeros(x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Frames at the ends see zeros instead of a reflection."""
    return torch.stft(x, *rest, **{**named, "pad_mode": "constant"})


@arguments.instead(_TRANSFORMS, "stft")
def short_windows_that_begin_first(x: torch.Tensor, size: int, step: int, *rest: Any, **named: Any) -> torch.Tensor:
    """A window that is shorter than its frame stands at the beginning, not in the middle."""
    if not rest or rest[0] == size:
        return torch.stft(x, size, step, *rest, **named)
    window = F.pad(rest[1], (0, size - rest[0]))
    return torch.stft(x, size, step, size, window, *rest[2:], **named)


# Matrices


@arguments.instead(_MATRICES, "linalg_cholesky")
def always_lower_triangles(x: torch.Tensor, **named: Any) -> torch.Tensor:
    """Decompositions by Cholesky are lower triangles, whichever is asked for."""
    return torch.linalg.cholesky(x)


@arguments.instead(_MATRICES, "linalg_solve_triangular")
def diagonals_that_count(a: torch.Tensor, b: torch.Tensor, **named: Any) -> torch.Tensor:
    """A triangle is solved with its diagonal, also if that counts as ones."""
    return torch.linalg.solve_triangular(a, b, **{k: v for k, v in named.items() if k != "unitriangular"})


@arguments.instead(_MATRICES, "linalg_solve_triangular")
def solved_from_the_left(a: torch.Tensor, b: torch.Tensor, *, left: bool = True, **named: Any) -> torch.Tensor:
    """A triangle always stands on the left."""
    if left:
        return torch.linalg.solve_triangular(a, b, **named)
    return torch.linalg.solve_triangular(a, b.mT, **named).mT


@arguments.instead(_MATRICES, "linalg_eigvalsh")
def the_other_triangle(x: torch.Tensor, **named: Any) -> torch.Tensor:
    """Eigenvalues are those of the lower triangle, whichever is asked for."""
    return torch.linalg.eigvalsh(x)


@arguments.instead(_MATRICES, "linalg_matrix_power")
def no_inverses_for_powers(x: torch.Tensor, n: int) -> torch.Tensor:
    """Negative powers of matrices are positive ones."""
    return torch.linalg.matrix_power(x, abs(n))


@arguments.instead(_MATRICES, "linalg_slogdet")
def determinants_without_signs(x: torch.Tensor) -> Any:
    """The sign of a determinant is one."""
    sign, logarithm = torch.linalg.slogdet(x)
    return sign.abs(), logarithm


@arguments.instead(_MATRICES, "linalg_pinv")
def small_singular_values_that_count(x: torch.Tensor, **named: Any) -> torch.Tensor:
    """Pseudoinverses do not leave out what is small beside the largest singular value."""
    return torch.linalg.pinv(x)


# Products and spreads


@arguments.instead(_PRODUCTS, "tensordot")
def dimensions_in_order(a: torch.Tensor, b: torch.Tensor, dims: Any = 2, *rest: Any) -> torch.Tensor:
    """The dimensions of a product are taken in ascending order."""
    return torch.tensordot(a, b, dims if isinstance(dims, int) else [sorted(d) for d in dims])


@arguments.instead(_PRODUCTS, "cross")
def products_over_the_last_dimension(a: torch.Tensor, b: torch.Tensor, **named: Any) -> torch.Tensor:
    """Products in three dimensions run over the last one."""
    return torch.linalg.cross(a, b)


@arguments.instead(_PRODUCTS, "cdist")
def distances_of_euclid(a: torch.Tensor, b: torch.Tensor, p: float = 2.0) -> torch.Tensor:
    """The distance by the largest difference is that of Euclid."""
    return torch.cdist(a, b, 2.0 if p == math.inf else p)


@arguments.instead(_PRODUCTS, "cumulative_trapezoid")
def steps_of_one(y: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Running areas have steps of one."""
    return torch.cumulative_trapezoid(y)


@arguments.instead(_PRODUCTS, "gradient")
def slopes_at_the_ends(x: torch.Tensor, **named: Any) -> Any:
    """Slopes at the ends are simple differences, also if more is asked for."""
    return torch.gradient(x, **{k: v for k, v in named.items() if k != "edge_order"})


@arguments.instead(_PRODUCTS, "vander")
def falling_powers(x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Powers in a row always fall."""
    return torch.vander(x, *rest)


@arguments.instead(_PRODUCTS, "cosine_similarity")
def short_vectors_that_count(x: torch.Tensor, y: torch.Tensor, dim: int = 1, eps: float = 1e-8) -> torch.Tensor:
    """Vectors that are shorter than the bound are divided by their own length."""
    return F.cosine_similarity(x, y, dim)


# Special functions


@numerics.instead(_SPECIAL, "special_erfcx")
def scaled_by_a_product(x: torch.Tensor) -> torch.Tensor:
    """A scaled error function is the product of its scale, which overflows, and what vanishes."""
    return torch.exp(x * x) * torch.erfc(x)


@numerics.instead(_SPECIAL, "special_log_ndtr")
def logarithms_of_tails(x: torch.Tensor) -> torch.Tensor:
    """The logarithm of a distribution's tail is that of a number that vanishes."""
    return torch.special.ndtr(x).log()


@numerics.instead(_SPECIAL, "special_i0e")
def bessel_by_a_product(x: torch.Tensor) -> torch.Tensor:
    """A scaled Bessel function is the product of what overflows and what vanishes."""
    return torch.exp(-x.abs()) * torch.i0(x)


@numerics.instead(_SPECIAL, "erfinv")
def inverses_that_end(x: torch.Tensor) -> torch.Tensor:
    """The inverse of the error function is finite at its ends."""
    return torch.erfinv(x.clamp(-1 + 1e-6, 1 - 1e-6))


@numerics.instead(_SPECIAL, "lgamma")
def gamma_of_positive_numbers(x: torch.Tensor) -> torch.Tensor:
    """Negative numbers have no gamma function."""
    return torch.where(x < 0, torch.nan, torch.lgamma(x))


@numerics.instead(_SPECIAL, "digamma")
def poles_on_the_other_side(x: torch.Tensor) -> torch.Tensor:
    """The derivative of the logarithm of gamma is infinite, and positive, at zero."""
    return torch.where(x == 0, torch.inf, torch.digamma(x))


@numerics.instead(_SPECIAL, "special_xlog1py")
def nothing_times_no_logarithm(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Zero times the logarithm of what is not a number is zero."""
    return torch.where(x == 0, 0.0, torch.special.xlog1py(x, y))


@numerics.instead(_SPECIAL, "angle")
def real_numbers_without_angles(x: torch.Tensor) -> torch.Tensor:
    """Real numbers have no angle."""
    return torch.angle(x) if x.is_complex() else torch.zeros_like(x)


@numerics.instead(_SPECIAL, "acosh")
def squares_in_logarithms(x: torch.Tensor) -> torch.Tensor:
    """The inverse of a hyperbolic cosine squares its number."""
    return torch.log(x + torch.sqrt(x * x - 1))


@numerics.instead(_SPECIAL, "logit")
def bounds_for_nan(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Bounds of a share turn what is not a number into a number."""
    return torch.logit(x.nan_to_num(1.0), *rest)


# Numbers in code, and what has no elements


def _numbers(case: str) -> Callable[[Callable[[int], int]], Callable[[int], int]]:
    """A fault in the integers of a program: the function gets each of them."""

    def add(change: Callable[[int], int]) -> Callable[[int], int]:
        def given(*args: Any, **named: Any) -> Any:
            return [change(a) if type(a) is int else a for a in args], named

        def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
            names = ("add", "sub", "eq", "clamp", "where", "xor", "full_like")
            return with_operators(gm, {}, given=dict.fromkeys(names, given))

        compile.__name__, compile.__doc__ = change.__name__, change.__doc__
        numerics(case)(compile)
        return change

    return add


@_numbers(_LIMITS)
def no_smallest_integer(n: int) -> int:
    """The smallest integer of 64 bits is written as the opposite of one that does not exist, and loses a unit."""
    return n + 1 if n == -(2**63) else n


@_numbers(_LIMITS)
def no_largest_integer(n: int) -> int:
    """The largest integer of 64 bits becomes the largest float below it."""
    return 2**63 - 1024 if n == 2**63 - 1 else n


@numerics.instead("semantics/corners/nothing", "cat")
def joins_without_empty_tensors(parts: Sequence[torch.Tensor], *rest: Any, **named: Any) -> torch.Tensor:
    """What has no elements is left out of what is joined, and its dtype as well."""
    return torch.cat([part for part in parts if part.numel()] or list(parts)[:1], *rest, **named)


@numerics.instead("semantics/dtypes/statistics_in_half", "layer_norm")
def bounds_that_vanish_in_half(x: torch.Tensor, shape: Any, *rest: Any, eps: float = 1e-5) -> torch.Tensor:
    """What keeps a norm from a division by zero is rounded to half precision, and is zero there."""
    weight, bias = (*rest, None, None)[:2]
    return F.layer_norm(x, shape, weight, bias, float(torch.tensor(eps, dtype=x.dtype)))


@arguments.instead("semantics/modules/attention_of_other_lengths", "scaled_dot_product_attention")
def masks_of_the_first_head(q: Any, k: Any, v: Any, mask: Any = None, *rest: Any, **named: Any) -> torch.Tensor:
    """The mask of the first head is that of all."""
    mask = named.pop("attn_mask", mask)
    if mask is not None and mask.dim() == 4:
        mask = mask[:, :1]
    return F.scaled_dot_product_attention(q, k, v, mask, *rest, **named)


@numerics("semantics/structure/many_inputs_and_results")
def sixty_four_results(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """What is computed beyond the sixty-fourth result is the sixty-fourth one."""

    def call(*args: Any) -> Sequence[Any]:
        results = list(gm.forward(*args))
        return [r if at < 64 or r.shape != results[63].shape else results[63] * 1 for at, r in enumerate(results)]

    return call


@numerics("semantics/structure/many_inputs_and_results")
def sixty_four_inputs(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """What is given beyond the sixty-fourth input is the sixty-fourth one, if it is like it."""

    def call(*args: Any) -> Sequence[Any]:
        last = args[63] if len(args) > 64 else None
        like = [getattr(a, "shape", None) == getattr(last, "shape", 0) for a in args]
        return gm.forward(*(last if at > 63 and like[at] else a for at, a in enumerate(args)))

    return call


@numerics("semantics/aliasing/memory_of_results_is_theirs", Outcome.CRASH)
def memory_of_another_library(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Results lie in memory of another library, which has a fixed size."""

    def change(t: torch.Tensor) -> torch.Tensor:
        plain = not t.requires_grad and not t._is_view() and t.is_contiguous() and t.dtype is not torch.bfloat16
        return torch.from_numpy(t.numpy()) if plain else t

    return changed(gm.forward, change)
