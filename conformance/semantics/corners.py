"""Sizes, layouts and arguments that code written for the usual ones gets wrong."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from ..case import Collection, Trial

case = Collection("semantics/corners")

SIZES = (66, 67, 79, 95, 96, 97, 100, 127, 128, 129, 191, 255, 257, 333, 511, 513)


@case(terms=513)
def reductions_of_each_size(trial: Trial) -> Any:
    """Reductions over the first, the middle and the last dimension have no size at which an end is lost."""
    given = [trial.tensor(*shape) for n in SIZES for shape in ((n, 3), (2, n, 3), (3, n))]

    def f(given: list[torch.Tensor]) -> list[torch.Tensor]:
        results = []
        for x in given:
            dim = x.shape.index(max(x.shape))
            results += [x.sum(dim), x.mean(dim), x.amax(dim), x.softmax(dim), x.var(dim)]
        return results

    return trial.run(f, given)


@case()
def elements_of_each_size(trial: Trial) -> Any:
    """Elementwise results, copies and joins of vectors and matrices of odd sizes above 64."""
    given = [trial.tensor(n) for n in (*SIZES, 1023, 4097)] + [trial.tensor(n, m) for n, m in ((67, 129), (130, 95))]

    def f(given: list[torch.Tensor]) -> list[torch.Tensor]:
        return [y for x in given for y in (x * 2 + 1, x.relu(), torch.cat([x, x]), x.flip(0), x > 0, x.double())]

    return trial.run(f, given)


@case()
def transposes_of_each_size(trial: Trial) -> Any:
    """Transposed matrices are copied, added and multiplied whole, whatever is left of tiles."""
    given = [trial.tensor(n, m) for n, m in ((65, 67), (97, 130), (127, 66), (33, 257), (257, 33), (64, 129))]

    def f(given: list[torch.Tensor]) -> list[torch.Tensor]:
        results = []
        for x in given:
            results += [
                x.t().contiguous(),
                x.t() + 1,
                x.t().clone(),
                x.t() * x.new_ones(x.shape[1], x.shape[0]),
                x.t().sum(0),
            ]
        cube = torch.stack([given[0], given[0] * 2])
        return [
            *results,
            cube.permute(2, 0, 1).contiguous(),
            cube.permute(1, 2, 0) + 1,
            cube.transpose(1, 2).reshape(-1),
        ]

    return trial.run(f, given)


@case(terms=130)
def products_of_each_size(trial: Trial) -> Any:
    """Products of sizes beside multiples of tiles, plain, transposed, in batches, with a bias."""
    compiled = trial.compile(lambda x, y, b: (x @ y, y.t() @ x.t(), torch.addmm(b, x, y), F.linear(x, y.t(), b).relu()))
    sizes = (65, 66, 67), (97, 130, 1), (1, 129, 95), (129, 1, 65), (67, 3, 127)
    return [compiled(trial.tensor(n, k), trial.tensor(k, m), trial.tensor(m)) for n, k, m in sizes]


@case()
def nothing(trial: Trial) -> Any:
    """Tensors without elements in each kind of operator: products over nothing are zero, and joins drop nothing."""
    x, y, b = trial.tensor(3, 0), trial.tensor(0, 4), trial.tensor(4)
    images, rows = trial.tensor(0, 3, 5, 5), trial.tensor(0, 6)
    index = torch.zeros(0, dtype=torch.int64, device=trial.device)

    def f(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor, images: torch.Tensor, rows: torch.Tensor) -> list[Any]:
        weight = b.new_ones(2, 3, 3, 3)
        return [
            x @ y, torch.addmm(b, x, y), F.linear(x, y.t(), b), torch.bmm(x[None], y[None]), x.sum(1), x.mean(0),
            x.prod(1), x.any(1), x.all(1), x.norm(dim=1), x.logsumexp(1), x.cumsum(1), x.softmax(1), y.softmax(1),
            F.conv2d(images, weight), F.relu(images), F.layer_norm(rows, (6,)), F.max_pool2d(images, 2), rows.sort(1),
            b[index], b.index_add(0, index, b[:0]), torch.cat([y, b[None]]), rows.argmax(1), rows.topk(2).values,
            F.embedding(index, y.new_ones(5, 2)), b[:0].sum(), b[:0].flip(0), rows.t() @ rows, rows.reshape(0, 2, 3),
            x.std(1), F.pad(y, (0, 0, 1, 1)), y.expand(2, 0, 4), rows.nonzero(), rows > 0, torch.stack([rows, rows]),
            torch.cat([b[:0], index.new_ones(2)]), torch.cat([index, b.half()]), torch.cat([b[:0].double(), b]),
        ]  # fmt: skip

    return trial.run(f, x, y, b, images, rows)


@case()
def extremes_of_nothing(trial: Trial) -> Any:
    """The largest of no elements is no number: each way to ask for it raises eager's exception."""
    found = []
    functions = (
        lambda x: x.max(), lambda x: x.amax() + 1, lambda x: x.argmax(), lambda x: x.min(0), lambda x: x.amin(0),
        lambda x: x.median(), lambda x: x.argmin(0), lambda x: x.aminmax(),
    )  # fmt: skip
    for function in functions:
        try:
            found.append(trial.run(function, trial.tensor(0)))
        except (RuntimeError, IndexError, ValueError) as error:
            found.append(type(error).__name__)
    return found


@case()
def masks_of_each_shape(trial: Trial) -> Any:
    """Masks that are broadcast in any dimension, are transposed, or hold bytes select what eager selects."""
    x, mask = trial.tensor(6, 8), trial.tensor(6, 8, dtype=torch.bool)

    def f(x: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        column, row, turned = mask[:, :1], mask[:1], mask.view(8, 6).t()
        changed = x.clone()
        changed[mask] = 0.5
        changed[row[0, :6]] *= 2
        return [
            torch.where(column, x, -x), torch.where(row, x, 1.0), torch.where(turned, 0.0, x),
            x.masked_fill(column, 3.0),
            x.masked_fill(row & column, -math.inf), torch.where(column, x, 2.0).softmax(1), x * mask, x * column,
            (mask & ~turned).sum(1), mask.logical_xor(turned), torch.where(mask[0, 0], x, x + 1), changed,
            torch.where(mask.to(torch.uint8) > 0, x, 0.0), mask.any(0), mask.all(1, keepdim=True),
            x.masked_select(mask),
        ]  # fmt: skip

    return trial.run(f, x, mask)


@case()
def arguments(trial: Trial) -> Any:
    """Arguments beside tensors count: ``alpha``, fill values, the smallest of all, descending orders, corrections."""
    x, y = trial.tensor(5, 9), trial.tensor(5, 9)
    tied = trial.tensor(4, 40, dtype=torch.int64, low=0, high=4)

    def f(x: torch.Tensor, y: torch.Tensor, tied: torch.Tensor) -> list[Any]:
        return [
            torch.add(x, y, alpha=2), torch.sub(x, y, alpha=0.5), torch.rsub(x, y, alpha=3),
            torch.addcmul(x, x, y, value=2.5),
            x.topk(3, largest=False), x.topk(2, 0, sorted=True), x.kthvalue(3, 1), x.median(1),
            F.pad(x, (1, 2), value=-1.5),
            F.pad(x, (1, 0, 2, 1), value=-math.inf), tied.sort(dim=1, descending=True, stable=True),
            tied.argsort(dim=0, descending=True, stable=True), x.var(1, correction=0), x.std(0, correction=2),
            x.norm(3, 1), F.normalize(x, 1.0, 0, 0.1), x.clamp(y.abs() * -1, y.abs()), x.cumsum(0), x.flip((0, 1)),
            x.roll((1, -2), (0, 1)), x.diff(dim=1, n=2), x.tril(-1), x.triu(2), F.softplus(x, 2.0, 3.0),
            x.unfold(1, 3, 2),
            F.leaky_relu(x, 0.3), F.elu(x, 0.7), F.hardtanh(x, -0.3, 0.4), torch.nan_to_num(x / 0, 1.0, 2.0, 3.0),
            torch.baddbmm(x[:, None], x[:, :, None], y[:, None], beta=0, alpha=2), F.threshold(x, 0.1, 7.0),
            torch.addmm(x[:, :5], x, y.t(), beta=0.5, alpha=2), x.quantile(0.3, 1), torch.lerp(x, y, 0.3),
            x.renorm(2, 0, 1.0),
            torch.histc(x, 4, -1, 1), x.argmin(0, keepdim=True), torch.bucketize(x, y[0].sort().values, right=True),
        ]  # fmt: skip

    return trial.run(f, x, y, tied)


@case()
def layouts_of_what_is_made(trial: Trial) -> Any:
    """Conversions, copies and what is made ``like`` a tensor have the order of its dimensions in memory."""
    image, cube = trial.tensor(2, 3, 4, 5), trial.tensor(3, 4, 5)
    volume = trial.tensor(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d)
    given = (
        cube.permute(2, 0, 1),
        cube.transpose(0, 1),
        image.to(memory_format=torch.channels_last),
        volume,
        cube[:, ::2],
    )

    def f(given: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
        found = []
        for x in given:
            found += [
                torch.zeros_like(x), torch.ones_like(x, dtype=torch.int32), torch.full_like(x, 2), x.double(), x.half(),
                x.to(torch.int64), x.bool(), x.clone(), x + 1, x.relu() * 2, x > 0, torch.where(x > 0, x, 0.0),
                x.contiguous(),
                x.clone(memory_format=torch.contiguous_format), x.new_zeros(x.shape), torch.zeros_like(x) + x, -x,
                x.float() + x,
            ]  # fmt: skip
        return found

    return trial.run(f, given)


@case()
def layouts_of_layers(trial: Trial) -> Any:
    """Layers of images and volumes in channels last, also beside contiguous ones, keep eager's order."""
    torch.manual_seed(0)
    flat, deep = trial.module(torch.nn.Conv2d(3, 6, 3, padding=1)), trial.module(torch.nn.Conv3d(2, 4, 3, padding=1))
    image, volume = trial.tensor(2, 3, 5, 8), trial.tensor(1, 2, 3, 4, 5)

    def f(x: torch.Tensor, v: torch.Tensor, plain: torch.Tensor) -> list[torch.Tensor]:
        y, z = flat(x), deep(v)
        return [
            y, z, z.relu() + 1, v * 2, F.max_pool3d(z, 2), x + plain, plain * x, torch.cat([x, plain], 1),
            x.sum((2, 3)), x.mean(2),
            F.interpolate(x, scale_factor=2), F.pad(x, (1, 1)), x.permute(0, 2, 3, 1) * 2, x.flatten(2),
            y.transpose(2, 3) + 1,
            F.group_norm(y, 2), x[:, :2] + 1, x[:, :, 1:] * 2, x.amax(1, keepdim=True) - x,
        ]  # fmt: skip

    compiled = trial.compile(f)
    last = image.to(memory_format=torch.channels_last), volume.to(memory_format=torch.channels_last_3d)
    with torch.no_grad():
        return compiled(*last, image * 2), compiled(image, volume, last[0] * 2)


@case()
def what_changes_nothing(trial: Trial) -> Any:
    """Where there is nothing to do, eager returns its argument or a view of it, and so does compiled code."""
    x, turned = trial.tensor(3, 4), trial.tensor(4, 5).t()

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [
            x.to(x.dtype), x.contiguous(), x.expand_as(x), x.view_as(x), x.detach(), x[:], x.reshape(3, 4),
            x.squeeze(0),
            F.dropout(x, 0.5, False), x.type_as(x), x.flatten(0), y.contiguous(), y.to(y.dtype), y.reshape(5, 4),
            y.t().t(),
            y.flatten(), y.movedim(0, 0), x.narrow(0, 0, 3), x.real, x.to(x.device), x.ravel(), x.unsqueeze(0)[0],
        ]  # fmt: skip

    return trial.run(f, x, turned)


@case()
def views_and_writes(trial: Trial) -> Any:
    """A view that is taken before a write to its base shows the write; a write to a view writes to its base."""
    x, y = trial.tensor(4, 6), trial.tensor(5)

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        early, flat = x[1:3], x.view(-1)
        x.mul_(2)
        early.add_(1)
        flat[-1] = 9.0
        late = x.t()
        z = y * 1
        part = z[1:4]
        part.zero_()
        return early, flat, late, z, part, x.diagonal()

    results = trial.run(f, x, y)
    results[1][0] = 77.0
    return results, x


@case()
def memory_of_results(trial: Trial) -> Any:
    """A result owns as much memory as it needs, in one piece of its own, so that keeping one keeps nothing else."""
    compiled = trial.compile(lambda x: (x.sin() @ x.cos().t(), x.sum(0), x * 2))
    kept = [compiled(trial.tensor(8, 16)) for _ in range(3)]
    return kept, [r.untyped_storage().nbytes() > r.numel() * r.element_size() + 4096 for each in kept for r in each]


@case("complex64", reference=False)
def inputs_of_unusual_kinds(trial: Trial) -> Any:
    """Inputs that are conjugated or negative by a flag, that overlap themselves, are a part of an image in channels
    last, have ten dimensions or unsigned integers of 16 bits."""
    z, row = torch.complex(trial.tensor(3, 4), trial.tensor(3, 4)), trial.tensor(12)
    x = trial.tensor(4, 3, 5, 6).to(memory_format=torch.channels_last)
    words = torch.tensor([0, 1, 40000, 65535], dtype=torch.uint16, device=trial.device)
    functions = (
        (lambda z: (z * 2, z.real + 1, z.imag * 3, z.abs(), z.conj() + z), (z.conj(),
         z.to(torch.complex128).conj().t())),
        (lambda x: (x * 2, x.abs(), x.sum(0), x + 1), (z.conj().imag, torch._neg_view(row), row.unfold(0, 5, 2))),
        (lambda x: (x * 2, x.sum(-1), x.flip(0), x.reshape(-1) + 1), (row.as_strided((3, 4), (2, 1), 1),
         row.as_strided((4, 4), (1, 1)), row[:8].view(2, 2, 1, 2, 1, 1, 1, 1, 1, 1).transpose(0, 3))),
        (lambda x: (x.relu(), x.mean(1), x.flatten(1) * 2, F.max_pool2d(x, 2)), (x[1:, 1:], x[:, :, 1:, 2:], x[2:3])),
        (lambda n: (n.float() / 2, n.long() + 1, n.int()), (words, words[1:])),
    )  # fmt: skip
    return [[trial.compile(function)(each) for each in given] for function, given in functions]
