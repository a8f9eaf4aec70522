"""Checks that a description is valid for this version of torchmux."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from torchmux.wording import kind, shown

from .availability import parse_requirement
from .errors import InvalidSpec, TorchmuxError
from .names import did_you_mean, normalize
from .options import FreeOptions, TorchOptions, build_options
from .spec import ANY, API_VERSION, Backend, BackendSpec, Tombstone

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "complex32", "complex64", "complex128", "bool",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2",
    "qint8", "quint8", "qint32",
)  # fmt: skip
"""The names of torch's dtypes, so that nothing imports torch to check a description."""

_A = {str: "a string", bool: "True or False", int: "an integer"}
_SIMPLE = {
    "summary": str, "install": str, "library": str, "unverified": str, "training": bool,
    "dynamic_shapes": bool, "priority": int,
}  # fmt: skip
_LINES = ("summary", "install", "library", "unverified")
_LONGEST_LINE = 1000
_DEVICE = re.compile(r"[a-z][a-z0-9_]{,63}")
_NAME = re.compile(r"[a-z0-9][a-z0-9_.]{,99}")
_MODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{,99}")


def as_spec(found: Any, name: str, source: str) -> BackendSpec | Tombstone:
    """A checked description named ``name``, made from what an entry point or ``register_backend`` received.

    Messages name ``source`` as its origin.

    Raises:
        InvalidSpec: it is neither a description nor an implementation, or a malformed one.
    """
    if isinstance(found, (BackendSpec, Tombstone)):
        for field in ("name",) if isinstance(found, BackendSpec) else ("name", "reason", "successor"):
            if not isinstance(getattr(found, field), str):
                raise InvalidSpec(
                    f"{source} provides an invalid description of a backend: {field} must be a string, not "
                    f"{kind(getattr(found, field))}."
                )
        if normalize(found.name) != normalize(name):
            raise InvalidSpec(
                f"{source} registers a backend under the name {name!r}, but its own name is {shown(found.name)}. Both "
                "must be the same."
            )
        if isinstance(found, BackendSpec):
            check_spec(found, source)
        return found
    if is_implementation(found):
        return describe(found, name)
    raise InvalidSpec(
        f"{source} registers {shown(name)} as {kind(found)}. It must be a BackendSpec, a function "
        "(gm, example_inputs, **options), or an object with supports(node) and compile(gm, example_inputs, request)."
    )


def check_spec(spec: BackendSpec, source: str) -> None:
    """Raises:
    InvalidSpec: a field of ``spec`` is not what the contract says; the message names field and ``source``.
    """
    if spec.api != API_VERSION:
        raise InvalidSpec(
            f"{source} describes the backend {shown(spec.name)} for version {shown(spec.api)} of the contract, but "
            f"this torchmux supports version {API_VERSION}. Install compatible releases of the two."
        )
    problem = _problem(spec)
    if problem:
        raise InvalidSpec(f"{source} provides an invalid description of the backend {shown(spec.name)}: {problem}.")
    try:
        for text in spec.requires:
            parse_requirement(text)
        for options in (*spec.modes.values(), *spec.tries):
            build_options(dataclasses.replace(spec, modes={}), None, options)
    except TorchmuxError as error:
        raise InvalidSpec(
            f"{source} provides an invalid description of the backend {shown(spec.name)}: {error}"
        ) from error


def is_implementation(value: Any) -> bool:
    """Whether ``value`` can compile: a function, or an object or class with ``supports`` and ``compile``."""
    return isinstance(value, Backend) or (callable(value) and not isinstance(value, type))


def describe(implementation: Callable[..., Any] | Any, name: str | None = None, **fields: Any) -> BackendSpec:
    """The description of a bare implementation, as far as it can be inferred; ``fields`` override what is inferred.

    A plain function gets the graph as captured, for any device and dtype, and is assumed to support training.  An
    object or class with ``supports`` and ``compile`` gets the defaults of :class:`BackendSpec`.
    """
    if name is None:
        name = normalize(getattr(implementation, "__name__", None) or type(implementation).__name__)
    told: dict[str, Any] = {"name": name, "summary": _first_line(implementation), "load": implementation}
    if isinstance(implementation, Backend):
        told["graph"] = "aten"
    else:
        told |= {
            "graph": "torch",
            "training": True,
            "dynamic_shapes": True,
            "devices": (ANY,),
            "dtypes": (ANY,),
            "options": _open_options(implementation),
        }
    known = {f.name for f in dataclasses.fields(BackendSpec)}
    for field in fields:
        if field not in known:
            raise InvalidSpec(f"A BackendSpec has no field {shown(field)}.{did_you_mean(field, known)}")
    return BackendSpec(**{**told, **fields})


def keyword_names(function: Callable[..., Any]) -> set[str] | None:
    """The keywords that a compiler function takes after graph and inputs, or ``None`` if it takes or may take any."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return {p.name for p in named if p not in positional[:2]}


def _is_dtype(name: str) -> bool:
    """Whether a torch that is newer than this list has the dtype."""
    torch = sys.modules.get("torch")
    return torch is not None and str(getattr(torch, name, "")) == f"torch.{name}"


def _open_options(function: Callable[..., Any]) -> type:
    """Torch passes a custom backend its options as one keyword, ``options``; a function that names it expects this."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return FreeOptions
    return TorchOptions if "options" in parameters else FreeOptions


def _first_line(implementation: Any) -> str:
    text = inspect.getdoc(implementation) if hasattr(implementation, "__name__") else None
    line = text.strip().splitlines()[0][:_LONGEST_LINE] if text and text.strip() else ""
    return line if line and _is_line(line) else "no description"


def _is_line(text: str) -> bool:
    """Whether a table, a log and a file in UTF-8 can show ``text`` on one line."""
    return len(text) <= _LONGEST_LINE and not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in text)


def _problem(spec: BackendSpec) -> str | None:
    for field, wanted in _SIMPLE.items():
        if type(getattr(spec, field)) is not wanted:
            return f"{field} must be {_A[wanted]}, not {kind(getattr(spec, field))}"
    for field in _LINES:
        if not _is_line(getattr(spec, field)):
            return f"{field} must be one line of at most {_LONGEST_LINE} characters, not {shown(getattr(spec, field))}"
    if not isinstance(spec.name, str) or not _NAME.fullmatch(normalize(spec.name)):
        return "its name may contain only letters, digits, '_', '-' and '.', at most 100 of them"
    if not (isinstance(spec.load, str) or is_implementation(spec.load)):
        return f"load must be 'module:attribute' or the implementation, not {shown(spec.load)}"
    if isinstance(spec.load, str) and not re.fullmatch(r"[\w.]+:[\w.]+", spec.load):
        return f"load must have the form 'module:attribute', not {shown(spec.load)}"
    if spec.graph not in ("torch", "aten"):
        return f"graph must be 'torch' or 'aten', not {shown(spec.graph)}"
    for field in ("requires", "devices", "dtypes"):
        value = getattr(spec, field)
        # A string is also a sequence of strings: ("numpy") without its comma would be read letter by letter.
        if not isinstance(value, (tuple, list)) or not all(isinstance(item, str) for item in value):
            return f"{field} must be a tuple of strings, not {shown(value)}"
        if len(set(value)) < len(value):
            return f"{field} names one twice, in {shown(value)}"
        if field != "requires" and not value:
            return f"{field} is empty, but a backend that is to get any graph must name one"
        if ANY in value and len(value) > 1:
            return f"{field} has {ANY!r}, which stands for all, and others besides"
    for name in spec.dtypes:
        if name not in (ANY, *DTYPES) and not _is_dtype(name):
            near = did_you_mean(name.removeprefix("torch."), DTYPES).rstrip("?")
            return f"{shown(name)} is not the name of a dtype of torch{near and f'. {near.strip()}'}"
    for name in spec.devices:
        if name != ANY and not _DEVICE.fullmatch(name):
            return f"{shown(name)} is not the type of a device, such as 'cpu' or 'cuda'"
    if not isinstance(spec.modes, Mapping) or not all(
        isinstance(name, str) and isinstance(options, Mapping) for name, options in spec.modes.items()
    ):
        return f"modes must map the name of each mode to a mapping of options, not {shown(spec.modes)}"
    for mode in spec.modes:
        if not _MODE.fullmatch(mode):
            return f"the name of a mode may contain only letters, digits, '_', '-' and '.', not {shown(mode)}"
    if not isinstance(spec.tries, tuple) or not all(isinstance(options, Mapping) for options in spec.tries):
        return f"tries must be a tuple of mappings of options, not {shown(spec.tries)}"
    if not callable(spec.probe) or not callable(spec.fingerprint):
        return "probe and fingerprint must be functions"
    if spec.options is not None and not isinstance(spec.options, type):
        return f"options must be a dataclass, not {shown(spec.options)}"
    if spec.options not in (None, FreeOptions, TorchOptions) and not dataclasses.is_dataclass(spec.options):
        return f"options must be a dataclass, not {shown(spec.options)}"
    return None
