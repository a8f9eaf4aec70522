"""torch.compile: an input that leads only to results without a gradient gets zeros, or nan, where eager leaves None.

Exits with 1 while it does.
"""

import sys

import torch


def f(x, y):
    return x.sqrt(), y * 3


x, y = torch.zeros(2, requires_grad=True), torch.ones(2, requires_grad=True)
torch.compile(f, backend="aot_eager")(x, y)[1].sum().backward()
print("torch", torch.__version__, x.grad)
sys.exit(int(x.grad is not None))
