"""torch.compile: results have other strides than in eager, and draws than its generated code checks.  Exits with 1
while all of these do.
"""

import sys

import torch

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"


def f(image, nothing, labels, keys):
    return (
        torch.cat([image, image], 1),
        torch.cat([nothing, image.new_ones(4, 2).t()]),
        torch.nn.functional.one_hot(labels.t(), 5),
        torch.cat([nothing[:, 0], keys.transpose(1, 2)], 2),
    )


def fails(rates):
    try:
        torch.compile(torch.normal, options={"fallback_random": True}, dynamic=False)(rates, rates)
    except AssertionError:
        return True
    return False


image = torch.randn(2, 3, 4, 6, device=device).to(memory_format=torch.channels_last)
given = image, torch.randn(0, 4, device=device), torch.arange(12, device=device).reshape(3, 4) % 5
keys = torch.randn(2, 6, 2, 8, device=device)
pairs = [(a.stride(), b.stride()) for a, b in zip(f(*given, keys), torch.compile(f)(*given, keys), strict=True)]
print("torch", torch.__version__, "strides of eager and torch.compile:", pairs)
failed = fails(torch.ones(6, 4, device=device).t())
print("draws of a transposed tensor fail:", failed)
sys.exit(int(failed and not any(a == b for a, b in pairs)))
