"""torch.compile: results are inputs that eager copies, and results that are equal are one.  Exits with 1 while so."""

import sys

import torch

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"


def f(x):
    first, second = (torch.zeros(3, 4, device=x.device).add_(x) for _ in range(2))
    return x * torch.ones_like(x), x.t() * x.new_ones(4, 3), first, second


def shared(results):
    one, other, first, second = (result.untyped_storage().data_ptr() for result in results)
    memory = x.untyped_storage().data_ptr()
    return one == memory, other == memory, first == second


def inverses(x):
    return torch.linalg.inv(x), torch.linalg.inv_ex(x).inverse


def are_one(function):
    first, second = function(torch.eye(3, device=device).requires_grad_())
    return first.data_ptr() == second.data_ptr()


x = torch.randn(3, 4, device=device)
told = (*shared(f(x)), are_one(inverses)), (*shared(torch.compile(f)(x)), are_one(torch.compile(inverses)))
print("torch", torch.__version__, "what shares memory in eager and torch.compile:", told)
sys.exit(int(told == ((False,) * 4, (True,) * 4)))
