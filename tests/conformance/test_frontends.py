"""Cases under torch's frontend, with the published backends behind it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from tiers import slow_but

import torchmux
from torchmux.conformance import collect, loopback, report, reproducer, runner, scores
from torchmux.conformance.case import Case
from torchmux.conformance.judging import frontends
from torchmux.conformance.judging.judge import judge
from torchmux.conformance.outcome import Outcome
from torchmux.conformance.requirements import Requirements

CASES = {case.id: case for case in collect.cases("full", ["semantics/*"])}

SUBJECTS = ("use", "training", "shapes", "modes")

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"


def under_torch(backend: str = "eager", requirements: Requirements | None = None) -> Requirements:
    claims = requirements or Requirements(backend)
    claims.frontend = "torch"
    return claims


@pytest.fixture(autouse=True)
def fresh():
    yield
    torch.compiler.reset()


@pytest.mark.parametrize("backend", slow_but(["eager", "aot_eager", "native"], "eager"))
def test_published_backends(backend):
    names = [name for name in CASES if name.split("/")[1] in SUBJECTS]
    results = runner.run(names, backend=backend, frontend="torch", seconds=300)
    assert [result for result in results if result.outcome.is_failure] == []
    assert sum(result.outcome is Outcome.PASS for result in results) > len(names) / 2


@pytest.mark.parametrize("fault", ["wrong_value", "wrong_dtype", "lost_mutation", "failure"])
def test_faults_are_caught(fault):
    outcome, name = loopback.CAUGHT_AS[fault]
    claims = under_torch(requirements=loopback.Loopback(fault))
    result = judge(CASES[name], claims)
    assert result.outcome is outcome
    assert "frontend='torch'" in reproducer.script(CASES[name], claims)


def test_what_torch_itself_gets_wrong_is_no_fault_of_the_backend():
    def case(trial):
        compiled = trial.compile(lambda x: x + torch.compiler.is_dynamo_compiling())
        return compiled(trial.tensor(2))

    result = judge(Case("mine", case), under_torch())
    assert result.outcome is Outcome.SKIPPED
    assert result.reason.startswith("torch.compile with torch's own backend eager fails: ")


def test_refusals_are_seen_through_torchs_error():

    front = frontends.TorchFrontend()
    compiled = front.compile(lambda x: x + 1, "no_such_backend", {})
    with pytest.raises(Exception, match="no_such_backend") as raised:
        compiled(torch.ones(1))
    assert isinstance(front.cause(raised.value), torchmux.UnknownBackend)


def test_the_scoreboard_has_none_of_these_runs():
    run = report.to_json("eager", "quick", "", [], 0, "torch")
    assert run["frontend"] == "torch"
    with pytest.raises(ValueError, match="--frontend torch"):
        scores.small(run)


@pytest.mark.parametrize("frontend", frontends.NAMES)
def test_the_template_runs_tensors_in_the_program(frontend, monkeypatch):
    monkeypatch.syspath_prepend(PLUGIN)
    import torchmux_numpy

    torchmux.register_backend(torchmux_numpy.SPEC)
    try:
        claims = Requirements("numpy")
        claims.frontend = frontend
        result = judge(CASES["semantics/training/tensors_in_the_program"], claims)
    finally:
        torchmux.unregister_backend("numpy")
        for name in [name for name in sys.modules if name.startswith("torchmux_numpy")]:
            del sys.modules[name]
    assert result.outcome is Outcome.FALLBACK, result.reason
    assert "failed" not in result.reason
    assert "KeyError" not in result.reason
