"""``torchmux explain`` on files and modules, and on what is wrong with its arguments."""

from __future__ import annotations

import pytest

from torchmux.cli.main import main

PROGRAM = """\
import torch
import neighbour


def whole(x, y):
    return torch.relu(x @ y)


def broken(x):
    print("in the middle")
    if x.sum() > 0:
        return x * 2
    return x - neighbour.ONE


def tokens(x):
    return torch.nn.functional.embedding(x, torch.zeros(2, 4))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.inner(x)


net = Net()
number = 3
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """The path of a file with functions to explain; the working folder and ``sys.path`` are put back."""
    import sys

    (tmp_path / "program_to_explain.py").write_text(PROGRAM)
    (tmp_path / "neighbour.py").write_text("ONE = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "program_to_explain.py"
    sys.modules.pop("program_to_explain", None)
    sys.modules.pop("neighbour", None)


def test_one_graph(program, capsys):
    assert main(["explain", f"{program}:whole", "--input", "2x3", "--input", "3x4:float32"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("1 graph, 0 graph breaks, 2 operators\n")
    assert "matmul 1, relu 1" in text


def test_breaks_and_the_way_out(program, capsys):
    assert main(["explain", f"{program}:broken", "--input", "3"]) == 0
    text = capsys.readouterr().out
    assert "2 graph breaks" in text
    assert f"{program}:10 in broken" in text
    assert "if x.sum() > 0:" in text
    assert text.count("fix: ") == 2


def test_code_and_guards(program, capsys):
    assert main(["explain", f"{program}:whole", "--input", "2x3", "--input", "3x4", "--code", "--guards"]) == 0
    text = capsys.readouterr().out
    assert "graph 1:" in text
    assert "torch.relu(" in text
    assert "guards:" in text


@pytest.mark.parametrize("target", ["program_to_explain:net", "program_to_explain:Net", "program_to_explain:net.inner"])
def test_modules(program, capsys, target):
    assert main(["explain", target, "--input", "2x4"]) == 0
    assert "linear 1" in capsys.readouterr().out


def test_integers_fit_every_embedding(program, capsys):
    assert main(["explain", f"{program}:tokens", "--input", "1x16:int64"]) == 0
    assert "1 graph, 0 graph breaks" in capsys.readouterr().out


def test_a_function_that_raises(program, capsys):
    assert main(["explain", f"{program}:whole", "--input", "2x3", "--input", "4x4"]) == 1
    assert "whole raised RuntimeError on these inputs" in capsys.readouterr().err


@pytest.mark.parametrize("inputs", [[], ["--input", "2x3"]])
def test_missing_inputs(program, capsys, inputs):
    assert main(["explain", f"{program}:whole", *inputs]) == 1
    assert "give one --input SHAPE for each" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("absent.py:f", "there is no file absent.py"),
        ("absent_module:f", "No module named 'absent_module'"),
        ("program_to_explain.py:absent", "has no attribute 'absent'"),
        ("program_to_explain.py:whol", "Did you mean 'whole'?"),
        ("program_to_explain.py:number", "it is 3 (int), which cannot be called"),
        ("raises.py:f", "cannot load raises.py:f: ZeroDivisionError: division by zero"),
        ("ends.py:f", "cannot load ends.py:f: SystemExit: enough"),
        ("broken.py:f", "cannot load broken.py:f: SyntaxError: invalid syntax (broken.py, line 1)"),
        ("raises:f", "cannot load raises:f: ZeroDivisionError"),
    ],
)
def test_no_such_thing(program, tmp_path, capsys, target, message):
    (tmp_path / "raises.py").write_text("1 / 0\n")
    (tmp_path / "ends.py").write_text("raise SystemExit('enough\\nof this')\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    assert main(["explain", target]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["no-colon"], ["a:b", "--input", "2x"], ["a:b", "--input", "2:float33"], ["a:b", "--input", "x2"]]
)
def test_misuse(arguments, capsys):
    with pytest.raises(SystemExit) as exit:
        main(["explain", *arguments])
    assert exit.value.code == 2
    assert "usage: torchmux explain" in capsys.readouterr().err


def test_html_writes_a_page_of_the_backend(tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text("def double(x):\n    return x.sin() * 2\n")
    page = tmp_path / "page.html"
    assert main(["explain", f"{program}:double", "--input", "3", "--backend", "aot_eager", "--html", str(page)]) == 0
    assert f"The page is in {page}." in capsys.readouterr().out
    assert "aot_eager" in page.read_text() and "x.sin() * 2" in page.read_text()
    assert main(["explain", f"{program}:double", "--input", "3", "--html", str(tmp_path / "no" / "page.html")]) == 2
