"""Programs on the command line: what a function may return, and what is said of everything else."""

from __future__ import annotations

import argparse
import sys

import pytest
import torch

from torchmux.cli.target import Program, load_programs, programs_of, target

X = torch.ones(2)


def test_the_forms():
    (one,) = programs_of((torch.sin, X), "f")
    assert (one.name, one.args, one.kwargs) == ("f", (X,), None)
    torch.testing.assert_close(one.call(), X.sin())
    torch.testing.assert_close(one.call(torch.cos), X.cos())
    several = programs_of([(torch.add, (X, 1)), (torch.add, {"input": X, "other": 2})], "f")
    assert [program.name for program in several] == ["f[0]", "f[1]"]
    assert [program.call().tolist() for program in several] == [[2.0, 2.0], [3.0, 3.0]]
    named = programs_of({"small": (torch.sin, X), "large": (torch.sin, torch.ones(9))}, "f")
    assert [program.name for program in named] == ["small", "large"]
    assert isinstance(named[0], Program)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, r"f\(\) must return \(model, inputs\).*f is None"),
        ([(torch.sin, X), torch.sin], r"f\[1\] is <built-in"),
        ((X, torch.sin), "must return"),
        ((torch.nn.Linear, X), "Linear is a class; return an instance"),
        ((torch.sin, [X]), "not a list. Write .model, .input,.."),
        ([], "returned nothing to run"),
        ({"a": (torch.sin, {1: X})}, "a: the inputs must be a tensor"),
    ],
)
def test_what_is_not_a_program(returned, message):
    with pytest.raises(TypeError, match=message):
        programs_of(returned, "f")


def test_files(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "programs_of_a_file.py"
    file.write_text(
        "import torch\nmodel = torch.nn.Linear(2, 2)\nnumber = 3\ndef programs():\n    return model, torch.ones(1, 2)\n"
    )
    try:
        (program,) = load_programs(str(file), "programs")
        assert program.call().shape == (1, 2)
        with pytest.raises(TypeError, match="model is a module. Write a function that returns .model, inputs."):
            load_programs(str(file), "model")
        with pytest.raises(TypeError, match="number is 3, an int"):
            load_programs(str(file), "number")
        with pytest.raises(AttributeError, match="Did you mean 'programs'"):
            load_programs(str(file), "program")
    finally:
        sys.modules.pop("programs_of_a_file", None)


def test_the_text():
    assert target("a/b.py:f.g") == ("a/b.py", "f.g")
    with pytest.raises(argparse.ArgumentTypeError, match="is not FILE.py:NAME or MODULE:NAME"):
        target("model")
