"""Which dtype a result has and which one its computation: promotion, ``dtype=``, powers, ranges, complex numbers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
import torch.nn.functional as F

from ..case import Collection, Trial

case = Collection("semantics/dtypes")

SOME = (torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
        torch.float64)  # fmt: skip


def _some(trial: Trial, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    low, high = (0, 9) if dtype is torch.uint8 else (-9, 9)
    return trial.tensor(*shape, dtype=dtype, low=low, high=high)


@case(reference=False)
def promotion_of_pairs(trial: Trial) -> Any:
    """Each pair of dtypes has eager's, with dimensions on both sides, on one side, and on none."""
    vectors, numbers = [_some(trial, t, 3) for t in SOME], [_some(trial, t) for t in SOME]

    def f(vectors: list[torch.Tensor], numbers: list[torch.Tensor]) -> list[Any]:
        found = []
        for one, other in itertools.product(range(len(SOME)), repeat=2):
            a, b, n, m = vectors[one], vectors[other], numbers[other], numbers[one]
            found += [a + b, a * n, m + n, torch.where(vectors[0], a, n)]
        return found

    return trial.run(f, vectors, numbers)


@case(reference=False)
def promotion_of_numbers(trial: Trial) -> Any:
    """Python's numbers promote by kind only, in any operator, and so do tensors without dimensions."""

    def f(given: list[torch.Tensor]) -> list[Any]:
        found = []
        for x in given:
            found += [x + 2, x * 2.5, x / 2, x > 1.5, x + True, torch.where(x > 1, x, 0.5), x.mul(torch.tensor(2.5))]
            found += [torch.full_like(x, 3), x.new_full((2,), 2), torch.stack([x, x]).sum(), torch.maximum(x, x[0])]
        return found

    return trial.run(f, [_some(trial, t, 4) for t in SOME])


@case("bfloat16", "float16", reference=False, terms=70)
def computed_in_another_type(trial: Trial) -> Any:
    """``dtype=`` of a sum, a mean, a softmax or a running sum is the type in which it is computed."""

    def f(given: list[torch.Tensor]) -> list[Any]:
        wide, found = torch.float32, []
        for x in given:
            found += [x.sum(1, dtype=wide), x.mean(0, dtype=wide), x.softmax(1, dtype=wide), x.cumsum(1, dtype=wide)]
            found += [x.log_softmax(1, dtype=wide), x.prod(1, dtype=wide), F.softmax(x, 0, dtype=wide)]
            found += [x.to(wide).sum(dtype=torch.float64), torch.sum(x, (0, 1), dtype=torch.float64)]
        return found

    return trial.run(f, [trial.tensor(5, 70, dtype=t) for t in (torch.bfloat16, torch.float16)])


@case(reference=False)
def powers_of_integers(trial: Trial) -> Any:
    """Powers of integers are integers that wrap around, with all their digits."""

    def f(given: list[torch.Tensor]) -> list[Any]:
        return [y for x in given for y in (x**2, x**3, x**7, x ** (x & 3).abs(), torch.pow(2, x & 7), x.square())]

    given = [torch.tensor([0, 1, 2, 3, 5, 11, 100, 127, -3, -128], dtype=torch.int8)]
    given += [given[0].to(t) * (1 if t is torch.int16 else 257) for t in (torch.int16, torch.int32, torch.int64)]
    return trial.run(f, [x.to(trial.device) for x in given])


@case(terms=2000)
def ranges(trial: Trial) -> Any:
    """Ranges of floats are computed from their number, not by adding up steps, and end where eager's end."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        made = {"dtype": x.dtype, "device": x.device}
        return [
            torch.arange(0, 100, 0.1, **made), torch.linspace(0, 1, 1001, **made) + x[0], torch.arange(1.5, 9, **made),
            torch.linspace(-3, 3, 2, **made), torch.arange(10, 0, -3, device=x.device), torch.logspace(0, 2, 7, **made),
            torch.arange(2**53, 2**53 + 4, device=x.device), torch.eye(3, 4, **made), torch.linspace(0, 9, 1, **made),
        ]  # fmt: skip

    return trial.run(f, trial.tensor(2))


@case("bfloat16", "float16")
def statistics_in_half(trial: Trial) -> Any:
    """Norms, pooling, losses and interpolation in half precision compute in float32 and round once."""

    def f(x: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.group_norm(x, 2, weight, weight), F.batch_norm(x, None, None, weight, weight, True),
            F.instance_norm(x), F.layer_norm(x, x.shape[1:]), F.avg_pool2d(x, 3), F.adaptive_avg_pool2d(x, 1),
            F.mse_loss(x, x * 0.5), F.interpolate(x, scale_factor=2), x.var((2, 3)), x.std(1), x.norm(dim=1),
            F.cross_entropy(x[:, :, 0, 0], torch.tensor([1, 0, 3], device=x.device)), F.gelu(x), F.silu(x),
            F.layer_norm(x[:, :, :1, :1], (1, 1), eps=1e-8), F.rms_norm(x * 0, (9,), eps=1e-8),
        ]  # fmt: skip

    compiled = trial.compile(f)
    types = torch.bfloat16, torch.float16
    return [compiled(trial.tensor(3, 4, 9, 9, dtype=t, low=0.5, high=2.0), trial.tensor(4, dtype=t)) for t in types]


@case("complex64")
def complex_products(trial: Trial) -> Any:
    """Products, conjugates, transposes and views of complex numbers, or a refusal."""
    x, y = (torch.complex(trial.tensor(3, 4), trial.tensor(3, 4)) for _ in range(2))

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [
            x @ y.mH, x.conj() @ y.t(), y.mH @ x, torch.vdot(x[0], y[0]), (x.conj() * y).sum(1), x.conj().imag,
            torch.view_as_real(x) * 2, x.mT.conj() + 1, x.conj().resolve_conj(), x == y, x.conj().abs(), x.mean(),
        ]  # fmt: skip

    return trial.run(f, x, y)


@case("complex64")
def unequal_parts(trial: Trial) -> Any:
    """The small part of a complex product is as precise as the large one: three real products would lose it."""
    large, small = trial.tensor(2, 64) * 1e4, trial.tensor(2, 64) * 1e-4
    x, y = torch.complex(large[0], small[0]), torch.complex(large[1].abs() + 1, small[1])
    return trial.run(lambda x, y: (torch.view_as_real(x * y), torch.view_as_real(x / y)), x, y)


@case(reference=False)
def eight_bits(trial: Trial) -> Any:
    """Floats of eight bits: rounded to nearest even, what is too large as in eager, subnormal numbers kept."""
    special = [0.0, -0.0, 0.0019, 0.0009, 1.0625, 1.1875, 447.0, 465.0, 500.0, 6e4, 7e4, -1e6, math.inf, math.nan]
    x = trial.given(torch.cat([torch.tensor(special), torch.randn(50) * 20, torch.randn(50) / 100]))

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.to(t).float() for t in (torch.float8_e4m3fn, torch.float8_e5m2)]

    return trial.run(f, x)


@case("training", reference=False, draws=1)
def quantized_on_the_way(trial: Trial) -> Any:
    """Numbers rounded to steps as by quantization: halves to even, what is beyond at the ends, without gradient."""
    x = trial.tensor(4, 6, requires_grad=True)
    steps = trial.given(torch.tensor([0.25, -0.125, 0.125, 0.375, 0.625, -0.625, 40.0, -40.0, 1e-3]))
    scale, zero = trial.given(torch.tensor([0.1, 0.5, 0.25, 1.0])), torch.tensor([3, 0, -2, 1], dtype=torch.int32)

    def f(x: torch.Tensor, steps: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> list[torch.Tensor]:
        whole, rows = torch.fake_quantize_per_tensor_affine, torch.fake_quantize_per_channel_affine
        return [whole(x, 0.25, 3, 0, 15), whole(steps, 0.25, 0, -128, 127), rows(x, scale, zero, 0, -8, 7)]

    results = trial.run(f, x, steps, scale, zero.to(trial.device))
    (results[0].sum() + (results[2] * x.detach()).sum()).backward()
    return [r.detach() for r in results], x.grad


@case(reference=False)
def writes_that_do_not_fit(trial: Trial) -> Any:
    """In-place operators raise eager's exceptions for dtypes, shapes and leaves, and write nothing."""
    whole, flags, x = trial.tensor(3, dtype=torch.int64), trial.tensor(3, dtype=torch.bool), trial.tensor(3)
    leaf = trial.tensor(3, requires_grad=True)
    functions = (
        lambda n: n.add_(0.5), lambda n: n.div_(2), lambda n: n.add_(1), lambda n: n.add_(n.new_ones(2, 3)),
        lambda n: n.mul_(2), lambda n: n[:2].copy_(n.new_ones(3)), lambda n: n[:1].expand(3).add_(1),
    )  # fmt: skip
    found = []
    for function, given in zip(functions, (whole, whole, flags, x, leaf, x, x), strict=True):
        try:
            found.append(trial.run(function, given).detach().clone())
        except (RuntimeError, ValueError, TypeError) as error:
            found.append(type(error).__name__)
    return found, whole, flags, x, leaf.detach()


@case(reference=False)
def losses_of_two_dtypes(trial: Trial) -> Any:
    """The Huber loss has the dtype of its first argument."""
    x, y = trial.tensor(3, 5), trial.tensor(3, 5).double()
    return trial.run(lambda x, y: torch.nn.functional.huber_loss(x, y, reduction="none").dtype, x, y)


@case("bfloat16")
def remainders_of_halves(trial: Trial) -> Any:
    """The divisor of a remainder is rounded to the dtype of the dividend."""
    x = torch.arange(1, 65, device=trial.device).to(torch.bfloat16)
    return trial.run(lambda x: (x % 0.1, torch.fmod(x, 0.3), x // 0.1), x)
