"""CUDA graphs: the kernels of a graph are recorded once and then launched together.

* ``compiler`` decides which operators can be recorded and hands a graph to
* ``function``, which decides for each call: warm up, record, replay, record again, or leave it to torch;
* ``recording`` is one recorded graph with the memory it reads and writes;
* ``pool`` has the recordings on a device, and the order in which they run.

Importing this package imports nothing of ``torch.cuda``.
"""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import importlib.util
import sys
from pathlib import Path

from torchmux.registry.spec import ANY, Availability, BackendSpec

from .options import CudagraphsOptions

_DRIVER = Path("/proc/driver/nvidia/version")


def probe() -> Availability:
    """Whether an NVIDIA driver is loaded (asks the kernel) and torch was built for CUDA; imports no torch."""
    if not _DRIVER.exists():
        return Availability(False, "cudagraphs needs an NVIDIA GPU with its driver, and none is loaded on this machine")
    torch = sys.modules.get("torch")
    if _cuda_version() is None:
        version = importlib.metadata.version("torch")
        return Availability(False, f"cudagraphs needs a CUDA build of torch, and torch {version} is not one")
    if torch is not None and not torch.cuda.is_available():
        return Availability(False, "an NVIDIA driver is loaded, but torch.cuda finds no GPU that it can use")
    return Availability(True)


@functools.cache
def _cuda_version() -> str | None:
    """The version of CUDA that torch was built for, read from its ``version.py``: importing torch takes seconds."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    for line in ast.parse(Path(found.origin).with_name("version.py").read_text(encoding="utf-8")).body:
        targets = [line.target] if isinstance(line, ast.AnnAssign) else getattr(line, "targets", [])
        if any(isinstance(name, ast.Name) and name.id == "cuda" for name in targets):
            return ast.literal_eval(line.value)  # type: ignore[attr-defined]
    return None


SPEC = BackendSpec(
    name="cudagraphs",
    summary="torch's own kernels, recorded as CUDA graphs and replayed",
    load="torchmux.backends.cudagraphs.compiler:Cudagraphs",
    install="python -m pip install torch  # a CUDA build, on a machine with an NVIDIA driver",
    probe=probe,
    graph="aten",
    training=True,
    dynamic_shapes=True,
    devices=("cuda",),
    dtypes=(ANY,),
    library="torch",
    options=CudagraphsOptions,
    priority=20,
)
