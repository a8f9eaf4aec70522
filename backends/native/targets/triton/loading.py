"""Kernels that were kept as text, ready to be launched in this process."""

from __future__ import annotations

import hashlib
import linecache
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..loaded import Loaded


def load(own: Mapping[str, Any], built: bytes, constants: Mapping[str, torch.Tensor]) -> Loaded:
    """The kernels, and what the host function launches them with; see :data:`..loaded.Loader`."""
    names: dict[str, Any] = {"launch": launch}
    if built:
        found = defined(built.decode())
        names |= {name: found[name] for name in own["kernels"]}
    if not own["timers"]:
        return Loaded(names)
    spent = [0.0] * own["timers"]
    return Loaded({**names, "clock": clock, "spent": spent}, _taken(spent))


def defined(source: str) -> dict[str, Any]:
    """What ``source`` defines.  Triton reads the text of a kernel again, through ``linecache``."""
    file = f"<torchmux native {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": "torchmux_native_kernels"}
    exec(compile(source, file, "exec"), namespace)
    return namespace


def launch(kernel: Any, programs: int, first: torch.Tensor, *rest: Any, **constants: int) -> None:
    """Run so many programs of a kernel on the device of its arguments; sums and products are rounded each."""
    if programs <= 0:
        return
    if first.device.type == "cuda" and first.device.index != torch.cuda.current_device():
        with torch.cuda.device(first.device):
            kernel[(programs,)](first, *rest, **constants, enable_fp_fusion=False)
    else:
        kernel[(programs,)](first, *rest, **constants, enable_fp_fusion=False)


def clock() -> float:
    """The time when everything that was launched has run."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def _taken(spent: list[float]) -> Callable[[], list[float]]:
    def take() -> list[float]:
        found = list(spent)
        spent[:] = [0.0] * len(spent)
        return found

    return take
