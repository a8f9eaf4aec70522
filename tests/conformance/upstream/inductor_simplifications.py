"""torch.compile: products with zero lose nan and signs, bounds lose signs, and powers of infinities differ.

Exits with 1 while all of these do.
"""

import math
import sys

import torch

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
x = torch.tensor([math.nan, math.inf, -math.inf, -1.0, -0.0], device=device)


def f(x):
    return x * 0, x**-0.5, x.clamp(min=0)


pairs = list(zip(f(x), torch.compile(f)(x), strict=True))
print("torch", torch.__version__, "eager and torch.compile:", pairs)
same = [torch.equal(a.isnan(), b.isnan()) and torch.equal(a.signbit(), b.signbit()) for a, b in pairs]
sys.exit(int(not any(same)))
