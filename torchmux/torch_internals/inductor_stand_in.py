"""Traces without Inductor.

torch's ``make_fx`` asks Inductor for two settings, for a function that needs nothing of it, and whether somebody
searches for a miscompiled operator by bisection.  Importing Inductor takes longer than most traces, and importing the
module of the bisection creates Inductor's cache folder and sets ``TORCHINDUCTOR_CACHE_DIR``.  Stand-ins give the
answers, unless the environment may ask for others.
"""

from __future__ import annotations

import functools
import glob
import importlib
import importlib.util
import os
import sys
import tempfile
import types
from typing import Any

from . import stand_in
from .stand_in import StandIn

_NAME, _SETTINGS = "torch._inductor", "torch._inductor.config"
_BISECTOR = "torch._inductor.compiler_bisector"
_DEDUPE = "torch._inductor.fx_passes.dedupe_symint_uses"
_BESIDE = "torch._higher_order_ops.triton_kernel_wrap"  # make_fx takes it for imported, as Inductor imports it
_FOLDER = "TORCHINDUCTOR_CACHE_DIR"


def install() -> None:
    """Put the stand-ins up for what is not imported."""
    if _environment_asks():
        return
    if _BISECTOR not in sys.modules:
        stand_in.install(_BISECTOR, StandIn(_BISECTOR, {"CompilerBisector": _NoBisection()}, stays=True))
    if _NAME in sys.modules or (spec := importlib.util.find_spec(_NAME)) is None:
        return
    dedupe = _dedupe(*spec.submodule_search_locations or ())
    if dedupe is not None:
        importlib.import_module(_BESIDE)
        stand_in.install(_NAME, StandIn(_NAME, {}), spec)
        # the values that the settings have where no environment variable gives others
        settings = {
            "emulate_precision_casts": False,
            "fallback_random": False,
            "trace": _Trace(),
            "effective_provenance_tracking_level": lambda: 0,  # from torch 2.14 on
        }
        stand_in.install(_SETTINGS, StandIn(_SETTINGS, settings))
        stand_in.install(_DEDUPE, dedupe)


def remove() -> None:
    """Take them down."""
    for name in (_DEDUPE, _SETTINGS, _NAME, _BISECTOR):
        stand_in.remove(name)


def _environment_asks() -> bool:
    """Whether Inductor's settings, or a bisection, come from the environment."""
    begins = ("TORCHINDUCTOR_", "INDUCTOR_", "TORCH_BISECT_", "TORCH_COMPILE_DEBUG")
    return any(name.startswith(begins) and name != _FOLDER for name in os.environ) or _is_bisecting(
        os.environ.get(_FOLDER) or os.path.join(glob.escape(tempfile.gettempdir()), "torchinductor_*")
    )


@functools.cache
def _is_bisecting(folders: str) -> bool:
    """Whether ``python -m torch._inductor.compiler_bisector`` has begun; torch too asks once in a process."""
    return bool(glob.glob(os.path.join(folders, "bisect", "bisect_status.txt")))


@functools.cache
def _dedupe(folder: str = "") -> types.ModuleType | None:
    """The module ``torch._inductor.fx_passes.dedupe_symint_uses``, loaded without the packages around it."""
    path = os.path.join(folder, "fx_passes", "dedupe_symint_uses.py")
    spec = importlib.util.spec_from_file_location(_DEDUPE, path)
    if spec is None or spec.loader is None or not os.path.exists(path):
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Trace:
    """``torch._inductor.config.trace``."""

    provenance_tracking_level = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(stand_in.real(_SETTINGS).trace, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(stand_in.real(_SETTINGS).trace, name, value)


class _NoBisection:
    """``CompilerBisector`` while nobody searches; a reference that outlives the stand-in is the real class's."""

    def __getattribute__(self, name: str) -> Any:
        if _BISECTOR not in sys.modules or stand_in.is_installed(_BISECTOR):
            if name == "bisection_enabled":
                return False
            if name == "disable_subsystem":
                return _not_disabled
        return getattr(stand_in.real(_BISECTOR).CompilerBisector, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(stand_in.real(_BISECTOR).CompilerBisector, name, value)

    def __call__(self) -> Any:
        return stand_in.real(_BISECTOR).CompilerBisector()


def _not_disabled(backend: str, subsystem: str, debug_info: Any = None) -> bool:
    return False
