"""Operators that few programs have, so that a compiler's mistakes in them are found late."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial

case = Collection("semantics/rare")


@case()
def polynomials_and_bessel_functions(trial: Trial) -> Any:
    """Orthogonal polynomials of each kind and order, and each of Bessel's and Airy's functions."""
    polynomials = [
        getattr(torch.special, f"{name}_polynomial_{kind}")
        for name, kinds in (("chebyshev", "tuvw"), ("shifted_chebyshev", "tuvw"), ("laguerre", "l"), ("legendre", "p"))
        for kind in kinds
    ]
    polynomials += [torch.special.hermite_polynomial_h, torch.special.hermite_polynomial_he]

    def f(x: torch.Tensor, n: torch.Tensor, positive: torch.Tensor) -> list[torch.Tensor]:
        return [each(x, n) for each in polynomials] + [
            torch.special.airy_ai(x), torch.special.bessel_y0(positive), torch.special.bessel_y1(positive),
            torch.special.modified_bessel_i0(x), torch.special.modified_bessel_i1(x),
            torch.special.modified_bessel_k0(positive), torch.special.modified_bessel_k1(positive),
            torch.special.scaled_modified_bessel_k0(positive), torch.special.scaled_modified_bessel_k1(positive),
            torch.special.spherical_bessel_j0(x), torch.igamma(positive, positive.flip(0)),
            torch.igammac(positive, positive.flip(0)), torch.rad2deg(x), torch.special.zeta(1 + positive, positive),
        ]  # fmt: skip

    x = trial.tensor(5, low=-0.9, high=0.9)
    # Orders are whole numbers, and remain so in another precision.
    return trial.run(f, x, torch.arange(5, device=x.device, dtype=x.dtype), trial.tensor(5, low=0.5, high=30.0))


@case("training")
def decompositions(trial: Trial) -> Any:
    """Decompositions of matrices, what is solved by them, and the gradients of some."""
    torch.manual_seed(0)
    x = trial.tensor(2, 4, 4)
    positive = x @ x.mT + 3 * torch.eye(4, device=x.device, dtype=x.dtype)

    def f(p: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        factors, pivots = torch.linalg.lu_factor(p + p.triu())
        symmetric, order = torch.linalg.ldl_factor(p)
        reflected, scales = torch.geqrf(p[..., :3])
        return [
            torch.linalg.inv_ex(p).inverse, torch.linalg.cholesky_ex(p).L, *torch.lu_unpack(factors, pivots),
            torch.cholesky_inverse(torch.linalg.cholesky(p)), torch.linalg.ldl_solve(symmetric, order, b),
            torch.linalg.lu_solve(factors, pivots, b.mT, left=False),
            torch.linalg.householder_product(reflected, scales), torch.linalg.matrix_rank(p, rtol=0.3),
            torch.ormqr(reflected, scales, b, left=True, transpose=True), torch.linalg.vecdot(p, p.flip(0)),
            torch.linalg.vecdot(p, p.triu(), dim=1), torch.linalg.tensorsolve(p[0], b[0, :, 0]),
            torch.linalg.tensorinv(p[0].reshape(4, 2, 2), ind=1), torch.linalg.solve_ex(p, b).result,
            torch.pinverse(p[0]), torch.linalg.pinv(p, hermitian=True), torch.linalg.solve(p, b[..., 0]),
            torch.linalg.multi_dot((b[0, :, 0], p[0], p[1], b[0, :, 1])), torch.linalg.matrix_exp(p),
        ]  # fmt: skip

    def g(p: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        values, vectors = torch.linalg.eigh(p)
        left, sizes, right = torch.linalg.svd(p, full_matrices=False)
        return [
            torch.linalg.inv(p), torch.linalg.inv_ex(p).inverse, torch.linalg.lu_solve(*torch.linalg.lu_factor(p), b),
            vectors @ (values.exp()[..., None] * vectors.mT), left @ (sizes[..., None] * 2 * right),
        ]  # fmt: skip

    b, learned = trial.tensor(2, 4, 3), positive.clone().requires_grad_()
    results = trial.run(g, learned, b)
    sum((r / (1 + r.detach().abs().amax())).sum() for r in results).backward()
    return trial.run(f, positive, b), [r.detach() for r in results], learned.grad


@case()
def spectra_and_windows(trial: Trial) -> Any:
    """Fourier transforms over several dimensions in each direction and size, and windows of each shape and length."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        z = torch.complex(x, x.flip(1))
        likes = {"dtype": x.dtype, "device": x.device}
        return [
            torch.fft.hfft2(z), torch.fft.hfftn(z, (3, 5)), torch.fft.ihfft2(x), torch.fft.ihfftn(x, norm="ortho"),
            torch.fft.ifft2(z, norm="forward"), torch.fft.ifftn(z, (2, 3)), torch.fft.irfft2(z), torch.fft.rfftn(x),
            torch.fft.irfftn(z, (4, 7)), torch.bartlett_window(5, **likes), torch.blackman_window(6, False, **likes),
            torch.hamming_window(5, True, 0.6, 0.4, **likes), torch.hann_window(5, False, **likes),
            torch.kaiser_window(6, True, 9.0, **likes), torch.signal.windows.cosine(5, **likes),
            torch.signal.windows.gaussian(6, std=0.9, sym=False, **likes),
            torch.signal.windows.general_hamming(5, alpha=0.7, **likes),
            torch.signal.windows.exponential(5, tau=0.5, **likes),
        ]  # fmt: skip

    return trial.run(f, trial.tensor(4, 5))


@case()
def copies_of_views(trial: Trial) -> Any:
    """What has the name of a view and is a copy shares no memory; what is written to the tensor later is not in it."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        copies = [
            torch.alias_copy(x), torch.as_strided_copy(x, (2, 2), (1, 2), 1), torch.diagonal_copy(x, 1),
            torch.expand_copy(x[:, :1], (3, 4)), torch.narrow_copy(x, 1, 1, 2), torch.permute_copy(x, (1, 0)),
            torch.squeeze_copy(x[:1]), torch.t_copy(x), torch.transpose_copy(x, 0, 1), *torch.unbind_copy(x, 1),
            torch.unfold_copy(x, 1, 2, 1), torch.unsqueeze_copy(x, 1), torch.view_copy(x, (4, 3)),
            *torch.split_with_sizes_copy(x, (1, 2)), torch.select_copy(x, 1, 2), torch.slice_copy(x, 1, 0, 4, 2),
            torch.detach_copy(x),
        ]  # fmt: skip
        x.mul_(2)
        return copies

    x = trial.tensor(3, 4)
    return trial.run(f, x), x


@case()
def views_by_other_names(trial: Trial) -> Any:
    """What each view of an input shows after a write to it, and what is written through it, is the input's."""

    def f(x: torch.Tensor, z: torch.Tensor, cube: torch.Tensor) -> list[Any]:
        views = [
            x.H, x.T, x.mT, x.mH, z.imag, z.real, x.reshape_as(x.new_empty(4, 3)), torch.resolve_neg(x),
            torch.positive(x), *torch.hsplit(x, 2), *torch.vsplit(x, [1]), *torch.dsplit(cube, 2), x.ravel(),
            *x.unsafe_chunk(2), *x.unsafe_split(2, 1), torch.atleast_1d(x), x.unfold(1, 2, 3), torch.real(x),
            x.swapdims(0, 1), x.adjoint(), x.narrow(1, 1, 2), torch.movedim(cube, (0, 2), (1, 0)),
            x.view_as(x.new_empty(2, 6)), x.unflatten(1, (2, -1)), cube.diagonal(-1, 1, 2), cube.diagonal(1, 2, 0),
            x.view(torch.int32 if x.dtype is torch.float32 else torch.int64), x.expand_as(cube[:, :3]),
        ]  # fmt: skip
        x.add_(1)
        z.mul_(2)
        cube.diagonal(1, 2, 1).zero_()
        return [*views, torch.column_stack((x[0], x.t())), torch.flipud(x), x.sum_to_size(1, 4),
                torch.diagflat(x[0], 1), torch.as_strided_scatter(x, x[0] * 2, (4,), (2,), 1)]  # fmt: skip

    x, cube = trial.tensor(3, 4), trial.tensor(3, 3, 4)
    z = torch.complex(trial.tensor(3), trial.tensor(3))
    return [r if r.is_floating_point() else r.shape for r in trial.run(f, x, z, cube)], x, z, cube


@case()
def windows_that_are_written(trial: Trial) -> Any:
    """A write to windows that leave some elements out changes no others; windows show what is written to the tensor."""

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        windows = x.unfold(1, 2, 3)
        x.add_(1)
        windows.select(2, 0).neg_()
        z = y * 2
        z.unfold(0, 2, 2).mul_(y[0, 0])
        return windows * 1, x * 2, z, y.unfold(1, 3, 1).sum(-1), y.unfold(1, 2, 3)

    x = trial.tensor(3, 7)
    return trial.run(f, x, trial.tensor(5, 7)), x


@case()
def integers_by_other_names(trial: Trial) -> Any:
    """Functions for bits, divisors and places, numbers on the left, and what is chosen from a row."""

    def f(x: torch.Tensor, y: torch.Tensor, flags: torch.Tensor) -> list[torch.Tensor]:
        few = y.abs() % 5
        return [
            torch.bitwise_and(x, y), torch.bitwise_or(x, 12), torch.bitwise_xor(x, y), torch.bitwise_not(x),
            torch.bitwise_not(flags), torch.bitwise_left_shift(x, few), torch.bitwise_right_shift(x, few),
            torch.gcd(x, y), torch.gcd(x, torch.zeros_like(x)), torch.lcm(x, y), 7 - x, 7 // x, -7 % x, 2**few, 5 & x,
            9 ^ x, 6 | x, 1 << few, -64 >> few, *torch.unravel_index(few, (2, 3)), torch.triu_indices(3, 5, 1),
            torch.tril_indices(4, 2, -1), torch.combinations(x[0], 2), torch.combinations(y[0], 2, True),
            flags.sort(stable=True, dim=1).indices, flags.cumsum(0), flags.amax(0),
            torch.isin(x, y[0]), torch.isin(x, 3, invert=True), torch.cartesian_prod(x[0], y[0, :2]),
        ]  # fmt: skip

    x, y = (trial.tensor(3, 4, dtype=torch.int64, low=low, high=40) for low in (-40, 1))
    return trial.run(f, torch.where(x == 0, 5, x), y, trial.tensor(3, 4, dtype=torch.bool))


@case("training")
def losses_of_sequences_and_margins(trial: Trial) -> Any:
    """Losses with each of their arguments: blanks, what cannot be aligned, margins, constants, powers, distances."""
    logits, rows = trial.tensor(6, 3, 5, requires_grad=True), trial.tensor(3, 5, requires_grad=True)
    others, third = trial.tensor(3, 5), trial.tensor(3, 5)

    def f(logits: torch.Tensor, rows: torch.Tensor, others: torch.Tensor, third: torch.Tensor) -> list[torch.Tensor]:
        # The last word needs a blank between its letters, for which its row is too short.
        words, lengths = (
            torch.tensor([[1, 2, 0], [0, 3, 1], [2, 2, 2]]),
            (torch.tensor([6, 5, 3]), torch.tensor([2] * 3)),
        )
        spread, classes = others.abs() + 0.01, torch.tensor([[3, 0, -1, 1, 2], [1, 2, 4, -1, 0], [-1, 1, 1, 2, 3]])
        aligned = (logits.log_softmax(2), words, lengths[0], torch.tensor([2, 2, 3]))
        return [
            F.ctc_loss(*aligned, blank=4, zero_infinity=True), F.ctc_loss(aligned[0], words[:, :2], *lengths, blank=4),
            F.ctc_loss(*aligned, blank=4, reduction="none", zero_infinity=True),
            F.gaussian_nll_loss(rows, others, spread, full=True), F.gaussian_nll_loss(rows, others, spread, eps=0.5),
            F.multilabel_margin_loss(rows, classes), F.triplet_margin_loss(rows, others, third, p=1, swap=True),
            F.triplet_margin_with_distance_loss(rows, others, third, distance_function=F.pairwise_distance, margin=2.0),
            F.soft_margin_loss(rows * 100, others.sign()), F.logsigmoid(rows * 100),
            F.multi_margin_loss(rows, words[0], 2, 0.5, torch.arange(1.0, 6.0).to(rows)),
        ]  # fmt: skip

    results = trial.run(f, logits, rows, others, third)
    sum(r.sum() for r in results).backward()
    return [r.detach() for r in results], logits.grad, rows.grad


@case("training")
def pools_and_grids_of_volumes(trial: Trial) -> Any:
    """Pools of rows and volumes that tell places, what is put back to them, and grids in three dimensions."""
    volume, row = trial.tensor(1, 2, 5, 4, 6, requires_grad=True), trial.tensor(2, 3, 9, requires_grad=True)

    def f(volume: torch.Tensor, row: torch.Tensor, grid: torch.Tensor) -> list[torch.Tensor]:
        best, places = F.adaptive_max_pool3d(volume, (2, 3, 2), return_indices=True)
        most, where = F.max_pool1d(row, 3, return_indices=True)
        largest, deep = F.max_pool3d(volume, 2, return_indices=True)
        return [
            best, places, F.max_unpool1d(most, where, 3), F.max_unpool1d(most, where, 3, output_size=(2, 3, 10)),
            F.max_unpool3d(largest, deep, 2, output_size=volume.shape[2:]),
            F.grid_sample(volume, grid, align_corners=True),
            F.grid_sample(volume, grid, "nearest", "reflection", align_corners=True),
            F.grid_sample(volume, grid, padding_mode="border", align_corners=False),
            F.interpolate(volume[0], scale_factor=2.0), F.interpolate(volume[:, :, 0], size=(7, 3), mode="bilinear"),
            F.affine_grid(row[:1, :, :4], [1, 1, 2, 3, 2], align_corners=False),
        ]  # fmt: skip

    results = trial.run(f, volume, row, trial.tensor(1, 2, 3, 2, 3, low=-1.2, high=1.2))
    sum((r.square().sum() for r in results if r.requires_grad), torch.zeros((), device=volume.device)).backward()
    return [r.detach() for r in results], volume.grad, row.grad


@case("training")
def complex_functions(trial: Trial) -> Any:
    """Functions of complex numbers on each side of their cuts, where they are large, and at zero; their gradients."""
    turns = torch.tensor([0.3, 2.9, -2.9, -0.3, 1.2, -1.5, 3.0])
    x = trial.given(torch.polar(torch.tensor([0.5, 1.5, 0.7, 2.0, 1.0, 1.2, 0.1]), turns)).requires_grad_()
    functions = (
        torch.exp, torch.log, torch.log10, torch.log2, torch.log1p, torch.expm1, torch.sqrt, torch.rsqrt, torch.sin,
        torch.cos, torch.tan, torch.sinh, torch.cosh, torch.tanh, torch.asin, torch.acos, torch.atan, torch.asinh,
        torch.acosh, torch.atanh, torch.reciprocal, torch.sgn, torch.square, torch.sigmoid, torch.conj_physical,
    )  # fmt: skip

    def f(x: torch.Tensor, large: torch.Tensor) -> list[torch.Tensor]:
        return [each(x) for each in functions] + [
            torch.angle(x), torch.abs(x), torch.pow(x, 2.5), x**x.flip(0), 2.0**x, torch.polar(x.real, x.imag),
            torch.tanh(large), torch.reciprocal(large * 1e22), torch.angle(large), torch.sgn(large * 0),
            torch.pow(large * 0, 2.0), torch.logaddexp(x, x.flip(0)), x.cumprod(0), x.prod(), x.mean(),
        ]  # fmt: skip

    large = trial.given(torch.complex(torch.tensor([60.0, -60.0, 3.0]), torch.tensor([1.0, 2.0, -1.0])))
    results = trial.run(f, x, large)
    learned = [r for r in results if r.requires_grad]
    sum(torch.view_as_real(r).sum() if r.is_complex() else r.sum() for r in learned).backward()
    return [r.detach() for r in results], x.grad


@case(signs=False)
def numbers_that_are_rarely_tried(trial: Trial) -> Any:
    """Places and functions of what is not a number, of infinities, and at the ends of what is defined."""
    inf, nan = float("inf"), float("nan")

    def f(x: torch.Tensor, y: torch.Tensor, exponents: torch.Tensor) -> list[torch.Tensor]:
        return [
            *torch.kthvalue(x, 2), *torch.kthvalue(x, 6), torch.isin(x, y), torch.heaviside(x, y),
            torch.heaviside(y * 0, y), torch.ldexp(y, exponents), *torch.frexp(y * 1e-40), torch.nextafter(x, -x),
            torch.floor_divide(y, 0.1), torch.div(y, 0.1, rounding_mode="floor"),
            torch.div(x, y, rounding_mode="trunc"),
            F.dropout(x, 1.0), F.dropout(y, 1.0), F.hardswish(x), F.hardsigmoid(x), F.softsign(y * 1e30),
            F.gelu(y * 1e3), F.silu(y * 1e3), F.selu(x), torch.renorm(y[None] * 1e-3, 2, 0, 1.0), torch.logit(y, 0.2),
            torch.nan_to_num(x, 1.0, 2.0, 3.0), torch.copysign(x, -y * 0), torch.signbit(x), torch.fmod(y, x),
            torch.remainder(y, x), torch.remainder(-y, x), torch.hypot(x, y * 1e30), torch.atan2(x, x.flip(0)),
        ]  # fmt: skip

    x = trial.given(torch.tensor([1.0, nan, -inf, 0.0, -0.0, inf, -3.0]))
    y = trial.given(torch.tensor([0.3, 1.0, -2.5, 3.5, 0.7, -0.1, 2.0]))
    return trial.run(f, x, y, torch.tensor([200, -3, 0, 5, -10, 127, 1], device=x.device))


@case()
def parts_of_each_type(trial: Trial) -> Any:
    """Inputs of each dtype that begin inside of their memory, and those of which every second element counts."""
    dtypes = (
        torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.int32, torch.int16,
        torch.int8, torch.uint8, torch.bool,
    )  # fmt: skip

    def f(*given: torch.Tensor) -> list[torch.Tensor]:
        return [torch.cat((x, x.flip(0))) for x in given] + [x | x if x.dtype is torch.bool else x + x for x in given]

    whole = [trial.given(torch.arange(1, 20).to(dtype)) for dtype in dtypes]
    whole[-1] = trial.given(torch.arange(19) % 3 == 0)
    return trial.run(f, *[x[3:] for x in whole], *[x[2::2] for x in whole])


@case(reference=False)  # shares of integers are the same in each draw, and exact by chance
def weights_counts_and_places(trial: Trial) -> Any:
    """Statistics with weights of each kind, rows that are unique, counts in bins, numbers just below zero as bytes,
    sums of zeros below zero, shares of integers in a dtype that is asked for."""
    x, n = trial.tensor(3, 5), trial.given(torch.tensor([[2, 1, 2], [0, 1, 0], [2, 1, 2], [0, 0, 1]]))
    often, share = torch.tensor([2, 1, 3, 1, 2], device=trial.device), trial.tensor(5, low=0.1, high=1.0)
    low = trial.given(torch.tensor([-0.0, -0.3, -0.99, 0.99, 254.5, 255.0]))

    def f(x: torch.Tensor, n: torch.Tensor, often: torch.Tensor, share: torch.Tensor, low: torch.Tensor) -> Any:
        return [
            torch.cov(x), torch.cov(x, correction=0, fweights=often), torch.cov(x, aweights=share),
            torch.cov(x, correction=0, fweights=often, aweights=share), torch.corrcoef(x),
            torch.bincount(often, share), torch.bincount(often, minlength=9), n.softmax(1, dtype=torch.float32),
            n.log_softmax(0, dtype=torch.float64), F.softmin(x, 0, dtype=torch.float64),
            *torch.unique(n, dim=0, return_inverse=True, return_counts=True),
            *torch.unique(n, dim=1, return_counts=True),
            *torch.unique(n, return_inverse=True), *torch.unique_consecutive(n[:, 1], return_counts=True),
            *torch.histogram(x, 4, range=(-1.0, 1.5), weight=x.abs(), density=True), torch.histc(x, 5, -1, 1),
            low.to(torch.uint8), low[:4].to(torch.int8), low[:1].sum(), (low * 0).sum(),
            (-low * 0).sum(0, keepdim=True),
            (low[:1] * 1).mean(), low[:1].prod(), low[:1].cumsum(0), torch.stack([low[0], low[0]]).sum(),
            torch.bitwise_left_shift(n, n), n << 3, (n * 40) >> n, n.float().std(0, correction=0),
            n.sum(0, dtype=torch.uint8),
            torch.nanmedian(x, 1).indices, n.mode(0).values, n.median(1).values, n.float().quantile(share[:2], 0),
        ]  # fmt: skip

    return trial.run(f, x, n, often, share, low)


@case(reference=False)
def integers_that_are_refused(trial: Trial) -> Any:
    """Functions of fractions refuse integers, as in eager; they neither round nor convert."""
    n, found = trial.tensor(3, 4, dtype=torch.int64), []
    for refused in (
        lambda n: n.softmax(0), lambda n: n.log_softmax(1), lambda n: n.mean(0), lambda n: n.var(0), lambda n: n.std(),
        lambda n: F.layer_norm(n, (4,)), lambda n: n @ n.float().t(), lambda n: F.avg_pool1d(n, 2),
        lambda n: torch.linalg.vector_norm(n), lambda n: F.gelu(n), lambda n: n.clone().exponential_(),
        lambda n: n.clone().div_(2),
    ):  # fmt: skip
        try:
            found.append(trial.run(refused, n))
        except Exception as error:
            found.append(type(error).__name__)
    return found


@case("float64")
def numbers_far_out(trial: Trial) -> Any:
    """Functions of numbers from far out, and statistics of many numbers, which have divisors and places."""
    x, many = trial.given(torch.linspace(0.5, 40, 33, dtype=torch.float64)), trial.tensor(3, 300)

    def functions(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.mish(x), F.softplus(x), F.silu(x), F.gelu(x), F.elu(x), F.logsigmoid(x), x.sigmoid(), x.erfc(),
        ]  # fmt: skip

    return trial.run(functions, x), trial.run(_of_many, many)


@case(elementwise=True)
def powers_of_two_and_steps(trial: Trial) -> Any:
    """Powers of two that make numbers subnormal, and steps of nan."""
    x, shifts = trial.given(torch.tensor([1.75, -1.25, 1.0, 1.5])), trial.given(torch.tensor([-140, -130, 3, -127]))
    nan = trial.given(torch.tensor([math.nan, 1.0]))

    def f(x: torch.Tensor, shifts: torch.Tensor, nan: torch.Tensor) -> list[torch.Tensor]:
        steps = [torch.heaviside(nan, nan + 1), torch.heaviside(nan - 1, nan.nan_to_num(0.5)), nan.sgn()]
        return [torch.ldexp(x, shifts), *steps]

    return trial.run(f, x, shifts, nan)


def _of_many(x: torch.Tensor) -> list[torch.Tensor]:
    ways = ("linear", "lower", "higher", "midpoint", "nearest")
    return [
        *torch.var_mean(x, 1), *torch.std_mean(x, (0, 1), correction=2), *torch.var_mean(x), x.nanmedian(),
        *(torch.quantile(x, 0.37, 1, interpolation=way) for way in ways), torch.nanquantile(x, 0.9, 1),
        x.kthvalue(150, 1).values, x.median(1).values,
    ]  # fmt: skip
