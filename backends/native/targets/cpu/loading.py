"""A shared object that was kept, ready to be called in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import torch

from ..loaded import Loaded
from .libraries import load as load_library


def load(own: Mapping[str, Any], built: bytes, constants: Mapping[str, torch.Tensor]) -> Loaded:
    """The functions of a library, and the weights that they want packed; see :data:`..loaded.Loader`."""
    if own["attends"]:
        from . import attention_kernel  # noqa: F401  # which registers the operators
    library: Any = load_library(built) if built else None
    names: dict[str, Any] = {}
    if own["packs"]:
        from . import packing

        names |= packing.packed(own["packs"], constants, library)
    if own["products"]:
        from . import choosing

        choosing.choose(own["products"], library)
    for at in range(own["launches"]):
        function = library[f"run{at}"]  # indexing, so that the library holds no reference to the function
        function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        function.restype = ctypes.c_int64
        names[f"run{at}"] = function
    timers = own["timers"]
    sooner = None
    if (plan := own.get("plan")) is not None:  # what was saved before there were plans has none
        from .calls.extension import Sooner

        sooner = Sooner(plan, names["run0"])
    return Loaded(names, (lambda: _times_taken(library, timers)) if timers else None, sooner=sooner)


def _times_taken(library: Any, count: int) -> list[float]:
    """The seconds of each timed step, which begin again at none."""
    spent = (ctypes.c_double * count).in_dll(library, "spent")
    found = list(spent)
    ctypes.memset(ctypes.addressof(spent), 0, ctypes.sizeof(spent))
    return found
