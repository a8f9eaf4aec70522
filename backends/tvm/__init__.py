"""Apache TVM: captured ATen graphs through Relax.

* ``operators`` decides what can go to TVM, by asking TVM's own PyTorch frontend,
* ``relax.translate`` writes a graph as a Relax function, with ``relax.handlers`` for operators that the frontend gets
  wrong,
* ``compat`` handles what TVM's versions name differently,
* ``relax.library`` lets Relax call torch's kernels for matrix products, convolutions and attention,
* ``relax.mathlib`` and ``codegen.schedule`` turn what TVM fuses around those calls into vectorized, parallel loops,
* ``codegen.tuning`` has MetaSchedule search for better schedules, in a separate process (``codegen.tuner``),
* ``codegen.build`` runs TVM's passes, and turns executables into bytes,
* ``parts`` runs these steps for one part of a graph, and compares the result with torch,
* ``sizes`` turns torch's symbolic sizes into TVM variables; a part that needs to know them gets one artifact for each
  entry of ``shapes``,
* ``machine`` runs compiled code without TVM's compiler, ``runtime`` calls it, and ``streams`` does so on a GPU,
* ``compiler`` connects these with the artifact cache.

Importing this package does not import tvm.
"""

from __future__ import annotations

from torchmux.registry.spec import BackendSpec

from ..common.cache.versions import installed
from .options import MODES, TvmOptions


def fingerprint() -> str:
    """The versions that determine the generated code; the cache key adds the processor."""
    return installed("apache-tvm", "apache-tvm-ffi")


SPEC = BackendSpec(
    name="tvm",
    summary="Apache TVM through Relax, with torch's kernels for matrix products",
    load="torchmux.backends.tvm.compiler:Tvm",
    requires=("apache-tvm>=0.25",),
    install='python -m pip install "apache-tvm>=0.25"',
    graph="aten",
    training=True,
    dynamic_shapes=True,
    devices=("cpu", "cuda"),
    dtypes=("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"),
    options=TvmOptions,
    modes=MODES,
    fingerprint=fingerprint,
    priority=20,
)
