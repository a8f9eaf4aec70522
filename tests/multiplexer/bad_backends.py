"""Backends that nobody should choose, by functions that a worker can import; ``good`` is as eager."""

from __future__ import annotations

import os
import time
from typing import Any

import torch

_kept: list[Any] = []


def good(gm: Any, inputs: Any) -> Any:
    return gm.forward


def wrong(gm: Any, inputs: Any) -> Any:
    return lambda *args: tuple(v * 1.01 for v in gm.forward(*args))


def wrong_elsewhere(gm: Any, inputs: Any) -> Any:
    """Right on the inputs that it was compiled with, and nowhere else."""
    known = [v.clone() for v in inputs if isinstance(v, torch.Tensor)]
    results = [v.detach().clone() for v in gm.forward(*inputs)]

    def run(*args: Any) -> Any:
        same = all(torch.equal(a, b) for a, b in zip(args, known, strict=True))
        return tuple(r.clone() for r in results) if same else tuple(v + 1 for v in gm.forward(*args))

    return run


def crashing(gm: Any, inputs: Any) -> Any:
    os.kill(os.getpid(), 11)


def crashing_later(gm: Any, inputs: Any) -> Any:
    return lambda *args: os.kill(os.getpid(), 11)


def raising(gm: Any, inputs: Any) -> Any:
    raise ValueError("no such loop")


def hanging(gm: Any, inputs: Any) -> Any:
    time.sleep(1000)


def leaking(gm: Any, inputs: Any) -> Any:
    while True:
        _kept.append(torch.ones(1 << 24))


def printing(gm: Any, inputs: Any) -> Any:
    print("I am the fastest of them all")
    return gm.forward


def changing(gm: Any, inputs: Any) -> Any:
    torch.set_default_dtype(torch.float64)
    return gm.forward


def refusing(gm: Any, inputs: Any) -> Any:
    import torchmux

    raise torchmux.GraphRefused("not today")
