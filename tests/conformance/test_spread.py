"""A run on a Dask cluster of which one worker is killed half-way has the results of a run without."""

from __future__ import annotations

import os
import signal

import pytest

from torchmux.conformance import runner, spread
from torchmux.registry.errors import TorchmuxError

NAMES = [
    *(f"semantics/aliasing/{name}" for name in ("view_of_an_input", "input_itself", "the_same_output_twice")),
    *(
        f"semantics/mutation/{name}"
        for name in ("input_in_place", "read_after_write", "integer_counter", "out_argument")
    ),
    *(f"semantics/control/{name}" for name in ("branches_on_numbers", "branches_on_data", "exceptions")),
]
FAULTY = {
    "backend": "loopback_lost_mutation",
    "requirements": "torchmux.conformance.loopback:requirements_lost_mutation",
}


@pytest.mark.slow
def test_a_lost_worker_changes_no_result():
    pytest.importorskip("distributed")
    plain = runner.run(NAMES, **FAULTY)
    killed = []

    with spread.cluster(spread.LOCAL, 2) as client:
        workers = client.run(os.getpid)
        assert len(workers) == 2

        def progress(result):
            if not killed and len(done) == 2:
                killed.append(next(iter(workers.values())))
                os.kill(killed[0], signal.SIGKILL)
            done.append(result.case)

        done = []
        found = runner.run(NAMES, **FAULTY, client=client, progress=progress)
    assert killed
    assert [(r.case, r.outcome, r.reason) for r in found] == [(r.case, r.outcome, r.reason) for r in plain]
    assert len({r.outcome for r in found}) > 1, "the fault shows nowhere"


def test_workers_with_other_versions_are_refused(monkeypatch):
    class Client:
        def run(self, function):
            return {"tcp://other:1": {**function(), "torch": "1.0"}}

    with pytest.raises(TorchmuxError, match="the worker tcp://other:1 has .*'torch': '1.0'.* would not compare"):
        list(spread.results(Client(), NAMES, {}, 1.0))
