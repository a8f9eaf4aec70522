"""Sums, extremes, norms and products over any dimensions: what each argument means, and what nothing amounts to."""

from __future__ import annotations

import math
from typing import Any

import torch

from ...case import Collection, Trial
from .windows import with_gradients

case = Collection("semantics/reductions")


@case("training", terms=60)
def dimensions(trial: Trial) -> Any:
    """One dimension, several, negative ones, none and all, kept or not."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            x.sum(-2), x.sum((0, -1)), x.sum((1, 2), keepdim=True), x.sum(()), x.sum(None, keepdim=True), x.mean(-3),
            x.mean((0, 2), keepdim=True), x.mean(()), x.amax(()), x.amax((0, 2)), x.amin(-1, keepdim=True), x.prod(-2),
            x.prod(1, keepdim=True), x.logsumexp((0, 1)), x.logsumexp(-1, keepdim=True), x.var((0, 2)), x.std(()),
            x.var(1, keepdim=True), x.norm(dim=(0, 2)), x.norm(p=2, dim=1, keepdim=True), x.argmax(), x.argmax(1),
            x.argmin(-2, keepdim=True), x.argmax(keepdim=True), x.max(1, keepdim=True).values, x.min(-1).indices,
            x.sum(0).sum(0).sum(0), x[:, 0].sum(0, keepdim=True), x.cumsum(-2), x.cumprod(0), x.softmax(-3),
            x.log_softmax(-2), x.softmax(0).sum(-1), x.std((1, 2), keepdim=True), *torch.var_mean(x, (0, 1)),
            *torch.std_mean(x, -1, correction=0, keepdim=True), *torch.aminmax(x, dim=0, keepdim=True),
            x[0].trace(), x.unsqueeze(1).sum(1), x.sum(1)[None].mean(0),
        ]  # fmt: skip

    return with_gradients(trial, f, trial.tensor(3, 4, 5))


@case()
def places_over_each_dimension(trial: Trial) -> Any:
    """Extremes, medians and orders over each of three dimensions, counted from both ends, have eager's places."""

    def f(x: torch.Tensor) -> list[Any]:
        return [
            (x.max(d), x.min(d, keepdim=True), x.argmax(d, keepdim=True), x.median(d), x.sort(d), x.cummax(d))
            for d in (0, -3, 1, -2)
        ]

    return trial.run(f, trial.tensor(3, 4, 5))


@case(terms=16)
def arguments(trial: Trial) -> Any:
    """Corrections up to and beyond the count, orders of norms, nan left out, and what is counted."""
    x = trial.tensor(3, 5)
    holes = x.clone()
    holes[0, 1] = holes[2] = math.nan

    def f(x: torch.Tensor, holes: torch.Tensor) -> list[torch.Tensor]:
        orders = (0, 1, 2, 3.5, -1, -2, math.inf, -math.inf)
        return [
            x.var(1, correction=5), x.var(1, correction=7), x.var(0, correction=0), x[:, :1].std(1), x[:1].var(0),
            x.var(1, correction=2), x.std(correction=3), *(torch.linalg.vector_norm(x, p, 1) for p in orders),
            torch.linalg.vector_norm(x, 3), torch.linalg.matrix_norm(x, 1), torch.linalg.matrix_norm(x, -math.inf),
            holes.nansum(1), holes.nanmean(0), holes.nanmean(1), holes.nanmedian(1).values, holes.nanmedian(),
            holes.sum(0), holes.amax(1), holes.argmax(1), holes.max(1).indices, holes.median(1).values, holes.any(1),
            holes.all(0), x.count_nonzero(1), (x > 0).count_nonzero(), torch.dist(x[0], x[1], 3), x.median(), x.mode(1),
            x.kthvalue(5, 1), x[:, :4].median(1), (x > 0).sum(1, dtype=torch.int32), x.sum(dtype=torch.float64),
            torch.cdist(x, x[:2]), torch.cdist(x, x[:2], p=1.0), torch.cov(x), torch.trapezoid(x, dim=0),
            x.diff(n=2), x.diff(dim=0, prepend=x[:1] * 2), torch.logcumsumexp(x * 50, 1), x.logsumexp((0, 1)),
            (x * math.inf).logsumexp(1), torch.full_like(x, -math.inf).logsumexp(1), x.argwhere().sum(),
        ]  # fmt: skip

    return trial.run(f, x, holes)


@case(reference=False)
def of_integers(trial: Trial) -> Any:
    """Sums and products of narrow integers and bools become int64; means need floats; running ones do as well."""
    types = torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool
    given = [trial.tensor(4, 65, dtype=t, low=0, high=2 if t is torch.bool else 120) for t in types]

    def f(given: list[torch.Tensor]) -> list[Any]:
        found: list[Any] = []
        for n in given:
            found += [
                n.sum(), n.sum(1), n.sum(-1, keepdim=True), n.prod(0), n.cumsum(1), n.cumprod(0), n.sum(dtype=n.dtype),
                n.sum(0, dtype=torch.int32), n.cumsum(1, dtype=torch.int16), n.float().mean(1), n.amax(1), n.any(),
                n.all(1), n.mean(dtype=torch.float64), n.sum((0, 1)), n.count_nonzero(0), n.any(0), n.amin((0, 1)),
                torch.sum(n, dtype=torch.bool), n.sum(1).to(torch.uint8), n.max(1), n.sum(()), n.nansum(1),
            ]  # fmt: skip
        return found

    return trial.run(f, given)


@case("training", terms=128)
def products(trial: Trial) -> Any:
    """Products of vectors, matrices and batches that are broadcast, and sums by formulas with repeated letters."""

    def f(a: torch.Tensor, b: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        return [
            a @ b, a[:, 0] @ b[0, :1], a[0] @ m, m @ v, v @ m, v @ v, a @ v, v @ a, a.expand(2, 3, 4, 4) @ b[:1],
            torch.baddbmm(v, a[:, 0], b[:, 0], beta=2, alpha=0.5), torch.addmv(v, m, v, beta=0.5, alpha=2),
            torch.addbmm(m, a[:, 0], b[:, 0], beta=3), torch.addr(m, v, v, alpha=2), torch.addmm(v[:, None], m, m,
            beta=0),
            torch.einsum("ii->i", m), torch.einsum("ij->", m), torch.einsum("ij,kj->ki", m, m),
            torch.einsum("b...ij,jk->...bik", a, m), torch.einsum("ij,ij->j", m, m), torch.einsum("i,j,ij", v, v, m),
            torch.einsum("bcij,bcjk->bik", a.expand(2, 3, 4, 4), b), torch.tensordot(m, a, ([1], [3])),
            torch.tensordot(m, m, 2), torch.inner(m, v), torch.linalg.multi_dot([m, m, v]), torch.matrix_power(m, 3),
            m.t() @ m, (m @ m.t()).t(), torch.cross(m[:3], m[1:], 0), torch.kron(m[:2], v), torch.bmm(a[:, 0], b[:, 1]),
            torch.block_diag(m, v[None]), torch.outer(v, v[:2]),
        ]  # fmt: skip

    return with_gradients(
        trial, f, trial.tensor(2, 1, 4, 4), trial.tensor(2, 3, 4, 4), trial.tensor(4, 4), trial.tensor(4)
    )
