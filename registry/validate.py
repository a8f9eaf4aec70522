"""Checks that a description is valid for this version of torchmux."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from .availability import parse_requirement
from .errors import InvalidSpec, TorchmuxError
from .names import did_you_mean, normalize
from .options import FreeOptions, TorchOptions, build_options
from .spec import ANY, API_VERSION, Backend, BackendSpec, Tombstone

_NAME = re.compile(r"[a-z0-9][a-z0-9_.]*")


def as_spec(found: Any, name: str, source: str) -> BackendSpec | Tombstone:
    """A checked description named ``name``, made from what an entry point or ``register_backend`` received.

    Messages name ``source`` as its origin.

    Raises:
        InvalidSpec: it is neither a description nor an implementation, or a malformed one.
    """
    if isinstance(found, (BackendSpec, Tombstone)):
        if normalize(found.name) != normalize(name):
            raise InvalidSpec(
                f"{source} registers a backend under the name {name!r}, but its own name is {found.name!r}. Both must "
                "be the same."
            )
        if isinstance(found, BackendSpec):
            check_spec(found, source)
        return found
    if is_implementation(found):
        return describe(found, name)
    raise InvalidSpec(
        f"{source} registers {name!r} as {found!r} ({type(found).__name__}). It must be a BackendSpec, a function "
        "(gm, example_inputs, **options), or an object with supports(node) and compile(gm, example_inputs, request)."
    )


def check_spec(spec: BackendSpec, source: str) -> None:
    """Raises:
    InvalidSpec: a field of ``spec`` is not what the contract says; the message names field and ``source``.
    """
    if spec.api != API_VERSION:
        raise InvalidSpec(
            f"{source} describes the backend {spec.name!r} for version {spec.api!r} of the contract, but this torchmux "
            f"supports version {API_VERSION}. Install compatible releases of the two."
        )
    problem = _problem(spec)
    if problem:
        raise InvalidSpec(f"{source} provides an invalid description of the backend {spec.name!r}: {problem}.")
    try:
        for text in spec.requires:
            parse_requirement(text)
        for options in spec.modes.values():
            build_options(dataclasses.replace(spec, modes={}), None, options)
    except TorchmuxError as error:
        raise InvalidSpec(f"{source} provides an invalid description of the backend {spec.name!r}: {error}") from error


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
            raise InvalidSpec(f"A BackendSpec has no field {field!r}.{did_you_mean(field, known)}")
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


def _open_options(function: Callable[..., Any]) -> type:
    """Torch passes a custom backend its options as one keyword, ``options``; a function that names it expects this."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return FreeOptions
    return TorchOptions if "options" in parameters else FreeOptions


def _first_line(implementation: Any) -> str:
    text = inspect.getdoc(implementation) if hasattr(implementation, "__name__") else None
    return text.strip().splitlines()[0] if text and text.strip() else "no description"


def _problem(spec: BackendSpec) -> str | None:
    if not isinstance(spec.name, str) or not _NAME.fullmatch(normalize(spec.name)):
        return "its name may contain only letters, digits, '_', '-' and '.'"
    if not (isinstance(spec.load, str) or is_implementation(spec.load)):
        return f"load must be 'module:attribute' or the implementation, not {spec.load!r}"
    if isinstance(spec.load, str) and not re.fullmatch(r"[\w.]+:[\w.]+", spec.load):
        return f"load must have the form 'module:attribute', not {spec.load!r}"
    if spec.graph not in ("torch", "aten"):
        return f"graph must be 'torch' or 'aten', not {spec.graph!r}"
    for field in ("requires", "devices", "dtypes"):
        value = getattr(spec, field)
        # A string is also a sequence of strings: ("numpy") without its comma would be read letter by letter.
        if not isinstance(value, (tuple, list)) or not all(isinstance(item, str) for item in value):
            return f"{field} must be a tuple of strings, not {value!r}"
    if not isinstance(spec.modes, Mapping) or not all(isinstance(m, Mapping) for m in spec.modes.values()):
        return f"modes must map each mode to a mapping of options, not {spec.modes!r}"
    if not callable(spec.probe) or not callable(spec.fingerprint):
        return "probe and fingerprint must be functions"
    if spec.options is not None and not isinstance(spec.options, type):
        return f"options must be a dataclass, not {spec.options!r}"
    if spec.options not in (None, FreeOptions, TorchOptions) and not dataclasses.is_dataclass(spec.options):
        return f"options must be a dataclass, not {spec.options!r}"
    return None
