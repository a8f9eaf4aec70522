"""Names in generated code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from torchmux.backends.native import targets

SYMBOL = re.compile(r"(s|u|zf|zuf|ps)\d+")
"""How torch names sizes and other numbers, which kernels get as arguments under these names."""


def test_no_variable_can_have_the_name_of_a_size() -> None:
    prefixes = {"v"}  # the default
    for path in Path(targets.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fresh":
                prefixes.update(argument.value for argument in node.args)  # type: ignore[attr-defined]
    assert len(prefixes) > 5
    assert [prefix for prefix in prefixes if SYMBOL.fullmatch(f"{prefix}1")] == []
