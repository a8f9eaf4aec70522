"""``torchmux demo``: the table, the verdicts, and the exit status that goes with them."""

from __future__ import annotations

import math

import pytest
import torch

import torchmux
from torchmux.cli import demo
from torchmux.cli.main import main
from torchmux.demo import trial

pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """What is timed here is not looked at."""
    monkeypatch.setattr(trial, "_SECONDS", 0.0)
    monkeypatch.setattr(trial, "_ROUNDS", 1)


def rows(text: str) -> dict[tuple[str, str], list[str]]:
    """The lines of the table by model and backend."""
    return {(w[0], w[1]): w for w in map(str.split, text.splitlines()) if w and w[0] in demo._NAMES}


def test_one_tiny_model(capsys):
    assert main(["demo", "--tiny", "--models", "bert", "resnet", "--backends", "eager", "aot_eager"]) == 0
    captured = capsys.readouterr()
    table = rows(captured.out)
    assert list(table) == [(m, b) for m in ("bert", "resnet") for b in ("eager", "aot_eager")]
    for words in table.values():
        seconds, speedup, error, ratio, own, libraries, left, breaks, result = words[2:]
        assert float(seconds) >= 0 and float(speedup) > 0 and 0 < float(error) < 1e-4
        assert (left, breaks, result) == ("0%", "0", "right")
        assert own == libraries == "?" or int(own[:-1]) + int(libraries[:-1]) in range(99, 102)
        assert float(ratio) <= trial.TOLERANCE
    assert table["bert", "eager"][5] == "1.0"
    assert captured.err.count("right, first result after") == 4


def test_wrong_failing_and_refusing_backends(capsys, own_catalog):
    """The others get their turn, the notes say what happened, and the exit status is 1."""

    @torchmux.register_backend
    def off_by_a_little(gm, example_inputs):
        return lambda *args: tuple(out * 1.001 for out in gm.forward(*args))

    @torchmux.register_backend
    def casting(gm, example_inputs):
        return lambda *args: tuple(out.double() for out in gm.forward(*args))

    @torchmux.register_backend
    def raising(gm, example_inputs):
        raise ValueError("no such kernel")

    names = ["off_by_a_little", "casting", "raising", "eager"]
    assert main(["demo", "--tiny", "--models", "resnet", "--backends", *names]) == 1
    text = capsys.readouterr().out
    assert [rows(text)["resnet", name][-1] for name in names] == ["wrong", "wrong", "failed", "right"]
    assert "wrong: resnet on off_by_a_little: the error against float64 is" in text
    assert "torch.float64" in text
    assert "no such kernel" in text


def test_all_available_backends_are_chosen_and_the_others_explained():
    chosen, left_out = demo._backends(None)
    on_cpu = {row.name for row in torchmux.backends() if row.available and {"cpu", "*"} & set(row.devices)}
    assert {"eager", "aot_eager"} <= set(chosen) == on_cpu
    assert any(line.startswith("ipex: The backend 'ipex' is retired") for line in left_out)


def test_a_backend_that_does_not_run_here(capsys):
    assert main(["demo", "--backends", "ipex"]) == 1
    assert "retired" in capsys.readouterr().err
    assert main(["demo", "--backends", "onxrt"]) == 1
    assert "Did you mean 'onnxrt'?" in capsys.readouterr().err


def test_commas_separate_backends(capsys):
    assert main(["demo", "--tiny", "--models", "resnet", "--backends", "eager,aot_eager"]) == 0
    assert [backend for _, backend in rows(capsys.readouterr().out)] == ["eager", "aot_eager"]


def test_without_transformers(capsys, monkeypatch):
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda name: None)
    assert main(["demo"]) == 1
    assert "python -m pip install" in capsys.readouterr().err


def test_the_command_knows_the_models():
    from torchmux.demo.models import MODELS

    assert tuple(MODELS) == demo._NAMES


@pytest.mark.parametrize(
    ("found", "error"),
    [
        ([torch.tensor([1.0, 2.0])], 0.0),
        ([torch.tensor([1.0, 2.5])], 0.25),
        ([torch.tensor([1.0, math.nan])], math.inf),
        ([torch.tensor([1.0])], math.inf),
        ([], math.inf),
    ],
)
def test_error(found, error):
    assert trial.error_against([torch.tensor([1.0, 2.0], dtype=torch.float64)], found) == error
