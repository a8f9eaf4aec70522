"""The suite's own functions are programs: what a case compiles is captured, not left to eager."""

from __future__ import annotations

import pytest

import torchmux
from torchmux.conformance import collect
from torchmux.conformance.case import Trial


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", list(collect.cases("quick", ("semantics/special/*",))), ids=lambda case: case.id)
def test_it_runs_in_graphs(case):
    torchmux.reset()
    trial = Trial("eager")
    case.run(trial)
    assert trial.compiled
    for compiled in trial.compiled:
        report = torchmux.report(compiled)
        assert (report.eager_calls, report.breaks) == (0, [])
        assert report.graphs
