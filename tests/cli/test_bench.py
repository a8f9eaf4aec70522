"""``torchmux bench``: the tables, the files, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchmux.bench import measure
from torchmux.cli.main import main

PROGRAMS = Path(__file__).parents[1] / "bench" / "bench_programs.py"


@pytest.fixture
def soon(monkeypatch):
    for name, value in (("FEWEST", 2), ("MOST", 2), ("TURN_S", 0.001), ("PAUSE_S", 0.0)):
        monkeypatch.setattr(measure, name, value)


@pytest.fixture
def no_work(monkeypatch):
    def work(*args, **more):
        pytest.fail("work has begun")

    monkeypatch.setattr(measure.Bench, "run", work)
    monkeypatch.setattr(measure, "programs_of", work)


def lines(text, head):
    """The rows of the table under a heading, by backend."""
    after = text.split(head, 1)[1].splitlines()[1:]
    return {line.split()[0]: line.split() for line in after[: after.index("")]}


def test_tables_and_files(soon, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    json_file, plot = tmp_path / "found.json", tmp_path / "found.svg"
    command = ["bench", "mlp", "--batch", "3", "--threads", "1", "--backends", "aot_eager", "--json", str(json_file)]
    assert main([*command, "--plot", str(plot)]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("mlp, batch 3 (")
    times, places = lines(captured.out, "backend    cold s"), lines(captured.out, "backend      error")
    assert list(times) == list(places) == ["eager", "aot_eager"]
    assert times["eager"][1:3] == ["-", "-"] and times["eager"][-1] == times["aot_eager"][-1] == "right"
    assert all(float(word) > 0 for word in times["aot_eager"][1:5])
    assert places["aot_eager"][-4:] == ["0", "0", "aot_eager", "100%"]
    assert "mlp: aot_eager, cold" in captured.err
    told = json.loads(json_file.read_text())
    assert [row["side"] for row in told["programs"][0]["rows"]] == ["eager", "aot_eager"]
    assert "mlp, batch 3" in plot.read_text()


@pytest.mark.slow
def test_a_function_with_several_programs(soon, capsys):
    assert main(["bench", f"{PROGRAMS}:several", "--backends", "eager", "--train"]) == 0
    text = capsys.readouterr().out
    assert "four, training (" in text and "nine, training (" in text


@pytest.mark.slow
def test_a_script(soon, capsys, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch, torchmux\n"
        "f = torchmux.compile(lambda x: x.sin() * int(sys.argv[2]))\n"
        "f(torch.ones(3))\n"
        "model = torchmux.compile(torch.nn.Linear(3, 3))\n"
        "model(torch.ones(2, 3)).sum().backward()\n"
    )
    assert main(["bench", "--script", str(script), "--backends", "eager", "--", "--factor", "3"]) == 0
    text = capsys.readouterr().out
    assert "<lambda> (" in text and "Linear, training (" in text
    script.write_text("import torchmux\n")
    assert main(["bench", "--script", str(script), "--backends", "eager"]) == 2
    assert "calls nothing that torchmux.compile returned" in capsys.readouterr().err
    script.write_text("1 / 0\n")
    assert main(["bench", "--script", str(script), "--backends", "eager"]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_the_list(capsys):
    assert main(["bench", "--list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {"bert", "gnn", "unet", "tiny/bert", "deep/mamba"} <= set(names)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no program given"),
        (["brt"], "Did you mean 'bert'"),
        (["mlp", "--calls", "1"], "--calls is for --script"),
        (["--script", "/no/such/file.py"], "there is no file"),
        (["--script", __file__, "--train", "--batch", "2"], "leave out --batch and --train"),
        (["mlp", "--json", "/no/such/folder/file"], "there is no folder"),
        (["mlp", "--plot", "found.pdf"], "neither .png nor .svg"),
    ],
)
def test_misuse(no_work, capsys, arguments, words):
    assert main(["bench", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said and said.startswith("torchmux: ") and said.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["--batch", "0"], ["--dtype", "int32"], ["--device", "abacus"], ["--budget", "-1"]]
)
def test_wrong_options(no_work, capsys, arguments):
    with pytest.raises(SystemExit) as exit:
        main(["bench", "mlp", *arguments])
    assert exit.value.code == 2


def test_unknown_backends(no_work, capsys):
    assert main(["bench", "mlp", "--backends", "onxrt"]) == 1
    assert "Did you mean 'onnxrt'?" in capsys.readouterr().err
