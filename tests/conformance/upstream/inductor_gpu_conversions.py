"""torch.compile on a GPU: conversions to half precision and back are left out, floats of eight bits stop at their
largest, and float64 beyond int32 becomes zero.  Exits with 1 while so.
"""

import sys

import torch

if not torch.cuda.is_available():
    raise ModuleNotFoundError("there is no GPU here")

x = torch.tensor([0.1, 300.7, 70000.0, 3e9, 500.0, float("nan")], device="cuda")


def is_same(function):
    return torch.allclose(function(x), torch.compile(function, dynamic=False)(x), rtol=0, atol=0, equal_nan=True)


same = [
    is_same(lambda x: x.half().float()),
    is_same(lambda x: x.bfloat16().float()),
    is_same(lambda x: x.to(torch.float8_e4m3fn).float()),
    is_same(lambda x: x.double().int()),
    is_same(lambda x: torch.cat([x.double(), x.half()])),
    is_same(lambda x: x.double().half().float()),
]
print("torch", torch.__version__, "as eager:", same)
sys.exit(int(not any(same)))
