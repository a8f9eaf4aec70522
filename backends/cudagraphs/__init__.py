"""CUDA graphs: the kernels of a graph are recorded once and then launched together.

* ``compiler`` decides which operators can be recorded and hands a graph to
* ``function``, which decides for each call: warm up, record, replay, record again, or leave it to torch;
* ``recording`` is one recorded graph with the memory it reads and writes;
* ``pool`` is the memory that all recordings on a device share, and the order in which they run.

Importing this package imports nothing of ``torch.cuda``.
"""

from __future__ import annotations

from pathlib import Path

from torchmux.registry.spec import ANY, Availability, BackendSpec

from .options import CudagraphsOptions

_DRIVER = Path("/proc/driver/nvidia/version")


def probe() -> Availability:
    """Whether an NVIDIA driver is loaded (asks the kernel) and torch was built for it."""
    if not _DRIVER.exists():
        return Availability(False, "cudagraphs needs an NVIDIA GPU with its driver, and none is loaded on this machine")
    import torch

    if torch.version.cuda is None:
        return Availability(False, f"cudagraphs needs a CUDA build of torch, and torch {torch.__version__} is not one")
    if not torch.cuda.is_available():
        return Availability(False, "an NVIDIA driver is loaded, but torch.cuda finds no GPU that it can use")
    return Availability(True)


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
