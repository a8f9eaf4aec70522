"""Operators on sizes, types and layouts by chance: primes, single elements, transposed and channels-last inputs, and
integers of all widths."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from small.case import T, bf16, f16, i8, i32, i64, infer, train, u8

i16 = torch.int16


def c(name: str, function: Any, *inputs: Any, **options: Any) -> None:
    infer("chance/" + name, function, *inputs, **options)


# Sizes

c("scalar-chain", lambda x: (x * 2 + 1).tanh().exp(), T())
c("one-row-softmax", lambda x: x.softmax(-1), T(1, 17))
c("three-columns-softmax", lambda x: x.softmax(0), T(1009, 3))
c("seventeen", lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5), T(17, 17, 17))
c("prime-mean-dim-1", lambda x: x.mean(1), T(13, 101, 7))
c("prime-max-dim-1", lambda x: x.max(1), T(13, 101, 7))
c("prime-var-12", lambda x: x.var((1, 2)), T(13, 7, 11, 5))
c("ones-between", lambda x, y: (x + y).sum(1), T(31, 1, 37, 1), T(1, 29, 1, 41))
c("long-row", lambda x: x.log_softmax(-1), T(1, 100003))
c("tall-column", lambda x: x / x.norm(dim=0), T(50021, 2))
c("cumprod-prime", lambda x: (1 + 0.01 * x).cumprod(1), T(37, 71))
c("cumsum-middle", lambda x: x.cumsum(1), T(5, 307, 7))
c("cumsum-reversed", lambda x: x.flip(0).cumsum(0).flip(0), T(307, 19))
c("cummax-prime", lambda x: x.cummax(-1)[0], T(37, 71))
c("logcumsumexp-rows", lambda x: x.logcumsumexp(-1), T(3, 997))
c("logcumsumexp-columns", lambda x: x.logcumsumexp(0), T(97, 33))
c("diff-2", lambda x: x.diff(n=2), T(19, 503))
c("trapezoid", lambda y: torch.trapezoid(y, dx=0.1), T(41, 301))
c("max-pool-1d-long", lambda x: F.max_pool1d(x, 50, 7), T(2, 3, 5003))
c("avg-pool-1d-long", lambda x: F.avg_pool1d(x, 101, 1, 50), T(2, 3, 3001))
c("rolling-min", lambda x: -F.max_pool1d(-x[None], 30, 1)[0], T(4, 2003))
c("rolling-std", lambda x: x.unfold(-1, 40, 1).std(-1), T(3, 1009))
c("unfold-median", lambda x: x.unfold(-1, 9, 1).median(-1)[0], T(3, 499))
c("conv1d-long", lambda x, w: F.conv1d(x, w, padding=63), T(1, 1, 6007), T(4, 1, 127))
c("meshgrid-3", lambda a, b, d: torch.meshgrid(a, b, d, indexing="ij"), T(7), T(11), T(13))
c("grid-coordinates", lambda x: torch.stack(torch.meshgrid(x, x * 2, indexing="xy"), -1).view(-1, 2), T(53))
c("conv-1x1-16", lambda x, w: F.conv2d(x, w), T(1, 16, 23, 29), T(16, 16, 1, 1))
c("conv-1x1-3-to-8", lambda x, w, b: F.conv2d(x, w, b).relu(), T(1, 3, 61, 67), T(8, 3, 1, 1), T(8))
c("conv-1x1-cl-17", lambda x, w: F.conv2d(x, w), T(2, 17, 19, 23, layout="channels_last"), T(5, 17, 1, 1))
c("conv-3x3-2", lambda x, w: F.conv2d(x, w, padding=1), T(1, 2, 33, 35), T(2, 2, 3, 3))
c("depthwise-prime", lambda x, w: F.conv2d(x, w, padding=1, groups=7), T(2, 7, 31, 37), T(7, 1, 3, 3))
c("bmm-5", lambda a, b: a @ b, T(301, 5, 7), T(301, 7, 3))
c("matrix-vector-prime", lambda a, x: a @ x, T(211, 307), T(307))
c("vector-matrix-prime", lambda x, a: x @ a, T(307), T(307, 211))
c("dot-prime", lambda x, y: x @ y, T(10007), T(10007))
c("einsum-four", lambda a, b: torch.einsum("abc,cbd->ad", a, b), T(11, 5, 13), T(13, 5, 17))
c("inner-3", lambda a, b: torch.inner(a, b), T(101, 3), T(97, 3))

# Layouts

c("transposed-layer-norm", lambda x: F.layer_norm(x, (67,)), T(41, 67, layout="transposed"))
c("transposed-argmax", lambda x: x.argmax(-1), T(41, 67, layout="transposed"))
c("transposed-cumsum", lambda x: x.cumsum(-1), T(41, 67, layout="transposed"))
c("transposed-cat", lambda x, y: torch.cat((x, y), -1), T(41, 67, layout="transposed"), T(41, 13))
c("transposed-linear", lambda x, w: F.linear(x, w), T(9, 67, layout="transposed"), T(31, 67, layout="transposed"))
c("cl-mean", lambda x: x.mean((2, 3)), T(3, 17, 13, 11, layout="channels_last"))
c("cl-softmax-channels", lambda x: x.softmax(1), T(3, 17, 13, 11, layout="channels_last"))
c("cl-bilinear-prime", lambda x: F.interpolate(x, (29, 31), mode="bilinear"), T(1, 5, 13, 17, layout="channels_last"))
c("cl-max-pool-3", lambda x: F.max_pool2d(x, 3, 2, 1), T(1, 17, 37, 41, layout="channels_last"))
c("cl-to-flat", lambda x: x.flatten(1) * 2, T(2, 17, 13, 11, layout="channels_last"))
c("strided-sum", lambda x: x.sum(0), T(101, 67, layout="strided"))
c("sliced-gelu-bf16", lambda x: F.gelu(x), T(53, 61, dtype=bf16, layout="sliced"))
c("expanded-product", lambda x: x.expand(37, 41, 43) * 1.5, T(37, 1, 43))
c("permuted-normal", lambda x: torch.normal(x.permute(2, 0, 1), 1.0), T(13, 17, 19), random=True)

# Integers

c("i8-add", lambda a, b: a + b, T(10007, dtype=i8), T(10007, dtype=i8))
c("i8-saturating", lambda a, b: (a.to(i16) + b).clamp(-128, 127).to(i8), T(10007, dtype=i8), T(10007, dtype=i8))
c("u8-mean-pool", lambda x: F.avg_pool2d(x.float(), 2).to(u8), T(1, 3, 62, 66, dtype=u8))
c("u8-max", lambda x: x.amax((1, 2)), T(3, 61, 67, dtype=u8))
c("u8-compare-count", lambda a, b: (a > b).sum(), T(10007, dtype=u8), T(10007, dtype=u8))
c("i16-shift-mix", lambda x: (x >> 3) ^ (x << 2), T(10007, dtype=i16))
c("i32-mod", lambda x: x % 97, T(10007, dtype=i32))
c("i32-cumsum", lambda x: x.cumsum(-1), T(37, 271, dtype=i32))
c("i32-prod", lambda x: x.prod(-1), T(371, 7, dtype=i32, low=1, high=9))
c("i64-floor-divide", lambda x: x // 13, T(10007, dtype=i64))
c("i64-unique-like", lambda x: (x[1:] != x[:-1]).cumsum(0), T(5003, dtype=i64, low=0, high=3))
c("bool-xor-any", lambda a, b: (a ^ b).any(-1), T(211, 47, dtype=torch.bool), T(211, 47, dtype=torch.bool))
c("bool-matmul", lambda a: a.float() @ a.float() > 0, T(61, 61, dtype=torch.bool))
c("bool-and-u8", lambda x: x & 1, T(3, 71, 73, dtype=u8))
c("u8-to-f16-scaled", lambda x: x.to(f16) / 255, T(3, 71, 73, dtype=u8))
c("i64-one-hot", lambda x: F.one_hot(x, 7), T(503, dtype=i64, low=0, high=6))
c("i32-sort", lambda x: x.sort()[0], T(61, 67, dtype=i32))
c("i64-gather-pairs", lambda x, i: x[i[:, 0], i[:, 1]], T(67, 71), T(509, 2, dtype=i64, low=0, high=66))
c("f16-cumsum", lambda x: x.cumsum(-1), T(37, 271, dtype=f16))
c("bf16-outer", lambda a, b: torch.outer(a, b), T(307, dtype=bf16), T(211, dtype=bf16))

# One operator, forward and backward

for name, function, inputs in (
    ("tanh", torch.tanh, (T(61, 67),)),
    ("sum-1", lambda x: x.sum(1), (T(61, 67),)),
    ("matmul", torch.matmul, (T(13, 17), T(17, 19))),
    ("addmm", torch.addmm, (T(19), T(13, 17), T(17, 19))),
    ("log-softmax", lambda x: x.log_softmax(-1), (T(31, 101),)),
    ("mse", F.mse_loss, (T(31, 101), T(31, 101))),
    ("cat", lambda a, b: torch.cat((a, b), 1), (T(31, 17), T(31, 19))),
    ("embedding", lambda w, i: F.embedding(i, w), (T(101, 13), T(7, 5, dtype=i64, low=0, high=100))),
    ("rms-norm", lambda x, w: F.rms_norm(x, (101,), w), (T(31, 101), T(101))),
    ("conv1d", F.conv1d, (T(3, 5, 61), T(7, 5, 3))),
    ("conv-1x1", F.conv2d, (T(2, 16, 13, 17), T(16, 16, 1, 1))),
    ("batch-norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (T(31, 17), T(17), T(17))),
    ("logcumsumexp", lambda x: x.logcumsumexp(-1), (T(17, 61),)),
    ("solve", torch.linalg.solve, (T(7, 5, 5), T(7, 5, 2))),
    ("index-add", lambda x, i, y: x.index_add(0, i, y), (T(31, 7), T(53, dtype=i64, low=0, high=30), T(53, 7))),
    ("where", torch.where, (T(31, 37, dtype=torch.bool), T(31, 37), T(31, 37))),
):
    train("chance/train/" + name, function, *inputs)
