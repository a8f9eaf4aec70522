"""torch.compile on a CPU: an index out of range is a RuntimeError, and no maximum of nothing an InductorError.

Exits with 1 while both are.
"""

import sys

import torch


def raised(function, *given):
    try:
        function(*given)
    except Exception as error:
        return type(error).__name__
    return ""


def row(x, index):
    return x[index] * 2


def largest(x):
    return x.max()


given = torch.randn(4), torch.tensor([9])
told = [
    (raised(row, *given), raised(torch.compile(row), *given)),
    (raised(largest, torch.randn(0)), raised(torch.compile(largest), torch.randn(0))),
]
print("torch", torch.__version__, "eager and torch.compile:", told)
sys.exit(int(told == [("IndexError", "RuntimeError"), ("RuntimeError", "InductorError")]))
