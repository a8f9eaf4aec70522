"""The examples run, and hold what they assert."""

from __future__ import annotations

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "told"),
    [("quickstart.py", "TM001"), ("own_backend.py", "counting runs only relu")],
)
def test_example(name, told, run_python):
    printed = run_python(f"import runpy; runpy.run_path({str(EXAMPLES / name)!r}, run_name='__main__')")
    assert told in printed


def test_every_example_is_run():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"quickstart.py", "own_backend.py"}
