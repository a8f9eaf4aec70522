"""torchmux's own compiler, which turns ATen graphs into fused C++ kernels.

A graph passes through these modules in order:

* ``rewrites.attention`` finds attention in the captured graph, and ``targets.cpu.attention_kernel`` computes it,
* ``lowering`` expresses each ATen operator in the loop IR (``ir``),
* ``lowering.graph`` applies this to a graph, which gives an ``ir.program``: statements, matrix products, calls to
  torch's operators,
* ``schedule.schedule`` fuses the statements into kernels (``schedule.kernel``) and orders everything,
* ``ir.ordered_loops`` has loops whose order matters: cumulative sums, and writes to positions given by data,
* ``schedule.stages`` arranges the passes of a kernel over its rows,
* ``targets.cpu.cpp`` prints kernels as C++ on top of ``kernels.h``,
* ``targets.cpu.module`` adds memory and calls, ``targets.cpu.source`` produces the text, and ``targets.cpu.build``
  compiles it to a shared object,
* ``compiler`` connects these with the artifact cache, and ``runtime`` calls the result.

Importing this package imports none of these modules.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from pathlib import Path

from torchmux.registry.spec import Availability, BackendSpec

from ..common.cache.versions import processor
from .options import MODES, NativeOptions

COMPILERS = ("g++", "clang++")


def compiler_command() -> list[str] | None:
    """The C++ compiler: ``CXX`` if set, or the first one found; None if there is none."""
    chosen = os.environ.get("CXX")
    for candidate in [chosen] if chosen and chosen.strip() else COMPILERS:
        words = shlex.split(candidate)
        if shutil.which(words[0]):
            return words
    return None


def probe() -> Availability:
    if compiler_command() is not None:
        return Availability(True)
    chosen = os.environ.get("CXX")
    if chosen and chosen.strip():
        return Availability(False, f"it needs a C++ compiler, and CXX={chosen!r} is not on PATH")
    return Availability(
        False, f"it needs a C++ compiler, and {' or '.join(COMPILERS)} is not on PATH; install one or set CXX"
    )


def fingerprint() -> str:
    """The compiler, the processor that it compiles for, and what this package generates."""
    digest = hashlib.sha256()
    command = compiler_command() or []
    digest.update(" ".join(command).encode())
    for word in command[:1]:
        found = os.stat(os.path.realpath(shutil.which(word) or word))
        digest.update(f"{found.st_size} {found.st_mtime_ns}".encode())
    digest.update(processor().encode())
    for path in sorted(Path(__file__).parent.rglob("*")):
        if path.suffix in (".py", ".h"):
            digest.update(path.read_bytes())
    return digest.hexdigest()


SPEC = BackendSpec(
    name="native",
    summary="torchmux's own compiler: fused, vectorized C++ kernels; CPU",
    load="torchmux.backends.native.compiler:Native",
    probe=probe,
    install="apt-get install g++",
    graph="aten",
    training=True,
    dynamic_shapes=True,
    devices=("cpu",),
    dtypes=("float32", "float64", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"),
    options=NativeOptions,
    modes=MODES,
    fingerprint=fingerprint,
    priority=50,
)
