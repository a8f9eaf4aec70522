"""torch.compile: gradients of means over windows that end outside of the image are wrong.  Exits with 1 while so."""

import sys

import torch
import torch.nn.functional as F

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"


def f(x):
    return F.avg_pool2d(x, 2, ceil_mode=True)


x = torch.randn(1, 1, 7, 9, device=device, requires_grad=True)
eager, compiled = (torch.autograd.grad(function(x).sum(), x)[0] for function in (f, torch.compile(f)))
print("torch", torch.__version__, "gradients are off by", (eager - compiled).abs().max().item())
sys.exit(int(not torch.allclose(eager, compiled)))
