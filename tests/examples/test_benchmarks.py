"""The benchmarks run; what they measure is not asserted."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from torchmux.bench.latency import Latency
from torchmux.bench.results import Result, Row, to_json
from torchmux.zoo import WORKLOADS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_frontend(run_python, tmp_path):
    program, numbers = BENCHMARKS / "frontend.py", tmp_path / "numbers.json"
    printed = run_python(
        "import runpy, sys\n"
        f"sys.argv = ['frontend.py', '--rounds', '1', '--only', 'calls', '--programs', '3 tensors', "
        f"'--json', {str(numbers)!r}]\n"
        f"runpy.run_path({str(program)!r}, run_name='__main__')"
    )
    assert "3 tensors" in printed
    found = json.loads(numbers.read_text())
    assert set(found["call_microseconds"]) == {"3 tensors"}
    assert all({"torchmux", "torch"} <= set(row) for row in found["call_microseconds"].values())


@pytest.fixture
def auto(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    found = importlib.util.spec_from_file_location("benchmark_auto", BENCHMARKS / "auto.py")
    module = importlib.util.module_from_spec(found)
    sys.modules["benchmark_auto"] = module
    try:
        found.loader.exec_module(module)
        yield module
    finally:
        del sys.modules["benchmark_auto"]


def row(name, **milliseconds):
    """A result with these times, 8 turns each; None for a side that failed."""
    rows = []
    for side, each in milliseconds.items():
        if each is None:
            rows.append(Row(side, "lost", "it hangs"))
        else:
            seconds = [each / 1e3 * (1 + turn / 100) for turn in range(8)]
            rows.append(Row(side, "right", turns=seconds, sample=seconds, latency=Latency.of(seconds)))
    rows[-1].chosen, rows[-1].cold_seconds = ["native"], 12.5
    return Result(name, {"device": "cpu"}, 1, rows)


def test_what_follows_from_the_times_of_auto(auto):
    results = [
        row("a 1", eager=4.0, native=2.0, tvm=None, auto=2.0),
        row("b 8", eager=3.0, native=4.0, tvm=2.0, auto=1.0),
    ]
    assert [auto.best_single(result).side for result in results] == ["native", "tvm"]
    assert [auto.against_best(result).ratio for result in results] == pytest.approx([1.0, 2.0])
    # Where tvm hangs, eager stands in: 4 / 2 and 2 / 1.
    assert auto.fixed(results) == {
        "eager": (pytest.approx(6**0.5), 0), "native": (pytest.approx(2.0), 0), "tvm": (pytest.approx(2.0), 1)
    }  # fmt: skip
    text = auto.markdown(results, "a machine")
    assert "| a 1 | 4.14 | 2.07 | - | 2.07 | native | 1.000 (1.000-1.000) | 12.5 | native |" in text
    assert "lowest 1.000, 2 rows" in text and "a 1, tvm: lost: it hangs" in text
    assert "best fixed backend: native" in text


def test_the_rows_of_auto_that_are_kept(auto, tmp_path):
    file = tmp_path / "rows"
    assert auto.kept(file, 1) == {}
    line = json.dumps(json.loads(to_json([row("a 1", eager=1.0, auto=1.0)])))
    elsewhere = line.replace('"python": "', '"python": "1.')
    file.write_text(f"{line}\n{elsewhere.replace('a 1', 'b 1')}\n{line.replace('a 1', 'c 1')[:100]}")
    assert list(auto.kept(file, 1)) == ["a 1"]
    assert auto.kept(file, 2) == {}


def test_the_rows_of_auto(auto):
    assert len(auto.tasks("cpu")) == 32 and set(auto.QUICK) <= set(auto.tasks("cpu"))
    assert {task.workload for device in ("cpu", "cuda") for task in auto.tasks(device).values()} <= set(WORKLOADS)
    assert [task.name for task in auto.tasks("cuda").values()][-1] == "vit 32 training"
    singles = auto.candidates("native:freeze=True,inductor", "cpu", False, False)
    assert [side.label for side in singles] == ["eager", "native:freeze=True", "inductor"]
    given = {"wait": True, "budget_s": 30.0, "freeze": False, "allow": ["native", "inductor"]}
    side = auto.auto_side(singles, "cpu", 30.0, False)
    assert side.options == given
    side.check()


def test_joined_results_of_auto(auto, tmp_path, monkeypatch, capsys):
    for name, value in (("a", 2.0), ("b", 4.0)):
        results = [row("mlp 8", eager=4.0, auto=value), row(f"lstm {len(name)}", eager=4.0, auto=1.0)]
        (tmp_path / f"{name}.json").write_text(to_json(results[: 1 if name == "b" else 2]))
    files = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    monkeypatch.setattr(sys, "argv", ["auto.py", "--show", *files, "--json", str(tmp_path / "all.json")])
    auto.main()
    assert [line.split()[:4] for line in capsys.readouterr().out.splitlines()[2:4]] == [
        ["mlp", "8", "4.14", "4.14"],  # of the last file
        ["lstm", "1", "4.14", "1.035"],
    ]
    assert len(json.loads((tmp_path / "all.json").read_text())["programs"]) == 2
    other = json.loads((tmp_path / "b.json").read_text())
    other["environment"]["torch"] = "1.0"
    (tmp_path / "b.json").write_text(json.dumps(other))
    with pytest.raises(SystemExit, match="different machines or versions"):
        auto.main()


@pytest.mark.slow
def test_rows_of_auto_on_cores_of_their_own(run_python, tmp_path):
    numbers = tmp_path / "numbers.json"
    options = ["--rows", "mlp", "--jobs", "1", "--within", "90", "--once", "--backends", "native"]
    printed = run_python(
        "import runpy, sys\n"
        f"sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        f"sys.argv = ['auto.py', *{options!r}, '--json', {str(numbers)!r}]\n"
        f"runpy.run_path({str(BENCHMARKS / 'auto.py')!r}, run_name='__main__')"
    )
    assert "not measured" not in printed
    found = {each["program"]: each for each in json.loads(numbers.read_text())["programs"]}
    assert set(found) == {"mlp 1", "mlp 8"} and {each["threads"] for each in found.values()} == {1}
    assert all(row["warm_seconds"] is None for each in found.values() for row in each["rows"])


@pytest.mark.parametrize("tuned, mode", [(False, "reduce-overhead"), (True, "max-autotune")])
def test_auto_may_use_the_modes_of_the_single_sides_on_a_gpu(auto, tuned, mode):
    listed = "native,inductor:max-autotune" if tuned else "native"
    side = auto.auto_side(auto.candidates(listed, "cuda", False, False), "cuda", 30.0, False)
    assert side.options is not None and side.options["also_mode"] == mode
    side.check()


def test_micro(run_python, tmp_path):
    program, numbers = BENCHMARKS / "micro.py", tmp_path / "numbers.json"
    arguments = ["--only", "pointwise/small", "reduce/short-rows", "--no-inductor", "--profile", "--rounds", "1"]
    printed = run_python(
        "import runpy, sys\n"
        f"sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        f"sys.argv = ['micro.py', *{arguments!r}, '--json', {str(numbers)!r}]\n"
        f"runpy.run_path({str(program)!r}, run_name='__main__')"
    )
    assert "2 programs, 0 failed, 0 wrong" in printed
    assert printed.count("in steps of native's code") == 2
    found = json.loads(numbers.read_text())
    assert [each["native"] > 0 and "native wrong" not in each for each in found.values()] == [True, True]
