"""Counters, traces on disk, profiler ranges and the list of logs."""

from __future__ import annotations

import json
import os

import pytest
import torch

import torchmux
from torchmux import events, logs


def halves(x):
    y = x.sin()
    torchmux.graph_break()
    return y.cos()


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces") / "new"
    with torchmux.config.patch(trace=str(folder)):
        before = torchmux.counters()
        compiled = torchmux.compile(halves, backend="aot_eager", dynamic=False)
        for size in (1, 2, 1):
            compiled(torch.ones(size))
        after = torchmux.counters()
    events.close()
    files = {file.name: file.read_text() for file in folder.iterdir()}
    return compiled, {name: after[name] - before[name] for name in after}, files


def test_counters_and_the_trace_agree_with_the_report(traced):
    compiled, counted, files = traced
    report = torchmux.report(compiled)
    assert counted == {
        "graphs": report.graph_count, "graph_breaks": 2, "recompiles": len(report.recompiles), "operators": 4,
        "operators_left_to_torch": 0, "cache_hits": 0,
    }  # fmt: skip
    lines = [json.loads(line) for line in files[f"torchmux-{os.getpid()}.jsonl"].splitlines()]
    told = [line["event"] for line in lines]
    assert set(told) == set(events.KINDS)
    assert {name: told.count(name) for name in ("graph", "graph_break", "recompile")} == {
        "graph": report.graph_count, "graph_break": 2, "recompile": len(report.recompiles),
    }  # fmt: skip
    assert [line["id"] for line in lines if line["event"] == "graph"] == [entry.id for entry in report.graphs]
    assert all("expected 1, actual 2" in line["reason"] for line in lines if line["event"] == "recompile")
    drawing = json.loads(files[f"torchmux-{os.getpid()}.trace.json"])
    bars = [entry for entry in drawing if entry["ph"] == "X"]
    assert len(bars) == told.count("stage") and all(bar["dur"] >= 0 for bar in bars)
    spans = [span for entry in report.graphs for span in entry.spans]
    assert sorted(bar["ts"] for bar in bars) == pytest.approx(sorted(span.begin * 1e6 for span in spans), abs=5)


def test_a_trace_that_cannot_be_written_is_given_up(tmp_path):
    (tmp_path / "file").write_text("")
    with torchmux.config.patch(trace=str(tmp_path / "file")):
        with pytest.warns(UserWarning, match="writes no trace to"):
            assert torchmux.compile(lambda x: x.sin() + 1, backend="eager")(torch.zeros(1)).item() == 1
        assert torchmux.config.trace == ""


def test_a_profile_names_backend_and_graph(traced):
    compiled, *_ = traced
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        compiled(torch.ones(1))
    # the hook in C names functions in the profile as well
    ranges = [event.key for event in profile.key_averages() if event.key.startswith("torchmux aot_eager ")]
    ids = [entry.id for entry in torchmux.report(compiled).graphs if entry.number == 0]
    assert sorted(ranges) == sorted(f"torchmux aot_eager {number}" for number in ids)


def test_the_environment_lists_the_logs(monkeypatch, capsys):
    monkeypatch.setenv("TORCHMUX_LOGS", "help")
    monkeypatch.setattr(logs, "_enabled", None)
    assert logs.enabled() == frozenset()
    said = capsys.readouterr().err
    assert all(f"  {kind} " in said and what in said for kind, what in logs.KINDS.items())
