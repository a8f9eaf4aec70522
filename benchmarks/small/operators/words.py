"""Integers and bytes: hashes, codes, packed numbers, fixed point, pictures in camera formats."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from small.case import T, bf16, f16, i8, i32, i64, infer, u8

i16 = torch.int16
i = lambda name, f, *x, **o: infer("word/" + name, f, *x, **o)  # noqa: E731


def xorshift(x):
    for _ in range(4):
        x = x ^ (x << 13)
        x = x ^ ((x >> 17) & 0x7FFF)
        x = x ^ (x << 5)
    return x


i("xorshift", xorshift, T(20000, dtype=i32))
i(
    "murmur-final",
    lambda h: (
        lambda a: (lambda b: b ^ ((b >> 33) & 0x7FFFFFFF))((a ^ ((a >> 33) & 0x7FFFFFFF)) * -4265267296055464877)
    )(h * -49064778989728563),
    T(20000, dtype=i64),
)
i("fnv-rows", lambda x: _fnv(x), T(2000, 16, dtype=u8))


def _fnv(x):
    h = torch.full((x.shape[0],), 2166136261, dtype=i64)
    for k in range(16):
        h = ((h ^ x[:, k].long()) * 16777619) & 0xFFFFFFFF
    return h


def popcount32(x):
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return ((x * 0x01010101) >> 24) & 0xFF


i("popcount-i64", popcount32, T(20000, dtype=i64, low=0, high=2**31 - 1))
i(
    "hamming-distance",
    lambda a, b: popcount32(a[:, None] ^ b).sum(-1),
    T(64, 4, dtype=i64, low=0, high=2**31 - 1),
    T(100, 4, dtype=i64, low=0, high=2**31 - 1),
)
i("bit-reverse", lambda x: _reverse(x), T(20000, dtype=i32, low=0, high=2**15))


def _reverse(x):
    x = ((x >> 1) & 0x5555) | ((x & 0x5555) << 1)
    x = ((x >> 2) & 0x3333) | ((x & 0x3333) << 2)
    x = ((x >> 4) & 0x0F0F) | ((x & 0x0F0F) << 4)
    return ((x >> 8) & 0xFF) | ((x & 0xFF) << 8)


i("gray-code", lambda x: (x ^ (x >> 1), x ^ (x >> 1) ^ (x >> 2) ^ (x >> 4)), T(30000, dtype=i32, low=0, high=60000))
i(
    "morton-3d",
    lambda p: sum(((p[:, k] >> b) & 1) << (3 * b + k) for b in range(8) for k in range(3)),
    T(2000, 3, dtype=i64, low=0, high=255),
)
i("hilbert-curve", lambda x, y: _hilbert(x, y), T(4000, dtype=i64, low=0, high=63), T(4000, dtype=i64, low=0, high=63))


def _hilbert(x, y):
    d = torch.zeros_like(x)
    s = 32
    while s > 0:
        rx, ry = ((x & s) > 0).long(), ((y & s) > 0).long()
        d = d + s * s * ((3 * rx) ^ ry)
        flip = (ry == 0) & (rx == 1)
        x, y = torch.where(flip, 63 - x, x), torch.where(flip, 63 - y, y)
        x, y = torch.where(ry == 0, y, x), torch.where(ry == 0, x, y)
        s //= 2
    return d


i("zigzag", lambda x: ((x << 1) ^ (x >> 31), ((x >> 1) & 0x7FFFFFFF) ^ -(x & 1)), T(30000, dtype=i32))
i(
    "varint-length",
    lambda x: 1 + (x >= 1 << 7).int() + (x >= 1 << 14).int() + (x >= 1 << 21).int() + (x >= 1 << 28).int(),
    T(30000, dtype=i32, low=0, high=2**30),
)
i(
    "adler",
    lambda x: (
        lambda a: (
            ((a.sum(1) + 1) % 65521) + (((a * torch.arange(a.shape[1], 0, -1)).sum(1) + a.shape[1]) % 65521) * 65536
        )
    )(x.long()),
    T(200, 256, dtype=u8),
)
i("crc-table", lambda x, t: _crc(x, t), T(1000, 12, dtype=u8), T(256, dtype=i64, low=0, high=2**32 - 1))


def _crc(x, t):
    c = torch.full((x.shape[0],), 0xFFFFFFFF, dtype=i64)
    for k in range(12):
        c = t[(c ^ x[:, k].long()) & 0xFF] ^ (c >> 8)
    return c ^ 0xFFFFFFFF


i("lfsr", lambda x: _lfsr(x), T(10000, dtype=i32, low=1, high=65535))


def _lfsr(x):
    for _ in range(16):
        bit = (x ^ (x >> 2) ^ (x >> 3) ^ (x >> 5)) & 1
        x = (x >> 1) | (bit << 15)
    return x


i("gcd", lambda a, b: torch.gcd(a, b), T(5000, dtype=i64, low=1, high=1000), T(5000, dtype=i64, low=1, high=1000))
i("gcd-loop", lambda a, b: _gcd(a, b), T(5000, dtype=i64, low=1, high=255), T(5000, dtype=i64, low=1, high=255))


def _gcd(a, b):
    for _ in range(12):
        a, b = torch.where(b == 0, a, b), torch.where(b == 0, b, a % b.clamp(min=1))
    return a


i("mod-pow", lambda x: _modpow(x), T(10000, dtype=i64, low=0, high=65536))


def _modpow(x):
    y = torch.ones_like(x)
    for bit in (1, 0, 1, 1, 0, 1):
        y = y * y % 65537
        y = y * x % 65537 if bit else y
    return y


i("sieve", lambda n: _sieve(n), T(2000, dtype=i64, low=2, high=9000))


def _sieve(n):
    prime = torch.ones_like(n, dtype=torch.bool)
    for p in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29):
        prime = prime & ((n % p != 0) | (n == p))
    return prime


i(
    "base64-decode",
    lambda x: (
        lambda v: (
            torch.stack(
                (
                    (v[:, 0] << 2) | (v[:, 1] >> 4),
                    ((v[:, 1] & 15) << 4) | (v[:, 2] >> 2),
                    ((v[:, 2] & 3) << 6) | v[:, 3],
                ),
                1,
            )
            .to(u8)
            .flatten()
        )
    )(x.int().view(-1, 4)),
    T(8000, dtype=u8, low=0, high=63),
)
i(
    "hex",
    lambda x: (lambda n: torch.where(n < 10, n + 48, n + 87))(torch.stack((x >> 4, x & 15), 1).flatten()),
    T(10000, dtype=u8),
)
i("utf8-starts", lambda x: ((x & 0xC0) != 0x80).sum(1), T(64, 1000, dtype=u8))
i("ascii-fold", lambda x: torch.where((x >= 65) & (x <= 90), x | 32, x), T(64, 1000, dtype=u8))
i("byte-classes", lambda x, t: t[x.long()], T(64, 1000, dtype=u8), T(256, dtype=u8))
i("newlines", lambda x: (x == 10).cumsum(1), T(16, 4000, dtype=u8, low=8, high=14))
i("xor-key", lambda x, k: x ^ k, T(1000, 16, dtype=u8), T(16, dtype=u8))
i("gf-multiply", lambda a, b: _gf(a.int(), b.int()), T(5000, dtype=u8), T(5000, dtype=u8))


def _gf(a, b):
    p = torch.zeros_like(a)
    for _ in range(8):
        p = p ^ (a * (b & 1))
        a = ((a << 1) ^ ((a >> 7) * 0x11B)) & 0x1FF
        b = b >> 1
    return (p & 0xFF).to(u8)


i(
    "aes-shift-rows",
    lambda s: (
        s.view(-1, 4, 4)
        .transpose(1, 2)
        .gather(2, ((torch.arange(4)[:, None] + torch.arange(4)) % 4).expand(s.shape[0], 4, 4))
    ),
    T(500, 16, dtype=u8),
)
i(
    "median-of-three",
    lambda a, b, c: torch.maximum(torch.minimum(a, b), torch.minimum(torch.maximum(a, b), c)),
    T(20000, dtype=i32),
    T(20000, dtype=i32),
    T(20000, dtype=i32),
)
i("network-of-eight", lambda x: _network(x), T(2000, 8))


def _network(x):
    c = list(x.unbind(1))
    for a, b in (
        (0, 1),
        (2, 3),
        (4, 5),
        (6, 7),
        (0, 2),
        (1, 3),
        (4, 6),
        (5, 7),
        (1, 2),
        (5, 6),
        (0, 4),
        (3, 7),
        (1, 5),
        (2, 6),
        (1, 4),
        (3, 6),
        (2, 4),
        (3, 5),
        (3, 4),
    ):
        c[a], c[b] = torch.minimum(c[a], c[b]), torch.maximum(c[a], c[b])
    return torch.stack(c, 1)


i("bitonic", lambda x: _bitonic(x), T(200, 16))


def _bitonic(x):
    n = torch.arange(16)
    for k in (2, 4, 8, 16):
        j = k // 2
        while j:
            y = x[:, n ^ j]
            low = ((n & j) == 0) == ((n & k) == 0)
            x = torch.where(low, torch.minimum(x, y), torch.maximum(x, y))
            j //= 2
    return x


i(
    "counting-rank",
    lambda x: (
        (x[:, None, :] < x[:, :, None]).sum(2)
        + ((x[:, None, :] == x[:, :, None]) & torch.ones(48, 48).tril(-1).bool()).sum(2)
    ),
    T(32, 48, dtype=i32, low=0, high=20),
)
i(
    "saturating-add",
    lambda a, b: (a.short() + b.short()).clamp(0, 255).to(u8),
    T(64, 2000, dtype=u8),
    T(64, 2000, dtype=u8),
)
i("average-round-up", lambda a, b: ((a.int() + b.int() + 1) >> 1).to(u8), T(64, 2000, dtype=u8), T(64, 2000, dtype=u8))
i(
    "absolute-difference",
    lambda a, b: (a.short() - b.short()).abs().to(u8),
    T(64, 2000, dtype=u8),
    T(64, 2000, dtype=u8),
)
i(
    "sad-blocks",
    lambda a, b: (a.int() - b.int()).abs().view(16, 8, 16, 8).sum((1, 3)),
    T(128, 128, dtype=u8),
    T(128, 128, dtype=u8),
)
i(
    "q15-multiply",
    lambda a, b: ((a.int() * b.int() + 16384) >> 15).clamp(-32768, 32767).to(i16),
    T(20000, dtype=i16),
    T(20000, dtype=i16),
)
i(
    "q8-dot",
    lambda a, b: (a.int() * b.int()).sum(1) >> 8,
    T(500, 128, dtype=i16, low=-100, high=100),
    T(500, 128, dtype=i16, low=-100, high=100),
)
i(
    "rgb565",
    lambda x: ((x[..., 0].int() >> 3) << 11) | ((x[..., 1].int() >> 2) << 5) | (x[..., 2].int() >> 3),
    T(120, 160, 3, dtype=u8),
)
i(
    "from-rgb565",
    lambda x: torch.stack((((x >> 11) & 31) * 255 // 31, ((x >> 5) & 63) * 255 // 63, (x & 31) * 255 // 31), -1).to(u8),
    T(120, 160, dtype=i32, low=0, high=65535),
)
i(
    "nv12",
    lambda y, uv: (
        lambda logits, c: (
            torch.stack(
                (logits + 1.402 * c[..., 1], logits - 0.344 * c[..., 0] - 0.714 * c[..., 1], logits + 1.772 * c[..., 0])
            )
            .clamp(0, 255)
            .to(u8)
        )
    )(y.float(), uv.float().sub(128).repeat_interleave(2, 0).repeat_interleave(2, 1)),
    T(120, 160, dtype=u8),
    T(60, 80, 2, dtype=u8),
)
i(
    "yuyv",
    lambda x: (
        lambda v: torch.stack((v[..., 0], v[..., 1], v[..., 3], v[..., 2], v[..., 1], v[..., 3]), -1).view(120, 160, 3)
    )(x.view(120, 80, 4)),
    T(120, 320, dtype=u8),
)
i(
    "alpha-blend-u8",
    lambda a, b, m: ((a.int() * m + b.int() * (255 - m) + 127) // 255).to(u8),
    T(120, 160, 3, dtype=u8),
    T(120, 160, 3, dtype=u8),
    T(120, 160, 1, dtype=u8),
)
i(
    "raw10-unpack",
    lambda x: (lambda v: ((v[..., :4] << 2) | ((v[..., 4:] >> torch.tensor([0, 2, 4, 6])) & 3)).flatten(1))(
        x.view(100, -1, 5).int()
    ),
    T(100, 200, dtype=u8),
)
i(
    "raw12-unpack",
    lambda x: (
        lambda v: torch.stack(((v[..., 0] << 4) | (v[..., 1] & 15), (v[..., 2] << 4) | (v[..., 1] >> 4)), -1).flatten(1)
    )(x.view(100, -1, 3).int()),
    T(100, 300, dtype=u8),
)
i(
    "bilinear-demosaic",
    lambda x: (
        F.conv2d(
            x[None, None].float(),
            torch.tensor([[[[0, 1.0, 0], [1, 4, 1], [0, 1, 0]]], [[[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]]]) / 4,
            padding=1,
        )
        .clamp(0, 255)
        .to(u8)
    ),
    T(120, 160, dtype=u8),
)
i(
    "palette-nearest",
    lambda x, p: (x[:, None].float() - p.float()).square().sum(-1).argmin(-1).to(u8),
    T(2000, 3, dtype=u8),
    T(16, 3, dtype=u8),
)
i("count-bits-columns", lambda x: ((x[:, :, None] >> torch.arange(8, dtype=u8)) & 1).sum(0), T(500, 16, dtype=u8))
i("pack-signs", lambda x: ((x > 0).view(500, 16, 8).to(u8) << torch.arange(8, dtype=u8)).sum(-1).to(u8), T(500, 128))
i(
    "binary-product",
    lambda a, b: 128 - 2 * popcount32((a[:, None] ^ b).long()).sum(-1),
    T(64, 4, dtype=i64, low=0, high=2**31 - 1),
    T(64, 4, dtype=i64, low=0, high=2**31 - 1),
)
i(
    "int4-two-halves",
    lambda w, s, z: ((torch.cat((w & 15, w >> 4), 1).float() - z) * s).to(bf16),
    T(128, 64, dtype=u8),
    T(128, 1),
    T(128, 1),
)
i(
    "int3-unpack",
    lambda w: (lambda v: torch.stack([(v >> (3 * k)) & 7 for k in range(8)], -1).flatten(1) - 4)(
        w[..., 0].int() | (w[..., 1].int() << 8) | (w[..., 2].int() << 16)
    ),
    T(64, 32, 3, dtype=u8),
)
i("fp8-e5m2", lambda x: x.to(torch.float8_e5m2).float(), T(20000))
i("bf16-bits", lambda x: ((x.view(i32) + 0x7FFF + ((x.view(i32) >> 16) & 1)) >> 16).to(i16).view(bf16), T(20000))
i("f16-fields", lambda x: (lambda b: ((b >> 10) & 31, b & 1023, (b >> 15) & 1))(x.view(i16).int()), T(20000, dtype=f16))
i(
    "exponent-histogram",
    lambda x: torch.zeros(256, dtype=i64).scatter_add(
        0, ((x.view(i32) >> 23) & 255).long(), torch.ones(10000, dtype=i64)
    ),
    T(10000),
)
i("next-after", lambda x: torch.nextafter(x, torch.full_like(x, 1e9)), T(20000))
i(
    "ulp-distance",
    lambda a, b: (lambda f, g: (f - g).abs())(
        torch.where(a.view(i32) < 0, -2147483648 - a.view(i32).long(), a.view(i32).long()),
        torch.where(b.view(i32) < 0, -2147483648 - b.view(i32).long(), b.view(i32).long()),
    ),
    T(10000),
    T(10000),
)
i(
    "quadkey",
    lambda x, y: sum(((x >> k) & 1 | ((y >> k) & 1) << 1) * 10**k for k in range(10)),
    T(5000, dtype=i64, low=0, high=1023),
    T(5000, dtype=i64, low=0, high=1023),
)
i(
    "geohash-bits",
    lambda a: sum((((a * 2**k).floor().long() & 1) << (14 - k)) for k in range(1, 15)),
    T(5000, low=0.0, high=1.0),
)
i(
    "date-to-days",
    lambda y, m, d: (lambda yy, mm: 365 * yy + yy // 4 - yy // 100 + yy // 400 + (mm * 306 + 5) // 10 + d - 1)(
        y - (m <= 2).long(), (m + 9) % 12
    ),
    T(5000, dtype=i64, low=1970, high=2030),
    T(5000, dtype=i64, low=1, high=12),
    T(5000, dtype=i64, low=1, high=28),
)
i(
    "luhn",
    lambda x: (lambda d: (torch.where(d > 9, d - 9, d).sum(1) + x[:, 1::2].sum(1)) % 10 == 0)(x[:, ::2] * 2),
    T(2000, 16, dtype=i32, low=0, high=9),
)
i(
    "digits-of",
    lambda x: torch.stack([(x // 10**k) % 10 for k in range(8)], 1),
    T(2000, dtype=i64, low=0, high=10**8 - 1),
)
i("collatz", lambda x: _collatz(x), T(5000, dtype=i64, low=1, high=5000))


def _collatz(x):
    n = torch.zeros_like(x)
    for _ in range(20):
        n = n + (x > 1)
        x = torch.where(x <= 1, x, torch.where(x % 2 == 0, x // 2, 3 * x + 1))
    return n


i(
    "bloom-query",
    lambda x, t: torch.stack(
        [(t[((x * k + 7) % 65536) >> 3].int() >> ((x * k + 7) & 7).int()) & 1 for k in (31, 131, 1313, 13131)]
    ).all(0),
    T(3000, dtype=i64, low=0, high=10**6),
    T(8192, dtype=u8),
)
i("simhash", lambda x, w: ((x @ w > 0).long() << torch.arange(32)).sum(-1), T(500, 64), T(64, 32))
i("lsh-buckets", lambda x, r: torch.cat((x @ r, -(x @ r)), -1).argmax(-1), T(4, 200, 64), T(64, 16))
i(
    "coo-to-dense",
    lambda r, c, v: torch.zeros(128, 128).index_put((r, c), v, accumulate=True),
    T(1000, dtype=i64, low=0, high=127),
    T(1000, dtype=i64, low=0, high=127),
    T(1000),
)
i(
    "coo-spmv",
    lambda r, c, v, x: torch.zeros(500).index_add(0, r, v * x[c]),
    T(5000, dtype=i64, low=0, high=499),
    T(5000, dtype=i64, low=0, high=499),
    T(5000),
    T(500),
)
i(
    "coo-spmm",
    lambda r, c, v, x: torch.zeros(300, 32).index_add(0, r, v[:, None] * x[c]),
    T(3000, dtype=i64, low=0, high=299),
    T(3000, dtype=i64, low=0, high=299),
    T(3000),
    T(300, 32),
)
i("ell-spmv", lambda c, v, x: (v * x[c]).sum(1), T(1000, 8, dtype=i64, low=0, high=999), T(1000, 8), T(1000))
i(
    "csr-counts",
    lambda r: F.pad(torch.zeros(300, dtype=i64).scatter_add(0, r, torch.ones_like(r)).cumsum(0), (1, 0)),
    T(3000, dtype=i64, low=0, high=299),
)
i(
    "bsr-spmm",
    lambda k, b, x: torch.zeros(16, 8, 64).index_add(0, k[0], b @ x.view(16, 8, 64)[k[1]]),
    T(2, 60, dtype=i64, low=0, high=15),
    T(60, 8, 8),
    T(128, 64),
)
i(
    "two-four-sparse",
    lambda w: w * (lambda a: a >= a.topk(2, -1).values[..., -1:])(w.abs().view(64, -1, 4)).view(64, 256),
    T(64, 256),
)
i("i8-accumulate", lambda a, b: a.int() @ b.int().T, T(32, 64, dtype=i8), T(48, 64, dtype=i8))
