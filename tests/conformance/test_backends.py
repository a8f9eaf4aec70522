"""The quick level of the suite on the backends that come with torchmux, as ``python -m torchmux conformance NAME``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import BY_DEFAULT, PARTS

from torchmux.conformance import collect, runner
from torchmux.conformance.known import REQUIREMENTS
from torchmux.conformance.requirements import WITH_CUDA
from torchmux.registry.errors import BackendUnavailable
from torchmux.registry.resolve import usable_spec

BACKENDS = tuple(BY_DEFAULT)
UPSTREAM = Path(__file__).parent / "upstream"
SCRIPTS = sorted(path.name for path in UPSTREAM.glob("*.py"))


CHAINS = ("onnxrt+native", "openvino+tvm")
SOME = 60
"""The first of so many parts is what the default run tries of the first chain."""


@pytest.fixture(scope="module")
def cases_under():
    """Runs cases under one backend after another: what they all need is imported once."""
    kept = []

    def run(names, backend):
        head = {**runner.Job(names, backend=backend).head, "patterns": ["*"]}
        if not kept:
            kept.append(runner.CaseRunner(head))
        kept[0].turn_to(head)
        return [kept[0].run(name, 300) for name in names]

    yield run
    for each in kept:
        each.close()


def _needs(backend):
    try:
        usable_spec(backend)
    except BackendUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("backend", "parts"),
    [
        *((backend, BY_DEFAULT[backend]) for backend in BACKENDS),
        *(
            pytest.param(backend, (part,), marks=[pytest.mark.slow])
            for backend in BACKENDS
            for part in range(1, PARTS + 1)
            if part not in BY_DEFAULT[backend]
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(map(str, value)),
)
def test_the_quick_level(backend, parts, cases_under):
    _needs(backend)
    cases = list(collect.cases("quick"))
    names = [case.id for part in parts for case in collect.shard(cases, part, PARTS)]
    assert [result for result in cases_under(names, backend) if result.outcome.is_failure] == []


@pytest.mark.parametrize(
    ("chain", "part"),
    [
        pytest.param(chain, part, marks=[pytest.mark.slow] if (chain, part) != (CHAINS[0], 1) else [])
        for chain in CHAINS
        for part in range(1, SOME + 1)
    ],
)
def test_the_quick_level_on_chains(chain, part, cases_under):
    _needs(chain)
    names = [case.id for case in collect.shard(collect.cases("quick"), part, SOME)]
    assert [result for result in cases_under(names, chain) if result.outcome.is_failure] == []


@pytest.mark.slow
def test_auto_on_some_cases():
    """A measurement takes seconds, so this is one case of each kind; the published level has them all."""
    cases = ("semantics/mutation/input_in_place", "semantics/training/one_step", "semantics/shapes/*", "models/bert/*")
    names = [case.id for case in collect.cases("quick", cases)]
    results = runner.run(names, backend="auto", options={"allow": ["native"], "budget_s": 20}, seconds=600)
    assert [result for result in results if result.outcome.is_failure] == []


def test_known_failures_are_shown_by_a_script():
    known = [*WITH_CUDA, *(expected for each in REQUIREMENTS.values() for expected in each.expected)]
    upstream = [expected for expected in known if not expected.why.startswith("To be mended: ")]  # those are ours
    assert {expected.link for expected in upstream} == {f"tests/conformance/upstream/{name}" for name in SCRIPTS}
    assert all(expected.versions for expected in upstream)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script_knows_nothing_of_torchmux_and_still_fails(name):
    assert not re.search("torchmux", (UPSTREAM / name).read_text())
    found = subprocess.run([sys.executable, str(UPSTREAM / name)], capture_output=True, text=True, timeout=300)
    if "ModuleNotFoundError" in found.stderr:
        pytest.skip("that compiler is not installed")
    assert found.returncode == 1, found.stdout + found.stderr
    assert "Traceback" not in found.stderr, found.stderr
