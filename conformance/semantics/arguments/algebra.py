"""Algebra that libraries compute: Fourier transforms, matrices by their triangles, products over chosen dimensions."""

from __future__ import annotations

from typing import Any

import torch

from ...case import Collection, Trial

case = Collection("semantics/algebra")


@case()
def transforms(trial: Trial) -> Any:
    """Fourier transforms of odd and even sizes, cut or padded, in each scale, over chosen dimensions, and in frames."""

    def f(x: torch.Tensor, long: torch.Tensor) -> list[torch.Tensor]:
        z, window = torch.complex(x, x.flip(1)), torch.hann_window(8, device=x.device, dtype=x.dtype)
        frames = torch.stft(long, 8, 3, window=window, return_complex=True)
        return [
            torch.fft.fft(x, norm="ortho"), torch.fft.ifft(z, norm="forward"), torch.fft.fft(z, 4),
            torch.fft.fft(z, 9, 0), torch.fft.rfft(x), torch.fft.rfft(x, 6, norm="forward"), torch.fft.irfft(z, 7),
            torch.fft.irfft(z), torch.fft.hfft(z, 5), torch.fft.ihfft(x), torch.fft.fft2(x, (4, 3)),
            torch.fft.fftn(z, dim=(0,)), torch.fft.rfft2(x, norm="ortho"), torch.fft.fftshift(x),
            torch.fft.ifftshift(x), torch.fft.fftshift(x, 0), torch.fft.fftfreq(5, 0.1, device=x.device),
            torch.fft.rfftfreq(5, 0.1, device=x.device), frames,
            torch.stft(long, 8, 3, 6, window[1:7], False, normalized=True, onesided=False, return_complex=True),
            torch.istft(frames, 8, 3, window=window, length=40),
        ]  # fmt: skip

    return trial.run(f, trial.tensor(4, 5), trial.tensor(2, 41))


@case("training")
def matrices(trial: Trial) -> Any:
    """Only the triangle counts that is asked for, from the side that is asked for; powers may be negative."""
    torch.manual_seed(0)
    x = trial.tensor(2, 4, 4)
    positive = (x @ x.mT + 3 * torch.eye(4, device=x.device, dtype=x.dtype)).detach().requires_grad_()

    def f(p: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        upper = p.triu() + 9 * p.tril(-1)
        return [
            torch.linalg.cholesky(p), torch.linalg.cholesky(p, upper=True), torch.cholesky_solve(b, p.tril()),
            torch.linalg.solve_triangular(p, b, upper=True), torch.linalg.solve_triangular(p, b.mT, upper=False,
            left=False), torch.linalg.solve_triangular(p, b, upper=False, unitriangular=True),
            torch.linalg.eigvalsh(upper, UPLO="U"), torch.linalg.qr(p.detach(), "r").R.abs(), torch.linalg.svdvals(p),
            torch.linalg.det(p), *torch.linalg.slogdet(-p[:, :3, :3]), torch.linalg.matrix_power(p, -2),
            torch.matrix_power(p, 3), torch.linalg.matrix_exp(p / 9), torch.linalg.lstsq(p, b).solution,
            torch.linalg.solve(p, b.mT, left=False), torch.linalg.pinv(p, rtol=0.3), torch.logdet(p),
            torch.linalg.matrix_norm(p, "nuc"), torch.linalg.matrix_norm(p, -1), torch.linalg.cond(p.detach(), 1),
        ]  # fmt: skip

    results = trial.run(f, positive, trial.tensor(2, 4, 3))
    sum(r.sum() for r in results).backward()
    return [r.detach() for r in results], positive.grad


@case()
def products_and_spreads(trial: Trial) -> Any:
    """Products over dimensions in the given order, in three dimensions, of all pairs; spreads, areas and slopes."""

    def f(x: torch.Tensor, y: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.tensordot(x, x, dims=([1, 2], [2, 1])), torch.tensordot(x, y, dims=1), torch.tensordot(x, x, 3),
            torch.cross(v, v.flip(0), dim=0), torch.linalg.cross(v, v.flip(0)), torch.kron(y, y.flip(0)),
            torch.cov(y), torch.cov(y, correction=0, aweights=v[0, :1].abs().expand(3) + 1), torch.corrcoef(y),
            torch.cdist(y, y.flip(0), 1.0), torch.cdist(y, y.flip(1), float("inf")), torch.cdist(y, y.flip(1), 0.0),
            torch.vander(v[0], 4, increasing=True), torch.trapezoid(y, dx=0.5), torch.trapezoid(y, y.cumsum(1), dim=0),
            torch.cumulative_trapezoid(y, dx=2.0), *torch.gradient(y, spacing=0.5, edge_order=2),
            torch.addbmm(y[:, :3], x.mT[:, :3], x[:, :, :3], beta=0.5, alpha=2.0),
            torch.linalg.multi_dot((y.t(), y, y.t())),
            torch.einsum("...ij,...kj->...ik", x, y), torch.cosine_similarity(x * 0.1, x.flip(0), 1, 0.9),
        ]  # fmt: skip

    return trial.run(f, trial.tensor(3, 3, 3), trial.tensor(3, 3), trial.tensor(3, 3))
