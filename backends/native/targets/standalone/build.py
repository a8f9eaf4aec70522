"""A shared object that needs the C library, its mathematics and OpenMP, and nothing else."""

from __future__ import annotations

import time
from pathlib import Path

from torchmux.config import config
from torchmux.registry.errors import BackendUnavailable

from ..cpu import build
from ..cpu.toolchain import compiler_command, probe

_FLAGS = ["-fvisibility=hidden", "-ffunction-sections", "-fdata-sections"]
# A symbol that nothing defines is an error: the object is then known to need nothing of torch.
_LINKED = ["-shared", "-Wl,-z,defs", "-Wl,--gc-sections", "-Wl,--as-needed", "-fopenmp", "-static-libgcc", "-s"]

WEIGHTS = "torchmux_weights"
"""The symbol at which the bytes begin that the object holds."""

_HOLD = f"""
.section .rodata
.balign 64
.hidden {WEIGHTS}
.globl {WEIGHTS}
{WEIGHTS}:
.incbin "weights"
.section .note.GNU-stack,"",@progbits
"""


def shared_object(source: str, weights: bytes | None, *, optimize: str = "O2") -> bytes:
    """The object of a source that includes ``standalone.h``; ``weights`` are bytes that it holds.

    Raises:
        BackendUnavailable: there is no compiler.
        CompilationFailed: the compiler failed, or took longer than it may.
    """
    command = compiler_command()
    if command is None:
        raise BackendUnavailable(f"native cannot compile: {probe().reason}.")
    here = Path(__file__).parent
    included = [f"-I{here}", f"-I{build.HEADER.parent}"]
    deadline = time.monotonic() + config.compiler_timeout_s * (2 + len(source) // 250_000)
    with build.scratch() as folder:
        build.write(folder / "model.cpp", source.encode())
        flags = [f"-{optimize}", *build.FLAGS, *_FLAGS, *included]
        steps = [([*command, *flags, "-c", "model.cpp", "-o", "model.o"], source)]
        objects = ["model.o"]
        if weights is not None:
            build.write(folder / "weights", weights)
            build.write(folder / "weights.s", _HOLD.encode())
            steps.append(([*command, "-c", "weights.s", "-o", "weights.o"], ""))
            objects.append("weights.o")
        build.run_all(steps, folder, deadline)
        build.run_all([([*command, *_LINKED, *objects, "-lm", "-o", "model.so"], "")], folder, deadline)
        return (folder / "model.so").read_bytes()
