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


# Those that need nothing but transformers; tests/libraries runs the others.
WITH_TRANSFORMERS = ("transformers_pipeline.py", "transformers_generate.py")


def test_examples_with_transformers(run_python):
    """With a backend that compiles nothing; with the default one, they run with the others."""
    pytest.importorskip("transformers")
    paths = [str(EXAMPLES / "libraries" / name) for name in WITH_TRANSFORMERS]
    printed = run_python(
        "import runpy, torchmux\n"
        "torchmux.set_default_backend('aot_eager')\n"
        f"for path in {paths!r}:\n    runpy.run_path(path, run_name='__main__')"
    )
    assert printed.count("operators for aot_eager") >= 2


def test_every_example_is_run():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"quickstart.py", "own_backend.py"}
    assert {*WITH_TRANSFORMERS} < {path.name for path in (EXAMPLES / "libraries").glob("*.py")}
