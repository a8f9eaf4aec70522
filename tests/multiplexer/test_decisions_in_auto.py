"""When ``auto`` measures again, and what a report says of the decisions that it does not use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import torchmux
from torchmux.config import config
from torchmux.multiplexer import decisions
from torchmux.multiplexer.measure import Measurement
from torchmux.registry import BackendSpec

HERE = Path(__file__).parent
X = torch.linspace(-1, 1, 8)


def steps(x):
    return x.sin().cos() + x.exp()


class Setting:
    """The version of the backend, and how often something was measured."""

    version = "1"
    measured = 0


def version() -> str:
    return Setting.version


@pytest.fixture
def setting(own_catalog, tmp_path, monkeypatch):
    """``auto`` with the backend ``good``; a measurement takes no time, and chooses it."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setattr(Setting, "version", "1")
    monkeypatch.setattr(Setting, "measured", 0)
    torchmux.register_backend(BackendSpec("good", "for tests", "bad_backends:good", dtypes=("*",), fingerprint=version))

    def decide(measurement: Measurement) -> decisions.Decision:
        Setting.measured += 1
        rows = [
            decisions.Row(c.name, c.backend, c.options, "chosen" if c.backend == "good" else "slower", "", 0.1, 1.0)
            for c in measurement.field.candidates
        ]
        return decisions.Decision("good", {}, "the test says so", rows, 1.0)

    monkeypatch.setattr(Measurement, "decide", decide)
    with config.patch(cache_dir=tmp_path / "cache"):
        yield Setting


def note(x: torch.Tensor = X, function: Callable[..., torch.Tensor] = steps, **options) -> str:
    """What the report of a new compilation says that ``auto`` did."""
    torchmux.reset()
    compiled = torchmux.compile(function, backend="auto", options={"wait": True, "allow": ["good"], **options})
    torch.testing.assert_close(compiled(x), function(x))
    (graph,) = torchmux.report(compiled).graphs
    return "\n".join(graph.report.notes)


def test_the_next_compilation_does_not_measure(setting):
    assert "auto chose good: the test says so (a measurement," in note()
    assert "auto chose good: the test says so (an earlier measurement," in note()
    with torch.no_grad():
        assert "an earlier measurement" in note()
    assert setting.measured == 1
    (kept,) = decisions.entries()
    assert kept.fingerprint.inputs == ["float32[8] on cpu"]
    assert kept.fingerprint.candidates == {"good": decisions.Backend("1", [])}
    assert kept.about["program"].startswith(__file__)
    assert kept.about["code"] == "sin, cos, exp, add"


def test_other_sizes_are_measured(setting):
    note()
    note(torch.ones(9))
    assert setting.measured == 2
    assert len({each.fingerprint.graph for each in decisions.entries()}) == 2


def test_other_threads_are_measured_and_the_report_says_so(setting):
    note()
    found = torch.get_num_threads()
    torch.set_num_threads(found + 1)
    try:
        said = note()
    finally:
        torch.set_num_threads(found)
    assert setting.measured == 2
    assert f"is not used: it was measured with threads={found}, and this process has threads={found + 1}" in said
    assert "an earlier measurement" in note()
    assert setting.measured == 2


def test_another_version_is_measured_and_the_report_says_so(setting):
    note()
    setting.version = "2"
    assert "is not used: it was measured with good 1, and here is 2" in note()
    assert setting.measured == 2


def test_other_options_are_measured(setting):
    note()
    assert "is not used" not in note(freeze=True)  # another question, not another machine
    assert setting.measured == 2


def test_another_setting_of_torch_is_measured(setting):
    note()
    torch.use_deterministic_algorithms(True)
    try:
        said = note()
    finally:
        torch.use_deterministic_algorithms(False)
    assert setting.measured == 2
    assert "is not used: torch's setting deterministic was False, and is True" in said


def test_a_decision_of_another_machine_is_imported_and_not_used(setting, tmp_path):
    note()
    (made,) = decisions.entries()
    there = {**made.fingerprint.machine, "processor": "Abacus 5", "threads": "64"}
    made.fingerprint = made.fingerprint.on(there, made.fingerprint.candidates, made.fingerprint.settings)
    file = decisions.export_decisions([made])
    with config.patch(cache_dir=tmp_path / "there"):
        (imported,) = decisions.import_decisions(file)
        assert imported.state == "inactive"
        said = note()
    assert setting.measured == 2
    assert f"the imported decision {made.key[:12]}" in said
    assert "is not used: it was measured on Abacus 5, and this machine has" in said
    assert "it was measured with threads=64, and this process has" in said


def test_an_imported_decision_of_this_machine_is_used(setting, tmp_path):
    note()
    file = decisions.export_decisions()
    with config.patch(cache_dir=tmp_path / "there"):
        (imported,) = decisions.import_decisions(file)
        assert (imported.state, imported.reasons) == ("active", [])
        assert "auto chose good: the test says so (an imported decision," in note()
    assert setting.measured == 1


def test_a_pin_is_followed_and_the_report_says_so(setting):
    note()
    (made,) = decisions.entries()
    decisions.pin(made, "eager")
    assert "auto chose eager: it is pinned; the measurement chose good: the test says so" in note()
    decisions.unpin(made)
    assert "auto chose good: the test says so" in note()


def test_a_fleet_measures_once(setting, tmp_path):
    with config.patch(decisions=str(tmp_path / "shared")):
        note()
        with config.patch(cache_dir=tmp_path / "second"):
            assert "auto chose good: the test says so (a shared decision," in note()
    assert setting.measured == 1


def test_buckets_have_decisions_of_their_own(setting):
    """Graphs with symbolic sizes are described by their symbols, and only with a bucket."""
    found = []

    class Looks:
        def supports(self, node):
            return True

        def compile(self, gm, inputs, request):
            found.append([decisions.key_of(gm, inputs, request, {}, {}, bucket=b) for b in ("", "1..8", "9..16")])
            return gm.forward

    torchmux.register_backend(Looks(), name="looks", graph="torch", dtypes=("*",), dynamic_shapes=True)
    for _ in range(2):
        torchmux.reset()
        torchmux.compile(lambda x: x.sin() * x.shape[0], backend="looks", dynamic=True)(torch.ones(5))
    (none, small, large), again = found
    assert none is None
    assert small.graph == large.graph and small.key != large.key
    assert [each and each.key for each in again] == [None, small.key, large.key]
