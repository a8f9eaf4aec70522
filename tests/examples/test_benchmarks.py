"""The benchmarks run; what they measure is not asserted."""

from __future__ import annotations

import json
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_frontend(run_python, tmp_path):
    program, numbers = BENCHMARKS / "frontend.py", tmp_path / "numbers.json"
    printed = run_python(
        "import runpy, sys\n"
        f"sys.argv = ['frontend.py', '--rounds', '1', '--only', 'calls', '--programs', '3 tensors', "
        f"'--json', {str(numbers)!r}]\n"
        f"runpy.run_path({str(program)!r}, run_name='__main__')"
    )
    assert "3 tensors" in printed
    found = json.loads(numbers.read_text())
    assert set(found["call_microseconds"]) == {"3 tensors"}
    assert all({"torchmux", "torch"} <= set(row) for row in found["call_microseconds"].values())
