"""torch.compile on a GPU: conversions to half precision and back are left out, floats of eight bits stop at their
largest, float64 beyond int32 becomes zero, and a negated zero has no sign.  Exits with 1 while so.
"""

import sys

import torch

if not torch.cuda.is_available():
    raise ModuleNotFoundError("there is no GPU here")

x = torch.tensor([0.1, 300.7, 70000.0, 3e9, 500.0, float("nan")], device="cuda")


def is_same(function, x=x):
    a, b = function(x), torch.compile(function, dynamic=False)(x)
    return torch.allclose(a, b, rtol=0, atol=0, equal_nan=True) and torch.equal(a.signbit(), b.signbit())


same = [
    is_same(lambda x: x.half().float()),
    is_same(lambda x: x.bfloat16().float()),
    is_same(lambda x: x.to(torch.float8_e4m3fn).float()),
    is_same(lambda x: x.double().int()),
    is_same(lambda x: torch.cat([x.double(), x.half()])),
    is_same(lambda x: x.double().half().float()),
    is_same(lambda x: x.half().float().sum(), x[:2]),
    is_same(lambda x: x.half() % 2, x[1:2] * 0 + 126.7),
    is_same(lambda x: x.bfloat16().round(), x[1:2] * 0 + 126.7),
    is_same(lambda x: -x, x[:1] * 0),
]
print("torch", torch.__version__, "as eager:", same)
sys.exit(int(not any(same)))
