"""torch.compile: what is written to windows of a tensor that leave some elements out becomes zero in these.

Exits with 1 while it does.
"""

import sys

import torch

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"


def f(y):
    z = y * 2
    z.unfold(0, 2, 2).mul_(3)
    return z


y = torch.ones(5, 2, device=device)
eager, compiled = f(y), torch.compile(f)(y)
print("torch", torch.__version__, "in eager and under torch.compile:", eager[4].tolist(), compiled[4].tolist())
sys.exit(int(not torch.equal(eager, compiled)))
