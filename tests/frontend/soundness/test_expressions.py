"""Python's protocols in their corners: what expressions give, and what they raise, word for word."""

from __future__ import annotations

import collections
import enum
import itertools
import operator
import pickle
import re
import types
from pathlib import Path
from typing import Any

import pytest
import torch

import torchmux

_LINES = Path(__file__).with_name("expressions.txt").read_text().splitlines()
_GIVEN = (3, 2.5, torch.ones(2))


class Text(str):
    __slots__ = ()


Pair = collections.namedtuple("Pair", "x y", defaults=[7])
_NAMES = {
    "torch": torch, "collections": collections, "enum": enum, "itertools": itertools, "types": types, "Text": Text,
    "Pair": Pair, "operator": operator, "pickle": pickle,
}  # fmt: skip


def _function(line: str) -> Any:
    """``f(x, v)`` of an expression, or of statements that set ``r``, which ``;;`` separates and ``!`` marks."""
    body = line.removeprefix("!").replace(";; ", "\n  ") if line.startswith("!") else f"r = {line}"
    names: dict[str, Any] = {**_NAMES, "__name__": "expressions"}
    exec(compile(f"def f(x, v):\n  x = x + 1\n  {body}\n  return r, x * 2", "<e>", "exec", dont_inherit=True), names)
    return names["f"]


def _look(value: Any) -> Any:
    if isinstance(value, (tuple, list, set, frozenset, dict)):
        items = list(value.items()) if isinstance(value, dict) else list(value)
        return type(value).__name__, sorted(map(repr, map(_look, items))) if isinstance(value, set) else [
            _look(each) for each in items
        ]
    text = repr(value) if type(value).__repr__ is not object.__repr__ else type(value).__name__
    return type(value).__name__, re.sub(r"0x[0-9a-f]+", "0x", text)


def _outcome(function: Any, value: Any) -> Any:
    try:
        return _look(function(torch.ones(2), value))
    except Exception as error:
        return "raises", type(error).__name__, str(error)


@pytest.mark.parametrize("line", _LINES)
def test_as_in_eager(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchmux.config, "fail_on_compiler_errors", True)
    function, compiled = _function(line), torchmux.compile(_function(line), backend="eager")
    for value in _GIVEN:
        assert _outcome(compiled, value) == _outcome(function, value)
