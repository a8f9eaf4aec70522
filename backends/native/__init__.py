"""torchmux's own compiler, which turns ATen graphs into fused kernels.

A graph passes through these modules in order:

* ``rewrites`` changes the graph: attention that a program writes out becomes one operation, and constants are folded,
* ``lowering`` says for each ATen operator what it is in the loop IR (``ir``), which gives a program: statements,
  abstract products, convolutions and attention, and calls of torch's operators,
* the *target* decides who computes what is abstract,
* ``schedule`` fuses the statements into kernels, orders everything, and plans memory and the host side,
* the target plans the loops of each kernel, prints, builds and loads: ``targets/cpu`` C++, ``targets/triton`` Triton,
* ``inspect`` tells a reader what was done.

The root holds what ties these together and knows no target: ``compiler`` with the artifact cache, ``artifact`` for
traces, ``files`` for the compilers' own tools, ``generate``, ``tuning``, ``runtime`` for what came out, ``replaying``
for its CUDA graphs, ``small_graphs`` for what torch runs sooner, ``faults`` for what it raises, ``options``, and
``devices``.

Importing this package imports none of these modules.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from torchmux.registry.spec import BackendSpec

from ..common.cache.versions import sources_digest
from . import targets
from .options import MODES, NativeOptions
from .targets.cpu import toolchain


def fingerprint() -> str:
    """The compilers, the processor that they compile for, and what this package generates."""
    told = toolchain.fingerprint(), targets.BY_DEVICE, sources_digest(Path(__file__).parent)
    return hashlib.sha256(repr(told).encode()).hexdigest()


SPEC = BackendSpec(
    name="native",
    summary="torchmux's own compiler: fused kernels, in vectorized C++ on CPUs and in Triton on NVIDIA GPUs",
    load="torchmux.backends.native.compiler:Native",
    probe=toolchain.probe,
    install="apt-get install g++",
    graph="aten",
    training=True,
    dynamic_shapes=True,
    devices=("cpu", "cuda"),
    dtypes=("float32", "float64", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"),
    options=NativeOptions,
    modes=MODES,
    tries=({"keep_scratch": True}, {"freeze": True}),
    fingerprint=fingerprint,
    priority=50,
)
