"""The docstring of a package is the map of its room: it names each module, and none that there is not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

BACKENDS = Path(__file__).parents[3] / "backends"
ROOMS = ["", "common", "common/pipeline", "common/cache", "common/adapter", "onnxrt", "openvino", "tensorrt", "tvm"]
ROOMS += ["tvm/relax", "tvm/codegen"]


@pytest.mark.parametrize("room", ROOMS)
def test_each_module_is_on_the_map(room: str) -> None:
    folder = BACKENDS / room
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    entries = re.findall(r"^\* .*(?:\n  .*)*", text, re.MULTILINE)
    named = {name for entry in entries for name in re.findall(r"``(\w+)``", entry)}
    modules = {p.stem for p in folder.glob("*.py")} | {p.parent.name for p in folder.glob("*/__init__.py")}
    modules -= {"__init__", "options"}
    assert sorted(modules - named) == []
    assert not [n for entry in entries for n in re.findall(r"^\* ``(\w+)``", entry) if n not in modules | {"options"}]
