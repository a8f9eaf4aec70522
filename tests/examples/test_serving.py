"""The server of ``examples/serving`` under load, with its file replaced in the middle."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "serving"


@pytest.mark.slow
def test_no_request_is_lost_and_no_answer_wrong():
    for package in ("fastapi", "httpx", "prometheus_client", "uvicorn"):
        pytest.importorskip(package)
    figures = run_path(str(EXAMPLE / "load_test.py"))["run"](10, 4)
    assert figures["passed"], figures
    assert figures["answered"] > 100
