"""The suite in a third party's file: plain pytest, pytest-xdist, parts; and ``examples/plugin``, which is one."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from torchmux.conformance import plugin, suite
from torchmux.conformance.outcome import Outcome, Result

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"
FILE = PLUGIN / "tests" / "test_conformance.py"


def pytest_in(folder, *words, path=(), timeout=500):
    """pytest as a third party runs it, outside of the checkout; its status and what it printed."""
    known = [found] if (found := os.environ.get("PYTHONPATH")) else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*path, *known])), "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", folder, *words]
    ran = subprocess.run(
        [*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout
    )
    return ran.returncode, ran.stdout + ran.stderr


@pytest.fixture
def installed(tmp_path):
    """A folder in which the plugin is found as if it were installed."""
    folder = tmp_path / "site"
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    information = folder / "torchmux_numpy-1.0.dist-info"
    information.mkdir(parents=True)
    (folder / "torchmux_numpy").symlink_to(PLUGIN / "torchmux_numpy")
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
    groups = project["entry-points"]
    lines = [line for group, names in groups.items() for line in (f"[{group}]", *(f"{k} = {names[k]}" for k in names))]
    (information / "entry_points.txt").write_text("\n".join(lines))
    return folder


def test_a_third_partys_file_is_short():
    text = FILE.read_text()
    assert len(text.splitlines()) < 10
    assert [type(node) for node in ast.parse(text).body] == [ast.ImportFrom, ast.ClassDef]


def test_the_example_passes_here(installed, tmp_path):
    words = ["-v", FILE, "--conformance-case", "semantics/structure/*inputs", "--conformance-json", "found.json"]
    status, printed = pytest_in(tmp_path, *words, "--conformance-html", "found.html", path=[installed])
    assert status == 0, printed
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["backend"] == "numpy"
    assert found["fingerprint"].startswith("numpy ")
    assert [result["case"] for result in found["results"]] == ["semantics/structure/unused_inputs"]
    assert "test_conformance[semantics/structure/unused_inputs]" in printed
    assert "conformance of numpy" in printed
    assert "semantics/structure/unused_inputs" in (tmp_path / "found.html").read_text()


@pytest.mark.parametrize("outcome", Outcome)
def test_how_a_test_ends(outcome):
    result = Result("a/b/c", outcome, "because", details={"reproducer": "print('again')"})
    ends = {
        Outcome.PASS: None, Outcome.SLOW: None, Outcome.FALLBACK: None, Outcome.UNSUPPORTED: pytest.skip.Exception,
        Outcome.SKIPPED: pytest.skip.Exception, Outcome.XFAIL: pytest.xfail.Exception,
    }  # fmt: skip
    expected = ends.get(outcome, pytest.fail.Exception)
    if expected is None:
        suite._end(result)
        return
    with pytest.raises(expected, match="because") as caught:
        suite._end(result)
    assert ("print('again')" in str(caught.value)) is (expected is pytest.fail.Exception)


def test_a_fallback_is_counted_by_itself():
    report = pytest.TestReport("a", ("a", 1, "a"), {}, "passed", None, "call")
    assert plugin.pytest_report_teststatus(report) is None
    report.conformance = {"result": Result("a", Outcome.FALLBACK, share=0.25).to_json()}
    category, _, (words, _) = plugin.pytest_report_teststatus(report)
    assert (category, words) == ("fallback", "FALLBACK (25% on the backend)")


def test_pytest_imports_nothing_heavy_for_it(run_python):
    printed = run_python(
        "import sys, torchmux.conformance.plugin\nprint(sorted({'torch', 'rich', 'numpy'} & set(sys.modules)))"
    )
    assert printed.strip() == "[]"


OWN = """
from torchmux.conformance.suite import *
from torchmux.conformance.loopback import Loopback

class Wrong(Loopback):
    def __init__(self):
        super().__init__("{fault}")
    seconds = {seconds}
    expected = [Expected("semantics/aliasing/view*", "known"), Expected("semantics/use/unknown*", "stale")]
"""


def own_file(folder, fault, seconds=60):
    path = folder / "test_mine.py"
    path.write_text(OWN.format(fault=fault, seconds=seconds))
    return path


@pytest.mark.slow
def test_outcomes_in_pytest(tmp_path):
    path = own_file(tmp_path, "wrong_stride")
    words = ["-v", path, "--conformance-case", "semantics/aliasing/*", "--conformance-case", "semantics/use/*"]
    status, printed = pytest_in(tmp_path, *words)
    assert status == 1
    assert "semantics/aliasing/strides_of_results] FAILED" in printed
    assert "2 xfailed" in printed
    assert "xpass: expected to fail, but passes: stale" in printed
    assert "def case(trial: Trial)" in printed, "no reproducer"


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["crash", "hang"])
def test_a_deadly_case_fails_alone(fault, tmp_path):
    path = own_file(tmp_path, fault, seconds=20)
    words = ["-v", path, "--conformance-case", "*/input_in_place", "--conformance-case", "*/nothing_to_compute"]
    status, printed = pytest_in(tmp_path, *words)
    assert status == 1
    assert "1 failed, 1 passed" in printed
    assert ("SIGSEGV" if fault == "crash" else "not finished after 20 s") in printed


@pytest.mark.slow
def test_parts_and_processes_of_pytest(installed, tmp_path):
    found = []
    for part in ("1/2", "2/2"):
        words = [FILE, "--conformance-case", "semantics/structure/un*", "--conformance-case", "semantics/use/t*"]
        status, printed = pytest_in(tmp_path, *words, "--shard", part, "-n", "2", "--conformance-json", "part.json",
                                    path=[installed])  # fmt: skip
        assert status == 0, printed
        found += [result["case"] for result in json.loads((tmp_path / "part.json").read_text())["results"]]
    assert sorted(found) == sorted(set(found))
    assert {"semantics/structure/unused_inputs", "semantics/use/two_models"} < set(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has no class derived from Requirements"),
        ("class A(Requirements):\n    backend = 'ipex'\n", "ipex"),
        ("class A(Requirements):\n    backend = 'no_such_backend'\n", "There is no backend"),
    ],
)
def test_a_file_that_cannot_work_says_so(text, told, tmp_path):
    (tmp_path / "test_mine.py").write_text(f"from torchmux.conformance.suite import *\n\n{text}")
    status, printed = pytest_in(tmp_path, "test_mine.py", "--conformance-case", "semantics/use/*")
    assert status == 2
    assert told in printed
