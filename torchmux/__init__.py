"""One ``torch.compile``-style front door for every installed compiler.

Importing this package imports neither a backend nor torch's own compiler.  The front door itself is imported when its
first name is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# ``torchmux.config`` is the object, not the module: a submodule is bound to its package only while it is first
# imported, and this line rebinds the name right after that.
from .config import config
from .events import counters
from .logs import set_logs
from .version import __version__

if TYPE_CHECKING:
    from torchmux.backends.common.cache.artifacts import load_cache_artifacts, save_cache_artifacts
    from torchmux.deploy.artifacts import Artifact, artifacts
    from torchmux.deploy.blocks import compile_repeated_blocks
    from torchmux.deploy.loaded import Loaded
    from torchmux.deploy.loading import load
    from torchmux.deploy.precompiling import Precompiled, precompile
    from torchmux.deploy.quantizing.models import Quantized, quantize
    from torchmux.deploy.saving import save
    from torchmux.frontend.api import compile, explain, get_default_backend, report, reset, set_default_backend
    from torchmux.frontend.export import Exported, export
    from torchmux.frontend.marks.function_marks import (
        allow_in_graph,
        assume_constant_result,
        disable,
        disallow_in_graph,
        error_on_graph_break,
        forbid_in_graph,
        graph_break,
        is_compiling,
        is_exporting,
        skip_frame,
        substitute_in_graph,
    )
    from torchmux.frontend.marks.stance import set_stance
    from torchmux.frontend.marks.tensor_marks import (
        mark_dynamic,
        mark_static,
        mark_unbacked,
        maybe_mark_dynamic,
    )
    from torchmux.frontend.regions import use_backend
    from torchmux.registry import (
        Availability,
        BackendConflict,
        BackendInfo,
        BackendSpec,
        BackendUnavailable,
        CallFailed,
        CompilationFailed,
        CompileRequest,
        ConstraintViolation,
        DerivativeUnavailable,
        FallbackRefused,
        GraphRefused,
        GraphReport,
        InvalidOption,
        InvalidSpec,
        LoadRefused,
        NodesRefused,
        NumericsError,
        Placement,
        QuantizationFailed,
        SaveRefused,
        Tombstone,
        TorchmuxError,
        UnknownBackend,
        Unsupported,
        backends,
        list_backends,
        list_mode_options,
        list_options,
        lookup_backend,
        register_backend,
        unregister_backend,
    )
    from torchmux.verification import Verification, verify

__all__ = [
    "Artifact",
    "Availability",
    "BackendConflict",
    "BackendInfo",
    "BackendSpec",
    "BackendUnavailable",
    "CallFailed",
    "CompilationFailed",
    "CompileRequest",
    "ConstraintViolation",
    "DerivativeUnavailable",
    "Exported",
    "FallbackRefused",
    "GraphRefused",
    "GraphReport",
    "InvalidOption",
    "InvalidSpec",
    "LoadRefused",
    "Loaded",
    "NodesRefused",
    "NumericsError",
    "Placement",
    "Precompiled",
    "QuantizationFailed",
    "Quantized",
    "SaveRefused",
    "Tombstone",
    "TorchmuxError",
    "UnknownBackend",
    "Unsupported",
    "Verification",
    "__version__",
    "allow_in_graph",
    "artifacts",
    "assume_constant_result",
    "backends",
    "compile",
    "compile_repeated_blocks",
    "config",
    "counters",
    "disable",
    "disallow_in_graph",
    "error_on_graph_break",
    "explain",
    "export",
    "forbid_in_graph",
    "get_default_backend",
    "graph_break",
    "is_compiling",
    "is_exporting",
    "list_backends",
    "list_mode_options",
    "list_options",
    "load",
    "load_cache_artifacts",
    "lookup_backend",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "precompile",
    "quantize",
    "register_backend",
    "report",
    "reset",
    "save",
    "save_cache_artifacts",
    "set_default_backend",
    "set_logs",
    "set_stance",
    "skip_frame",
    "substitute_in_graph",
    "unregister_backend",
    "use_backend",
    "verify",
]

_HOMES = {
    "torchmux.frontend.api": ("compile", "explain", "get_default_backend", "report", "reset", "set_default_backend"),
    "torchmux.frontend.marks.function_marks": (
        "allow_in_graph",
        "assume_constant_result",
        "disable",
        "disallow_in_graph",
        "error_on_graph_break",
        "forbid_in_graph",
        "graph_break",
        "is_compiling",
        "is_exporting",
        "skip_frame",
        "substitute_in_graph",
    ),
    "torchmux.frontend.marks.tensor_marks": ("mark_dynamic", "mark_static", "mark_unbacked", "maybe_mark_dynamic"),
    "torchmux.frontend.marks.stance": ("set_stance",),
    "torchmux.deploy.blocks": ("compile_repeated_blocks",),
    "torchmux.deploy.artifacts": ("Artifact", "artifacts"),
    "torchmux.deploy.loaded": ("Loaded",),
    "torchmux.deploy.loading": ("load",),
    "torchmux.deploy.precompiling": ("Precompiled", "precompile"),
    "torchmux.deploy.quantizing.models": ("Quantized", "quantize"),
    "torchmux.deploy.saving": ("save",),
    "torchmux.frontend.regions": ("use_backend",),
    "torchmux.frontend.export": ("Exported", "export"),
    "torchmux.verification": ("Verification", "verify"),
    "torchmux.backends.common.cache.artifacts": ("load_cache_artifacts", "save_cache_artifacts"),
    "torchmux.registry": (
        "Availability",
        "BackendConflict",
        "BackendInfo",
        "BackendSpec",
        "BackendUnavailable",
        "CallFailed",
        "CompilationFailed",
        "CompileRequest",
        "ConstraintViolation",
        "DerivativeUnavailable",
        "FallbackRefused",
        "GraphRefused",
        "GraphReport",
        "InvalidOption",
        "InvalidSpec",
        "LoadRefused",
        "NodesRefused",
        "NumericsError",
        "Placement",
        "QuantizationFailed",
        "SaveRefused",
        "Tombstone",
        "TorchmuxError",
        "UnknownBackend",
        "Unsupported",
        "list_backends",
        "list_mode_options",
        "list_options",
        "lookup_backend",
        "register_backend",
        "unregister_backend",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "backends":
        # Both a function and the package of the backends; see its docstring.
        return importlib.import_module("torchmux.backends")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'torchmux' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value  # the next access bypasses this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
