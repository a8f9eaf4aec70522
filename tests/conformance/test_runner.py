"""Runs that are interrupted, gone on with, split up, and reported."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from torchmux.cli.main import main
from torchmux.conformance import collect, report, runner, semantics
from torchmux.conformance.outcome import Outcome, Result

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


def test_what_the_journal_has_does_not_run_again(tmp_path):
    journal = runner.Journal(None)
    journal.add(Result(IDS[0], Outcome.MISMATCH, "from the journal"))
    (result,) = runner.run([IDS[0]], backend="eager", journal=journal)
    assert result.reason == "from the journal"


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {name: str(tmp_path / name) for name in ("all.json", "junit.xml", "kept.jsonl")}
    flags = ["--json", files["all.json"], "--junit", files["junit.xml"], "--resume", files["kept.jsonl"]]
    assert main(["conformance", "eager", "--case", SOME, *flags]) == 0
    assert "pass" in capsys.readouterr().out
    found = json.loads((tmp_path / "all.json").read_text())
    assert found["totals"] == {"pass": len(found["results"])}
    assert found["environment"]["torch"]
    suite = ElementTree.parse(files["junit.xml"]).getroot()
    assert suite.get("tests") == str(len(found["results"]))
    assert suite.get("failures") == suite.get("errors") == "0"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["eager", "--list", "--case", SOME], 0, "view_of_an_input"),
        (["eager", "--case", "nothing/*"], 2, "no case matches"),
        (["eager", "--shard", "three"], 2, "3/8"),
        ([], 2, "which backend"),
        (["no_such_backend"], 1, "No backend is called"),
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
    assert suite[1][0].text == "here\nthere"
