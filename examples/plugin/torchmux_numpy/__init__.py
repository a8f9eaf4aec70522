"""The description of the numpy backend.  It is read whenever backends are listed, so it imports nothing heavy."""

import importlib.metadata
from dataclasses import dataclass, field
from typing import Literal

from torchmux.registry import BackendSpec


@dataclass
class NumpyOptions:
    """The options for ``options={...}``; torchmux checks names and types."""

    matmul_precision: Literal["model", "float64"] = field(
        default="model", metadata={"help": "compute matrix products in the model's dtype, or in float64 with rounding"}
    )


SPEC = BackendSpec(
    name="numpy",
    summary="a few operators through numpy, as an example",
    load="torchmux_numpy.backend:NumpyBackend",
    requires=("numpy>=1.26",),
    install="python -m pip install torchmux-numpy",
    graph="aten",
    training=True,  # torchmux splits training graphs; each half is an ordinary graph
    dynamic_shapes=True,
    devices=("cpu",),
    dtypes=("float32", "float64"),
    options=NumpyOptions,
    modes={"precise": {"matmul_precision": "float64"}},
    fingerprint=lambda: f"numpy {importlib.metadata.version('numpy')}",
    priority=-10,  # never the default
)
