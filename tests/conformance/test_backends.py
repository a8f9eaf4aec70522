"""The suite on the backends that come with torchmux.

By default each case about graphs runs on one of them, and so does a spread of operators; which case runs on which hangs
on its name alone.  The whole quick level of each is a slow test, ``python -m torchmux conformance NAME`` by hand.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from torchmux.conformance import collect, operators, runner, semantics
from torchmux.conformance.judge import judge
from torchmux.conformance.known import REQUIREMENTS
from torchmux.conformance.requirements import requirements_from
from torchmux.registry.errors import BackendUnavailable
from torchmux.registry.resolve import usable_spec

BACKENDS = ("aot_eager", "native", "onnxrt", "openvino", "tvm")
SPREAD = 50
"""One in so many of the quick level's operators runs on each backend."""

UPSTREAM = Path(__file__).parent / "upstream"
SCRIPTS = sorted(path.name for path in UPSTREAM.glob("*.py"))


def _needs(backend):
    try:
        usable_spec(backend)
    except BackendUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("backend", "case"),
    [
        pytest.param(backend, case, id=f"{backend}-{case.id}")
        for part, backend in enumerate(BACKENDS, 1)
        for case in collect.shard(semantics.cases(), part, len(BACKENDS))
    ],
)
def test_what_graphs_mean(backend, case):
    _needs(backend)
    result = judge(case, requirements_from("", backend))
    assert not result.outcome.is_failure, result


@pytest.mark.parametrize(("part", "backend"), list(enumerate(BACKENDS, 1)))
def test_a_spread_of_operators(part, backend):
    _needs(backend)
    quick = (case for case in operators.cases(full=False) if case.quick)
    results = [judge(case, requirements_from("", backend)) for case in collect.shard(quick, part, SPREAD)]
    assert results
    assert [result for result in results if result.outcome.is_failure] == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_quick_level(backend):
    _needs(backend)
    names = [case.id for case in collect.cases("quick")]
    results = runner.run(names, backend=backend, level="quick", seconds=300)
    assert [result for result in results if result.outcome.is_failure] == []


def test_known_failures_are_shown_by_a_script():
    linked = {expected.link for each in REQUIREMENTS.values() for expected in each.expected}
    assert linked == {f"tests/conformance/upstream/{name}" for name in SCRIPTS}
    assert all(expected.versions for each in REQUIREMENTS.values() for expected in each.expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script_knows_nothing_of_torchmux_and_still_fails(name):
    assert not re.search("torchmux", (UPSTREAM / name).read_text())
    found = subprocess.run([sys.executable, str(UPSTREAM / name)], capture_output=True, text=True, timeout=300)
    if "ModuleNotFoundError" in found.stderr:
        pytest.skip("that compiler is not installed")
    assert found.returncode == 1, found.stdout + found.stderr
    assert "Traceback" not in found.stderr, found.stderr
