"""Data classes from JSON that nobody vouches for: every value is checked against the type of its field."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Union

from torchmux.wording import kind, shown

LONGEST = 4000
"""Characters of a text; longer ones are cut."""


class Invalid(ValueError):
    """What was read is not what it should be; the message says what is wrong, and where."""


def loads(text: str | bytes) -> Any:
    """What JSON holds.

    Raises:
        Invalid: it is no JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"it is not JSON: {error}") from None


def dumped(data: Any) -> str:
    """JSON that is the same for the same data, and of which a comparison by lines shows each change."""
    return json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n"


def written(value: Any) -> Any:
    """A value as JSON holds it: tuples are lists, other objects their ``str``, numbers that are not finite null."""
    if isinstance(value, Mapping):
        return {str(key): written(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [written(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or type(value) in (bool, int) else str(value)


def built(made: type, told: Any, where: str) -> Any:
    """An instance of a data class from a dict; texts have no control characters, whatever they had.

    Raises:
        Invalid: a field is missing, unknown, or of another type.
    """
    if not isinstance(told, dict):
        raise Invalid(f"{where} is {kind(told)}, not an object")
    hints = typing.get_type_hints(made)
    fields = {f.name: f for f in dataclasses.fields(made) if f.init}
    for name in told:
        if name not in fields:
            raise Invalid(f"{where} has an unknown field {shown(name)}")
    for name, f in fields.items():
        if name not in told and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise Invalid(f"{where} has no field {name!r}")
    return made(**{name: _checked(value, hints[name], f"{where}.{name}") for name, value in told.items()})


def _checked(value: Any, hint: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (hint,) = (each for each in arguments if each is not type(None))
        return _checked(value, hint, where)
    if hint is Any:
        return _plain(value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return built(hint, value, where)
    if origin is list and isinstance(value, list):
        return [_checked(each, arguments[0], f"{where}[{number}]") for number, each in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {_plain(key): _checked(each, arguments[1], f"{where}.{key}") for key, each in value.items()}
    if hint is float and type(value) in (int, float):
        return float(value)
    if isinstance(hint, type) and type(value) is hint:
        return _plain(value)
    raise Invalid(f"{where} is {kind(value)}, not {getattr(hint, '__name__', hint)}")


def _plain(value: Any) -> Any:
    """A value without control characters, which a terminal would obey."""
    if isinstance(value, str):
        if len(value) > LONGEST:
            value = value[: LONGEST - 3] + "..."
        return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    return value
