"""torch.compile: remainders and quotients of infinities differ from eager's.  Exits with 1 while they do."""

import math
import sys

import torch

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"


def f(x, y):
    return torch.remainder(x, y), torch.floor_divide(x, y)


x = torch.tensor([1.0, -1.0, math.inf, 0.5], device=device)
y = torch.tensor([math.inf, math.inf, 2.0, 0.0], device=device)
pairs = list(zip(f(x, y), torch.compile(f)(x, y), strict=True))
print("torch", torch.__version__, "eager and torch.compile:", pairs)
sys.exit(int(not any(torch.equal(a.nan_to_num(99.0), b.nan_to_num(99.0)) for a, b in pairs)))
