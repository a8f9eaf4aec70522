"""Options and modes: every backend describes its options as a dataclass, and every value is checked against it.

The types understood in such a dataclass are ``bool``, ``int``, ``float``, ``str``, ``Path``, ``Literal``, enums,
``Optional`` and other unions, ``list``, ``tuple`` and ``dict`` of these, and any other class by ``isinstance``.
``field(metadata={"help": "..."})`` describes an option to the user; ``metadata={"name": "trace.enabled"}`` gives it a
name that a Python attribute cannot have.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union

from torchmux.wording import kind, shown

from .errors import InvalidOption
from .names import did_you_mean, listed
from .spec import BackendSpec

TORCH_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""The modes of ``torch.compile``: every backend accepts them, for programs that serve several backends."""


class FreeOptions(dict[str, Any]):
    """Marks, in ``BackendSpec.options``, a function without a schema, which receives options as keywords."""


class TorchOptions(dict[str, Any]):
    """Marks, in ``BackendSpec.options``, a function that takes ``mode=`` and ``options=`` as torch passes them."""


@dataclasses.dataclass(frozen=True)
class OptionInfo:
    """One option of a backend, as :func:`list_options` shows it."""

    name: str
    type: str
    default: Any
    help: str = ""


def build_options(spec: BackendSpec, mode: str | None, options: Any) -> Any:
    """Check ``mode`` and ``options`` against ``spec`` and return what the backend receives.

    The result shares no container with ``options``.  Neither the caller nor the backend can change the other's, and
    nothing carries over from one compilation to the next.

    Raises:
        InvalidOption: both are given (torch's rule), or a mode, name or value that the backend does not have.
    """
    if mode is not None and options is not None:
        raise InvalidOption(
            "Either mode or options can be specified, but both can't be specified at the same time. A mode is a set "
            f"of options: torchmux.list_mode_options({shown(mode)}, {spec.name!r}) shows it, so you can copy and "
            "change it."
        )
    schema = spec.options
    if schema is TorchOptions:  # the mode goes to the function unchanged
        return TorchOptions(_as_mapping(spec, options))
    given = mode_options(spec, mode) if mode is not None else _as_mapping(spec, options)
    if schema is FreeOptions:
        return FreeOptions(given)
    if schema is None:
        if given:
            raise InvalidOption(f"{spec.name} takes no options, but was given {listed(given)}. Remove them.")
        return None
    hints = typing.get_type_hints(schema)
    known = {_name(f): f.name for f in dataclasses.fields(schema) if f.init}
    checked = {}
    for name, value in given.items():
        if name not in known:
            raise InvalidOption(
                f"{spec.name} has no option {shown(name)}.{did_you_mean(name, known)} "
                f"Its options are {listed(known)}; torchmux.list_options({spec.name!r}) explains them."
            )
        try:
            checked[known[name]] = _checked(value, hints[known[name]])
        except _Mismatch:
            raise InvalidOption(
                f"The option {name!r} of {spec.name} takes {describe_type(hints[known[name]])}, not {kind(value)}."
            ) from None
    try:
        return schema(**checked)
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidOption):
            raise
        raise InvalidOption(f"{spec.name} does not take these options: {error}") from error


def option_table(spec: BackendSpec) -> dict[str, OptionInfo]:
    """The options of a backend by name; empty if it has none or describes none."""
    if not _has_schema(spec):
        return {}
    assert spec.options is not None
    hints = typing.get_type_hints(spec.options)
    table = {}
    for f in dataclasses.fields(spec.options):
        if f.init:
            default = f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
            if default is dataclasses.MISSING:
                default = None
            table[_name(f)] = OptionInfo(_name(f), describe_type(hints[f.name]), default, f.metadata.get("help", ""))
    return table


def mode_table(spec: BackendSpec) -> dict[str, dict[str, Any]]:
    """The options that each mode of a backend sets; every backend has the mode ``"default"``."""
    return {"default": {}, **{name: isolated(dict(options)) for name, options in spec.modes.items()}}


def mode_options(spec: BackendSpec, mode: Any) -> dict[str, Any]:
    """The options that ``mode`` sets in a backend: none if it is a mode of torch that the backend has no use for.

    Raises:
        InvalidOption: neither the backend nor torch has this mode.
    """
    modes = mode_table(spec)
    if isinstance(mode, str) and mode in modes:
        return modes[mode]
    if isinstance(mode, str) and mode in TORCH_MODES:
        return {}
    only = "Its only mode is" if len(modes) == 1 else "Its modes are"
    near = did_you_mean(mode, [*modes, *TORCH_MODES]) if isinstance(mode, str) else ""
    raise InvalidOption(
        f"{spec.name} has no mode {shown(mode)}.{near} {only} {listed(modes)}; the other modes of torch.compile change "
        "nothing."
    )


def as_keywords(options: Any) -> dict[str, Any]:
    """What :func:`build_options` returned, as fresh keywords for a plain function."""
    if options is None:
        return {}
    if isinstance(options, dict):
        return {name: isolated(value) for name, value in options.items()}
    return {f.name: isolated(getattr(options, f.name)) for f in dataclasses.fields(options)}


def fresh_copy(options: Any) -> Any:
    """A copy of what :func:`build_options` returned, which a backend may change freely."""
    if options is None:
        return None
    if isinstance(options, dict):
        return type(options)(as_keywords(options))
    return dataclasses.replace(options, **{k: v for k, v in as_keywords(options).items() if k in _init_names(options)})


def isolated(value: Any) -> Any:
    """``value`` with all nested containers copied; the leaves are shared."""
    if type(value) is dict:
        return {k: isolated(v) for k, v in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(isolated(v) for v in value)
    return value


def describe_type(hint: Any) -> str:
    """An option's type in words: ``'f32' or 'bf16'``, ``an int or None``."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return "any value"
    if hint is None or hint is type(None):
        return "None"
    if origin is Literal:
        return listed(args, "or")
    if origin in (Union, types.UnionType):
        return " or ".join(describe_type(arg) for arg in args)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return listed([member.value for member in hint], "or")
    if origin is not None:
        return f"a {_plain_name(hint)}"
    name = hint.__name__ if isinstance(hint, type) else str(hint)
    return f"an {name}" if name[0].lower() in "aeiou" else f"a {name}"


class _Mismatch(Exception):
    """A value does not have the requested type."""


def _checked(value: Any, hint: Any) -> Any:
    """``value`` as an option of type ``hint``: copied, with an ``int`` converted where a ``float`` is required."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return isolated(value)
    if hint is None:
        hint = type(None)
    if origin is Literal:
        # 1 == True in Python; an option that accepts one of them does not accept the other.
        return _require(any(type(value) is type(a) and value == a for a in args), value)
    if origin in (Union, types.UnionType):
        for arg in args:
            try:
                return _checked(value, arg)
            except _Mismatch:
                continue
        raise _Mismatch
    if origin in (list, Sequence):
        _require(isinstance(value, (list, tuple)), value)
        items = [_checked(item, args[0]) for item in value]
        return items if origin is list else tuple(items)
    if origin is tuple:
        _require(isinstance(value, (list, tuple)), value)
        kinds = (args[0],) * len(value) if len(args) == 2 and args[1] is Ellipsis else args
        _require(len(kinds) == len(value), value)
        return tuple(_checked(item, kind) for item, kind in zip(value, kinds, strict=True))
    if origin in (dict, Mapping):
        _require(isinstance(value, Mapping), value)
        return {_checked(key, args[0]): _checked(item, args[1]) for key, item in value.items()}
    return _checked_class(value, hint)


def _checked_class(value: Any, hint: Any) -> Any:
    if hint is float:
        return float(_require(type(value) in (int, float), value))
    if hint in (bool, int):
        return _require(type(value) is hint, value)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if isinstance(hint, type) and issubclass(hint, enum.Enum) and not isinstance(value, hint):
        found = [member for member in hint if member.value == value]
        _require(bool(found), value)
        return found[0]
    return isolated(_require(isinstance(value, typing.get_origin(hint) or hint), value))


def _require(condition: bool, value: Any) -> Any:
    if not condition:
        raise _Mismatch
    return value


def _plain_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")


def _has_schema(spec: BackendSpec) -> bool:
    return spec.options is not None and spec.options not in (FreeOptions, TorchOptions)


def _name(option: dataclasses.Field[Any]) -> str:
    """An option's name as users write it."""
    name: str = option.metadata.get("name", option.name)
    return name


def _init_names(options: Any) -> set[str]:
    return {f.name for f in dataclasses.fields(options) if f.init}


def _as_mapping(spec: BackendSpec, options: Any) -> dict[str, Any]:
    if options is None:
        return {}
    if _has_schema(spec) and isinstance(options, typing.cast(type, spec.options)):
        return {_name(f): getattr(options, f.name) for f in dataclasses.fields(typing.cast(Any, options)) if f.init}
    if not isinstance(options, Mapping):
        raise InvalidOption(f"options for {spec.name} must be a dict of option names to values, not {kind(options)}.")
    return {name: isolated(value) for name, value in options.items()}
