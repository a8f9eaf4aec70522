"""``examples/libraries`` run with the default backend, each in a process of its own, if its library is installed."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.libraries

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "libraries").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path, tmp_path):
    needs = ["transformers", *re.findall(r"^It needs (\w+):", path.read_text(), re.MULTILINE)]
    for need in needs:
        if importlib.util.find_spec(need) is None:
            pytest.skip(f"{need} is not installed")
    environment = {**os.environ, "TORCHMUX_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-P", str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "operators for native" in done.stdout
