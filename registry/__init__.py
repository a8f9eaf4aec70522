"""The registry: descriptions of backends, where they come from, whether they can run here, and their options.

Nothing in this package imports a compiler, or torch, before a graph is compiled.
"""

from .errors import (
    BackendConflict,
    BackendUnavailable,
    CallFailed,
    CompilationFailed,
    ConstraintViolation,
    DerivativeUnavailable,
    FallbackRefused,
    GraphRefused,
    InvalidOption,
    InvalidSpec,
    LoadRefused,
    NodesRefused,
    NumericsError,
    QuantizationFailed,
    SaveRefused,
    TorchmuxError,
    UnknownBackend,
    Unsupported,
)
from .info import BackendInfo
from .lookup import backends, list_backends, list_mode_options, list_options, lookup_backend, refresh
from .options import OptionInfo
from .register import register_backend, unregister_backend
from .report import GraphReport, Placement
from .resolve import ResolvedBackend, resolve
from .spec import (
    ANY,
    API_VERSION,
    Availability,
    Backend,
    BackendExtras,
    BackendSpec,
    CompiledGraph,
    CompiledPart,
    CompiledPartExtras,
    CompileRequest,
    PlainFunction,
    Tombstone,
    ToolFile,
)

__all__ = [
    "ANY",
    "API_VERSION",
    "Availability",
    "Backend",
    "BackendConflict",
    "BackendExtras",
    "BackendInfo",
    "BackendSpec",
    "BackendUnavailable",
    "CallFailed",
    "CompilationFailed",
    "CompileRequest",
    "CompiledGraph",
    "CompiledPart",
    "CompiledPartExtras",
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
    "OptionInfo",
    "Placement",
    "PlainFunction",
    "QuantizationFailed",
    "ResolvedBackend",
    "SaveRefused",
    "Tombstone",
    "ToolFile",
    "TorchmuxError",
    "UnknownBackend",
    "Unsupported",
    "backends",
    "list_backends",
    "list_mode_options",
    "list_options",
    "lookup_backend",
    "refresh",
    "register_backend",
    "resolve",
    "unregister_backend",
]
