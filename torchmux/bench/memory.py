"""How much memory this process takes, on the host and on an accelerator."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch


class Memory:
    """Bytes that were added since this was made, in the process and in what torch reserves on the accelerator."""

    def __init__(self) -> None:
        self.accelerator = torch.cuda.is_available() and torch.cuda.is_initialized()
        # From here on, the kernel's high-water mark is that of what follows.  Where this is forbidden, the mark may be
        # older, and the peak too large.
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self.resident = _status("VmRSS")
        self.reserved = 0
        if self.accelerator:
            torch.cuda.reset_peak_memory_stats()
            self.reserved = torch.cuda.memory_reserved()

    def added(self) -> dict[str, int]:
        """``now`` and at the ``peak`` in this process, and ``accelerator`` at its peak; never below 0."""
        peak = torch.cuda.max_memory_reserved() - self.reserved if self.accelerator else 0
        return {
            "now": max(0, _status("VmRSS") - self.resident),
            "peak": max(0, _status("VmHWM") - self.resident),
            "accelerator": max(0, peak),
        }


def _status(name: str) -> int:
    """A field of the process's status, in bytes; 0 where there is none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)
