"""TVM's kernels on torch's CUDA stream.

TVM launches on the stream that its environment names, and reuses its allocations in later calls regardless of streams.
All of its calls on a device therefore run in one order: a call on a different stream than the last one waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import tvm_ffi

from . import machine

_lock = threading.Lock()
_last: dict[torch.device, torch.cuda.Stream] = {}


def on_torchs_stream(main: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """``main``, launched on the stream that is torch's current one on ``device``."""

    def run(*args: Any) -> Any:
        with _lock, torch.cuda.device(device):
            current = torch.cuda.current_stream(device)
            last = _last.get(device)
            if last is not None and last != current:
                current.wait_stream(last)
            _last[device] = current
            with tvm_ffi.use_raw_stream(machine.device_of(device), current.cuda_stream):
                return main(*args)

    return run
