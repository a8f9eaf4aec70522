"""``tuning_trials``: MetaSchedule in a process of its own, for real."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import torchmux
from torchmux.config import config
from torchmux.registry import InvalidOption

pytest.importorskip("tvm")

from torchmux.backends.tvm.codegen import tuning

X = torch.randn(96, 64)
OPTIONS = {"tuning_trials": 4}


def function(x: torch.Tensor) -> torch.Tensor:
    return (x.t().contiguous() * 2).softmax(-1)


@pytest.fixture
def empty_cache(tmp_path: Path):
    with config.patch(cache_dir=str(tmp_path / "cache")):
        yield


def use_script(monkeypatch, folder: Path, first: str = "", **changes: str) -> None:
    """The tuner, with statements before it and parts of its text replaced."""
    source = tuning._SCRIPT.read_text(encoding="utf-8")
    for old, new in {"from __future__ import annotations": "", **changes}.items():
        assert old in source
        source = source.replace(old, new)
    path = folder / "script.py"
    path.write_text(first + source, encoding="utf-8")
    monkeypatch.setattr(tuning, "_SCRIPT", path)


@pytest.fixture
def slow_as_it_is(monkeypatch, tmp_path: Path) -> None:
    """torchmux's own schedules seem a hundred times slower than they are."""
    use_script(monkeypatch, tmp_path, **{"self.seconds(self._own)": "self.seconds(self._own) * 100"})


def compiled(capture, function=function, options=OPTIONS):
    captured = capture(function, X)
    made = captured.compile("tvm", strict=True, options=options)
    torch.testing.assert_close(captured.run(made, X), function(X))
    return made.report.notes


@pytest.mark.slow
def test_schedules_are_tried_and_kept(capture, empty_cache, slow_as_it_is, capsys) -> None:
    torchmux.set_logs(tuning=True)
    try:
        (note,) = compiled(capture)
    finally:
        torchmux.set_logs()
    assert "kernels have a faster schedule" in note
    assert "it tuned" in note
    assert "did not finish" not in note
    assert "after 4 trials" in capsys.readouterr().err


def test_a_schedule_that_was_found_is_used(capture, empty_cache, slow_as_it_is, monkeypatch) -> None:
    taken = []
    named = tuning._named_as
    monkeypatch.setattr(tuning, "_named_as", lambda found, other: taken.append(str(found)) or named(found, other))
    compiled(capture)
    assert taken


@pytest.mark.slow
def test_a_second_graph_looks_for_nothing(capture, empty_cache, monkeypatch, tmp_path: Path) -> None:
    compiled(capture)
    use_script(monkeypatch, tmp_path, "raise SystemExit(7)\n")
    (note,) = compiled(capture, options={**OPTIONS, "tuning_seconds": 100.0})
    assert "it tuned" not in note


@pytest.mark.slow
def test_results_travel_to_another_cache(capture, empty_cache, monkeypatch, tmp_path: Path) -> None:
    compiled(capture)
    content, _ = torchmux.save_cache_artifacts()
    with config.patch(cache_dir=tmp_path / "elsewhere"):
        torchmux.load_cache_artifacts(content)
        use_script(monkeypatch, tmp_path, "raise SystemExit(7)\n")
        (note,) = compiled(capture, options={**OPTIONS, "tuning_seconds": 100.0})
        assert "it tuned" not in note


def test_a_tuner_that_dies_costs_one_kernel(capture, empty_cache, monkeypatch, tmp_path: Path, caplog) -> None:
    marker = tmp_path / "died"
    die = f"""import os, pathlib
if not pathlib.Path({str(marker)!r}).exists():
    pathlib.Path({str(marker)!r}).touch()
    os.write(1, b'{{"kernel": 0}}\\n')
    os.kill(os.getpid(), 11)
"""
    use_script(monkeypatch, tmp_path, die)
    first, second = compiled(capture)
    assert "1 did not finish" in first
    assert "SIGSEGV" in second
    assert "pip install" in second
    assert "SIGSEGV" in caplog.text


def test_a_tuner_that_cannot_start_is_reported(capture, empty_cache, monkeypatch, tmp_path: Path) -> None:
    use_script(monkeypatch, tmp_path, "raise ImportError('no such compiler')\n")
    first, second = compiled(capture)
    assert "0 of" in first
    assert "exit status 1 (ImportError: no such compiler)" in second


def test_time_ends_the_search(capture, empty_cache, monkeypatch, tmp_path: Path) -> None:
    use_script(monkeypatch, tmp_path, "import time\ntime.sleep(600)\n")
    (note,) = compiled(capture, options={**OPTIONS, "tuning_seconds": 0.5})
    assert "did not finish" in note


def test_the_mode(capture) -> None:
    assert torchmux.list_mode_options("max-autotune", "tvm") == {"tuning_trials": 64}


@pytest.mark.parametrize("options", [{"tuning_trials": -1}, {"tuning_seconds": 0.0}, {"tuning_seconds": float("inf")}])
def test_numbers_out_of_range(options) -> None:
    with pytest.raises(InvalidOption, match=next(iter(options))):
        torchmux.compile(function, backend="tvm", options=options)


def test_kernels_of_symbolic_sizes_keep_their_schedules(capture, empty_cache, monkeypatch) -> None:
    def no_tuner(*args: object) -> None:
        raise AssertionError("there is nothing to time")

    monkeypatch.setattr(tuning.Tuning, "_tuner", no_tuner)
    captured = capture(function, X, dynamic={0: [0]})
    made = captured.compile("tvm", strict=True, options=OPTIONS)
    torch.testing.assert_close(captured.run(made, X[:7]), function(X[:7]))
    (note,) = made.report.notes
    assert "are not tuned" in note
