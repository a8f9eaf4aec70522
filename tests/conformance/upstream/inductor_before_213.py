"""torch.compile on a CPU, before torch 2.13: another order of draws, code that does not compile, other results for
infinities and nan, other strides of images.  Exits with 1 while all of it is so.
"""

import math
import sys

import torch
import torch.nn.functional as F

if torch.__version__ >= "2.13":
    raise ModuleNotFoundError("this is not a torch before 2.13")


def compiled(function, *given):
    torch._dynamo.reset()
    torch.manual_seed(5)
    return torch.compile(function, options={"fallback_random": True}, dynamic=False)(*given)


def is_same(function, *given):
    torch.manual_seed(5)
    expected, result = function(*given), compiled(function, *given)
    return torch.equal(result.nan_to_num(7.0), expected.nan_to_num(7.0)) and result.stride() == expected.stride()


def compiles(function, *given):
    try:
        result = compiled(function, *given)
        if result.requires_grad:
            result.sum().backward()
    except Exception:
        return False
    return True


def two(x):
    a, b = torch.rand(3), torch.rand(3)
    return b * 2 + a.sin()


x = torch.ones(4, 5)
image = torch.randn(2, 4, 7, 7).to(memory_format=torch.channels_last)
told = {
    "draws": is_same(two, x),
    "rows that are drawn": compiles(lambda x: x[torch.randperm(4)] - 1, x),
    "bytes as bools": compiles(lambda x: (x > 0).to(torch.int8).view(torch.bool), x),
    "parts of complex numbers": compiles(
        lambda x: torch.complex(x, x).mul(2 - 1j).imag, torch.ones(3, requires_grad=True)
    ),
    "infinity": is_same(lambda x: torch.special.xlog1py(x * 0, x), torch.tensor([math.inf, -math.inf, -2.0])),
    "nan": is_same(F.softshrink, torch.tensor([math.nan, 1.0])),
    "images that are padded": is_same(lambda x: F.pad(x, (1, 2, 0, 1), mode="replicate"), image),
    "images that are turned": is_same(lambda x: x.roll(1, 3), image),
}
print("torch", torch.__version__, "as in eager:", told)
sys.exit(int(not any(told.values())))
