"""Apache TVM: captured ATen graphs through Relax.

* ``compiler`` connects the other modules with the artifact cache,
* ``operators`` decides what can go to TVM, by asking TVM's own PyTorch frontend,
* ``parts`` compiles one part of a graph, and compares the result with torch,
* ``relax`` (a package) writes the part as a Relax function, ``codegen`` (another) generates code from it,
* ``sizes`` turns torch's symbolic sizes into TVM variables; a part that needs to know them gets one artifact for each
  entry of ``shapes``,
* ``layout`` describes the memory layout of inputs and outputs,
* ``machine`` runs compiled code without TVM's compiler; ``runtime`` calls it, with ``threads`` and ``streams``,
* ``files`` writes the compiled library and the Relax module to files,
* ``compat`` handles what TVM's versions name differently.

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
