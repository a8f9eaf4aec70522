"""ONNX Runtime: captured ATen graphs through torch's ONNX exporter, run with IO binding.

* ``operators`` decides which operators the exporter can translate,
* ``translate`` turns a graph into an ONNX model,
* ``session`` runs it on torch's own memory, and ``devices`` decides where,
* ``files`` writes the model to a file that any ONNX runtime reads,
* ``compiler`` connects these with the artifact cache.

Importing this package imports neither onnxruntime nor onnxscript nor torch.onnx.
"""

from __future__ import annotations

from torchmux.registry.spec import BackendSpec

from ..common.cache.versions import installed
from .options import OnnxrtOptions


def fingerprint() -> str:
    """The versions that determine what is exported and how it runs."""
    return installed("onnxruntime", "onnxruntime-gpu", "onnxscript", "onnx")


SPEC = BackendSpec(
    name="onnxrt",
    summary="ONNX Runtime through torch's ONNX exporter",
    load="torchmux.backends.onnxrt.compiler:OnnxRuntime",
    requires=("onnxruntime>=1.20 | onnxruntime-gpu>=1.20", "onnxscript>=0.5", "onnx>=1.17"),
    install='python -m pip install "onnxruntime>=1.20" "onnxscript>=0.5" "onnx>=1.17"',
    graph="aten",
    training=True,
    dynamic_shapes=True,
    devices=("cpu", "cuda"),
    dtypes=("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"),
    options=OnnxrtOptions,
    tries=({"freeze": True},),
    fingerprint=fingerprint,
    priority=40,
)
