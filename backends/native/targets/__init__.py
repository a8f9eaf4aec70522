"""The machines that native compiles for: one :class:`~.target.Target` each, found by the device of a graph.

* ``target`` is the interface of a target; modules outside of this package use nothing else,
* ``loaded`` is its code in a process that runs it,
* ``host`` prints the Python function that runs a graph, from neutral steps,
* ``torch_calls`` gives products, convolutions and attention to torch's own operators, which any device has,
* ``biases`` has their biases of half precision added by the same operators,
* ``rows_operator`` multiplies matrices into rows with gaps between them,
* ``cpu`` prints C++, ``triton`` prints Triton.

Each target has two entry points: a class that compiles, and a function that loads what the class has built.  A process
that finds everything in the artifact cache uses only the second, and imports no compiler.  Importing this package
imports neither.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from .loaded import Loader
    from .target import Target


@dataclass(frozen=True)
class Doors:
    """The entry points of a target: ``compiles`` is its class, ``loads`` its :data:`~.loaded.Loader`."""

    compiles: str
    loads: str


TARGETS = {
    "cpu": Doors(compiles=".cpu.target:Cpu", loads=".cpu.loading:load"),
    "triton": Doors(compiles=".triton.target:Triton", loads=".triton.loading:load"),
}
"""The targets by name."""

BY_DEVICE = {"cpu": "cpu", "cuda": "triton"}
"""The name of the target that compiles for a type of device."""

WITH_COMPLEX = frozenset(("cpu",))
"""The targets that compile for complex numbers."""

LEAST_CAPABILITY = (7, 0)
"""Of GPUs: what Triton compiles for."""


@functools.cache
def why_not(device: torch.device) -> str | None:
    """Why nothing is compiled for ``device`` on this machine; None if something is."""
    if device.type != "cuda" or _forced.get() is not None:
        return None
    import torch  # not with the package: listing the backends takes no time

    if importlib.util.find_spec("triton") is None:
        return "native compiles for GPUs by Triton, which is not installed: pip install triton"
    if torch.version.hip is not None:
        return "native compiles for GPUs of NVIDIA's"
    if torch.cuda.is_available() and (found := torch.cuda.get_device_capability(device)) < LEAST_CAPABILITY:
        return f"Triton compiles for compute capability 7.0 or later, and this GPU has {found[0]}.{found[1]}"
    return None


def machine_of(device: torch.device) -> str:
    """What the code for ``device`` depends on besides the graph, for the names of artifacts."""
    if device.type != "cuda":
        return device.type
    import torch

    if not torch.cuda.is_available():
        return device.type
    return f"{torch.cuda.get_device_capability(device)} triton {importlib.metadata.version('triton')}"


_forced: ContextVar[str | None] = ContextVar("forced", default=None)


def of_device(device_type: str) -> str | None:
    """The name of the target that compiles for such devices, if there is one."""
    return _forced.get() or BY_DEVICE.get(device_type)


@contextlib.contextmanager
def forced(name: str) -> Iterator[None]:
    """Compile for this target, whatever the device: the tests run Triton's kernels on CPU tensors, by its interpreter.

    The cache of captured graphs does not know of this, so it must be another one than outside.
    """
    token = _forced.set(name)
    try:
        yield
    finally:
        _forced.reset(token)


@functools.cache
def named(name: str) -> Target:
    """The target of this name."""
    target: Target = _found(TARGETS[name].compiles)()
    return target


def loader(name: str) -> Loader:
    """What loads the artifacts that have this name."""
    found: Loader = _found(TARGETS[name].loads)
    return found


def _found(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module, __name__), attribute)
