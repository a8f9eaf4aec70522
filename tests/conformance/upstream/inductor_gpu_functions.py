"""torch.compile on a GPU: numbers near zero become zero in its functions, and copysign of a negative zero gives no
sign.  Exits with 1 while so.
"""

import sys

import torch

if not torch.cuda.is_available():
    raise ModuleNotFoundError("there is no GPU here")

tiny = torch.tensor([1e-40, -3e-39, 5e-41, -1e-44, 1.1e-38], device="cuda")
signs = torch.tensor([1.5, -0.5, 3.0, 2.0, 0.25], device="cuda")


def is_same(function, *given):
    return torch.equal(function(*given), torch.compile(function, dynamic=False)(*given))


same = [
    is_same(torch.tanh, tiny),
    is_same(torch.rsqrt, tiny.abs()),
    is_same(torch.floor, tiny),
    is_same(torch.expm1, tiny),
    is_same(lambda x: torch.exp2(x * 1e40 * 0 - 130.5), tiny),
    is_same(lambda x: torch.copysign(x, -0.0), signs),
    is_same(torch.atan2, tiny, tiny.flip(0)),
]
print("torch", torch.__version__, "as eager:", same)
sys.exit(int(not any(same)))
