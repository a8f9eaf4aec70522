"""Long sums and products, in which the type of an accumulator and the way of rounding show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ..case import Collection, Trial

case = Collection("semantics/accuracy")

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def _for_each_dtype(text: str, **fields: Any) -> Callable[[Callable[[Trial, torch.dtype], Any]], None]:
    """One case for each float type, from a function of the trial and the dtype."""

    def add(function: Callable[[Trial, torch.dtype], Any]) -> None:
        for dtype in FLOATS:
            run, name = _in_dtype(function, dtype), str(dtype).removeprefix("torch.")
            run.__name__, run.__doc__ = f"{function.__name__}_{name}", f"{text}, in {name}."
            case(name, reference=dtype is not torch.float64, **fields)(run)

    return add


def _in_dtype(function: Callable[[Trial, torch.dtype], Any], dtype: torch.dtype) -> Callable[[Trial], Any]:
    def run(trial: Trial) -> Any:
        return function(trial, dtype)

    return run


def _positive(trial: Trial, *shape: int, dtype: torch.dtype, largest: float = 1.0) -> torch.Tensor:
    return trial.tensor(*shape, dtype=dtype, low=0.0, high=largest)


@_for_each_dtype("Products over 256 to 16,384 numbers are summed in a type that is wide enough", terms=1024)
def products(trial: Trial, dtype: torch.dtype) -> Any:
    results = []
    compiled = trial.compile(lambda x, y, z: (x @ y, F.linear(x, z)), dynamic=False)
    for depth in (256, 1024, 16384):
        scale = 1.0 if depth < 16384 else 0.25
        x, y = _positive(trial, 7, depth, dtype=dtype, largest=scale), _positive(trial, depth, 9, dtype=dtype)
        results.append(compiled(x, y, trial.tensor(9, depth, dtype=dtype)))
    return results


@_for_each_dtype("Sums and means of 2^17 numbers are summed in a type that is wide enough", terms=1 << 17)
def sums(trial: Trial, dtype: torch.dtype) -> Any:
    x = _positive(trial, 64, 2048, dtype=dtype, largest=0.25)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.sum(),
            x.mean(),
            x.sum(0),
            x.sum(1),
            x.mean(0),
            x.flatten().square().sum(),
            x.norm(),
            x.var(1),
            (x * 8).mean(),
        )

    return trial.run(f, x)


@case(terms=2048)
def four_million_numbers(trial: Trial) -> Any:
    """The sum of 2^22 numbers does not stop growing, nor lose its digits one by one."""
    x = _positive(trial, 1 << 22, dtype=torch.float32)
    return trial.run(lambda x: (x.sum(), x.mean(), x.view(2048, 2048).sum(0)), x)


@case("bfloat16", terms=1 << 22)
def four_million_small_numbers(trial: Trial) -> Any:
    """The sum of 2^22 numbers in bfloat16 does not stop growing at 256."""
    x = _positive(trial, 1 << 22, dtype=torch.bfloat16)
    return trial.run(lambda x: (x.sum(), x.mean(), x.float().sum()), x)


@_for_each_dtype("Single operators round to the nearest number, to even in the middle, once", elementwise=True)
def roundings(trial: Trial, dtype: torch.dtype) -> Any:
    x, y = trial.tensor(1024, dtype=dtype), _positive(trial, 1024, dtype=dtype) + 0.5

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + y, x * y, x - y, x / y, y.sqrt(), 1 / y, x * 0.3, y.log(), x.exp(), x.tanh(), x.sigmoid(), y.rsqrt()

    return trial.run(f, x, y)


@case("bfloat16", "float16", reference=False)
def conversions(trial: Trial) -> Any:
    """Conversions between float types round to nearest even, keep infinities and nan, and round large numbers up."""
    halves = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 3 * 2**-11, 65519.0, 65520.0, 3.39e38, 2**-25])
    special = trial.given(torch.cat([halves, -halves, torch.tensor([0.0, -0.0, float("inf"), float("nan")])]))
    x = torch.cat([trial.tensor(512) * 100, special])
    wide = x.double() * (1 + 2**-30)

    def f(x: torch.Tensor, wide: torch.Tensor) -> tuple[torch.Tensor, ...]:
        low, half = x.bfloat16(), x.half()
        return low, half, low.float(), half.float(), wide.float(), wide.half(), low.half(), half.bfloat16(), x.double()

    return trial.run(f, x, wide)


@case("bfloat16", "float16", reference=False)
def conversions_of_nan(trial: Trial) -> Any:
    """What is not a number stays so in any type, whichever of its bits say that: also if a narrow type has none."""
    bits = torch.tensor([0x7F800001, 0x7F80FFFF, 0x7FC00000, 0x7FFFFFFF, 0x7F810000, 0x7F800000], dtype=torch.int32)
    x = trial.given(torch.cat([bits, bits | -(2**31)]).view(torch.float32))

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.bfloat16(), x.half(), x.bfloat16().isnan(), x.half().isnan(), (x.bfloat16() + 1).float(), x.double()

    return trial.run(f, x)


@_for_each_dtype("Rows of 4,096 numbers are normalized with sums that are wide enough")
def normalized_rows(trial: Trial, dtype: torch.dtype) -> Any:
    x, weight = trial.tensor(6, 4096, dtype=dtype), trial.tensor(4096, dtype=dtype)

    def f(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.softmax(-1), x.log_softmax(-1), x.logsumexp(-1), F.layer_norm(x, (4096,), weight),
            F.rms_norm(x, (4096,), weight), F.normalize(x, dim=-1),
        )  # fmt: skip

    return trial.run(f, x, weight)


@_for_each_dtype("Running sums and products keep the precision that eager has", terms=2000)
def running_sums(trial: Trial, dtype: torch.dtype) -> Any:
    x = _positive(trial, 3, 2000, dtype=dtype, largest=0.5)
    return trial.run(lambda x: (x.cumsum(-1), (x * 0.01 + 1).cumprod(-1), x.cumsum(0)), x)


@_for_each_dtype("Long sums in convolutions and attention are summed in a type that is wide enough", terms=2304)
def long_convolutions_and_attention(trial: Trial, dtype: torch.dtype) -> Any:
    image, kernel = _positive(trial, 1, 256, 5, 5, dtype=dtype), _positive(trial, 4, 256, 3, 3, dtype=dtype)
    q, k, v = (trial.tensor(1, 2, n, 16, dtype=dtype) for n in (5, 1024, 1024))

    def f(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        image, kernel, q, k, v = given
        return F.conv2d(image, kernel, padding=1), F.scaled_dot_product_attention(q, k, v.abs())

    return trial.run(f, image, kernel, q, k, v)


@case("training", terms=4096)
def gradients_of_long_sums(trial: Trial) -> Any:
    """Gradients that are sums over a large batch keep their digits."""
    layer, x = trial.module(torch.nn.Linear(16, 8)), _positive(trial, 4096, 16, dtype=torch.float32)
    trial.run(lambda x: layer(x).sigmoid(), x).sum().backward()
    return layer.weight.grad, layer.bias.grad


@case(elementwise=True)
def subnormal_numbers(trial: Trial) -> Any:
    """Subnormal numbers are numbers, not zero."""
    x = trial.given(torch.tensor([1e-39, -3e-40, 1.4e-45, 1.2e-38, 2e-38, 1.0, 5e-41, 0.0, -7e-42]))
    return trial.run(
        lambda x: (x * 0.5, x + x, x * 4, x.abs(), x * 1e38, x > 0, x == 0, x.max(), torch.maximum(x, x * 2)), x
    )
