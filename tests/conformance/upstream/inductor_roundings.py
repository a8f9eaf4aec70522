"""torch.compile: a conversion to half precision and back does not round.  Exits with 1 while it does not."""

import sys

import torch

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"


def f(x):
    return x.half().float(), x.bfloat16().float(), (x.bfloat16() % 0.1).float()


x = torch.tensor([0.1, 300.7, 70000.0], device=device)
pairs = list(zip(f(x), torch.compile(f)(x), strict=True))
print("torch", torch.__version__, "eager and torch.compile:", pairs)
sys.exit(int(not any(torch.equal(a, b) for a, b in pairs)))
