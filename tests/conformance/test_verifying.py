"""Where a wrong number comes from: stages, graphs, operators, and a script that shows it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

import torchmux
from torchmux.cli.main import main
from torchmux.conformance.judging import verifying
from torchmux.conformance.loopback import Loopback


class Net(torch.nn.Module):
    """Two graphs; only the first one has a GELU, and only the second a softmax."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

    def forward(self, x):
        x = torch.nn.functional.gelu(self.inner(x))
        torchmux.graph_break()
        return torch.softmax(self.outer(x), -1) * 2


@pytest.mark.slow
def test_one_operator_of_one_graph():
    model, x = Net().eval(), torch.randn(3, 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    Loopback("approximate_gelu")
    found = torchmux.verify(model, x, backend="loopback_approximate_gelu")
    assert not found.ok
    assert {name: outcome for name, (outcome, _) in found.stages.items()} == {
        "eager": "pass",
        "loopback_approximate_gelu": "mismatch",
    }
    assert [outcome for _, outcome, _ in found.graphs] == ["mismatch", "pass"]
    assert (found.wrong, found.graph) == (("loopback_approximate_gelu",), 0)
    (operator,) = found.operators
    assert operator.name == "gelu(float32[1, 1])"
    assert operator.where.endswith("test_verifying.py:26")
    assert "graph 0, the operator:" in str(found)
    assert "gelu" in found.program
    # What was given is as it was, and in float32.
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.slow
def test_gradients():
    Loopback("wrong_gradients")
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()), torch.randn(2, 4)
    assert torchmux.verify(model, x, backend="loopback_wrong_gradients", gradients=False).ok
    found = torchmux.verify(model, x, backend="loopback_wrong_gradients")  # it is in training mode
    assert not found.ok
    assert len(found.operators) == 1


@pytest.mark.slow
def test_the_member_of_a_chain_and_keyword_arguments():
    Loopback("less_precision")

    def f(x, scale):
        return (x * scale).exp()

    inputs = {"x": torch.randn(8), "scale": torch.tensor(3.0)}
    found = torchmux.verify(f, inputs, backend=["loopback_less_precision", "eager"])
    assert found.wrong == ("loopback_less_precision",)
    assert torchmux.verify(f, inputs, backend="aot_eager").stages == {
        "eager": ("pass", ""),
        "aot_eager": ("pass", ""),
    }


def test_what_is_wrong_before_the_backend(monkeypatch):
    """A fault of the capture is no fault of the backend."""
    Loopback("wrong_value")
    stages = [Loopback("wrong_value"), Loopback("less_precision")]
    monkeypatch.setattr(verifying, "_stages", lambda requirements: stages)
    found = torchmux.verify(torch.sin, torch.randn(5), backend="loopback_less_precision")
    assert found.wrong == ("loopback_wrong_value",)
    assert list(found.stages) == ["loopback_wrong_value"]


def test_misuse():
    with pytest.raises(TypeError, match="inputs are a tensor"):
        torchmux.verify(torch.sin, 3, backend="eager")
    with pytest.raises(TypeError, match="by name"):
        torchmux.verify(torch.sin, torch.ones(1), backend=lambda gm, inputs: gm.forward)
    with pytest.raises(torchmux.UnknownBackend):
        torchmux.verify(torch.sin, torch.ones(1), backend="naitve")
    with pytest.raises(ValueError, match="eager does not run it"):
        torchmux.verify(torch.nn.Linear(2, 2), torch.ones(3), backend="eager")


PROGRAM = """
import torch

def make():
    return torch.nn.functional.gelu, torch.linspace(-2, 2, 9)
"""


def test_the_command(tmp_path, capsys):
    file, script = tmp_path / "program_to_bisect.py", tmp_path / "wrong.py"
    file.write_text(PROGRAM)
    named = "torchmux.conformance.loopback:requirements_approximate_gelu"
    command = ["bisect", f"{file}:make", "--requirements", named, "--output", str(script), "--json"]
    assert main(command) == 1
    said = capsys.readouterr()
    (told,) = json.loads(said.out).values()
    assert told["wrong"] == ["loopback_approximate_gelu"]
    assert str(script) in said.err
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1
    assert ran.stdout.startswith("mismatch")
    assert main(["bisect", f"{file}:make", "--backend", "eager"]) == 0
    assert "eager computes what eager computes" in capsys.readouterr().out
    assert main(["bisect", f"{file}:nothing", "--backend", "eager"]) == 2
