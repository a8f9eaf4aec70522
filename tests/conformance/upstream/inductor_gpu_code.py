"""torch.compile on a GPU: code for some programs does not compile.  Exits with 1 while so."""

import sys

import torch

if not torch.cuda.is_available():
    raise ModuleNotFoundError("there is no GPU here")

x = torch.ones(2, device="cuda")


def written(x):
    v = x.clone()
    v.view(-1)[::3] = 0
    w = x + 0
    w[1:, ::2].mul_(2)
    u = torch.ones_like(x)
    u[:, 0].copy_(x[:, 1])
    u[:, 1] += x[:, 2].abs()
    return w.sum(0), v.sum(), u.sum(0), u


def turned(x):
    return torch.complex(x, x).mul(2 - 1j).imag


def drawn(x):
    return x[torch.randperm(2, device="cuda")] - 1


def fails(function, given, **options):
    try:
        result = torch.compile(function, dynamic=False, options=options)(given)
        if function is turned:
            result.sum().backward()
    except Exception as error:
        return type(error).__name__
    return ""


failures = [
    fails(lambda x: torch.arange(2**53, 2**53 + 4, device="cuda"), x),
    fails(lambda x: (x > 0).to(torch.int8).view(torch.bool), x),
    fails(lambda x: (x > 0).view(torch.uint8), x),
    fails(turned, x.clone().requires_grad_()),
    fails(drawn, torch.ones(2, 3, device="cuda"), fallback_random=True),
]
print("torch", torch.__version__, failures, fails(written, torch.ones(4, 4, device="cuda", requires_grad=True)))
sys.exit(int(all(failures)))
