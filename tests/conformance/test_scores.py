"""Published results: complete, with what they hang on, on the page, in the package and in ``torchmux backends``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import torchmux
from torchmux.cli.main import main
from torchmux.conformance import SUITE_VERSION, loopback, report, scores
from torchmux.conformance.outcome import Outcome, Result

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
PASSED = Result("semantics/use/threads", Outcome.PASS)
WRONG = Result("operators/add/float32-forward", Outcome.MISMATCH, "off | by <b>", details={"reproducer": "long"})


def run(*results, cases=2, backend="mine", **changed):
    return {**report.to_json(backend, "quick", "mine 1.0", results, cases), **changed}


def test_the_page_is_up_to_date():
    assert scores.filled(PAGE.read_text()) == PAGE.read_text(), "run python -m torchmux.conformance.scores"


def test_every_fault_is_on_the_page():
    text = PAGE.read_text()
    assert all(f"| `{fault}` |" in text for fault in loopback.FAULTS)


def test_published_results_are_whole():
    for found in scores.published():
        assert {"torch", "python", "system", "processor", "torchmux"} <= set(found["environment"])
        total = sum(found["totals"].values())
        assert total == sum(n for group in found["groups"].values() for n in group.values()) > 100
        failed = [outcome for outcome, _ in found["failures"].values()]
        for name in ("mismatch", "crash", "timeout", "xpass", "xfail"):
            assert failed.count(name) == found["totals"].get(name, 0)


def test_parts_of_a_run_are_joined():
    (joined,) = scores.joined([run(PASSED), run(WRONG, PASSED)])
    assert joined["environment"] == run()["environment"]
    assert scores.small(joined)["totals"] == {"pass": 1, "mismatch": 1}
    assert len(scores.joined([run(PASSED), run(PASSED, fingerprint="mine 2.0")])) == 2
    with pytest.raises(ValueError, match="is pass in one run, crash in another"):
        scores.joined([run(PASSED), run(Result(PASSED.case, Outcome.CRASH))])


def test_parts_of_a_run_may_come_from_other_processors():
    other, fewer = run(WRONG), run(WRONG)
    other["environment"]["processor"] = "Zephyr"
    fewer["environment"]["vectors"] = "none"
    (joined,) = scores.joined([run(PASSED), other])
    assert scores.small(joined)["environment"]["processor"] == f"{run()['environment']['processor']} and Zephyr"
    assert len(scores.joined([run(PASSED), fewer])) == 2


@pytest.mark.parametrize("cases", [3, None])
def test_what_is_not_whole_is_not_published(cases):
    with pytest.raises(ValueError, match="2 results for"):
        scores.small(run(PASSED, WRONG, cases=cases))


def test_what_is_published():
    small = scores.small(run(PASSED, WRONG))
    assert small["suite"] == SUITE_VERSION
    assert small["groups"] == {"semantics/use": {"pass": 1}, "operators/torch": {"mismatch": 1}}
    assert small["failures"] == {WRONG.case: ["mismatch", "off | by <b>"]}
    assert len(json.dumps(small)) < 2000
    table = scores.scoreboard([small])
    assert "| `mine` | quick | 1 | 1 | mine 1.0, torch " in table
    assert "| `operators/add/float32-forward` | mismatch | off \\| by &lt;b> |" in table


@pytest.mark.parametrize("kept", ["The graph is in /home/g.py: run it.", "\nThe source is in /home/g.cpp; use it."])
def test_files_of_the_machine_are_not_published(kept):
    failed = Result(WRONG.case, Outcome.CRASH, f"CompilationFailed: it fails. {kept}")
    assert scores.small(run(PASSED, failed))["failures"] == {WRONG.case: ["crash", "CompilationFailed: it fails."]}
    assert not any(" is in /" in reason for found in scores.published() for _, reason in found["failures"].values())


def test_backends_tells_the_score(monkeypatch, capsys):
    small = scores.small(run(PASSED, WRONG, backend="aot_eager"))
    monkeypatch.setattr(scores, "published", lambda: [small])
    assert main(["backends", "aot_eager"]) == 0
    assert f"torch {small['environment']['torch']}, {small['date']}: 1 pass, 1 mismatch" in capsys.readouterr().out
    assert main(["backends", "aot_eager", "eager", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first["conformance"]["totals"] == {"pass": 1, "mismatch": 1}
    assert second["conformance"] is None


def test_publishing(tmp_path, monkeypatch):
    whole = tmp_path / "run.json"
    whole.write_text(json.dumps(run(PASSED, WRONG)))
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- scoreboard -->\nold\n<!-- end of scoreboard -->\nafter\n")
    monkeypatch.setattr("sys.argv", ["scores", str(whole), "--results", str(tmp_path / "results"), "--page", str(page)])
    scores.main()
    assert json.loads((tmp_path / "results" / "mine-quick.json").read_text())["totals"] == {"pass": 1, "mismatch": 1}
    text = page.read_text()
    assert text.startswith("before\n<!-- scoreboard -->\n")
    assert "\nold\n" not in text
    assert text.endswith("<!-- end of scoreboard -->\nafter\n")


def test_only_ours_have_a_score():
    ours = {row.name for row in torchmux.backends() if row.distribution == "torchmux"}
    assert all(ours.issuperset(found["backend"].split("+")) for found in scores.published())


def test_a_row_tells_the_options_of_its_run():
    small = scores.small(run(PASSED, WRONG, backend="a+b", options={"b": {"fusion": False}}))
    assert "| `a+b` with b={'fusion': False} | quick | 1 | 1 |" in scores.scoreboard([small])
