"""TVM's virtual machine, with only its runtime library.

Cached code runs without TVM's compiler, whose import takes longer than everything else in a process that compiles
nothing.  If ``tvm`` is imported later, it finds the libraries that are loaded here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch
import tvm_ffi
from tvm_ffi.libinfo import load_lib_ctypes

from torchmux.scratch import scratch_folder

from .relax import library

_CPU, _CUDA = 1, 2  # as DLPack numbers them
_POOLED = 2  # memory is kept for later calls


@functools.cache
def _load_runtime() -> None:
    """Load TVM's runtime library, as ``import tvm`` does before its compiler; or all of TVM, if the library is
    elsewhere.
    """
    found = importlib.util.find_spec("tvm")
    if "tvm" in sys.modules or found is None or found.origin is None:
        return
    folders = [Path(found.origin).parent / "lib"]
    try:
        load_lib_ctypes("tvm", "tvm_runtime", "RTLD_GLOBAL", extra_lib_paths=folders)
    except (OSError, RuntimeError):
        importlib.import_module("tvm")
        return
    with contextlib.suppress(OSError, RuntimeError):  # functions that some versions have elsewhere
        load_lib_ctypes("tvm", "tvm_runtime_extra", "RTLD_LOCAL", extra_lib_paths=folders)


def device_of(device: torch.device) -> Any:
    """TVM's name of the device.

    Raises:
        RuntimeError: this TVM cannot use it.
    """
    if device.type != "cuda":
        return tvm_ffi.device("cpu")
    import tvm  # which loads what it needs for GPUs

    found = tvm.cuda(device.index or 0)
    if not found.exist:
        raise RuntimeError(
            f"the installed TVM finds no {device}: it is built without CUDA, or does not find the driver"
        )
    return found


def from_bytes(content: bytes, device: torch.device) -> Any:
    """The executable in a shared library (a ``tvm_ffi.Module``); the file can go once it is loaded.

    Raises:
        RuntimeError, OSError: TVM does not load it here.
    """
    if device.type == "cuda":
        device_of(device)
    else:
        _load_runtime()
    with scratch_folder() as folder:
        path = folder / "part.so"
        path.write_bytes(content)
        return tvm_ffi.load_module(path)


def start(executable: Any, device: torch.device) -> Any:
    """The function ``main`` of an executable, on a separate virtual machine, for one call at a time."""
    library.register()
    module = executable.jit() if hasattr(executable, "jit") else executable
    machine = module["vm_load_executable"]()
    devices = [(_CUDA, device_of(device).index), (_CPU, 0)] if device.type == "cuda" else [(_CPU, 0)]
    machine["vm_initialization"](*(word for kind, index in devices for word in (kind, index, _POOLED)))
    return machine["main"]
