"""Apache TVM: captured ATen graphs through Relax.

* ``compiler`` puts what follows together, with the artifact cache,
* ``operators`` says what can go to TVM, asked of TVM's own PyTorch frontend,
* ``parts`` goes through the compiler for one part of a graph, and compares the outcome with torch,
* ``relax`` (a package) writes the part as a Relax function, ``codegen`` (another) makes code of that,
* ``sizes`` makes torch's symbolic sizes variables of TVM; what has to know them gets one artifact per ``shapes``,
* ``layout`` says how tensors lie that go in and come out,
* ``machine`` runs what was compiled, without TVM's compiler; ``runtime`` calls that, with ``threads`` and ``streams``,
* ``compat`` knows what the versions of TVM have other names for.

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
