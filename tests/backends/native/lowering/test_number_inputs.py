"""Integers that change: graphs get what the program computes of them, from which their symbols follow."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchmux

PROGRAMS = {
    "sum": lambda x, n: x * (n + 2) + sum([n, 1]),
    "linear": lambda x, n: (x * (2 * n - 3), x[: n - 1] + 1, torch.zeros(2 * n), torch.arange(n + 1).sum()),
    "negative": lambda x, n: x * (5 - 3 * n),
    "square": lambda x, n: x * (n * n) - 1,
    "divided": lambda x, n: x * (n // 2) + n % 3,
    "size and number": lambda x, n: x * (x.shape[0] * n + 1),
    "several": lambda x, n: x * (n * n) + (n // 3) * x.sum(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_computed_of_an_argument(name: str) -> None:
    program: Any = PROGRAMS[name]
    compiled = torchmux.compile(program, backend="native", strict=True)
    for n in (3, 7, 9, 20):
        x = torch.arange(30.0)
        torch.testing.assert_close(compiled(x, n), program(x, n), rtol=0, atol=0)
    assert torchmux.report(compiled).graph_count == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_numbers_beside_half_precision_have_its_digits(check, dtype):
    tenth, zeros = torch.tensor(0.1), torch.zeros(3, 8, dtype=dtype)

    def f(x, tenth, zeros):
        filled = torch.full_like(x, 0.1)
        return (
            filled == tenth, filled < tenth, filled > tenth, x.clamp(max=0.1) > tenth, torch.maximum(x, tenth) > 0.1,
            x.masked_fill(x > 0, 0.1) > tenth, torch.where(x > 0, tenth, x) > 0.1, F.pad(x, (1, 1), value=0.1) > tenth,
            torch.fmod(x * 8, tenth), (x - x + tenth) == 0.1, F.normalize(zeros), F.cosine_similarity(zeros, zeros),
        )  # fmt: skip

    check(f, torch.randn(40).to(dtype), tenth, zeros)


def test_sizes_that_are_rounded():
    def rounded(x):
        up, wide, third = math.ceil(x.shape[0] / 2), math.ceil(x.shape[1] * 1.5), math.floor(x.shape[1] / 3)
        return x.sum().expand(up, wide) + 1, x[:up] * 2, x[:, :third] + 1, x.mean().expand(int(x.shape[0] / 4) + 1) - 1

    compiled = torchmux.compile(rounded, backend="native", dynamic=True, strict=True)
    for sizes in ((8, 9), (7, 10), (33, 12)):
        x = torch.randn(sizes)
        torch.testing.assert_close(compiled(x), rounded(x))
    assert torchmux.report(compiled).graph_count == 1
