"""torchmux's own compiler: ATen graphs to fused C++ kernels.

In the order in which a graph passes through:

* ``attention`` finds attention in the captured graph, which ``attention_kernel`` computes,
* ``lowering`` says for each ATen operator what it is in the loop IR (``ir``, ``operations``, ``index``, ``values``),
* ``graph`` applies that to a graph, which gives a ``program``: statements, matrix products, calls of torch's operators,
* ``schedule`` fuses the statements into kernels (``kernel``) and orders everything,
* ``sequential`` are loops whose order matters: cumulative sums, and writing where data says,
* ``stages`` arranges the passes of a kernel over its rows,
* ``cpp`` prints kernels as C++ on top of ``kernels.h``,
* ``module`` puts memory and calls around them, ``source`` is the text, and ``build`` makes a shared object of it,
* ``compiler`` ties these together with the artifact cache, ``runtime`` calls what came out.

Importing this package imports none of that.
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
    """The C++ compiler: ``CXX`` if that is set, or the first that is found; None if there is none."""
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
    return Availability(False, f"it needs a C++ compiler, and {' or '.join(COMPILERS)} is not on PATH; or set CXX")


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
