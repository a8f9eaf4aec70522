"""torch that is built for CUDA and sees no GPU: after torch.compile, a copy of the process computes no gradients.

Fake tensors give CUDA a device that does nothing.  The first backward pass of a process counts devices, and starts a
thread for each.  Exits with 1 while so.
"""

import os
import subprocess
import sys

import torch

if not torch.backends.cuda.is_built() or torch.cuda.is_available():
    raise ModuleNotFoundError("this is not torch for CUDA without a GPU")


def step(function):
    x = torch.ones(3, requires_grad=True)
    function(x).sum().backward()


def fails_in_a_copy():
    copy = os.fork()
    if copy:
        return os.waitpid(copy, 0)[1] != 0
    try:
        step(torch.sin)
    except RuntimeError:
        os._exit(1)
    os._exit(0)


if len(sys.argv) > 1:
    step(torch.compile(torch.sin, backend="eager") if sys.argv[1] == "compiled" else torch.sin)
    sys.exit(int(fails_in_a_copy()))
eager, compiled = (subprocess.run([sys.executable, __file__, how]).returncode for how in ("eager", "compiled"))
print("torch", torch.__version__, "a copy fails after eager and after torch.compile:", eager, compiled)
sys.exit(int((eager, compiled) == (0, 1)))
