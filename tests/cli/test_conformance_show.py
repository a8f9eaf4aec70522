"""``torchmux conformance show``: single cases of what is published, and of files."""

from __future__ import annotations

import json

import pytest

from torchmux.cli.main import main
from torchmux.conformance import report, scores
from torchmux.conformance.outcome import Outcome, Result

RESULTS = [
    Result("operators/add/float32-forward", Outcome.PASS),
    Result("operators/add/float32-backward", Outcome.FALLBACK, "mul: not here", 0.75),
    Result("operators/sub/float32-forward", Outcome.SLOW, "4.0 times the 2.0 ms of eager"),
    Result("semantics/use/threads", Outcome.MISMATCH, "off"),
]


@pytest.fixture
def small(monkeypatch):
    """A published run of a backend, beside one that was published when single cases were not kept."""
    run = scores.small(report.to_json("mine", "quick", "mine 1.0", RESULTS, len(RESULTS)))
    old = {name: value for name, value in run.items() if name != "cases"}
    runs = [{**old, "level": "full"}, run, {**old, "backend": "other"}]
    monkeypatch.setattr(scores, "published", lambda: runs)
    return run


def test_published_cases_are_shown(small, capsys):
    assert small["totals"] == {"pass": 1, "slow": 1, "fallback": 1, "mismatch": 1}
    assert "| slow |" in scores.scoreboard([small])
    assert main(["conformance", "show", "mine", "--outcome", "fallback", "--outcome", "slow"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "fallback (75%)  operators/add/float32-backward: mul: not here"
    assert told[1] == "slow  operators/sub/float32-forward: 4.0 times the 2.0 ms of eager"
    assert told[2].startswith("2 cases of mine, quick, torch ")
    assert main(["conformance", "show", "mine", "--case", "operators/*"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].split() == ["cases", "pass", "slow", "fallback"]
    assert told[1].split() == ["operators/add", "1", "1"]


def test_a_file_is_shown(tmp_path, capsys):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(report.to_json("mine", "quick", "mine 1.0", RESULTS)))
    assert main(["conformance", "show", str(path), "--outcome", "mismatch"]) == 0
    assert capsys.readouterr().out.startswith("mismatch  semantics/use/threads: off\n1 cases of mine")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "other"], "published without those of single cases"),
        (["show", "nobody"], "nothing is published of 'nobody'; there is mine (full), mine (quick)"),
        (["show", "no/such/file.json"], "No such file"),
        (["show", "one", "two"], "takes backends, or `show NAME`"),
        (["eager", "--outcome", "pass"], "takes backends, or `show NAME`"),
    ],
)
def test_what_cannot_be_shown(small, words, said, capsys):
    assert main(["conformance", *words]) == 2
    assert said in capsys.readouterr().err
