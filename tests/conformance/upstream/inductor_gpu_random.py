"""torch.compile on a GPU draws other numbers than eager, also with ``fallback_random``.  Exits with 1 while so."""

import sys

import torch

if not torch.cuda.is_available():
    raise ModuleNotFoundError("there is no GPU here")

x = torch.rand(3, 6, device="cuda")


def is_same(function):
    torch.manual_seed(5)
    expected = function(x)
    torch.manual_seed(5)
    return torch.equal(torch.compile(function, options={"fallback_random": True}, dynamic=False)(x), expected)


def two(x):
    a, b = torch.rand(3, device="cuda"), torch.rand(3, device="cuda")
    return b * 2 + a.sin()


same = [is_same(two), is_same(torch.bernoulli)]
print("torch", torch.__version__, "as eager:", same)
sys.exit(int(not any(same)))
