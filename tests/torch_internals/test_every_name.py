"""The package as a whole: every name is checked by a test, used by somebody, and costs no import of a compiler."""

from __future__ import annotations

import importlib
import re
import types
from pathlib import Path

import pytest
import torch

from torchmux import torch_internals as ti

from .walk import checks

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TOPICS = {
    name: value
    for name, value in vars(ti).items()
    if isinstance(value, types.ModuleType) and value.__name__ == f"{ti.__name__}.{name}"
}
PUBLIC = sorted(name for name in vars(ti).keys() - TOPICS if not name.startswith(("_", "@")) and name != "annotations")
APART = {"fake_answers", "symbolic_tensors", "tracer_stand_in", "inductor_stand_in", "stand_in"}  # are imported by name
AMONG_TOPICS = {"located_shape_env", "in_usual_layout", "laid_out"}  # of one module for another


@checks("c_operator_modules", "c_torch", "VariableFunctions", "tracing_questions", "get_tracing_state",
        "log_api_usage_once", "infer_size", "disabled_torch_function")  # fmt: skip
def test_functions_in_c() -> None:
    for module in (*ti.c_operator_modules(), ti.c_torch, ti.VariableFunctions):
        assert any(callable(getattr(module, name)) for name in dir(module))
    assert all(question() is False for question in ti.tracing_questions())
    assert callable(ti.VariableFunctions.sin)
    assert ti.get_tracing_state() is None
    assert torch.nn.Parameter.__torch_function__ is ti.disabled_torch_function
    assert ti.infer_size(torch.Size([3, 1]), torch.Size([2])) == (3, 2)
    assert ti.log_api_usage_once("torchmux.tests") is None


def test_every_name_is_checked() -> None:
    modules = [importlib.import_module(f"{__package__}.{path.stem}") for path in sorted(HERE.glob("test_*.py"))]
    tests = [each for module in modules for each in vars(module).values()]
    found = [name for test in tests for name in getattr(test, "checked_names", ())]
    assert sorted(found) == PUBLIC


def test_every_function_of_a_topic_is_offered() -> None:
    own = {
        value.__name__
        for name, module in TOPICS.items()
        if name not in APART
        for value in vars(module).values()
        if isinstance(value, types.FunctionType) and value.__module__ == module.__name__
    }
    assert {name for name in own if not name.startswith("_")} - set(PUBLIC) == AMONG_TOPICS


def test_the_map_names_every_module() -> None:
    files = {path.stem for path in Path(ti.__file__).parent.glob("*.py")} - {"__init__"}
    assert set(re.findall(r"``(\w+)``", ti.__doc__)) & files == files


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_is_used(name: str) -> None:
    folders = [ROOT / each for each in ("frontend", "backends", "conformance", "multiplexer", "registry", "torchmux")]
    files = [path for folder in folders for path in folder.rglob("*.py") if path.parent != Path(ti.__file__).parent]
    assert any(re.search(rf"\b(\w*internals|ti)\.{name}\b", path.read_text()) for path in files)


def test_importing_it_imports_no_tracer_and_no_compiler(run_python) -> None:
    code = (
        "import torch, sys\nbefore = set(sys.modules)\nimport torchmux.torch_internals\n"
        "print([m for m in ('torch._dynamo', 'torch._inductor', 'torch._functorch.aot_autograd') if m in sys.modules])"
    )
    assert run_python(code) == "[]\n"
