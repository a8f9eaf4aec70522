"""The cases about graphs hold under eager and aot_eager; requirements decide what a failure means."""

from __future__ import annotations

import dataclasses

import pytest

from torchmux.conformance import loopback, semantics
from torchmux.conformance.case import OWN_KERNELS
from torchmux.conformance.judging.judge import judge
from torchmux.conformance.outcome import Outcome
from torchmux.conformance.requirements import Expected, Requirements

CASES = {case.id: case for case in semantics.cases()}


@pytest.mark.parametrize("name", CASES)
def test_eager_passes(name):
    result = judge(CASES[name], Requirements("eager"))
    expected = Outcome.SKIPPED if OWN_KERNELS in CASES[name].needs else Outcome.PASS
    assert result.outcome is expected, result


def test_a_failure_that_is_expected():
    requirements = loopback.Loopback("wrong_value")
    case = CASES["semantics/structure/a_small_network"]
    requirements.expected = [Expected("semantics/*/a_small_*", "known", "see there")]
    result = judge(case, requirements)
    assert result.outcome is Outcome.XFAIL
    assert result.reason.startswith("known see there")


def test_a_stale_expectation_fails():
    requirements = Requirements("eager")
    requirements.expected = [Expected("*", "no longer true")]
    result = judge(CASES["semantics/mutation/input_in_place"], requirements)
    assert result.outcome is Outcome.XPASS
    assert result.outcome.is_failure


@pytest.mark.parametrize(
    ("versions", "applies"), [("", True), ("torch>=2", True), ("torch<2", False), ("nosuch", False)]
)
def test_an_expectation_may_be_for_some_versions(versions, applies):
    expected = Expected("*", "known", versions=versions)
    assert expected.applies(CASES["semantics/mutation/input_in_place"]) is applies


def test_a_case_that_eager_cannot_run_is_skipped():
    def broken(trial):
        raise ImportError("no such package")

    case = dataclasses.replace(CASES["semantics/mutation/input_in_place"], run=broken)
    result = judge(case, Requirements("eager"))
    assert result.outcome is Outcome.SKIPPED
    assert "no such package" in result.reason


def test_claims_are_those_of_the_description():
    requirements = Requirements("onnxrt")
    assert requirements.claims("dynamic_shapes")
    assert requirements.claims("float64")
    assert not requirements.claims("float16")
