"""``torchmux tune`` on clusters of this machine: who measures what, what is kept, what an interrupted run leaves."""

from __future__ import annotations

import json
import sys

import pytest
import torch

import torchmux
from torchmux.cli.main import main
from torchmux.config import config
from torchmux.multiplexer import decisions
from torchmux.multiplexer.options import AutoOptions
from torchmux.multiplexer.tuning import job, spread
from torchmux.multiplexer.tuning.capture import Recorder

pytest.importorskip("distributed")

PROGRAM = """\
import torch

def f(x):
    for _ in range(12):
        x = (x * 1.01).sin() + 0.5
    return x

def programs():
    return {"small": (f, torch.randn(2000)), "large": (f, torch.randn(20000))}

def training():
    return torch.nn.Linear(4, 4), torch.randn(2, 4)

def broken():
    return torch.nn.Linear(4, 4), torch.randn(3)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the program lies; the cache is there as well."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "program_to_tune.py").write_text(PROGRAM)
    with config.patch(cache_dir=tmp_path / "cache"):
        yield tmp_path
    sys.modules.pop("program_to_tune", None)


@pytest.fixture(scope="module")
def client():
    """A cluster of two workers in this process."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def captured(options: AutoOptions, *functions, x=None, dynamic=None):
    recorder = Recorder(options)
    for number, function in enumerate(functions):
        recorder.name = f"program {number}"
        torchmux.reset()
        torchmux.compile(function, backend=recorder.spec(), dynamic=dynamic)(torch.ones(8) if x is None else x)
    torchmux.reset()
    assert recorder.skipped == []
    return recorder


def sine(x):
    return x.sin()


def answer(asked, names: list[str]) -> dict:
    """What a job returns, without measuring; native takes half of eager's time."""
    rows = [{"candidate": n, "backend": n.partition("(")[0], "options": {}, "verdict": "slower"} for n in names]
    rows = [{**row, "options": {"keep_scratch": True}} if "(" in row["candidate"] else row for row in rows]
    eager = {"candidate": "eager", "backend": "eager", "options": {}, "verdict": "slower"}
    ratios = {n: [-0.7, -0.69, -0.71] * 4 if n == "native" else [-0.1, -0.11] * 6 for n in names}
    return {"rows": [*rows, eager], "ratios": ratios, "eager": [1e-3] * 12, "seconds": 1.0}


def test_every_graph_gets_a_decision_that_auto_follows(folder, client, monkeypatch):
    monkeypatch.setattr(job, "measure", answer)

    def f(x):
        return (x * 2).sin()

    recorder = captured(AutoOptions(allow=["native"]), f, sine)
    said = []
    found = spread.tune(recorder.captured, client, group=1, say=lambda *told: said.append(told))
    assert [decision.backend for decision in found] == ["native", "native"]
    assert [told[:2] for told in said] == [(n, 4) for n in range(5)]
    compiled = torchmux.compile(f, backend="auto", options={"wait": True, "allow": ["native"]})
    x = torch.ones(8)
    torch.testing.assert_close(compiled(x), f(x))
    (graph,) = torchmux.report(compiled).graphs
    assert graph.report.backend == "native"
    assert "(a tuned decision, 2.0 s)" in "\n".join(graph.report.notes)


def test_symbolic_sizes_have_a_decision_for_their_bucket(folder, client, monkeypatch):
    monkeypatch.setattr(job, "measure", answer)
    (decision,) = spread.tune(captured(AutoOptions(allow=["native"]), sine, dynamic=True).captured, client)
    assert decision.fingerprint.bucket.endswith("in 5 to 8")
    compiled = torchmux.compile(sine, backend="auto", dynamic=True, options={"wait": True, "allow": ["native"]})
    for size in (6, 8):
        torch.testing.assert_close(compiled(torch.ones(size)), torch.ones(size).sin())
    (graph,) = torchmux.report(compiled).graphs
    assert "a tuned decision" in "\n".join(graph.report.notes)


def test_an_interrupted_run_keeps_what_is_done(folder, client, monkeypatch):
    note = folder / "measured"

    def measure(asked, names):
        with open(note, "a") as file:
            file.writelines(f"{name}\n" for name in names)
        return answer(asked, names)

    def interrupt(count, total, text):
        if count == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(job, "measure", measure)
    graphs = captured(AutoOptions(allow=["native"]), sine).captured
    with pytest.raises(KeyboardInterrupt):
        spread.tune(graphs, client, group=1, say=interrupt)
    assert list(decisions.entries()) == []
    (planned,) = spread._planned([(graphs[0], client.scatter(graphs[0], hash=False))], client)
    left = planned.left(spread.Journal())
    assert len(left) == 1 and len(planned.results) == 1
    note.unlink()
    (decision,) = spread.tune(graphs, client, group=1)
    assert note.read_text().split() == left
    assert {row.candidate for row in decision.rows} >= {"eager", "native", "native(keep_scratch=True)"}
    assert planned.left(spread.Journal()) == ["native", "native(keep_scratch=True)"]  # a finished run begins anew


def test_a_job_that_fails_costs_its_candidates(folder, client, monkeypatch):
    def measure(asked, names):
        if names == ["native"]:
            raise RuntimeError("out of\nluck")
        return answer(asked, names)

    monkeypatch.setattr(job, "measure", measure)
    (decision,) = spread.tune(captured(AutoOptions(allow=["native"]), sine).captured, client, group=1)
    (row,) = [row for row in decision.rows if row.candidate == "native"]
    assert (row.verdict, row.reason) == ("lost", "its job failed: RuntimeError: out of luck")
    assert decision.ranking[0].candidate == "native(keep_scratch=True)"


def test_kinds_of_machines_are_not_joined(folder, client, monkeypatch):
    """Two workers that say different things of themselves each measure everything."""
    kinds = dict(zip(client.nthreads(), ["Abacus", "Loom"], strict=True))
    real = job.plan

    def plan(asked):
        from distributed import get_worker

        told = real(asked)
        told["fingerprint"]["machine"]["processor"] = kinds[get_worker().address]
        return told

    monkeypatch.setattr(client, "run", lambda function, threads: kinds)
    monkeypatch.setattr(job, "measure", answer)
    monkeypatch.setattr(job, "plan", plan)
    found = spread.tune(captured(AutoOptions(allow=["native"]), sine).captured, client)
    assert sorted(each.fingerprint.machine["processor"] for each in found) == ["Abacus", "Loom"]
    assert len({each.key for each in found}) == 2


@pytest.mark.slow
def test_real_measurements_in_one_job(client):
    """What a job returns: every candidate beside eager, in the same turns."""
    (graph,) = captured(AutoOptions(allow=["native"], budget_s=60.0), sine, x=torch.ones(4096)).captured
    plan = job.plan(graph)
    assert plan["fingerprint"] == graph.fingerprint.to_data()  # this machine is the one that has captured
    assert plan["candidates"] == ["eager", "native", "native(keep_scratch=True)"]
    told = json.loads(json.dumps(job.measure(graph, ["native"])))
    assert [row["candidate"] for row in told["rows"] if row["verdict"] != "excluded"] in (
        ["eager", "native"],
        ["native", "eager"],
    )
    assert len(told["ratios"]["native"]) == len(told["eager"]) >= 2


def test_the_command(folder, monkeypatch, capsys):
    from distributed import Client, LocalCluster

    monkeypatch.setattr(job, "measure", answer)
    options = json.dumps({"allow": ["native"]})
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster:
        arguments = ["tune", "program_to_tune.py:programs", "--scheduler", cluster.scheduler_address]
        assert main([*arguments, "--options", options, "--output", "out", "--threads", "3"]) == 0
        told = capsys.readouterr()
        assert "small, graph 0: native, it is the quickest beyond doubt" in told.out
        assert "2 of 2: " in told.err
        (file,) = (folder / "out").iterdir()
        assert file.name.endswith("-3-threads.json")
        assert main(["decisions", "import", str(file)]) == 0
        assert "it was measured with threads=3, and this process has threads=" in capsys.readouterr().out
        with Client(cluster):
            assert main([*arguments, "--options", options, "--output", "out", "--json"]) == 0
        ((_, keys),) = json.loads(capsys.readouterr().out).items()
        assert len(keys) == 2


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["program_to_tune.py:absent"], 2, "has no attribute 'absent'"),
        (["program_to_tune.py:f"], 2, "missing 1 required positional argument"),
        (["program_to_tune.py:broken"], 1, "broken raised RuntimeError"),
        (["program_to_tune.py:programs", "--scheduler", "tcp://127.0.0.1:1"], 2, "there is no scheduler at tcp://"),
        (["program_to_tune.py:programs", "--options", '{"budget": 3}'], 1, "auto has no option 'budget'"),
        (["program_to_tune.py:programs", "--options", '{"objective": "memory"}'], 1, "tune compares times"),
    ],
)
def test_errors(folder, arguments, status, message, capsys, monkeypatch):
    import dask

    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        assert main(["tune", *arguments]) == status
    assert message in capsys.readouterr().err


def test_dask_is_asked_for_by_name(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["tune", "program_to_tune.py:programs"]) == 1
    assert "torchmux tune needs Dask" in (told := capsys.readouterr().err) and "'torchmux[tune]'" in told


@pytest.mark.slow
def test_a_cluster_of_processes(folder, capsys):
    """Real measurements in two workers of their own, from the command line."""
    options = json.dumps({"allow": ["native"], "budget_s": 100.0})
    assert main(["tune", "program_to_tune.py:programs", "--workers", "2", "--options", options, "--output", "out"]) == 0
    found = list(decisions.entries())
    assert len(found) == 2
    for decision in found:
        rows = {row.candidate: row for row in decision.rows}
        assert {"eager", "native", "native(keep_scratch=True)"} <= rows.keys()
        assert all(rows[name].milliseconds for name in ("eager", "native"))
        assert "of eager" in rows["native"].reason
    assert "out/decisions-" in capsys.readouterr().out


@pytest.mark.slow
def test_training_is_captured_with_its_backward_pass(folder, client):
    from torchmux.cli.target import load_programs
    from torchmux.cli.tune import _capture

    recorder = Recorder(AutoOptions(allow=["native"], budget_s=60.0))
    (program,) = load_programs("program_to_tune.py", "training")
    _capture(program, recorder, "train", None)
    _capture(program, recorder, "no_grad", None)
    assert [each.fingerprint.phase for each in recorder.captured] == ["training", "inference"]
    found = spread.tune(recorder.captured, client)
    assert [each.fingerprint.phase for each in found] == ["training", "inference"]
