"""``docs/limits.md``: each row breaks the graph here, with the number it states, and not under torch's own tracer."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest
import torch

import torchmux

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "limits.md").read_text()
ROWS = {match[1]: match[2] for match in re.finditer(r"^\| `(\w+)` \|.*\| (TM\d+) \|[^|]*\|$", PAGE, re.MULTILINE)}


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    """The functions on the page, from a file, since messages quote lines of it."""
    path = tmp_path_factory.mktemp("limits") / "limits_page.py"
    path.write_text("\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)))
    module = types.ModuleType("limits_page")
    sys.modules["limits_page"] = module
    exec(compile(path.read_text(), str(path), "exec"), vars(module))
    yield vars(module)
    del sys.modules["limits_page"]


def tensor() -> torch.Tensor:
    return (torch.arange(12, dtype=torch.float32).reshape(3, 4) - 4.5) / 4


@pytest.mark.parametrize("name", ROWS)
def test_a_row_breaks_here_and_not_there(name, functions):
    function = functions[name]
    explanation = torchmux.explain(function)(tensor())
    assert ROWS[name] in [reason.kind for reason in explanation.break_reasons], (
        f"{name} no longer breaks the graph with {ROWS[name]}: take its row and its function out of docs/limits.md, "
        "and correct the number of rows in README.md"
    )
    torch._dynamo.reset()
    torch.compile(function, backend="eager", fullgraph=True)(tensor())


def test_each_line_of_the_table_is_a_row():
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(lines) == len(ROWS)


def test_the_readme_states_how_many_rows_there_are():
    stated = re.search(
        r"(\d+) features? that `torch.compile` captures in\s+one graph", (ROOT / "README.md").read_text()
    )
    assert stated is not None
    assert int(stated[1]) == len(ROWS)
