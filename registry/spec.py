"""The contract with a backend, version 1: what a backend says of itself.

What it is asked to do stands in :mod:`.contract`, and is named here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .contract import (
    Backend,
    BackendExtras,
    CompiledGraph,
    CompiledPart,
    CompiledPartExtras,
    CompileRequest,
    PlainFunction,
    ToolFile,
)

__all__ = [
    "ANY",
    "API_VERSION",
    "Availability",
    "Backend",
    "BackendExtras",
    "BackendSpec",
    "CompileRequest",
    "CompiledGraph",
    "CompiledPart",
    "CompiledPartExtras",
    "PlainFunction",
    "Tombstone",
    "ToolFile",
]

API_VERSION = 1

ANY = "*"
"""In ``BackendSpec.devices`` or ``dtypes``: whatever torch has."""


@dataclass(frozen=True)
class Availability:
    """Whether a backend can run on this machine, and if not, why not.

    Examples:
        >>> torchmux.Availability(False, "there is no accelerator").ok
        False
    """

    ok: bool
    reason: str = ""


def _always_available() -> Availability:
    return Availability(True)


@dataclass(frozen=True)
class BackendSpec:
    """A light description of a backend; building one must not import the compiler.

    ``load`` is ``"module:attribute"`` (imported at the first compile) or the implementation itself: either a plain
    function ``(gm, example_inputs, **options) -> callable``, an object that follows :class:`Backend`, or a class of
    such objects, of which one is made without arguments.

    ``requires`` holds PEP 508 strings; one may list alternatives: ``"onnxruntime>=1.20 | onnxruntime-gpu>=1.20"``.
    ``probe`` must be cheap, must not import the compiler, and must not take what ``requires`` lists for granted.

    Examples:
        >>> torchmux.BackendSpec(name="mine", summary="an example", load="my_package.compiler:Compiler").graph
        'torch'
    """

    name: str
    summary: str
    load: str | Callable[..., Any] | Any
    requires: tuple[str, ...] = ()  # checked against installed metadata without importing
    install: str = ""  # the exact command that makes the backend available
    probe: Callable[[], Availability] = _always_available
    graph: Literal["torch", "aten"] = "torch"
    training: bool = False
    dynamic_shapes: bool = False
    devices: tuple[str, ...] = ("cpu",)
    dtypes: tuple[str, ...] = ("float32",)
    options: type | None = None  # a dataclass; None: the backend takes no options
    modes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # mode -> the options it stands for
    tries: tuple[Mapping[str, Any], ...] = ()  # sets of options that ``auto`` measures besides the defaults
    fingerprint: Callable[[], str] = str
    priority: int = 0  # higher is preferred by ``backend=None``
    library: str = ""  # whose kernels its code calls for every operator, if it has no code of its own
    unverified: str = ""  # why the adapter could not be tried by its authors, if so
    api: int = API_VERSION


@dataclass(frozen=True)
class Tombstone:
    """A retired name that still answers usefully: ``successor`` is a backend's name, or a phrase after "Use".

    Examples:
        >>> torchmux.Tombstone("old", "Its compiler is archived.", "backend='native'").successor
        "backend='native'"
    """

    name: str
    reason: str
    successor: str
