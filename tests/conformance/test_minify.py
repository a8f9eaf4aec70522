"""Cutting a failure down: the smallest graph that still fails, as a program of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from torchmux.cli.main import main
from torchmux.conformance import collect, graphs, minify, reproducer, semantics, worker
from torchmux.conformance.case import Trial
from torchmux.conformance.loopback import Loopback
from torchmux.conformance.outcome import Outcome, Result
from torchmux.conformance.requirements import Requirements

CASES = {case.id: case for case in semantics.cases()}


class InThisProcess:
    """Judges candidates without a worker, as long as none is deadly."""

    def __init__(self, requirements: Requirements) -> None:
        self.requirements = requirements
        self.judged = 0

    def judge_program(self, program: str, seconds: float) -> Result:
        self.judged += 1
        return worker.judge_program(program, self.requirements)

    def close(self) -> None:
        assert self.judged


def search(case, requirements, named, monkeypatch):
    """``minify`` with candidates judged in this process."""
    monkeypatch.setattr(minify, "CaseRunner", lambda head: InThisProcess(requirements))
    return minify.minify(case, requirements, named)


def search_under(fault, case, monkeypatch):
    return search(case, Loopback(fault), f"torchmux.conformance.loopback:requirements_{fault}", monkeypatch)


def deep(x, weight, index):
    """Nothing here fails under a backend that loses mutations, but for one operator in the middle."""
    for _ in range(6):
        x = (x @ weight).tanh()
    y = x[index].relu() + 1
    index.add_(1)
    for _ in range(6):
        y = y.softmax(-1) * 2
    return y, x


def test_one_operator_of_many(monkeypatch):
    inputs = [torch.randn(6, 6), torch.randn(6, 6, requires_grad=True), torch.tensor([0, 2, 1])]
    found = search_under("lost_mutation", minify.of_function(deep, inputs, "deep"), monkeypatch)
    assert found.nodes_before > 20
    assert found.nodes == 1
    assert "index.add_(1)" in found.program
    assert "torch.tensor([0], dtype=torch.int64)" in found.program, "sizes are not cut"
    assert found.result.outcome is Outcome.MISMATCH
    assert worker.judge_program(found.program, Requirements("eager")).outcome is Outcome.PASS


def test_gradients_that_fail(monkeypatch):
    found = search_under("wrong_dtype", CASES["semantics/training/one_step"], monkeypatch)
    assert found.nodes == 1
    assert "dtype" in found.result.details["kinds"]


def test_nothing_to_find(monkeypatch):
    with pytest.raises(minify.NothingFails, match="none of the 1 graphs of semantics/mutation/input_in_place"):
        search(CASES["semantics/mutation/input_in_place"], Requirements("eager"), "", monkeypatch)


@pytest.mark.parametrize(
    "name",
    [
        "semantics/structure/a_small_network", "semantics/control/branches_on_data", "semantics/training/one_step",
        "semantics/aliasing/strided_inputs", "semantics/numbers/a_large_constant",
    ],
)  # fmt: skip
def test_recorded_graphs_run_as_programs(name):
    samples = graphs.record(lambda backend: CASES[name].run(Trial(backend)))
    assert samples
    for sample in samples:
        text = reproducer.program("a graph", sample.body(), Requirements("eager"))
        result = worker.judge_program(text, Requirements("eager"))
        assert result.outcome is Outcome.PASS, f"{result}\n{text}"


def test_parts_of_a_graph():
    (sample,) = graphs.record(lambda backend: Trial(backend).run(lambda x: (x.sin() + 1).exp() * 2, torch.ones(3)))
    nodes, values = graphs.computing(sample.graph), graphs.values_of(sample)
    middle = graphs.part(sample, nodes[1:3], values)
    assert middle is not None
    assert middle.size == 2
    (given,) = middle.inputs
    assert torch.equal(given, torch.ones(3).sin())
    assert torch.equal(middle.graph(given)[0], (torch.ones(3).sin() + 1).exp())


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["semantics/none", "--backend", "eager"], 2, "there is no case"),
        (["json:loads", "--backend", "eager"], 2, "--inputs is missing"),
        (["semantics/use/two_models"], 2, "no backend given"),
        (["x", "--backend", "no_such_backend"], 1, "There is no backend"),
    ],
)
def test_misuse(words, status, said, capsys):
    assert main(["minify", *words]) == status
    assert said in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fault", "outcome", "status"),
    [
        ("semantics/training/one_step", "crash", Outcome.CRASH, -11),
        ("semantics/aliasing/strides_of_results", "wrong_stride", Outcome.MISMATCH, 1),
        ("semantics/mutation/input_in_place", "hang", Outcome.TIMEOUT, 1),
        ("models/resnet/inference", "wrong_value", Outcome.MISMATCH, 1),
        ("operators/nn.functional.linear/float32-forward", "failure", Outcome.CRASH, 1),
    ],
)
def test_faults_in_worker_processes(name, fault, outcome, status, tmp_path):
    found = minify.minify(
        collect.case(name),
        Loopback(fault),
        f"torchmux.conformance.loopback:requirements_{fault}",
        seconds=20 if fault == "hang" else 60,
    )
    assert found.nodes == 1
    assert found.result.outcome is outcome
    program = tmp_path / "smallest.py"
    program.write_text(found.program)
    ran = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ran.returncode == status, ran.stderr


@pytest.mark.slow
def test_the_command_with_a_users_function(tmp_path, monkeypatch):
    (tmp_path / "users.py").write_text("import torch\ndef model(x, *, scale):\n    return (x.exp() * scale).relu()\n")
    torch.save({"x": torch.randn(4, 3), "scale": torch.tensor(2.0)}, tmp_path / "inputs.pt")
    monkeypatch.chdir(tmp_path)
    words = ["minify", "users:model", "--inputs", "inputs.pt", "--output", "small.py"]
    requirements = ["--requirements", "torchmux.conformance.loopback:requirements_wrong_stride"]
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main([*words, *requirements]) == 0
    ran = subprocess.run([sys.executable, "small.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 1, ran.stderr
    assert "strides" in ran.stdout
    assert main([*words, "--backend", "eager"]) == 1
