"""Which tensors share memory."""

from __future__ import annotations

import io
from typing import Any

import torch
import torch.nn.functional as F

from ..case import Collection, Trial

case = Collection("semantics/aliasing")


@case()
def view_of_an_input(trial: Trial) -> Any:
    """A returned view of an input shares the input's memory."""
    x = trial.tensor(4, 6)
    view = trial.run(lambda x: x.t()[1:3], x)
    x.zero_()
    return view, x


@case()
def input_itself(trial: Trial) -> Any:
    """An input that is returned unchanged is the same object."""
    x = trial.tensor(3)
    same, other = trial.run(lambda x: (x, x + 1), x)
    return same is x, same, other


@case()
def views_of_one_result(trial: Trial) -> Any:
    """Two outputs that are views of one computed tensor share its memory."""
    x = trial.tensor(4, 6)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        return y[0], y.t(), y

    first, turned, whole = trial.run(f, x)
    whole.zero_()
    return first, turned, whole


@case()
def the_same_output_twice(trial: Trial) -> Any:
    """One tensor returned twice is one tensor."""
    a, b = trial.run(lambda x: (y := x * 2, y), trial.tensor(3))
    return a, b, a is b


@case()
def inputs_that_overlap(trial: Trial) -> Any:
    """Two inputs may be views of one tensor; a change of one is visible through the other."""
    whole = trial.tensor(6)

    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(10)
        return a.sum() + b.sum()

    return trial.run(f, whole[:4], whole[2:]), whole


@case()
def the_same_input_twice(trial: Trial) -> Any:
    """One tensor may be passed twice; code compiled for this is not used for two tensors, nor the reverse."""

    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return a * b

    compiled = trial.compile(f)
    x, y = trial.tensor(3), trial.tensor(3)
    return compiled(x, x), compiled(x, y), compiled(y, y), x, y


@case(terms=260)
def results_outlive_the_next_call(trial: Trial) -> Any:
    """The next call does not overwrite the results of a call."""
    compiled = trial.compile(lambda x: (x.sin(), x @ x.t()), dynamic=False)
    return [compiled(trial.tensor(*size)) for size in ((4, 4), (300, 260)) for _ in range(4)]


@case()
def a_result_goes_back_in(trial: Trial) -> Any:
    """A result may be the input of the next call."""
    compiled = trial.compile(lambda x: x * 0.5 + 1)
    x = trial.tensor(8)
    for _ in range(5):
        x = compiled(x)
    return x


@case()
def strides_of_results(trial: Trial) -> Any:
    """Results have eager's strides: transposed, channels last, expanded."""
    x, image = trial.tensor(4, 6), trial.tensor(2, 3, 4, 5)

    def f(x: torch.Tensor, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        last = image.to(memory_format=torch.channels_last)
        return x.t() + 1, last * 2, last.relu().permute(0, 2, 3, 1), x[:, :1].expand(4, 6), (x.t() @ x).t()

    return trial.run(f, x, image)


@case()
def strided_inputs(trial: Trial) -> Any:
    """Inputs may be slices, transposed, expanded, or start in the middle of their memory."""
    x, y = trial.tensor(8, 6), trial.tensor(6, 1)
    given = x[1::2, ::3], x.t()[2:4, :4], y.expand(6, 4)[:4], x[3:]

    def f(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a * 2, b.cos(), c + c, d.sum(0)

    return trial.run(f, *given)


@case()
def inputs_that_begin_anywhere(trial: Trial) -> Any:
    """Contiguous inputs may start at any element of their memory: rows of a matrix, parts of a flat buffer."""
    rows, flat, half = trial.tensor(3, 1025), trial.tensor(4099), trial.tensor(2, 1027).half()
    compiled = trial.compile(lambda a, b, c: (a.sin() * 3, b.sum(-1), c * 2))
    return [compiled(rows[i], flat[i : i + 4096].view(4, 1024), half[i % 2]) for i in range(3)]


@case()
def what_does_nothing(trial: Trial) -> Any:
    """Functions that have nothing to do return their argument itself, a view of it or a copy, each as in eager."""

    def f(x: torch.Tensor, image: torch.Tensor) -> list[torch.Tensor]:
        last = torch.channels_last
        return [
            x.contiguous(), x.to(x.dtype), x.float(), x.type_as(x), x.to(x.device), F.dropout(x, 0.5, False), +x,
            x.to(x, copy=True), x.clone(), image.contiguous(memory_format=last), image.to(memory_format=last), x.real,
            image.contiguous(), x.reshape(x.shape), x.view(-1), x.flatten(), x.expand(-1, -1), x.detach(), x.squeeze(),
            x[:], x[...], x.ravel(), x.t().contiguous(), x.t().reshape(-1), x.t().flatten(), x.narrow(0, 0, 4),
            x.split(9)[0], x.chunk(1)[0], x.broadcast_to(4, 6), torch.atleast_2d(x), x.movedim(0, 0), x.t().t(),
            x.resolve_conj(), x.conj(), x.unsqueeze(0), x.repeat(1, 1), x.roll(0, 0), x.flip(()),
            x.clamp(min=None, max=9),
            F.pad(x, (0, 0)), x.type(torch.float64), torch.cat([x]), torch.stack([x])[0], x.tile(1),
            x.masked_fill(x > 99, 0),
            x.index_select(0, torch.arange(4, device=x.device)), x * 1, x + 0, x.alias() if hasattr(x, "alias") else x,
        ]  # fmt: skip

    return trial.run(f, trial.tensor(4, 6), trial.tensor(2, 3, 4, 5).to(memory_format=torch.channels_last))


@case()
def layouts_of_joined_images(trial: Trial) -> Any:
    """Images whose channels stand last keep this through joins, functions, products, pooling and resizing."""

    def f(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.cat([x, x], 1), torch.cat([x, y], 1), torch.cat([y, x], 1), torch.stack([x, x]), x + y, y + x, x * 2,
            x + x[:, :, :1], torch.where(x > 0, x, y), x.relu(), x.clone(), x.sum(1, keepdim=True), x.softmax(1),
            torch.zeros_like(x), torch.full_like(x, 2), x.new_zeros(x.shape), F.max_pool2d(x, 2), F.avg_pool2d(x, 2),
            F.interpolate(x, scale_factor=2), F.adaptive_avg_pool2d(x, 2), F.pad(x, (1, 1)), x.flip(1), x.half(), x > 0,
            F.conv2d(x, w), F.conv2d(y, w.to(memory_format=torch.channels_last)),
            F.batch_norm(x, w[0, :, 0, 0], w.new_ones(3)),
            F.group_norm(x, 3), F.layer_norm(x, (4, 5, 6)[1:] if x.shape[2:] == (5, 6) else x.shape[2:]), x.roll(1, 2),
            torch.lerp(x, y, 0.5), torch.addcmul(y, x, x), x.contiguous() + y, x[:, ::2] * 2, x.permute(0, 2, 3, 1) + 1,
            x.transpose(1, 2) * 2, x.cumsum(1), x.clamp(0), F.dropout(x, 0.0, True),
            torch.empty_like(x).shape.numel() + x,
            F.pixel_shuffle(torch.cat([x, x, x, x], 1), 2), x.expand(2, -1, -1, -1) + 0, x.masked_fill(x > 0, 1.0),
        ]  # fmt: skip

    x, y = trial.tensor(2, 3, 4, 6).to(memory_format=torch.channels_last), trial.tensor(2, 3, 4, 6)
    return trial.run(f, x, y, trial.tensor(5, 3, 2, 2))


@case()
def memory_of_results_is_theirs(trial: Trial) -> Any:
    """A result may be resized, stored, and emptied, as what trains in parts does, like any other tensor."""
    compiled, x = trial.compile(lambda x: (x.sin() * 2, (x @ x).relu(), x.sum(0))), trial.tensor(6, 6)
    found, kept = [], io.BytesIO()
    for result in compiled(x):
        size = result.numel()
        result.resize_(20, 5)
        found.append(result.flatten()[:size].clone())
        result.untyped_storage().resize_(0)
        found.append(result.shape)
    torch.save(compiled(x), kept)
    kept.seek(0)
    return found, torch.load(kept)


@case("dynamic_shapes")
def parts_of_what_was_written(trial: Trial) -> Any:
    """A part of an input that the program writes to, taken with sizes that change, lies where it lies in the input:
    behind other elements, and with gaps."""

    def reshaped(x: torch.Tensor) -> torch.Tensor:
        part = x.reshape(x.shape[0], -1)
        part.neg_()
        return part

    def cut(x: torch.Tensor) -> torch.Tensor:
        part = x[: x.shape[0] - 1]
        x.mul_(2)
        return part[::2]

    def halved(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first, last = x.chunk(2, -1)
        last.add_(1)
        return first, last

    results = []
    for function in (reshaped, cut, halved):
        compiled = trial.compile(function, dynamic=True)
        for rows in (4, 5):
            whole = trial.tensor(9 * rows)
            for x in (whole[: 3 * rows], whole[3 : 3 + 3 * rows], whole[5 : 5 + 6 * rows : 2]):
                results += [compiled(x.view(rows, 3)), whole.clone()]
    return results
