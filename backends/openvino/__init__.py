"""OpenVINO: captured ATen graphs through its PyTorch frontend, run on torch's memory.

* ``operators`` decides which nodes OpenVINO accepts,
* ``trial`` finds out what no list documents, by converting single operators and comparing them with torch,
* ``integers`` proves that 64-bit integers fit into the 32 bits that OpenVINO keeps,
* ``rewrite`` expresses in other operators what the frontend gets wrong; ``translate`` turns a graph into an OpenVINO
  model,
* ``runtime`` compiles and runs it; ``counts`` reads how long each layer took,
* ``files`` keeps the model that OpenVINO compiles, and writes it as IR,
* ``compiler`` connects these with the artifact cache.

Importing this package does not import openvino.
"""

from __future__ import annotations

import importlib.metadata

from torchmux.registry.spec import BackendSpec

from .options import OpenvinoOptions


def fingerprint() -> str:
    """What determines how a graph is converted and compiled: OpenVINO's version and the processor's instructions."""
    import torch  # imported here, so that listing the backends does not need it

    try:
        version = importlib.metadata.version("openvino")
    except importlib.metadata.PackageNotFoundError:
        return ""
    return f"openvino {version}, {torch.backends.cpu.get_cpu_capability()}"


SPEC = BackendSpec(
    name="openvino",
    summary="OpenVINO through its PyTorch frontend, in the precision of the model",
    load="torchmux.backends.openvino.compiler:OpenVino",
    requires=("openvino>=2025.0",),
    install='python -m pip install "openvino>=2025.0"',
    graph="aten",
    training=True,
    dynamic_shapes=True,
    devices=("cpu",),
    dtypes=("float32", "int64", "int32", "bool"),
    options=OpenvinoOptions,
    modes={"latency": {"performance_hint": "LATENCY"}, "throughput": {"performance_hint": "THROUGHPUT"}},
    tries=({"freeze": True},),
    fingerprint=fingerprint,
    priority=45,
)
