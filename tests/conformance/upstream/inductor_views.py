"""torch.compile: imaginary parts of conjugates are no views.  Exits with 1 while they are not."""

import sys

import torch

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"


def f(x):
    made = torch.complex(x, x)
    return torch.view_as_real(made), made.conj().imag


x = torch.randn(3, device=device)
told = []
for function in (f, torch.compile(f)):
    pairs, imaginary = function(x)
    told.append((imaginary.is_neg(), pairs.untyped_storage().data_ptr() == imaginary.untyped_storage().data_ptr()))
print("torch", torch.__version__, "eager and torch.compile:", told)
sys.exit(int(told == [(True, True), (False, False)]))
