"""What is read and written where: indices of every form, scatters, orders, joins and parts."""

from __future__ import annotations

import math
from typing import Any

import torch

from ...case import Collection, Trial
from .windows import with_gradients

case = Collection("semantics/selections")


def _at(trial: Trial, values: Any) -> torch.Tensor:
    return torch.tensor(values, device=trial.device)


@case("training")
def forms_of_indices(trial: Trial) -> Any:
    """Tensors, slices, numbers, masks and new dimensions in one index: where the indexed dimensions come to stand."""
    i, j = _at(trial, [2, 0, -1, 2]), _at(trial, [[1], [-3]])
    mask, rows = _at(trial, [True, False, True, True]), _at(trial, [True, False, True])

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            x[i], x[:, i], x[..., i], x[i, :, i], x[:, i, i], x[i, 1:, None], x[None, i, ..., i], x[i][:, :, None],
            x[j, i], x[j, :, i], x[:, j, i], x[1, :, i], x[i, 2], x[i, 1:3, 0], x[rows], x[:, mask], x[rows, i[:2]],
            x[rows, :, i[:2]], x[..., 0, i], x[::2, i], x[i, ::2], x[[0, 2]], x[[0, 2], [1, 3]], x[:, [True] * 4],
            x[i[0]], x[i[:1], i], x[rows][:, mask], x[-1, -2:, ::3], x[0:0], x[:, 5:], x[:, -2:-1], x[i[:0]],
            x[rows, None, 1], x[torch.zeros_like(rows)], x[:, :, i.int()], x[i.view(2, 2), j], x[1:, -3:, -4:-1:2],
        ]  # fmt: skip

    return with_gradients(trial, f, trial.tensor(3, 4, 5))


@case("training")
def writes_of_each_form(trial: Trial) -> Any:
    """The same on the left side: values are broadcast, converted, added several times, or take turns in order."""
    i = _at(trial, [2, 0, -1])
    twice = _at(trial, [1, 1, 0, 1])

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for index, value in (((i[:2],), y[:2]), ((slice(None), i[:2]), 2), ((..., i), y[:, :, :3]),
                             ((i[:2], slice(1, 3)), y[:2, 1:3]), ((1, slice(None, None, 2)), 1),
                             ((slice(None), slice(-2, None), -1), y[:, :2, 0]), ((0,), y[0, :1]), ((slice(0, 0),), 3),
                             ((i[:2], slice(None), i[:2]), y[0, :, :1].t()), ((..., slice(1, None, 2)), y[...,
                             :2])):  # fmt: skip
            z = x.clone()
            z[index] = value
            found.append(z)
        z = x * 1
        z[twice] += 1
        w = x * 1
        w[:, twice] = w[:, twice] * 2
        return [
            *found, z, w, x.index_put((twice,), y[:1].expand(4, 4, 5), accumulate=True),
            x.index_put((i, i), y[0, 0], accumulate=True),
            x.index_put((i[:, None], twice), y[0, 0, 0], accumulate=True), torch.slice_scatter(x, y[:, :2], 1, 0, 4, 2),
            torch.slice_scatter(x, y[:1], 0, 1, 2), torch.select_scatter(x, y[:, 0], 1, -2),
            torch.diagonal_scatter(x[:, :, 0], y[0, 0, :3]), torch.slice_scatter(x, y[:, :2], 1, 0, 2).sum(1),
            torch.diagonal_scatter(x[0], y[0, 0, :4], 1).sum(0), torch.diagonal_scatter(x[0], y[0, 0, :2], -2).sum(),
        ]  # fmt: skip

    return with_gradients(trial, f, trial.tensor(3, 4, 5), trial.tensor(3, 4, 5))


@case()
def writes_by_masks(trial: Trial) -> Any:
    """Masks of whole rows and of elements on the left side, with a number, a row, or as many values as are selected."""
    rows = _at(trial, [True, False, True])

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        z, w, v, u = (x.clone() for _ in range(4))
        z[rows] = 0.5
        w[x > 0] = -1
        v[rows] = y[0]
        u[x > 5] = 1
        return [z, w, v, u]

    def g(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        z, w = x.clone(), x.clone()
        z[rows] = y[:2]
        w[rows, 1:] *= 2
        return [z, w, x.index_put((rows,), y[:2], accumulate=True)]

    x, y = trial.tensor(3, 4), trial.tensor(3, 4)
    return trial.run(f, x, y), trial.run(g, x, y)


@case()
def scatters(trial: Trial) -> Any:
    """Each way to combine what goes to one place, with and without what was there; indices smaller than either side."""
    index = _at(trial, [[0, 2, 2, 1], [2, 2, 2, 2]])

    def f(x: torch.Tensor, y: torch.Tensor, n: torch.Tensor) -> list[torch.Tensor]:
        ways = ("sum", "prod", "mean", "amax", "amin")
        return [
            *(x.scatter_reduce(1, index, y, way, include_self=own) for way in ways for own in (True, False)),
            *(n.scatter_reduce(1, index, n.flip(1), way, include_self=own) for way in ways for own in (True, False)),
            *(x.index_reduce(1, index[0], y[:1].expand(3, 4), way, include_self=own)
              for way in ways[1:] for own in (True, False)),
            x.scatter(1, index[:, 3:], y), x.scatter(0, index[:, :2], y), x.scatter(1, index[:1, :2], 7.0),
            x.scatter(1, index[:, 3:], y, reduce="multiply"), x.scatter_add(0, index[:, :3], y), x.gather(0, index[:1]),
            x.gather(1, index[:, :1]), x.take(index), x.take(-1 - index), x.put(index, y, accumulate=True),
            x.index_copy(1, _at(trial, [3, 0]), y[:1, :2].expand(3, 2)), x.index_fill(0, _at(trial, [-1, 0]), 2.5),
            x.masked_scatter(x > 0, y.flatten().repeat(3)), x.index_add(1, index[0], x, alpha=-2),
            x.masked_fill(x > 0, 1),
            torch.take_along_dim(x, index[:1, :1] - 1, 1), x.index_select(1, index[1]), n.index_add(0, index[0, :2],
            n[:2]),
            n.scatter_add(1, index, n), torch.bincount(index[0], weights=x[0]), x.diag(),
            torch.zeros(4, device=x.device).index_put((index[0],), x.new_ones(()).float(), accumulate=True),
        ]  # fmt: skip

    return trial.run(f, trial.tensor(3, 4), trial.tensor(2, 4), trial.tensor(3, 4, dtype=torch.int64))


@case(reference=False)
def ranks(trial: Trial) -> Any:
    """Sorting, extremes so far, medians, modes, sets and places in a row, with equals and nan, over any dimension."""
    x, n = trial.tensor(5, 8), trial.tensor(5, 8, dtype=torch.int32, low=0, high=4)
    x[1, 3] = x[4, 0] = math.nan
    x[2, :4] = x[2, 4]

    def f(x: torch.Tensor, n: torch.Tensor) -> list[Any]:
        edges = _at(trial, [-1.0, 0.0, 0.0, 1.0])
        return [
            x.sort(dim=0, stable=True), x.sort(dim=1, descending=True, stable=True),
            n.sort(dim=0, descending=True, stable=True),
            x.cummax(1), x.cummin(0), n.cummax(1), n.cummin(1), x.argsort(dim=0, stable=True), x.msort(), x.max(0),
            x.min(1),
            x.argmax(0), x.argmin(1), n.argmax(0), n.argmin(1, keepdim=True), n.max(1), n.median(1).values,
            n.mode(1).values,
            n.kthvalue(3, 0).values, x.topk(3, 0).values, n.topk(2, 1, largest=False).values, x[0].topk(8, sorted=True),
            *n.unique(return_inverse=True, return_counts=True), *n.unique_consecutive(return_counts=True, dim=1),
            n.unique(dim=0), torch.searchsorted(edges, x), torch.searchsorted(edges, x, right=True),
            torch.searchsorted(edges, x, side="right", out_int32=True), torch.bucketize(x, edges), torch.isin(n, n[0]),
            torch.isin(n, 2, invert=True), n[0].bincount(minlength=6),
            torch.histc(n.float(), 5), n.flatten().argsort(stable=True), x.amax(0), x.aminmax(dim=1), x[2].argmax(),
            x.nanquantile(0.5, 1), x[2].quantile(_at(trial, [0.0, 0.25, 1.0])), (n > 1).sort(dim=1, stable=True),
            (n > 1).max(1), n.to(torch.uint8).sort(dim=1, stable=True).indices,
        ]  # fmt: skip

    return trial.run(f, x, n)


@case("training")
def joins_and_parts(trial: Trial) -> Any:
    """Joins of other dtypes and of nothing, uneven parts, turns, repetitions, and dimensions that change places."""

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        a, b, c = x.tensor_split((1, 4), -1)
        counts = torch.tensor([1, 0, 3], device=x.device)
        return [
            torch.cat([x, y[:, :1]], -2), torch.cat([x.new_zeros(0), x], 0), torch.cat([x, x.int()]), torch.stack([x,
            y], -1),
            torch.cat([x.double(), y.half()], 2), torch.hstack([x, y]), torch.dstack([x, y]), torch.vstack([x[0],
            y[0]]),
            a, b, c, *x.split(3, 2), *x.chunk(3, 1), *x.chunk(5, 0), *x.tensor_split(3, 2),
            *x.flatten().tensor_split(8), *x.split((1, 0, 3), 1),
            x.repeat_interleave(counts, 0), x.tile(2, 1), x.tile((2,)), x.roll(7, 1), x.roll((-3, 9), (0, 2)),
            x.roll(4),
            x.rot90(3, (1, 2)), x.rot90(-1), x.flip((0, -1)), x.fliplr(), x.diag_embed(1), x.diag_embed(-1, 0, 2),
            x.diagonal(-1, 1, 2), x.diagonal(2, 0, 1), x.tril(-1), x.triu(-2), x.tril(2), x.movedim((0, 2), (1, 0)),
            x.unflatten(2, (5, -1)), x.narrow(1, -3, 2), x.select(2, -5), x.unsqueeze(-2), x[:1].squeeze((0, 1)),
            x[:1].squeeze(), x[:1, :1].expand(2, -1, 5), x.unfold(2, 3, 1), x.unfold(1, 2, 3), x.permute(-1, 0, 1),
            x.as_strided((3, 3), (2, 1), 1) + 0, torch.broadcast_to(x[:, :1], (2, 3, 4, 5)), x.mT,
            torch.cartesian_prod(x[0, 0], y[0, 0, :2]), torch.combinations(x[0, 0], 2), x.flatten(1, 2), x.swapaxes(0,
            -1),
            *torch.meshgrid(x[0, 0], y[0, :, 0], indexing="xy"), *torch.broadcast_tensors(x[:, :1], y[:1]),
            torch.atleast_3d(x[0]), x.reshape(-1, 2, 3), x.transpose(0, 2).reshape(6, 10), torch.block_diag(x[0], y[0]),
            *x[:1].unbind(0), *x[..., :1].unbind(-1), x.view(-1)[::7], x.contiguous().view(5, 12).t().flatten(),
        ]  # fmt: skip

    return with_gradients(trial, f, trial.tensor(3, 4, 5), trial.tensor(3, 4, 5))


@case(reference=False)
def other_views(trial: Trial) -> Any:
    """Memory read as another dtype, real and imaginary parts, overlapping windows, and writes to what was expanded."""
    x, n = trial.tensor(4, 6), trial.tensor(4, 6, dtype=torch.int32)

    def f(x: torch.Tensor, n: torch.Tensor) -> list[Any]:
        y = x * 2
        made = torch.complex(y, y.flip(0))
        rows = torch.zeros(2, device=x.device).unsqueeze(1).repeat(1, 3)
        rows.view(-1)[1::2] += 1
        wide = x[:1].clone().expand(1, 6)
        return [
            y.view(torch.int32), n.view(torch.float32) == n.view(torch.float32), y.view(torch.int16)[:, ::2],
            torch.view_as_complex(y.view(4, 3, 2)).abs(), torch.view_as_real(made), made.conj().imag, made.real, rows,
            n.view(torch.uint8).sum(), (n > 0).view(torch.uint8), wide, y.as_strided((2, 5), (1, 2)),
            y.half().view(torch.int16),
            made.conj().is_conj(), y.t().is_contiguous(), x.t().stride(), made.mH.shape,
            (n > 0).to(torch.int8).view(torch.bool),
        ]  # fmt: skip

    return trial.run(f, x, n)
