"""Constants that a dtype cannot hold: eager refuses most, wraps or computes with others; native does the same."""

import math

import pytest
import torch

import torchmux

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int8, torch.uint8, torch.bool)
NUMBERS = (1e39, -3.4028236e38, 65520.0, 70000, 300, -1, 2**40, math.inf, math.nan, 3.7)
CALLS = {
    "full": lambda x, n: torch.full((2,), n, dtype=x.dtype),
    "full_like": torch.full_like,
    "fill": lambda x, n: x.clone().fill_(n),
    "clamp": lambda x, n: x.clamp(-1, n),
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
    "where": lambda x, n: torch.where(x > 0, x, n),
    "alpha": lambda x, n: torch.add(x, x, alpha=n),
    "sum": lambda x, n: x + n,
    "pad": lambda x, n: torch.nn.functional.pad(x, (1, 1), value=n),
    "hardtanh": lambda x, n: torch.nn.functional.hardtanh(x, -1, n),
}


def _run(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return error


def _same(expected, found):
    if isinstance(expected, Exception) or isinstance(found, Exception):
        words = "without overflow" in str(expected)
        return type(expected) is type(found) and words <= (str(expected) == str(found))
    return expected.dtype is found.dtype and torch.allclose(expected, found, equal_nan=True)


def _compiled(function):
    torchmux.reset()
    return torchmux.compile(function, backend="native", dynamic=False)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CALLS)
def test_as_eager(name):
    call = CALLS[name]
    different = []
    for dtype in DTYPES:
        x = torch.tensor([1, 0]).to(dtype)
        expected = {number: _run(call, x, number) for number in NUMBERS}
        fits = [number for number, result in expected.items() if isinstance(result, torch.Tensor)]
        # what eager computes is one graph; what it refuses is a graph each, and compiles nothing
        found = dict(zip(fits, _compiled(lambda x, fits=fits: [call(x, n) for n in fits])(x), strict=True))
        for number in NUMBERS:
            if number not in found:
                found[number] = _run(_compiled(call), x, number)
            if not _same(expected[number], found[number]):
                different.append((dtype, number, expected[number], found[number]))
    assert different == []
