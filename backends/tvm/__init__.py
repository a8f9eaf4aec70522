"""Apache TVM: captured ATen graphs through Relax.

* ``operators`` says what can go to TVM, asked of TVM's own PyTorch frontend,
* ``translate`` writes a graph as a Relax function, with ``handlers`` for what that frontend has wrong,
* ``compat`` knows what the versions of TVM have other names for,
* ``library`` lets Relax call torch's kernels for matrix products, convolutions and attention,
* ``mathlib`` and ``schedule`` make vectorized, parallel loops of what TVM fuses around those calls,
* ``tuning`` has MetaSchedule look for better schedules, in a process (``tuner``) of its own,
* ``build`` runs TVM's passes, and turns executables into bytes,
* ``parts`` goes through these for one part of a graph, and compares the outcome with torch,
* ``sizes`` makes torch's symbolic sizes variables of TVM; what has to know them gets one artifact per ``shapes``,
* ``machine`` runs what was compiled, without TVM's compiler, ``runtime`` calls that, ``streams`` on a GPU,
* ``compiler`` puts these together, with the artifact cache.

Importing this package does not import tvm.
"""

from __future__ import annotations

from torchmux.registry.spec import BackendSpec

from ..common.cache.versions import installed
from .options import MODES, TvmOptions


def fingerprint() -> str:
    """The versions that decide what is generated; the processor counts where code is kept."""
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
