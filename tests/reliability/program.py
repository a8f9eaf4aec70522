"""A program that compiles functions one after another and compares each with eager.

    python tests/reliability/program.py [FUNCTIONS [BACKEND]]

Prints a line before it begins to compile, and at the end the number of results compared and of wrong ones.
"""

from __future__ import annotations

import json
import sys

import torch

import torchmux


def function(number: int):
    """Function ``number`` of an endless series; each needs a kernel of its own."""
    scale = number + 0.5

    def f(x):
        return torch.softmax(x * scale, -1).cumsum(0) + number

    return f


def check(count: int, backend: str = "native") -> tuple[int, int]:
    """Compile and call ``count`` functions; returns the number of results and of those that differ from eager's."""
    wrong = 0
    x = torch.linspace(-1, 1, 81).reshape(9, 9)
    for number in range(count):
        f = function(number)
        with torch.no_grad():
            found, wanted = torchmux.compile(f, backend=backend)(x), f(x)
        wrong += not torch.allclose(found, wanted, rtol=1e-5, atol=1e-6)
    return count, wrong


if __name__ == "__main__":
    print("begins", flush=True)
    checked, wrong = check(int(sys.argv[1]) if len(sys.argv) > 1 else 3, *sys.argv[2:])
    print(json.dumps({"checked": checked, "wrong": wrong}), flush=True)
