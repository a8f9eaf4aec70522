"""torch.compile on a GPU: nan is below all edges, and padding with a negative zero is with a positive one.  Exits
with 1 while so.
"""

import sys

import torch

if not torch.cuda.is_available():
    raise ModuleNotFoundError("there is no GPU here")

nan = torch.tensor([float("nan"), 1.0], device="cuda")


def is_same(function, given):
    return torch.equal(function(given), torch.compile(function, dynamic=False)(given))


same = [
    is_same(lambda x: torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0], device="cuda"), x), nan),
    is_same(lambda x: torch.nn.functional.pad(x, (1, 2), value=-0.0).signbit(), nan[1:]),
]
print("torch", torch.__version__, "as eager:", same)
sys.exit(int(not any(same)))
