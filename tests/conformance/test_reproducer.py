"""Each failing case, and each sample of an operator, has a script that fails by itself."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from torchmux.conformance import collect, literals, operators, reproducer, runner, semantics, worker
from torchmux.conformance.loopback import Loopback
from torchmux.conformance.outcome import Outcome
from torchmux.conformance.requirements import Requirements

CASES = {case.id: case for case in semantics.cases()}


def named(fault):
    return f"torchmux.conformance.loopback:requirements_{fault}"


def script(case, fault="wrong_value", sample=None):
    return reproducer.script(case, Loopback(fault), named(fault), sample)


def run(program, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(program)
    command = [sys.executable, str(path)]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)


def test_cases_are_written_out():
    """A script holds the case itself, not a way to look it up."""
    for case in CASES.values():
        text = script(case)
        compile(text, case.id, "exec")
        assert "\ndef case(trial: Trial)" in text, case.id


@pytest.mark.parametrize("name", ["semantics/training/one_step", "semantics/mutation/read_after_write"])
def test_what_is_written_is_what_fails(name):
    text = script(CASES[name])
    assert worker.judge_program(text, Loopback("wrong_value")).outcome is Outcome.MISMATCH
    assert worker.judge_program(text, Requirements("eager")).outcome is Outcome.PASS


def test_an_installed_backend_needs_no_requirements():
    text = reproducer.script(CASES["semantics/training/one_step"], Requirements("aot_eager"), "somewhere:Else")
    assert "check(case, backend='aot_eager')" in text


STRIDED = torch.arange(200.0).view(10, 20)[:, ::2]


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(3, 4), torch.randn(40, 40), STRIDED, torch.tensor(float("nan")), torch.zeros(0, 3),
        torch.ones(2).bool(), torch.randn(3).bfloat16(), torch.randn(2, dtype=torch.complex64),
        torch.randn(3, requires_grad=True),
        (1, [2.5, None], {"a": float("inf")}, torch.float16, slice(1, None), torch.device("cpu"), ..., "word", 1 + 2j),
    ],
    ids=[
        "floats", "many", "strided", "nan", "empty", "bools", "bfloat16", "complex", "leaf", "nested",
    ],
)  # fmt: skip
def test_values_are_written_exactly(value):
    text = literals.Text().of(value)
    read = eval(text, {"torch": torch, "unpack": literals.unpack})
    if not isinstance(value, torch.Tensor):
        assert read == value
        return
    assert (read.dtype, read.shape, read.stride()) == (value.dtype, value.shape, value.stride())
    assert read.requires_grad is value.requires_grad
    assert torch.equal(read.nan_to_num(), value.nan_to_num())


def test_what_cannot_be_written():
    with pytest.raises(literals.NotWritable, match="Generator"):
        literals.Text().of(torch.Generator())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sample"), [("operators/cat/float32-strided", 1), ("operators/nn.functional.linear/float32-backward", 2)]
)
def test_a_sample_of_an_operator(name, sample, tmp_path):
    (result,) = runner.run([name], backend="", level="full", requirements=named("wrong_value"))
    assert result.outcome is Outcome.MISMATCH
    assert result.details["sample"] is not None
    ran = run(result.details["reproducer"], tmp_path)
    assert ran.returncode == 1, ran.stderr
    assert ran.stdout.startswith("mismatch: ")
    other = worker.judge_program(script(collect.case(name), sample=sample), Requirements("eager"))
    assert other.outcome is Outcome.PASS


@pytest.mark.slow
def test_samples_need_no_other_package(run_python):
    """torch's module with the samples imports ``expecttest`` for its own tests."""
    printed = run_python(
        "import importlib.util, sys\n"
        "real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'expecttest' else real(name, *rest)\n"
        "from torchmux.conformance.operators import opinfo\n"
        "print(len(opinfo.operators()) > 500, 'expecttest' in sys.modules)"
    )
    assert printed.strip() == "True False"


@pytest.mark.slow
def test_every_operator_of_the_quick_level_can_be_written():
    not_written = set()
    for case in operators.cases(full=False):
        text = script(case, sample=0)
        compile(text, case.id, "exec")
        if "\ndef case(trial)" not in text:
            not_written.add(case.id)
    assert not_written == {"operators/randn/float32-forward", "operators/sparse.mm.reduce/float32-forward"}


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "status", "told"), [("crash", -11, ""), ("hang", 1, "in hang"), ("failure", 1, "")])
def test_deadly_failures_have_scripts_too(fault, status, told, tmp_path):
    name = "operators/add/float32-forward"
    (result,) = runner.run([name], backend="", requirements=named(fault), seconds=40 if fault == "crash" else 15)
    assert result.outcome.is_failure
    assert result.details["sample"] == 0
    ran = run(result.details["reproducer"], tmp_path)
    assert ran.returncode == status, ran.stderr
    assert told in ran.stderr, "a script that hangs says where"
