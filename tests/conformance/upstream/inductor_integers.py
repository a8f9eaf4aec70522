"""torch.compile on a CPU: any() of uint8 is a bool, n + 1 > n is true; extremes of bools, sums as bools and logsumexp
of minus infinities do not compile.  Exits with 1 while this is so.
"""

import sys

import torch


def failure(f, given):
    try:
        torch.compile(f)(given)
    except Exception as error:
        return str(error).partition("\n")[0]
    return ""


narrow = torch.ones(5, 8, dtype=torch.uint8)
limit = torch.tensor([torch.iinfo(torch.int64).max])
told = [
    torch.compile(lambda n: n.any(0))(narrow).dtype,
    torch.compile(lambda n: n + 1 > n)(limit).item(),
    failure(lambda n: (n > 1).max(1), narrow.int()),
    failure(lambda n: torch.sum(n, dtype=torch.bool), narrow),
    failure(lambda x: torch.full_like(x, float("-inf")).logsumexp(1), torch.ones(3, 5)),
]
print("torch", torch.__version__, told)
sys.exit(int(told[:2] == [torch.bool, True] and all(told[2:])))
