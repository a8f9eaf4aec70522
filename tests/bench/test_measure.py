"""Measurements: what right, wrong and failing backends get, and what a result holds."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchmux.bench.measure import Bench
from torchmux.bench.programs import Source
from torchmux.bench.results import from_json, to_json
from torchmux.bench.sides import sides

HERE = Path(__file__).parent
PROGRAMS = str(HERE / "bench_programs.py")


def measured(texts, function="small", *, budget=120.0, memory=4 << 30, **more):
    steps: list[str] = []
    source = Source("target", (PROGRAMS, function), function, **more)
    bench = Bench(source, sides(texts), threads=1, budget=budget, memory=memory, step=steps.append)
    return bench.run(), steps


def test_each_side_has_its_row(register, soon):
    register("good", "wrong", "raising")
    result, steps = measured(["good", "wrong", "raising"], training=True)
    assert not result.failed and not result.doubt and result.training and result.parameters == 72
    eager, good, wrong, raising = result.rows
    assert [row.verdict for row in result.rows] == ["right", "right", "wrong", "lost"]
    for row in (eager, good):
        assert row.latency.calls >= 2 and 0 < row.latency.min <= row.latency.median
        assert row.speedup.low <= row.speedup.ratio <= row.speedup.high and len(row.turns) == 2
        assert row.error == row.eager_error > 0 and row.memory_bytes >= 0 and row.sample
    assert eager.speedup.ratio == 1 and eager.cold_seconds is eager.warm_seconds is None
    assert good.cold_seconds > 0 and good.warm_seconds > 0
    assert (good.graphs, good.breaks, good.crossings, good.placed) == (1, 0, 0, {"good": 1.0})
    assert re.search(r"on its own inputs: \['output'\]: \S+ is off by", wrong.reason) and wrong.latency is None
    assert "no such loop" in raising.reason
    assert steps[:3] == ["eager, the reference", "eager", "good, cold"] and steps[-1] == "turn 2"
    assert from_json(to_json([result])) == [result]


@pytest.mark.slow
def test_what_fails_costs_its_row_only(register, soon):
    names = ["wrong_elsewhere", "crashing", "crashing_later", "leaking", "good"]
    register(*names)
    result, _ = measured(names, memory=2 << 30)
    rows = {row.side: row for row in result.rows}
    assert rows["good"].verdict == "right" and rows["good"].latency is not None
    assert rows["wrong_elsewhere"].verdict == "wrong"
    assert "on other floating-point inputs" in rows["wrong_elsewhere"].reason
    for name, words in (("crashing", "signal 11"), ("crashing_later", "signal 11"), ("leaking", "too much memory")):
        assert rows[name].verdict == "lost" and words in rows[name].reason, rows[name]
        assert rows[name].latency is None


@pytest.mark.slow
def test_what_hangs_costs_its_budget(register, soon):
    register("hanging", "good")
    result, _ = measured(["hanging", "good"], budget=20.0)
    rows = {row.side: row for row in result.rows}
    assert "it hangs, or is too slow" in rows["hanging"].reason
    assert rows["good"].verdict == "right"


@pytest.mark.slow
def test_a_program_with_random_numbers_is_not_judged(register, soon):
    register("good", "wrong")
    result, _ = measured(["good", "wrong"], "noisy")
    assert "random numbers" in result.doubt
    assert [row.verdict for row in result.rows] == ["right", "right", "unjudged"]
    assert all(row.latency for row in result.rows)


@pytest.mark.slow
def test_a_program_that_fails():
    result, _ = measured([], "nothing")
    assert "has no attribute 'nothing'" in result.failed and result.rows == []


@pytest.mark.slow
def test_an_interrupt_leaves_what_is_known(tmp_path):
    command = [
        sys.executable, "-m", "torchmux", "bench", f"{PROGRAMS}:small", "--backends", "aot_eager",
        "--json", str(tmp_path / "found.json"),
    ]  # fmt: skip
    with open(tmp_path / "err", "w") as err:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True, cwd=tmp_path, env=os.environ)
    until = time.monotonic() + 300
    while "aot_eager, cold" not in (tmp_path / "err").read_text() and time.monotonic() < until:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 130, (out, (tmp_path / "err").read_text())
    assert "interrupted: these are the results so far." in out
    (result,) = from_json((tmp_path / "found.json").read_text())
    assert result.interrupted and [row.side for row in result.rows] == ["eager", "aot_eager"]
    assert result.rows[0].verdict == "right"
