"""Runs that are interrupted, gone on with, split up, and reported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from torchmux.cli.main import main
from torchmux.conformance import collect, loopback, report, runner, semantics
from torchmux.conformance.outcome import OtherRun, Outcome, Result

IDS = [case.id for case in semantics.cases()]
SOME = "semantics/aliasing/view*"


def test_parts_cover_all_cases_once():
    cases = list(semantics.cases())
    parts = [[case.id for case in collect.shard(cases, part, 3)] for part in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == sorted(IDS)
    assert all(parts)
    with pytest.raises(ValueError, match="no part 4 of 3"):
        list(collect.shard(cases, 4, 3))


def test_a_journal_keeps_what_was_found(tmp_path):
    path = tmp_path / "found.jsonl"
    results = [
        Result("a/b/c", Outcome.PASS),
        Result("a/b/d", Outcome.MISMATCH, "wrong", 0.5, 1.5, {"kinds": ["value"]}),
    ]
    journal = runner.Journal(path)
    for result in results:
        journal.add(result)
    with path.open("a") as file:
        file.write('{"case": "a/b/e", "outc')  # the machine stopped here
    assert list(runner.Journal(path).results.values()) == results


def test_a_journal_goes_on_behind_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "found.jsonl"
    runner.Journal(path, {"backend": "a"}).add(Result("a/b/c", Outcome.PASS))
    with path.open("a") as file:
        file.write('{"case": "a/b/d", "outc')
    runner.Journal(path, {"backend": "a"}).add(Result("a/b/d", Outcome.CRASH))
    assert list(runner.Journal(path, {"backend": "a"}).results) == ["a/b/c", "a/b/d"]


def test_a_journal_belongs_to_one_kind_of_run(tmp_path):
    path = tmp_path / "found.jsonl"
    runner.Journal(path, {"backend": "a", "torch": "2.13"}).add(Result("a/b/c", Outcome.PASS))
    with pytest.raises(OtherRun, match="another run, which differs in torch"):
        runner.Journal(path, {"backend": "a", "torch": "2.15"})


def test_what_the_journal_has_does_not_run_again(tmp_path):
    journal = runner.Journal(None)
    journal.add(Result(IDS[0], Outcome.MISMATCH, "from the journal"))
    (result,) = runner.run([IDS[0]], backend="eager", journal=journal)
    assert result.reason == "from the journal"


def test_a_process_runs_so_many_cases_and_no_more(monkeypatch):
    started = []

    class Counted(runner.Worker):
        def begin(self, head):
            super().begin(head)
            started.append(self._copy)

    monkeypatch.setattr(runner, "Worker", Counted)
    monkeypatch.setattr(runner, "FRESH_AFTER", 2)
    results = runner.run(IDS[:3], backend="eager")
    assert [result.outcome for result in results] == [Outcome.PASS] * 3
    assert len(set(started)) == 2


def test_jobs_share_answers_of_eager_and_a_worker(monkeypatch):
    """Eager is asked once for all backends, and the faults of one are not found in the next one."""
    started, kept = [], []

    class Counted(runner.Worker):
        def __init__(self, *args):
            started.append(args[0]["backend"])
            super().__init__(*args)

        def end_copy(self):
            kept.append(len(os.listdir(jobs[0].head["answers"])))
            return super().end_copy()

    monkeypatch.setattr(runner, "Worker", Counted)
    faulty = {"backend": "loopback_crash", "requirements": "torchmux.conformance.loopback:requirements_crash"}
    name = loopback.CAUGHT_AS["crash"][1]
    jobs = [runner.Job([name], **given) for given in (faulty, {"backend": "eager"}, {"backend": "aot_eager"})]
    runner.run_all(jobs)
    assert [result.outcome for job in jobs for result in job.results] == [Outcome.CRASH, Outcome.PASS, Outcome.PASS]
    assert len(started) == 1
    assert kept[-1] >= kept[0] > 0
    assert not os.path.exists(jobs[0].head["answers"])


def test_the_command_for_several_backends(tmp_path, capsys):
    assert main(["conformance", "eager", "aot_eager", "--case", SOME, "--json", str(tmp_path / "all.json")]) == 2
    assert "put {} in their names" in capsys.readouterr().err
    flags = ["--json", str(tmp_path / "of_{}.json"), "--resume", str(tmp_path / "{}.jsonl")]
    assert main(["conformance", "eager", "aot_eager", "--case", SOME, *flags]) == 0
    found = [json.loads((tmp_path / f"of_{name}.json").read_text()) for name in ("eager", "aot_eager")]
    assert [each["backend"] for each in found] == ["eager", "aot_eager"]
    assert all(each["totals"]["pass"] == len(each["results"]) > 1 for each in found)
    assert len((tmp_path / "aot_eager.jsonl").read_text().splitlines()) == 1 + len(found[1]["results"])


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {name: str(tmp_path / name) for name in ("all.json", "junit.xml", "kept.jsonl")}
    flags = ["--json", files["all.json"], "--junit", files["junit.xml"], "--resume", files["kept.jsonl"]]
    other = report.to_json("other", "quick", "", [Result(IDS[0], Outcome.PASS)])
    (tmp_path / "other.json").write_text(json.dumps(other))
    flags += ["--html", "page.html", "--compare", "other.json", "--reproducers", "scripts"]
    assert main(["conformance", "eager", "--case", SOME, *flags]) == 0
    assert "pass" in capsys.readouterr().out
    found = json.loads((tmp_path / "all.json").read_text())
    assert found["totals"] == {"pass": len(found["results"])}
    assert found["environment"]["torch"]
    assert found["cases"] is None, "a choice of cases is not a level"
    assert all(f'"backend":"{name}"' in (tmp_path / "page.html").read_text() for name in ("other", "eager"))
    assert list((tmp_path / "scripts").iterdir()) == []
    suite = ElementTree.parse(files["junit.xml"]).getroot()
    assert suite.get("tests") == str(len(found["results"]))
    assert suite.get("failures") == suite.get("errors") == "0"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["eager", "--list", "--case", SOME], 0, "view_of_an_input"),
        (["eager", "--case", "nothing/*"], 2, "no case matches"),
        (["eager", "--shard", "three"], 2, "3/8"),
        ([], 2, "no backend given"),
        (["no_such_backend"], 1, "There is no backend"),
    ],
)
def test_misuse(words, status, said, capsys):
    assert main(["conformance", *words]) == status
    captured = capsys.readouterr()
    assert said in captured.out + captured.err


def test_junit_tells_outcomes_apart():
    results = [
        Result("s/g/a", Outcome.PASS),
        Result("s/g/b", Outcome.MISMATCH, "off", details={"differences": ["here", "there"]}),
        Result("s/g/c", Outcome.CRASH, "died", details={"traceback": "Traceback"}),
        Result("s/g/d", Outcome.UNSUPPORTED, "no"),
    ]
    suite = ElementTree.fromstring(report.to_junit("mine", results).split("?>", 1)[1])
    assert [suite.get(kind) for kind in ("tests", "failures", "errors", "skipped")] == ["4", "1", "1", "1"]
    assert suite[1].find("failure").text == "here\nthere"
    told = [each.find("properties/property[@name='outcome']").get("value") for each in suite]
    assert told == ["pass", "mismatch", "crash", "unsupported"]


# --- runs as processes ---------------------------------------------------------------------------------------------


@pytest.fixture
def started(tmp_path):
    """``started(words)`` is a run in a process of its own; none is left after the test."""
    processes = []

    def start(*words):
        command = [sys.executable, "-m", "torchmux", "conformance", *map(str, words)]
        with (tmp_path / f"output{len(processes)}").open("w") as output:
            processes.append(subprocess.Popen(command, cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def wait_for(condition, seconds=200):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it does not happen"
        time.sleep(0.05)


def workers_of(process):
    """The worker processes of a run, from the system."""
    found = []
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        found += (task / "children").read_text().split()
    return [int(pid) for pid in found]


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


HANGING = ("--requirements", "torchmux.conformance.loopback:requirements_hang", "--case", "semantics/mutation/*")


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_a_run_is_the_end_of_its_workers(how, started, tmp_path):
    run = started(*HANGING, "--resume", tmp_path / "kept.jsonl")
    wait_for(lambda: workers_of(run) and (tmp_path / "kept.jsonl").exists())
    (worker,) = workers_of(run)
    time.sleep(3)  # in the middle of starting, or of a compilation that never ends
    run.send_signal(how)
    begun = time.monotonic()
    assert run.wait(timeout=30) == (130 if how is signal.SIGINT else -9)
    wait_for(lambda: not is_running(worker), 30)
    assert time.monotonic() - begun < 15, "a case has 20 seconds, which nobody waited for"
    assert (tmp_path / "kept.jsonl").read_text().count("\n") == 1, "an interrupted case counts as a failure"


@pytest.mark.slow
def test_a_run_goes_on_where_it_was_interrupted(started, tmp_path):
    kept = tmp_path / "kept.jsonl"
    words = ("eager", "--case", "semantics/aliasing/*", "--case", "semantics/numbers/*", "--resume", kept)
    first = started(*words)
    wait_for(lambda: kept.exists() and kept.read_text().count("\n") >= 4)
    first.send_signal(signal.SIGINT)
    assert first.wait(timeout=60) == 130
    before = [line for line in kept.read_text().splitlines(keepends=True) if line.endswith("\n")]
    wanted = [case.id for case in collect.cases("quick", words[2:5:2])]
    assert 3 <= len(before) - 1 < len(wanted)
    assert started(*words, "--json", tmp_path / "all.json").wait(timeout=300) == 0
    after = kept.read_text().splitlines(keepends=True)
    assert after[: len(before)] == before
    assert [json.loads(line)["case"] for line in after[1:]] == wanted
    assert [result["case"] for result in json.loads((tmp_path / "all.json").read_text())["results"]] == wanted


@pytest.mark.slow
def test_two_runs_at_once_write_to_one_file(started, tmp_path):
    kept = tmp_path / "kept.jsonl"
    words = ("eager", "--case", "semantics/aliasing/*", "--resume", kept, "--workers", "2")
    both = [started(*words, "--shard", part) for part in ("1/2", "2/2")]
    assert [run.wait(timeout=400) for run in both] == [0, 0]
    found = [json.loads(line).get("case") for line in kept.read_text().splitlines()]
    assert found[0] is None
    assert sorted(found[1:]) == sorted(case.id for case in collect.cases("quick", ["semantics/aliasing/*"]))


def test_a_case_that_ends_the_process_of_eager_hides_no_other(monkeypatch):
    """It runs again where nothing ran before it, and the next one gets eager's answers from a new process."""
    dies, ran, closed = {"a": 1, "b": 9}, [], []

    def in_worker(self, name, seconds):
        self._ran += 1
        ran.append(name)
        dies[name] = dies.get(name, 0) - 1
        details = {"eager": "ended"} if dies[name] >= 0 else {}
        return Result(name, Outcome.SKIPPED if details else Outcome.PASS, details=details)

    end = runner.CaseRunner._end
    monkeypatch.setattr(runner.CaseRunner, "_in_worker", in_worker)
    monkeypatch.setattr(runner.CaseRunner, "_end", lambda self: (closed.append(ran[-1]), end(self)))
    cases = runner.CaseRunner({})
    found = [cases.run(name, 1.0).outcome.value for name in ("first", "a", "b", "last")]
    assert found == ["pass", "pass", "skipped", "pass"]
    assert ran == ["first", "a", "a", "b", "last"] and closed[-1] == "b"


DEADLY = """
from torchmux.conformance.loopback import Loopback
from torchmux.conformance.requirements import Expected

class Deadly(Loopback):
    expected = [Expected("semantics/mutation/*", "it is so", only="its process was killed")]

    def __init__(self):
        super().__init__("crash")
"""


@pytest.mark.slow
def test_the_end_of_a_process_may_be_expected(tmp_path):
    path = tmp_path / "deadly.py"
    path.write_text(DEADLY)
    (result,) = runner.run(["semantics/mutation/input_in_place"], backend="", requirements=f"{path}:Deadly")
    assert (result.outcome, result.details["outcome"]) == (Outcome.XFAIL, "crash")
    assert result.reason.startswith("it is so")
    assert "def case(trial: Trial)" in result.details["reproducer"]


def test_shared_memory_that_somebody_uses_is_not_left_behind():
    with tempfile.NamedTemporaryFile(dir="/dev/shm", delete=False) as file:
        name = os.path.basename(file.name)
        assert name in runner._in_shared_memory()
        assert runner._mapped({name}) == {name}
    try:
        assert runner._mapped({name}) == set()
    finally:
        os.unlink(file.name)


ELSEWHERE = """
from torchmux.conformance.loopback import Loopback

class Elsewhere(Loopback):
    device = "cuda"

    def __init__(self):
        super().__init__("wrong_value")
"""


@pytest.mark.parametrize(("device", "hidden"), [("", False), ("cuda", False), ("cpu", True)])
def test_gpus_are_hidden_from_cases_on_a_cpu_alone(tmp_path, monkeypatch, device, hidden):
    """The device of the requirements counts, unless another is asked for."""
    seen = {}

    class Seen(Exception):
        pass

    def popen(*args, env, **kwargs):
        seen.update(env)
        raise Seen

    (tmp_path / "elsewhere.py").write_text(ELSEWHERE)
    monkeypatch.setattr(runner.subprocess, "Popen", popen)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(Seen):
        runner.run(IDS[:1], backend="", requirements=f"{tmp_path}/elsewhere.py:Elsewhere", device=device)
    assert (seen.get("CUDA_VISIBLE_DEVICES") == "") is hidden


@pytest.mark.slow
def test_what_users_get_from_torch_is_compiled_to_be_judged(monkeypatch):
    monkeypatch.setenv("TORCHMUX_LEAVE_SMALL_GRAPHS", "1")
    (result,) = runner.run(["operators/nn.functional.relu/float32-backward"], backend="native", level="full")
    assert result.outcome is Outcome.PASS, result.reason
