"""The cases about graphs hold under eager and aot_eager; requirements decide what a failure means."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from tiers import BY_DEFAULT, PARTS, slow_but

from torchmux.conformance import collect, loopback, pairs, semantics
from torchmux.conformance.case import OWN_KERNELS
from torchmux.conformance.judging.judge import judge
from torchmux.conformance.judging.referee import Referee
from torchmux.conformance.outcome import Outcome
from torchmux.conformance.requirements import Expected, Requirements

CASES = {case.id: case for case in semantics.cases()}


ELSEWHERE = {
    case.id
    for part in itertools.chain(*BY_DEFAULT.values())
    for case in collect.shard(list(CASES.values()), part, PARTS)
}
"""What the default run tries on some backend, in ``test_backends.py``."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", slow_but(CASES, *(CASES.keys() - ELSEWHERE)))
def test_eager_passes(name):
    case = CASES[name]
    result = judge(case, Requirements("eager"))
    expected = [Outcome.SKIPPED] if OWN_KERNELS in case.needs else [Outcome.PASS, Outcome.SLOW]
    assert result.outcome in expected, result  # on a busy machine, any of two equal times may be the longer one
    # A case whose run in float64 raises is judged without one, which hides errors that are far too large.
    assert not case.reference or not Referee().answer(case, "cpu", wide=True).raised


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


def test_a_result_that_cannot_be_read_is_an_outcome(monkeypatch):
    """A recording of a GPU's kernels makes a result so when a later call overwrites it."""

    def differences(*_):
        raise RuntimeError("it was overwritten")

    monkeypatch.setattr("torchmux.conformance.judging.judge.differences", differences)
    result = judge(CASES["semantics/mutation/input_in_place"], Requirements("eager"))
    assert result.outcome is Outcome.CRASH
    assert result.reason == "comparing its results raises RuntimeError: it was overwritten"
    assert "in differences" in result.details["traceback"]


def test_claims_are_those_of_the_description():
    requirements = Requirements("onnxrt")
    assert requirements.claims("dynamic_shapes")
    assert requirements.claims("float64")
    assert not requirements.claims("float16")


def test_a_covering_design_has_each_pair():
    factors = {"a": ("1", "2", "3"), "b": ("x", "y"), "c": ("p", "q", "r", "s")}

    def allowed(row):
        return not (row["a"] == "1" and row["b"] == "x")

    rows = pairs.covering(factors, allowed, seed=1)
    found = {pair for row in rows for pair in itertools.combinations(row.items(), 2)}
    assert len(found) == 3 * 2 + 3 * 4 + 2 * 4 - 1, "every pair but the one that is not allowed"
    assert len(rows) <= 16 < 3 * 2 * 4
    assert all(map(allowed, rows))
    assert rows == pairs.covering(factors, allowed, seed=1) != pairs.covering(factors, allowed, seed=2)
    ids = [case.id for case in pairs.cases(full=False)]
    assert 25 <= len(ids) <= 40
    assert set(ids) <= {case.id for case in pairs.cases(full=True)}


@pytest.mark.parametrize("program", ["elements", "norms", "convolution"])
def test_eager_passes_under_each_circumstance(program):
    for case in pairs.cases(full=False):
        if case.id.startswith(f"pairs/{program}/"):
            assert judge(case, Requirements("eager")).outcome is Outcome.PASS
