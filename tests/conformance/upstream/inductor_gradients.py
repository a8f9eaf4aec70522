"""torch.compile: a result without a gradient takes part in backward with zeros, which lead to nan at poles; a backward
pass cannot be differentiated.  Exits with 1 while this is so.
"""

import sys

import torch

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"


def f(x):
    return x.exp(), x.sqrt(), x * x * x


x = torch.zeros(2, device=device, requires_grad=True)
told = []
for function in (f, torch.compile(f)):
    told.append(torch.autograd.grad(function(x)[0].sum(), x)[0].isnan().any().item())
    try:
        (gradient,) = torch.autograd.grad(function(x)[2].sum(), x, create_graph=True)
        torch.autograd.grad(gradient.sum(), x)
        told.append("")
    except RuntimeError as error:
        told.append(str(error)[:80])
print("torch", torch.__version__, "in eager and under torch.compile:", told)
sys.exit(int(told[:3] == [False, "", True] and told[3] != ""))
