"""The suite catches every fault of the loopback backends, in the way that it says it does."""

from __future__ import annotations

import pytest

from torchmux.conformance import loopback, report, runner, semantics
from torchmux.conformance.judging.judge import judge
from torchmux.conformance.outcome import Outcome
from torchmux.conformance.requirements import Requirements

CASES = {case.id: case for case in semantics.cases()}
DEADLY = ("crash", "hang")


def test_every_fault_is_described():
    assert loopback.FAULTS.keys() == loopback.CAUGHT_AS.keys()
    assert all(function.__doc__ for function in loopback.FAULTS.values())


@pytest.mark.parametrize("fault", [fault for fault in loopback.FAULTS if fault not in DEADLY])
def test_fault_is_caught(fault):
    outcome, name = loopback.CAUGHT_AS[fault]
    result = judge(CASES[name], loopback.Loopback(fault))
    assert result.outcome is outcome
    assert result.reason
    right = Requirements("onnxrt" if fault == "silent_fallback" else "eager")
    assert judge(CASES[name], right).outcome is Outcome.PASS


@pytest.mark.parametrize("fault", ["crash", pytest.param("hang", marks=pytest.mark.slow)])
def test_fault_that_ends_the_process_is_caught(fault, tmp_path):
    outcome, name = loopback.CAUGHT_AS[fault]
    other = "semantics/use/unknown_option"
    seconds = 60 if fault == "crash" else 15
    first, second = runner.run(
        [name, other],
        backend=f"loopback_{fault}",
        requirements=f"torchmux.conformance.loopback:requirements_{fault}",
        seconds=seconds,
    )
    assert (first.case, first.outcome) == (name, outcome)
    assert first.reason == ("its process was killed by SIGSEGV" if fault == "crash" else "not finished after 15 s")
    assert (second.case, second.outcome) == (other, Outcome.PASS), "the run does not go on"


def test_results_tell_the_kinds_of_operators():
    result = judge(CASES["semantics/structure/a_small_network"], Requirements("eager"))
    assert result.kinds["library"] > 0
    assert report.kinds([result, result]) == {kind: 2 * number for kind, number in result.kinds.items()}
