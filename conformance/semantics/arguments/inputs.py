"""How inputs lie in memory: each kind of place for tensors of each dtype, with gradients, and beside one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...case import Collection, Trial

case = Collection("semantics/inputs")


def _lying(make: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    """Tensors that begin late in their memory, have steps, are turned, are expanded in each dimension, or overlap."""
    image = make(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    return [
        make(7)[2:], make(9)[1::2], make(1).expand(5), make(3, 5)[1:], make(3, 5)[:, 1:], make(5, 3).t(),
        make(6, 3)[2:].t(), make(4, 6)[:, ::2], make(6, 4)[1::2], make(5).expand(3, 5), make(4, 1).expand(4, 3),
        make(1, 1).expand(3, 4), make(2, 3, 4).transpose(1, 2), make(3, 3, 4)[1:].transpose(1, 2),
        make(2, 1, 4).expand(2, 3, 4), make(3, 1).expand(2, 3, 4), make(2, 1, 1).expand(2, 3, 4),
        make(3, 2, 4).permute(2, 0, 1), make(2, 3, 4)[..., 1], make(2, 3, 9)[:, 1:, 1::2],
        make(9).as_strided((3, 4), (2, 1), 1), make(8).unfold(0, 3, 2), image, image[..., 1:], image[1:, :, ::2],
    ]  # fmt: skip


def _used(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Each input as it is read element by element and along its rows."""
    return [found for x in inputs for found in (x * 2, x.sum(-1))]


def _of(trial: Trial, *dtypes: torch.dtype) -> Any:
    """All places in the first dtype, and by turns in the others."""
    inputs = _lying(lambda *shape: trial.tensor(*shape, dtype=dtypes[0]))
    for number, dtype in enumerate(dtypes[1:]):
        others = _lying(lambda *shape, dtype=dtype: trial.tensor(*shape, dtype=dtype))
        inputs += others[number :: len(dtypes) - 1]
    return trial.run(_used, inputs)


@case("float64")
def of_floats(trial: Trial) -> Any:
    """Wherever an input of floating-point numbers lies, its own numbers are read."""
    return _of(trial, torch.float32, torch.float64)


@case("float16", "bfloat16")
def of_half_types(trial: Trial) -> Any:
    """Wherever an input of half precision lies, its own numbers are read."""
    return _of(trial, torch.float16, torch.bfloat16)


@case("int64", "int32", "int8", "bool")
def of_integers(trial: Trial) -> Any:
    """Wherever an input of integers or bools lies, its own numbers are read."""
    return _of(trial, torch.int64, torch.int32, torch.int8, torch.bool)


@case("complex64", "complex128")
def of_complex_numbers(trial: Trial) -> Any:
    """Wherever an input of complex numbers lies, its own numbers are read."""

    def make(*shape: int) -> torch.Tensor:
        return torch.complex(trial.tensor(*shape), trial.tensor(*shape))

    def f(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [found for x in inputs for found in (x * 2j, x.sum(-1))]

    wide = [torch.complex(x.real.double(), x.imag.double()) for x in _lying(make)[1::3]]
    return trial.run(f, [*_lying(make), *wide, wide[1].mT])


@case("training", "float64")
def with_gradients(trial: Trial) -> Any:
    """Wherever an input lies, its gradient is right, and that of the leaf that it is a part of."""
    leaves: list[torch.Tensor] = []

    def make(*shape: int) -> torch.Tensor:
        leaves.append(trial.tensor(*shape, dtype=(torch.float32, torch.float64)[len(leaves) % 2], requires_grad=True))
        return leaves[-1]

    inputs = _lying(make)
    ends = [x.detach().requires_grad_() for x in _lying(make)[:20:2]]

    def f(inputs: list[torch.Tensor], ends: list[torch.Tensor]) -> list[torch.Tensor]:
        return [(x.sin() * x).sum() for x in (*inputs, *ends)]

    results = trial.run(f, inputs, ends)
    torch.stack([r.double() for r in results]).sum().backward()
    return results, [leaf.grad for leaf in leaves], [end.grad for end in ends]


@case()
def parts_of_one_memory(trial: Trial) -> Any:
    """Inputs that are parts or shapes of one memory are read as they are, also where the program writes to one."""
    x, y = trial.tensor(4, 6), trial.tensor(4, 6)
    n = trial.tensor(4, 6, dtype=torch.int64)

    def read(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> list[torch.Tensor]:
        return [a * 2, b + 1, c * 3, d.sum(0), a.flatten()[1:4] + d.flatten()[1:4]]

    def write(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> list[torch.Tensor]:
        a.mul_(2)
        found = [b.sum(0), c + 1]
        c.add_(1)
        return [*found, a.sum(), b * 2]

    read_ones = trial.compile(read)
    found = [read_ones(each, each.view(-1), each[1:], each.t()) for each in (x, n)]
    with torch.no_grad():
        written = trial.compile(write)(y, y.view(3, 8), y[1:3])
    return found, written, y


@case("dynamic_shapes")
def parts_of_any_size(trial: Trial) -> Any:
    """Where a part of a tensor has gaps between its elements, so have copies that are written to, whatever the size."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            x.slice_scatter(x[:2] * 2, 0, 1, 3), x.select_scatter(x[0] * 2, 0, 1), x.clone(), x * 2, x.flip(0),
            x.index_fill(0, torch.tensor([1], device=x.device), 1.0), x.masked_fill(x > 0, 1.0),
        ]  # fmt: skip

    compiled = trial.compile(f, dynamic=True)
    return [compiled(trial.tensor(2 * rows, columns)[::2, 1::2]) for rows, columns in ((9, 11), (7, 8))]


@case("training", "float16", "int64")
def aligned_and_not(trial: Trial) -> Any:
    """Where memory begins may change from call to call, also between two elements; so for weights and gradients."""
    trained = trial.compile(lambda x, w: ((x * w).sin(), x @ w.t(), x.sum(0)))
    used, found = trial.compile(lambda x: (x * 2, x.sum(-1), x.flip(0))), []
    memory, gradient = trial.tensor(4, 40), trial.tensor(200)
    for begin in (0, 1, 3, 16, 5, 0):
        x, w, g = (torch.nn.functional.pad(t.flatten(), (begin, 0))[begin:].view(4, 40) for t in
                   (memory, memory + 1, gradient[:160]))  # fmt: skip
        x, w = x.detach().requires_grad_(), torch.nn.Parameter(w.detach())
        results = trained(x, w)
        found.append(([r.detach() for r in results], torch.autograd.grad(results[0], (x, w), g)))
    for dtype in (torch.float32, torch.float16, torch.int64, torch.int16):
        numbers = trial.given(torch.arange(-60, 61, dtype=dtype))
        size = numbers.element_size()
        for begin in (0, 1, 2, 3, size, 64 - size):
            bytes_ = bytearray(begin) + numbers.cpu().numpy().tobytes()
            part = torch.frombuffer(bytes_, dtype=dtype, offset=begin) if trial.device.type == "cpu" else numbers
            found.append(used(part))
    return found


@case()
def of_rare_types(trial: Trial) -> Any:
    """Floats of eight bits and integers of 16 bits without a sign are read, converted and made."""
    x, whole = trial.tensor(4, 6), trial.given(torch.tensor([[0, 1, 300], [32767, 32768, 65535]]))
    eight = torch.float8_e4m3fn, torch.float8_e5m2
    given = [(x * 90).to(dtype) for dtype in eight]

    def f(x: torch.Tensor, given: list[torch.Tensor], words: torch.Tensor) -> list[torch.Tensor]:
        found = [words.to(torch.int32) * 2, words.t().to(torch.float32) + 0.5]
        for dtype, each in zip(eight, given, strict=True):
            found += [each.float() * 2, each.t().to(torch.bfloat16) + 1, (x * 7).to(dtype), each[1:].float()]
        return found

    return trial.run(f, x, given, whole.to(torch.uint16))
