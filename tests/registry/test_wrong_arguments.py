"""Every public function and class with arguments of wrong types: one short line, and one of few kinds of error.

The programs are generated: each parameter of each public callable gets each of the wrong values.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

import torchmux
import torchmux.registry
from torchmux.registry.catalog import CATALOG


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


def identity(x: Any) -> Any:
    return x


LONG = "x" * 1_000_000
WRONG = (
    None, 3, -1, 2.5, True, "", "no such thing", LONG, b"bytes", [], [1, 2], {}, {"a": 1}, {1: 2}, {"a": LONG}, [LONG],
    (), object(), Unprintable(), [Unprintable()], int, torch.ones(2), {Unprintable(): 1}, set(), torch, identity, ...,
)  # fmt: skip

RIGHT = {"function": identity, "fn": identity, "model": identity, "backend": "eager", "name": "eager"}
"""What the other parameters get; those without a default that are not named here get a 3."""

DOCUMENTED = {
    "load": ValueError, "mark_dynamic": IndexError, "mark_unbacked": IndexError, "maybe_mark_dynamic": IndexError,
    "mark_static": IndexError, "precompile": ValueError, "save": ValueError, "set_logs": ValueError,
    "set_stance": ValueError, "verify": ValueError,
}  # fmt: skip
"""What wrong values of the right type raise."""

RECORDS = {"Exported", "Quantized"}
"""Classes that only torchmux makes objects of."""


def _public() -> dict[str, Any]:
    found = {name: getattr(home, name) for home in (torchmux.registry, torchmux) for name in home.__all__}
    return {
        name: value
        for name, value in sorted(found.items())
        if callable(value)
        and name not in RECORDS
        and not (isinstance(value, type) and (issubclass(value, Exception) or getattr(value, "_is_protocol", False)))
    }


PUBLIC = _public()


def _calls(function: Any) -> list[tuple[list[Any], dict[str, Any]]]:
    parameters = inspect.signature(function).parameters.values()
    calls = []
    for wrong in WRONG:
        for chosen in parameters:
            given: list[Any] = []
            named: dict[str, Any] = {}
            for each in parameters:
                required = each.default is each.empty
                if each.kind is each.VAR_POSITIONAL:
                    given += [wrong] * (each is chosen)
                elif each.kind is each.VAR_KEYWORD:
                    named |= {"unknown": wrong} if each is chosen else {}
                elif each.kind is each.POSITIONAL_ONLY:
                    given.append(wrong if each is chosen else RIGHT.get(each.name, 3) if required else each.default)
                elif each is chosen:
                    named[each.name] = wrong
                elif required:
                    named[each.name] = RIGHT.get(each.name, 3)
            calls.append((given, named))
    return calls


@pytest.fixture(autouse=True)
def as_before(own_catalog):
    yield
    torchmux.set_default_backend(None)
    torchmux.set_logs()
    torchmux.set_stance("default")


@pytest.mark.parametrize("name", PUBLIC)
def test_wrong_arguments(name):
    allowed = (TypeError, torchmux.TorchmuxError, *((DOCUMENTED[name],) if name in DOCUMENTED else ()))
    for given, named in _calls(PUBLIC[name]):
        registered = dict(CATALOG._registered)
        try:
            PUBLIC[name](*given, **named)
        except allowed as error:
            assert len(str(error)) < 2500, type(error)
            assert "\n\n" not in str(error).strip()
        finally:
            CATALOG._registered.clear()
            CATALOG._registered.update(registered)


@pytest.mark.parametrize(
    "arguments",
    [
        {"dynamic": "yes"}, {"dynamic": 1}, {"fullgraph": "no"}, {"strict": 1}, {"disable": None}, {"options": "fast"},
        {"options": [("a", 1)]}, {"options": 3}, {"options": torch.ones(2)}, {"options": {"a": 1}}, {"options": {1: 1}},
        {"mode": 3}, {"mode": True}, {"mode": ["default"]}, {"mode": "fast"}, {"backend": 3}, {"backend": ""},
        {"backend": int}, {"backend": ["eager", 3, {}]},
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("decorator", [False, True])
def test_compile_refuses(arguments, decorator):
    given = {"backend": "eager", **arguments}
    with pytest.raises((TypeError, torchmux.TorchmuxError)):
        torchmux.compile(**given) if decorator else torchmux.compile(identity, **given)
