"""torch.compile runs an operator of a program's own without gradients, also if the program has them on.  Exits with 1
while so."""

import sys

import torch


@torch.library.custom_op("mine::has_gradients", mutates_args=())
def has_gradients(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(torch.is_grad_enabled())


@has_gradients.register_fake
def _(x):
    return x.new_empty((), dtype=torch.bool)


told = [function(torch.ones(3)).item() for function in (has_gradients, torch.compile(lambda x: has_gradients(x)))]
print("torch", torch.__version__, "gradients are on in eager and compiled:", told)
sys.exit(int(told[0] != told[1]))
