"""TensorRT through torch_tensorrt: the description, so that asking for it gets a precise answer.

The adapter itself is not part of this version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchmux.registry.errors import BackendUnavailable
from torchmux.registry.spec import Availability, BackendSpec

_DRIVER = Path("/proc/driver/nvidia/version")


def probe() -> Availability:
    """Whether an NVIDIA driver is loaded; asks the kernel, not a library."""
    if _DRIVER.exists():
        return Availability(True)
    return Availability(False, "tensorrt needs an NVIDIA GPU with its driver, and none is loaded on this machine")


def __getattr__(name: str) -> Any:
    if name == "compile":
        raise BackendUnavailable(
            "The tensorrt adapter is not part of this version of torchmux: its name is reserved, and nothing behind it "
            "compiles yet. Use backend='inductor' on NVIDIA GPUs."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


SPEC = BackendSpec(
    name="tensorrt",
    summary="NVIDIA TensorRT through torch_tensorrt (the adapter is not part of this version)",
    load="torchmux.backends.tensorrt:compile",
    requires=("torch-tensorrt>=2.11",),
    install='python -m pip install "torch-tensorrt>=2.11"',
    probe=probe,
    graph="aten",
    devices=("cuda",),
    dtypes=("float32", "float16", "int64", "int32", "bool"),
    unverified="the adapter is not part of this version; loading it says so",
)
