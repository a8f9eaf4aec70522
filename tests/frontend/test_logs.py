"""``TORCHMUX_LOGS`` and ``set_logs``: each kind prints what it says, and nothing else is printed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import torchmux
from torchmux.logs import KINDS


@pytest.fixture(autouse=True)
def quiet_again():
    torchmux.reset()  # another test's code for the same function would do
    yield
    torchmux.set_logs()


def scale(x, k):
    y = x * k
    torchmux.graph_break()
    return y + 1


def printed(capfd, *kinds, backend="eager"):
    """What is printed of a function that breaks once and is compiled twice."""
    torchmux.set_logs(**dict.fromkeys(kinds, True))
    compiled = torchmux.compile(scale, backend=backend)
    compiled(torch.ones(2), 2.0)
    compiled(torch.ones(2), 3.0)
    return capfd.readouterr().err


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("graph", ["[torchmux graph] scale (", "test_logs.py:", "def forward(self, l_x", "* 2.0"]),
        ("guards", ["[torchmux guards] scale (", "def guard(L):", "L['k']"]),
        ("attempts", ["[torchmux attempts] scale (", "attempt 1 starts again: TM005", "attempt 2 is captured"]),
        ("recompiles", ["[torchmux recompiles] scale (", "k ", "2.0", "no longer holds (now 3.0)"]),
        ("graph_breaks", ["[torchmux graph_breaks] scale (", "TM005 explicit graph break", "torchmux.graph_break()"]),
        ("bytecode", ["[torchmux bytecode] scale (", "def frame_scale(", "run_graph("]),
        ("output_code", ["[torchmux output_code] scale (", "for eager", "def forward(self, l_x"]),
    ],
)
def test_each_kind(capfd, kind, words):
    text = printed(capfd, kind)
    for word in words:
        assert word in text
    assert {line.split()[1].rstrip("]") for line in text.splitlines() if line.startswith("[torchmux ")} == {kind}


def test_nothing_unless_asked(capfd):
    assert printed(capfd) == ""


def test_output_code_of_a_compiler(capfd):
    class Written:
        output_code = "int answer = 42;"

        def __call__(self, *args):
            return (args[0] + 1,)

    torchmux.set_logs(output_code=True)
    compiled = torchmux.compile(lambda x: x + 1, backend=lambda gm, example_inputs: Written())
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert "int answer = 42;" in capfd.readouterr().err
    assert torchmux.report(compiled).graphs[0].report.output_code == ["int answer = 42;"]


def test_output_code_of_aten_graphs(capfd):
    assert "torch.ops.aten.mul.Tensor" in printed(capfd, "output_code", backend="aot_eager")


def test_a_backend_that_tells_no_code(capfd):
    torchmux.set_logs(output_code=True)
    torchmux.compile(lambda x: x + 1, backend=lambda gm, example_inputs: lambda x: (x + 1,))(torch.ones(2))
    assert "does not expose generated code" in capfd.readouterr().err


def test_unknown_kinds_are_errors():
    with pytest.raises(ValueError, match="unknown kind 'graph_break'. Did you mean 'graph_breaks'"):
        torchmux.set_logs(graph_break=True)


PROGRAM = """
import torch, torchmux
torchmux.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
"""


def test_the_environment(tmp_path):
    environment = {**os.environ, "TORCHMUX_LOGS": "graph, recompile"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "[torchmux graph] <lambda>" in done.stderr
    assert done.stderr.count("Did you mean 'recompiles'") == 1


def test_every_kind_is_documented():
    from pathlib import Path

    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    assert [kind for kind in KINDS if f"`{kind}`" not in text] == []


def test_graphs_inside_of_the_graph(capfd):
    torchmux.set_logs(graph=True)
    compiled = torchmux.compile(lambda x: torch.vmap(torch.sin)(x) + 1, backend="eager")
    compiled(torch.ones(2, 2))
    told = capfd.readouterr().err
    assert "vectorized(" in told
    assert "torch.sin(" in told
