"""torch.compile: grid_sample at nan is zero, and zeros have other signs.  Exits with 1 while this is so."""

import math
import sys

import torch
import torch.nn.functional as F

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"


def f(x, grid):
    return F.grid_sample(x, grid, align_corners=True), F.grid_sample(x, grid, mode="nearest", align_corners=False)


x = -torch.ones(1, 1, 4, 4, device=device)
grid = torch.tensor([math.nan, 0.0, 0.1, math.nan, 7.0, 0.3], device=device).reshape(1, 1, 3, 2)
pairs = list(zip(f(x, grid), torch.compile(f)(x, grid), strict=True))
print("torch", torch.__version__, "eager and torch.compile:", pairs)
same = [torch.equal(a.nan_to_num(99.0), b.nan_to_num(99.0)) and torch.equal(a.signbit(), b.signbit()) for a, b in pairs]
sys.exit(int(not any(same)))
