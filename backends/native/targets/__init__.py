"""The machines that are compiled for: one :class:`~.target.Target` for each, found by the device of a graph.

* ``target`` is what a target answers and does; everything outside of this package knows that alone,
* ``host`` prints the Python function that runs a graph, from neutral steps,
* ``torch_calls`` gives products, convolutions and attention to torch's own operators, which any device has,
* ``cpu`` prints C++, ``triton`` prints Triton.

Importing this package imports none of them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .target import Target

TARGETS = {"cpu": "cpu.target:Cpu", "triton": "triton.target:Triton"}
"""The targets by name: in which module, which class."""

BY_DEVICE = {"cpu": "cpu", "cuda": "triton"}
"""Which target compiles for a type of device."""

_forced: ContextVar[str | None] = ContextVar("forced", default=None)


def of_device(device_type: str) -> Target | None:
    """The target that compiles for such devices, if there is one."""
    name = _forced.get() or BY_DEVICE.get(device_type)
    return None if name is None else named(name)


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
    """The target of this name, as artifacts have it."""
    module, _, kind = TARGETS[name].partition(":")
    target: Target = getattr(importlib.import_module(f".{module}", __name__), kind)()
    return target
