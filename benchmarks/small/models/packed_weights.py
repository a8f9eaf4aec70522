"""Weights and activations in few bits, in the layouts in which libraries keep them, and what is computed from them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from small.case import T, bf16, f16, i8, i32, i64, infer, train, u8

f8 = torch.float8_e4m3fn


def p(name: str, function: Any, *inputs: Any, **options: Any) -> None:
    infer("packed/" + name, function, *inputs, **options)


def columns_of_four_bits(x: Any, w: Any, z: Any, s: Any, g: Any) -> Any:
    shifts = torch.arange(0, 32, 4, dtype=i32)
    q = ((w[:, None] >> shifts[:, None]) & 15).flatten(0, 1)
    zero = ((z[..., None] >> shifts) & 15).flatten(1)
    return x @ ((q - zero[g]) * s[g])


p(
    "gptq",
    columns_of_four_bits,
    T(1, 128),
    T(16, 96, dtype=i32, low=0, high=2**31 - 1),
    T(4, 12, dtype=i32, low=0, high=2**31 - 1),
    T(4, 96),
    torch.arange(128) // 32,
)


def reordered(w: Any, s: Any) -> Any:
    shifts = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7], dtype=i32) * 4
    return (((w[..., None] >> shifts) & 15).flatten(1) - 8).to(f16) * s.repeat_interleave(32, 0)


p("awq", reordered, T(128, 12, dtype=i32, low=0, high=2**31 - 1), T(4, 96, dtype=f16))
p(
    "ternary-linear",
    lambda x, w, s: F.linear(x, w.to(bf16)) * s,
    T(3, 257, dtype=bf16),
    T(129, 257, dtype=i8, low=-1, high=1),
    T(1, dtype=bf16),
)
p("ternary-pack", lambda w: _ternary(w), T(120, 96))


def _ternary(w: Any) -> Any:
    q = (w / w.abs().mean()).round().clamp(-1, 1).to(i8) + 1
    q = q.view(24, 5, 96)
    return (q * torch.tensor([1, 3, 9, 27, 81], dtype=torch.int16)[:, None]).sum(1).to(u8)


p("ternary-unpack", lambda q: torch.stack([(q // 3**k) % 3 for k in range(5)], 1).to(i8) - 1,
  T(24, 96, dtype=u8, low=0, high=242))  # fmt: skip
p("q8-0", lambda x: _q8(x.view(-1, 32)), T(17, 256))


def _q8(x: Any) -> Any:
    d = x.abs().amax(-1, keepdim=True) / 127
    return torch.where(d > 0, x / d, 0.0).round().to(i8), d.to(f16)


p(
    "q4-0-rows",
    lambda q, d, x: ((torch.cat((q & 15, q >> 4), -1).to(i8) - 8) * d.float()).flatten(1) @ x,
    T(61, 8, 16, dtype=u8),
    T(61, 8, 1, dtype=f16),
    T(256),
)
p("q5-rows", lambda q, h, d: _q5(q, h, d), T(33, 16, dtype=u8), T(33, dtype=i64, low=0, high=2**32 - 1), T(33))


def _q5(q: Any, h: Any, d: Any) -> Any:
    high = ((h[:, None] >> torch.arange(32)) & 1) << 4
    return (torch.cat((q & 15, q >> 4), 1).long() + high - 16) * d[:, None]


def table_of_normals(q: Any, t: Any, a: Any) -> Any:
    values = torch.stack((t[(q >> 4).long()], t[(q & 15).long()]), -1).view(-1, 64)
    return (values * a[:, None]).view(96, 128).to(bf16)


p("nf4", table_of_normals, T(6144, dtype=u8), T(16), T(192))
p(
    "fp8-blocks",
    lambda w, s: (w.float().view(3, 64, 2, 64) * s[:, None, :, None]).view(192, 128).to(bf16),
    T(192, 128, dtype=f8),
    T(3, 2),
)
p("fp8-rows", lambda x: _fp8(x), T(37, 512, dtype=bf16))


def _fp8(x: Any) -> Any:
    s = x.abs().amax(-1, keepdim=True).float() / 448
    return (x / s).clamp(-448, 448).to(f8), s


p("fp8-linear", lambda x, w, s: F.linear(x, (w.to(bf16) * s)), T(2, 320, dtype=bf16), T(96, 320, dtype=f8),
  T(96, 1, dtype=bf16))  # fmt: skip
p("fp8-e5m2-gradients", lambda x: (x * 8).to(torch.float8_e5m2).float() / 8, T(101, 103))
p("mx-fp4", lambda q, e: _fp4(q, e), T(64, 16, dtype=u8), T(64, dtype=u8, low=118, high=134))


def _fp4(q: Any, e: Any) -> Any:
    t = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    return t[torch.stack((q & 15, q >> 4), -1).flatten(1).long()] * torch.exp2(e.float() - 127)[:, None]


p("i8-channels-last", lambda x, s, z: (x.float() - z[:, None, None]) * s[:, None, None],
  T(2, 24, 17, 19, dtype=i8, layout="channels_last"), T(24), T(24))  # fmt: skip
p("u8-quantize-cl", lambda x: (x * 17 + 128).round().clamp(0, 255).to(u8), T(2, 24, 17, 19, layout="channels_last"))
p(
    "i8-transposed-linear",
    lambda x, w, s: (x @ w.float()) * s,
    T(1, 191),
    T(191, 97, dtype=i8, layout="transposed"),
    T(97),
)
p("i8-dynamic", lambda x, w, s: _dynamic(x, w, s), T(5, 128), T(64, 128, dtype=i8), T(64))


def _dynamic(x: Any, w: Any, s: Any) -> Any:
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
    q = (x / scale).round().to(i8)
    return torch._int_mm(F.pad(q, (0, 0, 0, 12)), w.t())[:5].float() * scale * s


p("requantize", lambda a, m: ((a.long() * m + (1 << 30)) >> 31).clamp(-128, 127).to(i8), T(61, 97, dtype=i32),
  T(97, dtype=i64, low=1 << 28, high=1 << 30))  # fmt: skip
p("hadamard-i8", lambda x: _hadamard(x), T(19, 128))


def _hadamard(x: Any) -> Any:
    for k in range(7):
        a, b = x.view(19, -1, 2, 1 << k).unbind(2)
        x = torch.stack((a + b, a - b), 2)
    x = x.reshape(19, 128) / 128**0.5
    s = x.abs().amax(-1, keepdim=True) / 127
    return (x / s).round().to(i8), s


p("smooth", lambda x, w: (lambda s: (x / s, w * s))((x.abs().amax(0) / w.abs().amax(0)).sqrt().clamp(min=1e-3)),
  T(77, 129), T(65, 129))  # fmt: skip
p("outliers", lambda x: (torch.where((x.abs() > 2.5).any(0), 0.0, x), (x.abs() > 2.5).any(0)), T(53, 251, dtype=f16))
p("log2-quantize", lambda x: torch.sign(x) * torch.exp2(x.abs().clamp(min=2**-8).log2().round()), T(3, 17, 129))
p("product-codes", lambda c, q: torch.stack([c[k][q[:, k].long()] for k in range(4)], 1).flatten(1), T(4, 256, 8),
  T(301, 4, dtype=u8))  # fmt: skip
p("residual-codes", lambda x, c: _residual(x, c), T(45, 12), T(3, 64, 12))


def _residual(x: Any, c: Any) -> Any:
    found = []
    for k in range(3):
        d = (c[k].square().sum(1) - 2 * x @ c[k].t()).argmin(1)
        x = x - c[k][d]
        found.append(d)
    return torch.stack(found, 1), x


p("lookup-distances", lambda q, c, x: (x[None, :, None] - c).square().sum(-1).flatten()[
  q.long() + torch.arange(4) * 64].sum(-1), T(1003, 4, dtype=u8, low=0, high=63), T(1, 4, 64, 8), T(4, 8))  # fmt: skip
p("sign-scale", lambda x, w: F.linear(x.sign(), w.sign()) * w.abs().mean(1), T(9, 200), T(50, 200))
p("bools-to-bits", lambda x: (x.view(-1, 8).to(u8) << torch.arange(8, dtype=u8)).sum(-1).to(u8),
  T(1000, 8, dtype=torch.bool))  # fmt: skip


def learned_step(x: Any, s: Any) -> Any:
    q = (x / s).clamp(-8, 7)
    return ((q.round() - q).detach() + q) * s


train("packed/learned-step-train", learned_step, T(33, 65), T(1, low=0.1, high=0.2))
train(
    "packed/rounded-linear-train",
    lambda x, w: F.linear(x, w + ((w * 16).round() / 16 - w).detach()),
    T(7, 65),
    T(33, 65),
)
train(
    "packed/lora-on-i8-train",
    lambda x, w, a, b: F.linear(x, w.float() * 0.01) + x @ a @ b,
    T(7, 64),
    T(48, 64, dtype=i8),
    T(64, 4),
    T(4, 48),
)
