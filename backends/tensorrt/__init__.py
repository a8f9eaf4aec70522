"""TensorRT through torch_tensorrt's converters, on captured graphs.

* ``operators`` asks torch_tensorrt's registry of converters which nodes it accepts,
* ``settings`` turns our options into its settings, and sizes into optimization profiles,
* ``engine`` builds and loads engines,
* ``compiler`` connects these with the artifact cache.

This backend is written against torch_tensorrt 2.11.  Its authors did not run it, because their machines lack TensorRT's
libraries; a test checks every call to torch_tensorrt here against its sources.  Importing this package imports neither
torch_tensorrt nor tensorrt.
"""

from __future__ import annotations

from pathlib import Path

from torchmux.registry.spec import Availability, BackendSpec

from ..common.cache.versions import installed
from .options import TensorrtOptions

_DRIVER = Path("/proc/driver/nvidia/version")


def probe() -> Availability:
    """Whether an NVIDIA driver is loaded; asks the kernel, not a library."""
    if _DRIVER.exists():
        return Availability(True)
    return Availability(False, "tensorrt needs an NVIDIA GPU with its driver, and none is loaded on this machine")


def fingerprint() -> str:
    """The versions that determine an engine."""
    return installed("torch_tensorrt", "tensorrt")


SPEC = BackendSpec(
    name="tensorrt",
    summary="NVIDIA TensorRT through torch_tensorrt's converters; inference on GPU",
    load="torchmux.backends.tensorrt.compiler:TensorRT",
    requires=("torch-tensorrt>=2.11",),
    install='python -m pip install "torch-tensorrt>=2.11"',
    probe=probe,
    graph="aten",
    training=False,
    dynamic_shapes=True,
    devices=("cuda",),
    dtypes=("float32", "float16", "bfloat16", "int64", "int32", "bool"),
    options=TensorrtOptions,
    fingerprint=fingerprint,
    priority=45,
    unverified="written against torch_tensorrt 2.11's sources; its authors had no machine with TensorRT to run it on",
)
