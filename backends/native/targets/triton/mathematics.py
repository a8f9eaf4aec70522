"""The functions of floating-point numbers that kernels call: those of CUDA's libdevice, which eager calls, too.

They are as exact as eager's kernels on a GPU, because they are the same code; Triton's own ``tl.exp`` and division are
not.  Triton's interpreter cannot run libdevice.  For it, ``library`` holds torch's functions instead, so that tests on
a CPU run everything of a kernel but the inside of these functions.
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
