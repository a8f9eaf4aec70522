"""torch.compile on a GPU: results of padded products have the strides of what is padded.  Exits with 1 while so."""

import sys

import torch

if not torch.cuda.is_available():
    raise ModuleNotFoundError("there is no GPU here")
a, b = (torch.randn(129, 129, device="cuda", dtype=torch.bfloat16) for _ in range(2))
strides = [f(a, b).stride() for f in (torch.mm, torch.compile(torch.mm))]
print("torch", torch.__version__, "strides of eager and torch.compile:", strides)
sys.exit(int(strides[0] != strides[1]))
