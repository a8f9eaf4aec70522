"""torch.compile on a GPU: numbers that are rarely tried have other results than in eager: infinities and nan in some
functions, powers of ten, remainders of large numbers, slopes of roots.  Exits with 1 while all of them do.
"""

import math
import sys

import torch
import torch.nn.functional as F

if not torch.cuda.is_available():
    raise ModuleNotFoundError("there is no GPU here")


def numbers(*values, dtype=torch.float32):
    return torch.tensor(values, device="cuda", dtype=dtype)


def is_same(function, *given):
    pairs = zip(function(*given), torch.compile(function, dynamic=False)(*given), strict=True)
    return all(
        torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) and torch.equal(a.isnan(), b.isnan()) for a, b in pairs
    )


def slope(function, x):
    torch._dynamo.reset()
    y = x.clone().requires_grad_()
    return torch.autograd.grad(function(y).sum(), y)[0]


def has_same_slope(function, x):
    return torch.equal(*(slope(f, x).nan_to_num(7.0) for f in (function, torch.compile(function, dynamic=False))))


far = numbers(math.inf, -math.inf, 200.0)
torch.manual_seed(0)
many = torch.randn(37, device="cuda")
same = {
    "Bessel functions": is_same(lambda x: (torch.i0(x), torch.special.bessel_j0(x)), far),
    "exponents of infinities": is_same(lambda x: (torch.frexp(x).exponent,), far),
    "parts of subnormal numbers": is_same(lambda x: (torch.frexp(x).mantissa,), numbers(3e-41, -2e-40)),
    "a product with zero": is_same(lambda x: (torch.special.xlog1py(x * 0, x),), far),
    "signs of zeros": is_same(lambda x: (torch.copysign(x, -x * 0), torch.atan2(x * 0, x)), numbers(-2.0, -1.0)),
    "softsign": is_same(lambda x: (F.softsign(x * 1e19),), many),
    "softshrink": is_same(lambda x: (F.softshrink(x),), numbers(math.nan, 1.0)),
    "powers of ten": is_same(lambda n: (10**n,), torch.arange(10.0, device="cuda")),
    "large multiples": is_same(lambda x: (torch.arange(0, 4, device="cuda") * 1000000000,), many),
    "remainders": is_same(lambda x: ((x * 1e10) % 7.0,), many),
    "quotients": is_same(lambda x: (x // 0.5,), far),
    "a root": is_same(lambda x: (x.pow(-0.5),), far),
    "a place for nan": is_same(lambda x: (torch.searchsorted(numbers(-1.0, 0.0, 1.0), x),), numbers(math.nan)),
    "a constant of float64": is_same(lambda x: (F.hardswish(x),), many.double()),
    "slopes": has_same_slope(lambda x: x.square().sqrt() / 3 + torch.hypot(x, x * 0), many),
}
print("torch", torch.__version__, "as eager:", same)
sys.exit(int(not any(same.values())))
