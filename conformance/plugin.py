"""The pytest plugin of torchmux: options and reports for :mod:`torchmux.conformance.suite`.

pytest loads it for every run where torchmux is installed, so it imports nothing heavy until a case has run.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

RESULT = pytest.StashKey[dict[str, Any]]()
"""Where a test stores the result of its case as JSON data, with ``backend``, ``level`` and ``fingerprint``."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the suite."""
    group = parser.getgroup("torchmux", "torchmux conformance")
    group.addoption("--conformance-level", choices=("quick", "full"), default="quick", help="minutes, or hours")
    group.addoption("--conformance-case", action="append", metavar="PATTERN", help="only ids that match")
    group.addoption("--conformance-json", metavar="FILE", help="write all results here")
    group.addoption("--conformance-html", metavar="FILE", help="write an HTML page here")
    with contextlib.suppress(ValueError):  # another plugin has that name; the longer name always works
        group.addoption("--shard", metavar="I/N", dest="conformance_shard", help="part I of N of the cases")
    group.addoption("--conformance-shard", metavar="I/N", dest="conformance_shard", help="the same as --shard")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the result to the report, which pytest-xdist sends to the reporting process."""
    report = yield
    if report.when == "call" and RESULT in item.stash:
        report.conformance = item.stash[RESULT]  # type: ignore[attr-defined]
    return report


def pytest_report_teststatus(report: pytest.CollectReport | pytest.TestReport) -> Any:
    """Count correct results that torch partly computed, and slow ones, under names of their own."""
    found = getattr(report, "conformance", None)
    if found is not None and found["result"]["outcome"] == "slow":
        return "slow", "s", (f"SLOW ({found['result']['reason']})", {"yellow": True})
    if found is not None and found["result"]["outcome"] == "fallback":
        return "fallback", "t", (f"FALLBACK ({found['result']['share']:.0%} on the backend)", {"yellow": True})
    return None


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print a table of outcomes, and write the requested files."""
    found = [
        report.conformance
        for reports in terminalreporter.stats.values()
        for report in reports
        if hasattr(report, "conformance")
    ]
    if not found:
        return
    from . import page, report
    from .outcome import Result

    runs = []
    for backend in sorted({result["backend"] for result in found}):
        own = [result for result in found if result["backend"] == backend]
        results = [Result.from_json(result["result"]) for result in own]
        head = own[0]
        runs.append(report.to_json(backend, head["level"], head["fingerprint"], results, options=head["options"]))
        terminalreporter.section(f"conformance of {backend}")
        for group, counts in report.summary(results).items():
            counted = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
            terminalreporter.write_line(f"{group:28} {counted}")
    if path := config.getoption("conformance_json"):
        Path(path).write_text(json.dumps(runs[0] if len(runs) == 1 else runs, indent=1))
    if path := config.getoption("conformance_html"):
        Path(path).write_text(page.html(runs))
