"""Elements of one, two and eight bytes: the compiler makes the vectors, and results are eager's bit for bit."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F

import torchmux


def held(fn, *args):
    got = torchmux.compile(fn, backend="native", strict="own")(*args)
    for one, other in zip(got, fn(*args), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert torch.equal(one.nan_to_num(7), other.nan_to_num(7)) and torch.equal(one != one, other != other)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64])
def test_arithmetic_and_reductions(dtype):
    info = torch.iinfo(dtype)
    x = torch.randint(max(info.min, -(2**40)), min(info.max, 2**40), (7, 131), dtype=dtype)
    y = x.flip(-1)

    def f(x, y):
        most = x.amax(-1, keepdim=True)
        return (
            (x * 3 + y).clamp(3, 100),
            torch.where(x > y, x, y) % 7,
            x.sum(-1),
            most - x,
            (x == y).any(-1),
            (x[:, :100] != 5).all(),
            x.min(),
            x.to(torch.float32) * 0.5,
        )

    held(f, x, y)


def test_truth_values_and_conversions():
    x, y = torch.rand(333) < 0.5, torch.rand(333) < 0.5
    z = torch.cat((torch.randn(330) * 50, torch.tensor([float("nan"), 0.0, -0.0])))

    def f(x, y, z):
        return (x & ~y) | (x ^ y), z.to(torch.bool), z[:330].to(torch.int8), z.to(torch.bfloat16), x.to(torch.bfloat16)

    held(f, x, y, z)


def test_bfloat16_that_is_chosen_is_not_rounded():
    x = torch.cat((torch.randn(61), torch.tensor([float("nan"), float("inf"), 1e-40, -0.0]))).to(torch.bfloat16)
    y = x.flip(0).contiguous()

    def f(x, y):
        return x.relu(), torch.where(x > y, -x, y), torch.cat((x, y)).clamp(-1, 1.2), torch.stack((x, y), -1), x + y

    held(f, x, y)


def test_bfloat16_that_is_computed_is_rounded_by_vectors():
    """Windows of one channel: the image is converted once, and the sum is rounded by the processor's instruction."""
    x, w = torch.randn(2, 8, 40, 40).to(torch.bfloat16), torch.randn(8, 1, 3, 3).to(torch.bfloat16)

    def f(x, w):
        return torch.nn.functional.conv2d(x, w, padding=1, groups=8)

    compiled = torchmux.compile(f, backend="native", strict="own")
    torch.testing.assert_close(compiled(x, w), f(x, w), rtol=2e-2, atol=2e-2)
    code = torchmux.report(compiled).graphs[0].report.output_code[0]
    parameters, body = re.findall(r"static void kernel\d+\(([^)]*)\) \{(.*?)\n\}", code, re.DOTALL)[-1]
    assert parameters == "bf16* p0, f32* p1, bf16* p2" and "f32v" in body


def test_numbers_that_no_write_changes():
    """Sizes, and an element that multiplies all, are variables of the loop, which a compiler can then vectorize."""

    def f(x, y):
        return F.pad(x, (1, 2, 3, 0)), x.transpose(1, 2).contiguous(), y * y[:1]

    compiled = torchmux.compile(f, backend="native", dynamic=True, strict="own")
    for n in (5, 8, 40):
        x, y = torch.randint(0, 100, (3, n, n + 1), dtype=torch.uint8), torch.randint(0, 15, (n,), dtype=torch.uint8)
        for got, wanted in zip(compiled(x, y), f(x, y), strict=True):
            assert torch.equal(got, wanted)
    code = torchmux.report(compiled).graphs[0].report.output_code[0]
    inside = [part.split("});")[0] for part in code.split("parallel(")[1:]]
    sizes = [part for part in inside if re.search(r"\bs\d+\b", part.partition("\n")[2])]
    assert sizes and all(re.search(r"auto s\d+ = own_s\d+;", part) for part in sizes)
    assert re.search(r"auto v\d+ = own_v\d+;", code)


def test_integers_made_of_floats_and_converted_back():
    """A compiler must not see where such an integer comes from, and so takes a plain loop one element at a time."""

    def f(x):
        gray = (0.3 * x[:, 0] + 0.6 * x[:, 1]).to(torch.uint8)
        return (1.4 * x - 0.4 * gray[:, None]).clamp(0, 255).to(torch.uint8), x.float().mul(1.2).clamp(0, 255).to(
            torch.uint8
        )

    compiled = torchmux.compile(f, backend="native", strict="own")
    x = torch.randint(0, 256, (2, 2, 8, 33), dtype=torch.uint8)
    for got, wanted in zip(compiled(x), f(x), strict=True):
        assert torch.equal(got, wanted)
    code = torchmux.report(compiled).graphs[0].report.output_code[0]
    assert "settled(" not in code and "bytes(" in code


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bytes_of_floats_of_any_size(dtype):
    """A plain loop takes no way over 64 bits, for which AVX2 has no vectors: the byte is the same."""
    x = torch.arange(256, dtype=torch.uint8).repeat(2)
    y = torch.cat((torch.arange(-300, 300, 7.25), torch.tensor([2.0**n - 1 for n in range(8, 60)]))).to(dtype)
    y = torch.cat((y, -y, y * 1.37))

    def f(x, y):
        return x.float().mul(1.2).sub(10).clamp(0, 255).to(torch.uint8), x[: y.numel()] + y.to(torch.uint8)

    compiled = torchmux.compile(f, backend="native", strict="own")
    got, wanted = compiled(x, y), f(x, y)
    assert torch.equal(got[0], wanted[0])
    assert torch.equal(got[1], x[: y.numel()] + y.to(torch.int64).to(torch.uint8))
    code = torchmux.report(compiled).graphs[0].report.output_code[0]
    assert "(u8)(i64)" not in code and code.count("GCC ivdep") == code.count("bytes(") == 2


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.int64, torch.bool])
def test_rows_that_begin_anew_where_they_end(dtype):
    x = (torch.randn(5, 67) * 50).to(dtype)

    def f(x):
        return x.roll(3, 1), x.roll(-66, 1), x[:, :40].roll(7, 1), x.roll((2, 9), (0, 1)), x.t().roll(5, 1)

    held(f, x)


def test_bytes_in_steps_and_backwards():
    x = torch.randint(0, 256, (3, 77, 3), dtype=torch.uint8)

    def f(x):
        return x.flip(1), x.flip((1, 2)), x[..., [2, 0, 1]], x.view(torch.int8)[..., 1].neg(), x.view(3, -1)[:, ::2] + 1

    held(f, x)
    held(lambda x: (x.flip(0), x[:, ::3] - 1, x[::4].flip(0)), torch.randint(0, 256, (195, 4), dtype=torch.uint8))
