"""torch.compile on a GPU: a CUDA graph runs no Python code of a program's own operator.  Exits with 1 while so."""

import sys

import torch

if not torch.cuda.is_available():
    raise ModuleNotFoundError("there is no GPU here")

calls = 0


@torch.library.custom_op("upstream::counted", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    global calls
    calls += 1
    return x * 2


@counted.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


compiled = torch.compile(lambda x: counted(x) + 1, backend="cudagraphs")
x = torch.randn(8, device="cuda")
for _ in range(8):
    compiled(x)
print("torch", torch.__version__, "the operator ran", calls, "times in 8 calls")
sys.exit(int(calls < 8))
