"""torch.compile on a GPU: nan is below all edges, padding with a negative zero is with a positive one, and the place
of the largest of a transposed matrix is that of the matrix, where both are computed.  Exits with 1 while so.
"""

import sys

import torch

if not torch.cuda.is_available():
    raise ModuleNotFoundError("there is no GPU here")

nan = torch.tensor([float("nan"), 1.0], device="cuda")


def is_same(function, given):
    return torch.equal(function(given), torch.compile(function, dynamic=False)(given))


def places(x):
    return x.argmax(), x.t().argmax()


matrix = torch.arange(20.0, device="cuda").view(4, 5).flip(1)
places_when_compiled = torch.compile(places, dynamic=False)
same = [
    is_same(lambda x: torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0], device="cuda"), x), nan),
    is_same(lambda x: torch.nn.functional.pad(x, (1, 2), value=-0.0).signbit(), nan[1:]),
    places(matrix) == places_when_compiled(matrix),
]
print("torch", torch.__version__, "as eager:", same)
sys.exit(int(not any(same)))
