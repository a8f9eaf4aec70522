"""torch.compile: a pseudo-inverse under autocast is float32.  Exits with 1 while it is."""

import sys

import torch

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"


def f(x):
    return torch.linalg.pinv(x)


x = torch.eye(4, device=device)
with torch.no_grad(), torch.autocast(torch.device(device).type, torch.bfloat16):
    told = [function(x).dtype for function in (f, torch.compile(f))]
print("torch", torch.__version__, "eager and torch.compile:", told)
sys.exit(int(told[0] != told[1]))
