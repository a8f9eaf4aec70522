"""The functions of floating-point numbers that kernels call: those of CUDA's libdevice.

Most give bit for bit what eager's kernels do.  Eager is compiled with a newer CUDA than Triton brings, so erf, atan,
atan2, asinh and hypot may differ by a unit, and ``functions.py`` has others for what differs by more.  Triton's own
``tl.exp`` and division are less exact.

Triton's interpreter cannot run libdevice.  For it, ``library`` holds torch's functions instead, so that tests on a CPU
run everything of a kernel but the inside of these functions.
"""

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))
"""Whether kernels are run by Triton's interpreter in this process."""

if INTERPRETED.value:
    from . import simulated as library
else:
    from triton.language.extra import libdevice as library  # type: ignore[no-redef]

__all__ = ["INTERPRETED", "library"]
