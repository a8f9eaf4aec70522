"""docs/native.md shows the code that is generated."""

from __future__ import annotations

import re
from pathlib import Path

import torch

DOCUMENT = Path(__file__).parents[3] / "docs" / "native.md"


def example(x, weight):
    return torch.softmax(torch.relu(x @ weight) * 0.5, -1)


def generated(capture) -> tuple[str, str]:
    """The C++ and the Python code of the example, without the lines that depend on where it stands."""
    compiled = capture(example, torch.randn(4, 8), torch.randn(8, 100)).compile("native", strict=True)
    cpp, python = compiled.report.output_code
    cpp = "\n".join(line for line in cpp.splitlines() if not line.startswith("//"))
    return cpp.strip(), python.strip()


def test_the_code_is_what_is_generated(capture) -> None:
    text = DOCUMENT.read_text()
    shown = [re.search(rf"```{kind}\n(.*?)\n```", text, re.DOTALL)[1] for kind in ("cpp", "text")]
    assert tuple(shown) == generated(capture)


def test_the_example_is_the_one_that_is_shown() -> None:
    import inspect

    assert inspect.getsource(example) in DOCUMENT.read_text()
