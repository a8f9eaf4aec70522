"""Operators of each kind in circumstances that they are seldom tried in: trained under autocast or over sizes that
change, in inference mode, with no elements to learn from, of numbers behind flags, into given results, and with
channels that stand last in images and volumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial
from ..arguments.everywhere import functions, images, moves, positive, reductions
from ..arguments.windows import apart, with_gradients

case = Collection("semantics/circumstances")

_Functions = Sequence[Callable[..., torch.Tensor]]


def _learn(results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Send back a gradient for each element of results, of its own; returns the results."""
    ends = [r for r in results if r.requires_grad]
    weights = [torch.linspace(0.5, 1.5, max(r.numel(), 1)).to(r)[: r.numel()].view(r.shape) for r in ends]
    torch.autograd.backward(ends, weights)
    return [r.detach() for r in results]


@case("training", "bfloat16", precision=torch.bfloat16, terms=32, signs=False)
def trained_under_autocast(trial: Trial) -> Any:
    """Products and windows are computed in half precision, what follows as autocast says, and each gradient has the
    dtype of its tensor."""
    x, w, b = trial.tensor(4, 6), trial.tensor(6, 6), trial.tensor(6)
    image, kernels = trial.tensor(2, 4, 6, 5), trial.tensor(4, 4, 3, 3)
    rows = trial.given(torch.tensor([3, 0, 2, 3]))

    def f(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, image: torch.Tensor, kernels: torch.Tensor) -> Any:
        heads, narrow = x.view(1, 2, 4, 3), F.linear(x, w)
        return [
            F.linear(x, w, b), x @ w, torch.addmm(b, x, w), torch.bmm(x[None], w[None]), torch.mv(x, b),
            torch.baddbmm(b, x[None], w[None]), torch.einsum("ij,kj->ik", x, w), narrow.softmax(1), narrow.sum(0),
            F.scaled_dot_product_attention(heads, heads, heads), F.bilinear(x[:, :2], x[:, 2:4], w.view(9, 2, 2)),
            F.gelu(narrow), F.silu(narrow), narrow.tanh() * x,
            torch.where(narrow > 0, narrow, x), torch.cat([narrow, x]), torch.stack([narrow, narrow * 2]),
            F.cross_entropy(narrow, rows), F.mse_loss(narrow, x), F.layer_norm(narrow, (6,), b, b), narrow.exp(),
            F.binary_cross_entropy_with_logits(narrow, x.detach().sigmoid()), narrow.cumsum(1), narrow.norm(dim=1),
            F.embedding(rows, x) @ w, narrow[rows], narrow.gather(0, rows[:, None]), narrow.amax(1), narrow.var(0),
            narrow.masked_fill(x > 0, 0.5), narrow + b, narrow.double(), F.rms_norm(narrow, (6,)), narrow.mean(),
            torch.outer(b, b), F.cosine_similarity(narrow, x), narrow.pow(2), narrow.log_softmax(0),
            narrow.logsumexp(1),
            F.conv2d(image, kernels, padding=1), F.conv1d(image[:, :, 0], kernels[:, :, 0]),
            F.conv3d(image[None], kernels[None, :2, :2].mT[:, :2]),
            F.conv_transpose2d(image, kernels, stride=2), F.max_pool2d(F.conv2d(image, kernels), 2),
            F.batch_norm(F.conv2d(image, kernels), None, None, None, None, True), F.group_norm(image, 2),
            F.interpolate(F.conv2d(image, kernels), scale_factor=2), F.avg_pool2d(F.conv2d(image, kernels), 2),
            F.prelu(F.conv2d(image, kernels), b[:4]), narrow.sort(1).values, narrow.topk(2, 1).values, narrow.flip(1),
            narrow.roll(1, 0), F.pad(narrow, (1, 1)), narrow.index_add(0, rows, narrow), narrow.diagonal(),
            narrow.scatter(0, rows[:, None].expand(4, 6), narrow), narrow.index_copy(0, rows[:3], narrow[:3]),
            narrow.repeat(2, 1),
            F.adaptive_avg_pool2d(F.conv2d(image, kernels), 2).flatten(1),
        ]  # fmt: skip

    inputs = [t.detach().requires_grad_() for t in (x, w, b, image, kernels)]
    with torch.autocast(trial.device.type, torch.bfloat16):
        results = trial.run(f, *inputs)
    return _learn(results), [t.grad for t in inputs]


@case(terms=64)
def in_inference_mode(trial: Trial) -> Any:
    """In inference mode, operators of each kind give what they give elsewhere, of tensors from in there and outside."""
    outside = positive(trial, 6, 5)
    with torch.inference_mode():
        inside, image = positive(trial, 6, 5), positive(trial, 2, 4, 6, 7)
        found = trial.run(lambda x: [*reductions(x), *functions(x[:, 1])], inside)
        return found, trial.run(moves, outside), trial.run(images, image)


@case("training", terms=32, signs=False)
def nothing_to_learn_from(trial: Trial) -> Any:
    """Operators of each kind of no rows, no columns and no images send back zeros, of the shape of their arguments."""
    w, b, kernel, scale = trial.tensor(5, 5), trial.tensor(5), trial.tensor(4, 2, 3, 3), trial.tensor(4)

    def f(x: torch.Tensor, y: torch.Tensor, image: torch.Tensor, *rest: torch.Tensor) -> list[torch.Tensor]:
        w, b, kernel, scale = rest
        none = torch.zeros(0, dtype=torch.int64, device=x.device)
        return [
            x @ w, y.mT @ y, w @ x.t(), F.linear(x, w, b), torch.addmm(b, x, w), torch.einsum("ij,kj->ik", x, w),
            y @ w[:3], torch.bmm(x[None], w[None]), x * b, x + w[:1], x - b[0], x / b, x**2, x.exp(), x.sigmoid(),
            x.tanh(), F.gelu(x), F.silu(x), F.relu(x), F.leaky_relu(x, 0.2), x.abs(), x.clamp(0, 1), x.sqrt(), x.log(),
            torch.where(x > 0, x, b), torch.maximum(x, b), x.masked_fill(x > 0, 1.0), x.sum(0), x.sum(), x.mean(1),
            y.sum(1), y.mean((0, 2)), x.prod(0), y.prod(1), x.amax(1), x.norm(dim=1), y.norm(),
            x.softmax(1), x.log_softmax(0), x.logsumexp(1), x.cumsum(0), y.cumsum(1), x.cumprod(1), x.sort(1).values,
            x.topk(2, 1).values, x.max(1).values, x.median(1).values, torch.cat([x, w]), torch.cat([w, x * 2], 0),
            torch.stack([x, x]), F.pad(x, (1, 2)), F.pad(x, (0, 0, 1, 1), value=0.5), x.flip(1), x.roll(1, 1),
            x.repeat(2, 2), x.expand(3, 0, 5), x.t().clone(), x.reshape(5, 0), x.unsqueeze(1).squeeze(1), x[:, 1:3],
            x.tril(), x.diagonal(), w[none], w.index_select(0, none), F.embedding(none, w), w.gather(0, none[:, None]),
            w.index_add(0, none, x), w.scatter_add(0, none[:, None].expand(0, 5), x), w.index_copy(0, none, x),
            *y.split(1, 2)[:1],
            F.layer_norm(x, (5,), b, b), F.rms_norm(x, (5,), b), F.mse_loss(x, x * 2, reduction="sum"),
            F.cross_entropy(x, none, reduction="sum"), F.l1_loss(x, x * 0, reduction="none"), F.normalize(x, dim=1),
            F.scaled_dot_product_attention(x[None], x[None], x[None]), F.cosine_similarity(x, x, 1), torch.cdist(x, w),
            F.conv2d(image, kernel), F.conv2d(image, kernel, scale, stride=2), F.conv_transpose2d(image, kernel.mT[:2]),
            F.max_pool2d(image, 2), F.avg_pool2d(image, 2), F.adaptive_avg_pool2d(image, 2), F.group_norm(image, 2),
            F.batch_norm(image, b[:2].detach(), b[:2].detach().abs(), scale[:2]),
            F.interpolate(image, scale_factor=2), image.flatten(1),
        ]  # fmt: skip

    return with_gradients(trial, f, trial.tensor(0, 5), trial.tensor(2, 0, 3), trial.tensor(0, 2, 5, 6), w, b, kernel,
                          scale)  # fmt: skip


@case("training", "dynamic_shapes", terms=64, signs=False)
def trained_over_sizes(trial: Trial) -> Any:
    """Gradients of reductions, moves and layers over sizes that change."""

    def f(x: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        index = torch.arange(x.shape[0], device=x.device).flip(0)
        return [
            x.mean(0), x.sum(1), x.std(1), x.norm(dim=0), x.logsumexp(0), x.cumsum(0), x.amax(1), x.sort(0).values,
            x.topk(2, 1).values, x.median(1).values, F.layer_norm(x, x.shape[1:]), x.softmax(0), x[index], x @ x.t(),
            F.cross_entropy(x, index % x.shape[1]), x.gather(0, index[:, None]), x.index_add(0, index, x), x.tril(),
            F.pad(x, (1, 2)), torch.cat([x, x[:, 1:]], 1), x * v, x.flip(1), x / x.shape[0], F.embedding(index, x),
            x.expand(2, *x.shape), torch.where(x > 0.5, x, v), x.repeat(2, 1), x.t().clone(),
        ]  # fmt: skip

    def g(x: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        w = v.sin().repeat(36).view(4, 4, 3, 3)
        return [
            F.conv2d(x, w, stride=2, padding=1), F.conv_transpose2d(x, w, stride=2), F.max_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 2, ceil_mode=True), F.group_norm(x, 2, v, v), F.batch_norm(x, None, None, v, v, True),
            F.adaptive_avg_pool2d(x, 2), F.interpolate(x, scale_factor=2), x.mean((2, 3)), x.flatten(1),
        ]  # fmt: skip

    found = []
    for function, shapes, last in (
        (f, ((6, 5), (9, 8)), True),
        (g, ((2, 4, 6, 7), (3, 4, 9, 8)), False),
    ):
        compiled = trial.compile(function, dynamic=True)
        for shape in shapes:
            inputs = [positive(trial, *shape), positive(trial, shape[1] if last else 4)]
            inputs = [t.requires_grad_() for t in inputs]
            found.append((_learn(compiled(*inputs)), [t.grad for t in inputs]))
    return found


@case(terms=32)
def numbers_behind_flags(trial: Trial) -> Any:
    """Functions, reductions and moves of numbers that are negative by a flag, and of conjugates,
    are those of the numbers
    that they stand for."""
    parts = torch.complex(positive(trial, 6, 5), -positive(trial, 6, 5))
    given = parts.conj().imag
    conjugates = torch.complex(positive(trial, 4, 4), positive(trial, 4, 4)).conj()

    def f(x: torch.Tensor) -> list[Any]:
        index = torch.tensor([2, 0, 1], device=x.device)
        return [
            *functions(x[0]), *reductions(x), x[index], x[:, index], x.gather(0, index[:, None]),
            x.index_select(1, index),
            x.scatter(0, index[:, None], x * 2), x.scatter_add(0, index[:, None], x), x.index_add(0, index, x[:3]),
            x.index_copy(0, index, x[:3]), x.masked_fill(x > 0.5, 3.0), x.masked_select(x > 0.5), x.take(index),
            x.tril(),
            torch.where(x > 0.5, x, x.flip(0)), x.roll(1, 0), x.diagonal() + 1, x.repeat(2, 1),
            F.pad(x, (1, 0), value=0.5),
            torch.cat([x, x * 2], 1), torch.stack([x, x + 1], 1), x.t().clone(), x.reshape(-1) * 2,
            F.embedding(index, x),
            x.expand(2, 6, 5).sum(0), x.unfold(0, 2, 1) * 2, F.avg_pool1d(x, 2), F.max_pool1d(x, 2), x.round(),
            x.double(),
            F.conv1d(x[None], x[None, :, :2]), F.max_pool2d(x[None], 2), F.interpolate(x[None], scale_factor=2),
            F.scaled_dot_product_attention(x[None], x[None], x[None]), F.conv_transpose1d(x[None], x[:, None, :2]),
            F.adaptive_avg_pool2d(x[None], 2), F.interpolate(x[None, None], (4, 4), mode="bilinear"),
            F.conv_transpose2d(x[None, None], x[None, None, :2, :2]), F.avg_pool2d(x[None], 2), F.linear(x, x),
            x.argsort(1), torch.bucketize(x, x[0].sort().values),
            x.bool(), (x * 9).long(),
        ]  # fmt: skip

    def g(z: torch.Tensor) -> list[torch.Tensor]:
        index = torch.tensor([2, 0, 1], device=z.device)
        return [
            z + 1, z - z.t(), z * z, z / (z + 2), 2 / z, z**2, z.exp(), z.log(), z.sqrt(), z.tanh(), z.sin(), z.abs(),
            z.angle(), z.sgn(), z.real * 2, z.imag * 2, z.sum(), z.sum(0), z.mean(1), z.prod(0), z.cumsum(1), z.norm(),
            z.cumprod(0), z @ z, z.mT @ z[:, 0], z.mH @ z, torch.einsum("ij,kj->ik", z, z), F.linear(z, z), z[index],
            z.index_select(1, index), z.gather(0, index[:, None]), z.flip(0), z.roll(1, 1), torch.cat([z, z + 1]),
            torch.stack([z, z]), torch.where(z.real > 0.5, z, -z), z.masked_fill(z.real > 0.5, 1j), F.pad(z, (1, 0)),
            z.t().clone(), z.repeat(2, 1), z.tril(), z.diagonal() + 1, z.reciprocal(), z.index_add(0, index, z[:3]),
            z.scatter(0, index[:, None], z), z.var(0), z.eq(z.clone()), torch.view_as_real(z.resolve_conj()),
            z.conj() + 1,
            z.to(torch.complex128), z.expand(2, 4, 4).sum(0), z.reshape(-1) * 2, z.square(), torch.outer(z[0], z[1]),
        ]  # fmt: skip

    return trial.run(f, given), trial.run(g, conjugates)


@case(terms=32)
def into_given_results(trial: Trial) -> Any:
    """``out=`` of operators of each kind writes the whole result, where it lies, in the order of the given tensor."""
    x, y = positive(trial, 4, 4), positive(trial, 4, 4)
    index = trial.given(torch.tensor([3, 0, 2, 2]))

    def f(x: torch.Tensor, y: torch.Tensor, index: torch.Tensor, *outs: torch.Tensor) -> list[torch.Tensor]:
        out = iter(outs)
        places = torch.zeros(4, dtype=torch.int64, device=x.device)
        made = [
            torch.add(x, y, alpha=2, out=next(out)), torch.sub(x, y, out=next(out)), torch.mul(x, 3, out=next(out)),
            torch.div(x, y, out=next(out)), torch.pow(x, y, out=next(out)), torch.exp(x, out=next(out)),
            torch.sqrt(x, out=next(out)), torch.sigmoid(x, out=next(out)), torch.clamp(x, 0.3, 0.6, out=next(out)),
            torch.maximum(x, y, out=next(out)), torch.where(x > y, x, y, out=next(out)), torch.mm(x, y, out=next(out)),
            torch.addmm(x, x, y, beta=0.5, out=next(out)), torch.matmul(x, y, out=next(out)),
            torch.neg(x, out=next(out)),
            torch.cumsum(x, 0, out=next(out)), torch.cumprod(x, 1, out=next(out)), torch.tril(x, out=next(out)),
            torch.index_select(x, 0, index, out=next(out)), torch.gather(x, 0, index.expand(4, 4), out=next(out)),
            torch.lerp(x, y, 0.3, out=next(out)), torch.addcmul(x, x, y, value=0.5, out=next(out)),
            torch.cat([x[:2], y[:2]], out=next(out)), torch.remainder(x, y, out=next(out)), torch.log(x, out=next(out)),
            torch.softmax(x, 1, out=next(out)), torch.atan2(x, y, out=next(out)), torch.floor(x * 3, out=next(out)),
            torch.sum(x, 0, out=next(out)[0]), torch.mean(x, 1, out=next(out)[1]), torch.amax(x, 0, out=next(out)[2]),
            torch.linalg.vector_norm(x, dim=1, out=next(out)[:, 0]), torch.logsumexp(x, 0, out=next(out)[:, 2]),
            torch.mv(x, y[0], out=next(out)[3]), torch.prod(x, 0, out=next(out)[0]), torch.argmax(x, 1, out=places) * 2,
        ]  # fmt: skip
        return [*made, *outs, places]

    outs = [
        (trial.tensor(4, 4), trial.tensor(4, 4).t(), trial.tensor(4, 8)[:, ::2], trial.tensor(20)[3:19].view(4, 4))[
            n % 4
        ]
        for n in range(35)
    ]
    with torch.no_grad():
        return trial.run(f, x, y, index, *outs)


def _volumes(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
    """Layers of volumes with four channels, and what else is done to them."""
    return [
        F.conv3d(x, w, padding=1), F.conv3d(x, w[:, :2], v, stride=2, groups=2), F.conv_transpose3d(x, w, stride=2),
        F.conv3d(x, w[:, :1], groups=4), F.conv3d(x, w[:, :, :1, :1, :1], v), F.max_pool3d(x, 2), F.avg_pool3d(x, 2, 1),
        F.adaptive_avg_pool3d(x, 2), F.adaptive_max_pool3d(x, (1, 2, 2)),
        F.batch_norm(x, v.detach(), v.detach().abs(), v, v),
        F.batch_norm(x, None, None, v, v, True), F.group_norm(x, 2, v, v), F.instance_norm(x), F.gelu(x), x.cumsum(1),
        x.softmax(1),
        F.interpolate(x, scale_factor=2), F.interpolate(x, (3, 2, 4), mode="trilinear"), F.pad(x, (1, 0, 0, 2, 1, 1)),
        x.mean((2, 3, 4)), x.sum((0, 2)), x.amax((4, 1)), x.var((0, 2, 3, 4), keepdim=True), x * v.view(4, 1, 1, 1),
        torch.cat([x, x * 2], 1), x.flatten(1), x.flatten(2).mT @ v, x.permute(0, 2, 3, 4, 1) * v, F.prelu(x - 0.5, v),
        x.flip(2), x.roll(1, 3), x.logsumexp(1), x.sort(1).values, x[:, 1:3] + 1, F.layer_norm(x, x.shape[3:]),
        x + x.mT,
        x.view(2, 2, 2, *x.shape[2:]).transpose(1, 2).reshape(x.shape), x.argmax(1).to(x.dtype), F.glu(x, 1),
        x.norm(dim=1),
        torch.where(x > 0.5, x, x.new_zeros(())), F.linear(x.movedim(1, -1), w[:, :, 0, 0, 0], v),
        x.new_ones(x.shape) * x,
        x.index_select(1, x.new_tensor([2, 0]).long()), F.cross_entropy(x, x[:, 0].detach().softmax(1).long()),
        x.mT @ x,
        x.tril(), x.diagonal(0, 1, 3), x.gather(1, x.argsort(1)), F.mse_loss(x, x.detach().flip(1)),
        x.repeat(1, 2, 1, 1, 1),
    ]  # fmt: skip


@case("training", terms=64, signs=False)
def volumes_in_channels_last(trial: Trial) -> Any:
    """Layers of volumes whose channels stand last in memory, and their gradients."""
    x = positive(trial, 2, 4, 3, 4, 4).to(memory_format=torch.channels_last_3d)
    w, v = trial.tensor(4, 4, 3, 3, 3).to(memory_format=torch.channels_last_3d), positive(trial, 4)
    return with_gradients(trial, _volumes, x, w, v)


@case("training", terms=64, signs=False)
def rows_of_images_in_channels_last(trial: Trial) -> Any:
    """What runs along or moves images whose channels stand last in memory, and its gradients."""
    x = positive(trial, 2, 4, 3, 5).to(memory_format=torch.channels_last)
    rows = torch.tensor([1, 0, 2], device=trial.device)
    w = trial.tensor(4, 4, 3, 3).to(memory_format=torch.channels_last)
    each: _Functions = [
        lambda x: x.exp() * x, lambda x: x.log(), lambda x: x.sigmoid(), lambda x: F.silu(x), lambda x: x**1.5,
        lambda x: x.sqrt() / x, lambda x: torch.maximum(x, x.flip(1)), lambda x: x @ x.mT, lambda x: x.mT @ x,
        lambda x: x.max(1).values, lambda x: x.min(3).values, lambda x: x.std((1, 3)), lambda x: x.log_softmax(1),
        lambda x: x.cumprod(1), lambda x: x.cummax(1).values, lambda x: x.prod(1), lambda x: x.sort(1).values,
        lambda x: x.topk(2, 1).values, lambda x: x.gather(1, x.argsort(1)[:, :2]), lambda x: x.median(1).values,
        lambda x: x.index_select(2, rows), lambda x: x[:, rows], lambda x: x[:, :, rows, rows], lambda x: x.mT.clone(),
        lambda x: x.index_add(1, rows, x[:, :3]), lambda x: x.take_along_dim(rows.view(1, 3, 1, 1), 1),
        lambda x: torch.stack(x.split(2, 1)), lambda x: torch.cat(x.chunk(2, 1), 3), lambda x: x.reshape(2, 60),
        lambda x: x.view(2, 2, 2, 3, 5), lambda x: x.repeat(1, 2, 1, 1), lambda x: x.tril(),
        lambda x: x.diagonal(0, 2, 3),
        lambda x: F.mse_loss(x, x.detach().flip(3)), lambda x: F.normalize(x, dim=1), lambda x: x.unsqueeze(1) * 2,
        lambda x: F.embedding(rows, x.flatten(1)[:, :4].t()), lambda x: torch.einsum("bchw,bkhw->bck", x, x),
        lambda x: x.scatter_add(1, rows.view(1, 3, 1, 1).expand(2, 3, 3, 5), x[:, :3]), lambda x: x.squeeze().sum(2),
        lambda x: F.binary_cross_entropy_with_logits(x, x.detach()), lambda x: x.repeat_interleave(2, 1),
        lambda x: torch.lerp(x, x.flip(2), 0.3), lambda x: x.masked_fill(x > 0.5, 0.1), lambda x: x.contiguous() + x,
        lambda x: F.conv2d(x, w, padding=1), lambda x: F.conv2d(x, w[:, :1], groups=4, stride=2),
        lambda x: F.instance_norm(x),
        lambda x: F.conv_transpose2d(x, w, stride=2), lambda x: F.max_pool2d(x, 2), lambda x: F.avg_pool2d(x, 2, 1, 1),
        lambda x: F.adaptive_avg_pool2d(x, 2), lambda x: F.group_norm(x, 2), lambda x: F.interpolate(x, scale_factor=2),
        lambda x: F.scaled_dot_product_attention(x, x, x), lambda x: F.layer_norm(x, (5,)),
        lambda x: F.pixel_shuffle(x, 2),
        lambda x: F.batch_norm(x, None, None, training=True), lambda x: F.interpolate(x, (5, 4), mode="bilinear"),
    ]  # fmt: skip
    return apart(trial, each, x)
