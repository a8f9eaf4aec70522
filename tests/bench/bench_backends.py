"""Backends that fail, by functions that another process can import."""

from __future__ import annotations

import os
import time
from typing import Any

import torch

_kept: list[Any] = []


def good(gm: Any, inputs: Any) -> Any:
    print("a backend may talk")
    return gm.forward


def wrong(gm: Any, inputs: Any) -> Any:
    return lambda *args: tuple(v * 1.01 for v in gm.forward(*args))


def wrong_elsewhere(gm: Any, inputs: Any) -> Any:
    """Right for the inputs that it was compiled with, and nowhere else."""
    known = [v.clone() for v in inputs]
    results = [v.detach().clone() for v in gm.forward(*inputs)]
    return lambda *args: tuple(results if all(map(torch.equal, args, known)) else (r + 1 for r in results))


def raising(gm: Any, inputs: Any) -> Any:
    raise ValueError("no such loop")


def crashing(gm: Any, inputs: Any) -> Any:
    os.kill(os.getpid(), 11)


def crashing_later(gm: Any, inputs: Any) -> Any:
    calls = iter(range(12))
    return lambda *args: gm.forward(*args) if next(calls, None) is not None else os.kill(os.getpid(), 11)


def hanging(gm: Any, inputs: Any) -> Any:
    time.sleep(1000)


def leaking(gm: Any, inputs: Any) -> Any:
    while True:
        _kept.append(torch.ones(1 << 24))
