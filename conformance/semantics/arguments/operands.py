"""Operands of each number of dimensions and dtype, and arguments of layers, losses and attention that are rare."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial

case = Collection("semantics/operands")

_ACTIVATIONS = (
    F.gelu, F.silu, F.mish, F.hardswish, F.hardsigmoid, F.relu6, F.selu, F.celu, F.logsigmoid,
    F.softsign, F.softplus, F.elu, F.leaky_relu, F.hardtanh, torch.erf, torch.sin, torch.sigmoid, torch.nan_to_num,
)  # fmt: skip
_POSITIVE = torch.exp, torch.sqrt, torch.rsqrt, torch.log
_PAIRS = torch.hypot, torch.atan2, torch.logaddexp, torch.xlogy, torch.pow


@case(elementwise=True)
def functions_of_any_dimensions(trial: Trial) -> Any:
    """Functions of a number without dimensions, of five dimensions and of no elements."""
    one, wide, none = trial.tensor(), trial.tensor(2, 1, 2, 1, 3), trial.tensor(0, 3)

    def f(*tensors: torch.Tensor) -> list[torch.Tensor]:
        found = [function(x) for x in tensors for function in _ACTIVATIONS]
        for x in tensors:
            y = x.abs() + 0.5
            found += [function(y) for function in _POSITIVE] + [function(y, x.abs() + 1) for function in _PAIRS]
            found += [torch.lerp(x, y, 0.25), torch.addcmul(x, y, x, value=0.5), torch.addcdiv(x, x, y, value=2)]
        return found

    return trial.run(f, one, wide, none)


_TYPES = torch.int8, torch.int32, torch.bool, torch.float16, torch.bfloat16, torch.float64, torch.complex64


@case()
def places_and_orders_of_each_type(trial: Trial) -> Any:
    """What is gathered, put, added, sorted, repeated and bounded, of each type of numbers."""
    tensors = [trial.tensor(3, 4, dtype=dtype) for dtype in _TYPES]
    places, rows = trial.given(torch.tensor([[3, 0], [1, 1], [2, 0]])), trial.given(torch.tensor([2, 0, 2]))
    mask = trial.given(torch.tensor([[True, False, False, True]]))

    def f(places: torch.Tensor, rows: torch.Tensor, mask: torch.Tensor, *tensors: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for x in tensors:
            found += [
                x.gather(1, places), x.scatter(1, places[:, :1], x), x.masked_fill(mask, 1), x.roll(1, 1), x.any(0),
                x.all(1), x.repeat_interleave(2, 1), torch.where(mask, x, x.flip(1)), F.pad(x, (1, 2), value=1),
                x == x.flip(0),
            ]  # fmt: skip
            if x.dtype is not torch.bool:
                found += [x.scatter_add(1, places, x), x.index_add(0, rows, x, alpha=2)]
            if not x.is_complex() and x.dtype is not torch.bool:
                found += [
                    x.sort(stable=True, dim=1).values, x.topk(2).values, x.clamp(min=1), torch.minimum(x, x.flip(1)),
                    x.max(0).values, x.min(1).values, x < x.flip(0), x.sign(),
                ]  # fmt: skip
        return found

    return trial.run(f, places, rows, mask, *tensors)


@case("training", terms=32)
def losses_of_each_form(trial: Trial) -> Any:
    """Losses that few ask for, summed, averaged and apart; alignments with another blank, in a row, and impossible."""
    x, y, words = trial.tensor(4, 5), trial.tensor(4, 5), trial.tensor(7, 2, 4)
    classes, marks = trial.given(torch.tensor([1, 0, 4, 2])), trial.given((torch.arange(20) % 2).view(4, 5).float())
    several = trial.given(torch.tensor([[1, 3, -1, 0, 0], [0, -1, 1, 1, 2], [4, 2, 0, -1, 1], [-1, 1, 1, 1, 1]]))
    rows, long = torch.tensor([[1, 2, 2], [3, 1, 0]]), torch.tensor([[1, 1, 1, 1], [3, 1, 2, 2]])
    rows, long = rows.to(trial.device), long.to(trial.device)

    def losses(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        positive, weights, found = F.softplus(y), y[0].detach().abs(), []
        for how in ("none", "sum", "mean"):
            found += [
                F.gaussian_nll_loss(x, y, positive, full=how != "sum", reduction=how),
                F.poisson_nll_loss(x, positive, reduction=how),
                F.hinge_embedding_loss(x, marks * 2 - 1, 0.7, reduction=how),
                F.multi_margin_loss(x, classes, p=2 if how == "sum" else 1, margin=0.5, reduction=how),
                F.multilabel_margin_loss(x, several, reduction=how),
                F.multilabel_soft_margin_loss(x, marks, weights, reduction=how),
                F.nll_loss(x.log_softmax(1), classes, weights, ignore_index=0, reduction=how),
            ]  # fmt: skip
        return found

    def alignments(words: torch.Tensor) -> list[torch.Tensor]:
        likely, found = words.log_softmax(2), []
        for how in ("none", "sum", "mean"):
            found += [
                F.ctc_loss(likely, rows, (7, 6), (3, 2), reduction=how),
                F.ctc_loss(likely, rows.flip(1), (7, 5), (2, 3), blank=3, reduction=how),
                F.ctc_loss(likely, long, (6, 7), (4, 4), zero_infinity=True, reduction=how),
            ]  # fmt: skip
        return found

    given = [t.detach().requires_grad_() for t in (x, y, words)]
    found = trial.run(losses, *given[:2]) + trial.run(alignments, given[2])
    torch.autograd.backward([loss.sum() for loss in found])
    return [loss.detach() for loss in found], [t.grad for t in given]


@case(terms=64)
def attention_of_rare_forms(trial: Trial) -> Any:
    """Attention with masks of three dimensions, infinite ones in half precision, scales of any sign, wide heads."""
    q, wide = trial.tensor(2, 3, 4, 8), trial.tensor(1, 2, 5, 136)
    half, holes = trial.tensor(2, 1, 4, 8, dtype=torch.bfloat16), torch.arange(16).view(4, 4) % 3 == 1
    flat, mask = trial.tensor(3, 4, 8), trial.given(torch.zeros(4, 4).masked_fill(holes, -float("inf")))

    def f(
        q: torch.Tensor, wide: torch.Tensor, half: torch.Tensor, flat: torch.Tensor, mask: torch.Tensor
    ) -> list[torch.Tensor]:
        attend = F.scaled_dot_product_attention
        return [
            attend(q, q, q, mask.expand(3, 4, 4)), attend(flat, flat, flat, mask.expand(3, 4, 4)),
            attend(half, half, half, mask.to(half.dtype)), attend(wide, wide, wide), attend(q, q, q, scale=0.0),
            attend(q, q, q, scale=-0.3), attend(q, q, q, is_causal=True, scale=0.2), attend(q, q, q, mask, scale=0.2),
            attend(wide, wide, wide[..., :9], is_causal=True), attend(q[:, :, :1], q, q, mask[:1]),
        ]  # fmt: skip

    return trial.run(f, q, wide, half, flat, mask)


@case(terms=64)
def windows_of_rare_forms(trial: Trial) -> Any:
    """Convolutions and pools of sequences and volumes with steps, padding and kernels of each relation, of repeated and
    absent images, of complex numbers, and in half and double precision."""
    row, image, volume = trial.tensor(2, 3, 12), trial.tensor(2, 3, 6, 5), trial.tensor(1, 2, 4, 3, 4)
    kernels, volumes, small = trial.tensor(4, 3, 3), trial.tensor(4, 2, 2, 1, 3), trial.tensor(4, 3, 1, 1)
    pairs = trial.tensor(2, 3, 6, dtype=torch.complex64)
    others = [
        [trial.tensor(*shape, dtype=dtype) for shape in ((2, 3, 12), (4, 3, 3), (1, 2, 4, 3, 4), (4, 2, 2, 1, 3))]
        for dtype in (torch.bfloat16, torch.float64)
    ]

    def windows(
        row: torch.Tensor, image: torch.Tensor, kernels: torch.Tensor, small: torch.Tensor
    ) -> list[torch.Tensor]:
        pools, places = F.max_pool2d(image[..., :4], 2, return_indices=True)
        return [
            F.conv1d(row, kernels, stride=4), F.conv1d(row, kernels, padding=4), F.conv1d(row[..., :3], kernels),
            F.conv1d(row, kernels[..., :1], stride=2), F.conv1d(row, kernels[..., :1], padding=2),
            F.conv1d(row, kernels.repeat(1, 1, 3)), F.conv1d(row[..., :1].expand(2, 3, 12), kernels),
            F.conv1d(row[:0], kernels), F.conv2d(image, small, padding=1), F.conv2d(image[:0], small),
            F.conv2d(image[:, :, :1].expand(2, 3, 6, 5), small.repeat(1, 1, 3, 2)),
            F.conv_transpose1d(row[..., :1], kernels.transpose(0, 1), stride=2),
            F.conv_transpose1d(row[..., :4], kernels.transpose(0, 1)[..., :2], stride=3),
            F.conv_transpose2d(image[..., :1, :1], small.transpose(0, 1).repeat(1, 1, 3, 3)),
            F.lp_pool1d(row.abs(), 3, 2), F.max_unpool2d(pools, places, 2, output_size=(6, 4)),
            F.pixel_unshuffle(image[..., :4], 2),
            F.fold(image.reshape(2, 6, 15)[:, :, :4], (3, 4), (2, 3), stride=(1, 1)),
        ]  # fmt: skip

    def volumes_of(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        last = x.repeat(2, 1, 1, 1, 1).contiguous(memory_format=torch.channels_last_3d)
        return [
            F.conv3d(x, w.repeat(1, 1, 2, 3, 2)[..., :4]), F.conv3d(x, w[..., :1, :1, :1], stride=2, padding=1),
            F.conv3d(x, w, padding="same", dilation=(1, 2, 1)), F.conv3d(x[:0], w),
            F.conv3d(x, w[:, :1], groups=2, dilation=(2, 1, 1)),
            F.conv_transpose3d(x[..., :1, :1, :1], w.transpose(0, 1)), F.avg_pool3d(last, 2, 1),
            F.max_pool3d(last, 2, 1), F.adaptive_avg_pool3d(last, 2), F.adaptive_max_pool3d(last, 2),
        ]  # fmt: skip

    def of_other_types(
        line: torch.Tensor, kernels: torch.Tensor, box: torch.Tensor, w: torch.Tensor
    ) -> list[torch.Tensor]:
        return [
            F.conv1d(line, kernels, padding=1), F.conv3d(box, w), F.max_pool1d(line, 3), F.avg_pool1d(line, 2),
            F.max_pool3d(box, 2), F.adaptive_avg_pool1d(line, 5), F.adaptive_max_pool1d(line, 5),
            F.adaptive_max_pool3d(box, 2), F.interpolate(line, scale_factor=2, mode="linear"),
            F.interpolate(box, scale_factor=2, mode="trilinear"), F.interpolate(line, size=12, mode="linear"),
        ]  # fmt: skip

    def of_pairs(x: torch.Tensor) -> list[torch.Tensor]:
        return [F.conv1d(x, x[:, :, :2]), F.conv1d(x, x[:, :, :3].conj(), padding=1)]

    return (
        trial.run(windows, row, image, kernels, small), trial.run(volumes_of, volume, volumes),
        *(trial.run(of_other_types, *arguments) for arguments in others), trial.run(of_pairs, pairs),
    )  # fmt: skip


@case("training", terms=32)
def recurrent_layers_of_each_form(trial: Trial) -> Any:
    """Recurrent layers in both directions, of one step, of one sequence, of sequences of several lengths, with states
    of several layers, and without biases."""
    torch.manual_seed(0)
    both = trial.module(torch.nn.GRU(3, 2, 2, bidirectional=True))
    tangent = trial.module(torch.nn.RNN(3, 2, 2, batch_first=True, bidirectional=True))
    bare = trial.module(torch.nn.RNN(3, 2, nonlinearity="relu", bias=False))
    deep = trial.module(torch.nn.LSTM(3, 2, 2, batch_first=True, bias=False))
    x, states, cells = trial.tensor(2, 3, 3), trial.tensor(2, 2, 2), trial.tensor(2, 2, 2)
    found = []
    with torch.no_grad():
        found += [
            trial.run(both, x[:1]), trial.run(both, x[:, 0]), trial.run(deep, x, (states, cells)),
            trial.run(bare, x, states[:1, :1].repeat(1, 3, 1)),
        ]  # fmt: skip
    given = x.detach().requires_grad_()
    results, state = trial.run(tangent, given)
    (results.square().sum() + state.sum()).backward()
    found.append((results.detach(), state.detach(), given.grad))

    def packed(x: torch.Tensor) -> Any:
        rows = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([2, 1, 1]))
        return torch.nn.utils.rnn.pad_packed_sequence(both(rows)[0])

    with torch.no_grad():
        found.append(trial.run(packed, x))
    return found
