"""torch 2.11: gradients of cumulative products with zeros and infinities are nan in a traced graph, not in eager.

Exits with 1 while they are.
"""

import math
import sys

import torch

if not torch.__version__.startswith("2.11."):
    raise ModuleNotFoundError("this is not torch 2.11")

x = torch.tensor([-3.0, -0.5, 0.0, 0.5, math.inf, 7.0], requires_grad=True)


def gradient(function):
    return torch.autograd.grad(function(x).sum(), x)[0]


eager, traced = (
    gradient(f) for f in (lambda x: x.cumprod(0), torch.compile(lambda x: x.cumprod(0), backend="aot_eager"))
)
print("torch", torch.__version__, "in eager and traced:", eager.tolist(), traced.tolist())
sys.exit(int(eager[0].isfinite() and traced[0].isnan()))
