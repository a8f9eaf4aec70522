"""torch's AOTAutograd: a write to ``x.data`` counts in the version of ``x`` in a traced graph, not in eager.

Exits with 1 while it does.
"""

import sys

import torch


def clamped(x, w):
    w.data.clamp_(-0.1, 0.1)
    return x @ w


def counted(function):
    w = torch.ones(3, 3, requires_grad=True)
    function(torch.ones(3, 3), w)
    return w._version


eager, traced = counted(clamped), counted(torch.compile(clamped, backend="aot_eager"))
print("torch", torch.__version__, "version in eager and traced:", eager, traced)
sys.exit(int((eager, traced) == (0, 1)))
