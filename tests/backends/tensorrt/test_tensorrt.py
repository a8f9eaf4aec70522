"""tensorrt where it cannot run: what it says of itself, its sizes, and its calls against torch_tensorrt's sources."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from torch.fx import Graph

import torchmux
from torchmux import torch_internals as internals
from torchmux.backends import tensorrt
from torchmux.backends.common.adapter.results import Result
from torchmux.backends.common.pipeline.runtime import in_torch
from torchmux.backends.tensorrt.compiler import _NOT_TAKEN, TensorrtFunction
from torchmux.backends.tensorrt.settings import Profile, profile_of
from torchmux.registry.errors import BackendUnavailable, FallbackRefused, InvalidOption

VERSION = "2.11.0"


def test_asking_for_it_says_what_is_missing():
    try:
        importlib.metadata.version("torch-tensorrt")
    except importlib.metadata.PackageNotFoundError:
        with pytest.raises(BackendUnavailable, match="needs torch-tensorrt"):
            torchmux.compile(torch.nn.Linear(2, 2), backend="tensorrt")
    row = next(row for row in torchmux.backends() if row.name == "tensorrt")
    assert "no machine with TensorRT" in row.unverified


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimization_level": 6}, "between 0 and 5"),
        ({"min_block_size": 0}, "at least 1"),
        ({"largest_size": 1}, "at least 2"),
    ],
)
def test_options_are_checked(options, words):
    with pytest.raises(InvalidOption, match=words):
        tensorrt.TensorrtOptions(**options)


# --- sizes ----------------------------------------------------------------------------------------------------------


def _placeholder(bounds=None, size=5):
    from torch._dynamo.source import LocalSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    mode = internals.fake_tensor_mode(symbolic=True)
    context = StatelessSymbolicContext(
        [DimDynamic.DYNAMIC, DimDynamic.STATIC], constraint_sizes=[bounds and internals.dim_bounds(*bounds), None]
    )
    node = Graph().placeholder("x")
    node.meta["val"] = mode.from_tensor(torch.ones(size, 3), symbolic_context=context, source=LocalSource("x"))
    return node


def test_a_profile_covers_what_mark_dynamic_says():
    assert profile_of(_placeholder((3, 8)), 1024) == Profile((3, 3), (5, 3), (8, 3))
    assert profile_of(_placeholder(), 1024) == Profile((2, 3), (5, 3), (1024, 3))
    assert profile_of(_placeholder(size=5000), 1024) == Profile((2, 3), (5000, 3), (5000, 3))


def test_an_input_that_is_a_size_has_a_profile():
    node = _placeholder((3, 8))
    node.meta["val"] = node.meta["val"].shape[0] * 2
    assert profile_of(node, 1024) == Profile((6,), (10,), (16,))


def test_known_sizes_need_none():
    node = Graph().placeholder("x")
    node.meta["val"] = torch.ones(2, 3)
    assert profile_of(node, 1024) is None


def test_sizes_outside_of_the_profile_run_in_torch(caplog):
    engine_calls = []

    def engine(x):
        engine_calls.append(x.shape[0])
        return (x * 2).contiguous()

    gm = torch.fx.symbolic_trace(lambda x: (x * 2,))
    results = [Result(torch.float32, None, None)]
    profiles = {0: Profile((2, 3), (5, 3), (8, 3))}
    function = TensorrtFunction(
        None, engine, [0], results, profiles, in_torch(gm, _NOT_TAKEN, strict=False), cache_hit=False
    )
    for size in (4, 9, 1):
        assert torch.equal(function(torch.ones(size, 3))[0], torch.full((size, 3), 2.0))
    assert engine_calls == [4]
    assert caplog.text.count("outside the engine's profile") == 2
    strict = TensorrtFunction(
        None, engine, [0], results, profiles, in_torch(gm, _NOT_TAKEN, strict=True), cache_hit=False
    )
    with pytest.raises(FallbackRefused, match="profile"):
        strict(torch.ones(9, 3))


# --- calls of torch_tensorrt ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The package's Python files: those in TORCHMUX_TENSORRT_SOURCES, or from its wheel, which is not installed."""
    given = os.environ.get("TORCHMUX_TENSORRT_SOURCES")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("torch_tensorrt")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", "3.12", "--platform", "manylinux_2_28_x86_64", "--dest", str(folder)]
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    answer = subprocess.run(
        [*command, f"torch-tensorrt=={VERSION}"], env=environment, capture_output=True, text=True, timeout=300
    )
    wheels = list(folder.glob("*.whl"))
    if not wheels:
        pytest.skip(f"torch-tensorrt {VERSION} cannot be downloaded here: {answer.stderr.strip()[-200:]}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(folder, [name for name in wheel.namelist() if name.endswith(".py")])
    return folder


class Sources:
    """Looks names up in source files, through imports, without running any."""

    def __init__(self, folder):
        self.folder = folder

    def find(self, module, name):
        """The definition of ``name`` as ``module`` has it: a function, a class, or the assignment of a variable."""
        path = self.folder / Path(*module.split("."))
        package = (path / "__init__.py").exists()
        if package and (self.folder / Path(*module.split("."), f"{name}.py")).exists():
            return None
        tree = ast.parse((path / "__init__.py" if package else path.with_suffix(".py")).read_text())
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
                return node
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and any(getattr(t, "id", "") == name for t in targets):
                return node
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and self._is_own(node, module):
                origin = self._absolute(node, module, package)
                for alias in node.names:
                    if alias.name == "*":
                        found = self._try(origin, name)
                        if found is not None:
                            return found
                    elif (alias.asname or alias.name) == name:
                        return self.find(origin, alias.name)
        raise LookupError(f"{module} has no {name}")

    def _try(self, module, name):
        try:
            return self.find(module, name)
        except LookupError:
            return None

    def _is_own(self, node, module):
        return node.level > 0 or (node.module or "").startswith("torch_tensorrt")

    def _absolute(self, node, module, package):
        if not node.level:
            return node.module
        parts = module.split(".")[
            : None if package and node.level == 1 else len(module.split(".")) - node.level + package
        ]
        return ".".join([*parts, *([node.module] if node.module else [])])


def _imports_and_calls():
    """For each module of the adapter, what it imports from torch_tensorrt, and how it calls what it imported."""
    for path in sorted(Path(tensorrt.__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text())
        imported = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch_tensorrt"):
                for alias in node.names:
                    imported[alias.asname or alias.name] = (node.module, alias.name)
        means = {name: [name] for name in imported}
        for node in ast.walk(tree):  # runtime = A if ... else B
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.IfExp):
                either = [getattr(branch, "id", "") for branch in (node.value.body, node.value.orelse)]
                if set(either) <= imported.keys():
                    means[node.targets[0].id] = either
        calls = [
            (name, len(n.args), [k.arg for k in n.keywords])
            for n in ast.walk(tree)
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
            for name in means.get(n.func.id, ())
        ]
        yield path.name, imported, calls


def _check_call(definition, count, keywords):
    """A call with so many positional arguments and these keywords fits the definition."""
    if isinstance(definition, ast.ClassDef):
        methods = {n.name: n for n in definition.body if isinstance(n, ast.FunctionDef)}
        if "__init__" not in methods:
            fields = {n.target.id for n in definition.body if isinstance(n, ast.AnnAssign)}
            assert set(keywords) <= fields, set(keywords) - fields
            return
        definition, count = methods["__init__"], count + 1
    signature = definition.args
    names = [a.arg for a in (*signature.posonlyargs, *signature.args)]
    assert count <= len(names) or signature.vararg
    known = {*names, *(a.arg for a in signature.kwonlyargs)}
    if signature.kwarg:  # it must at least look for the name
        known |= {n.value for n in ast.walk(definition) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    assert set(keywords) <= known, set(keywords) - known
    given = {*names[:count], *keywords}
    required = names[: len(names) - len(signature.defaults)]
    required += [a.arg for a, d in zip(signature.kwonlyargs, signature.kw_defaults, strict=True) if d is None]
    assert set(required) <= given or signature.kwarg, set(required) - given


def test_calls_fit_the_sources(sources):
    library = Sources(sources)
    checked = 0
    for _, imported, calls in _imports_and_calls():
        definitions = {name: library.find(*origin) for name, origin in imported.items()}
        for name, count, keywords in calls:
            _check_call(definitions[name], count, keywords)
            checked += 1
    assert checked >= 8


@pytest.mark.parametrize(
    ("module", "name", "members"),
    [
        ("torch_tensorrt.dynamo.runtime", "TorchTensorRTModule", {"set_output_tensors_as_unowned", "forward"}),
        ("torch_tensorrt.dynamo.runtime", "PythonTorchTensorRTModule", {"set_output_tensors_as_unowned", "forward"}),
        (
            "torch_tensorrt.dynamo.conversion._ConverterRegistry",
            "ConverterRegistry",
            {"set_compilation_settings", "keys", "__contains__"},
        ),
        (
            "torch_tensorrt.dynamo.conversion._conversion",
            "SerializedInterpreterResult",
            {"serialized_engine", "input_names", "output_names", "requires_output_allocator"},
        ),
        ("torch_tensorrt._features", "FeatureSet", {"torch_tensorrt_runtime"}),
        ("torch_tensorrt._enums", "dtype", {"f32", "f16", "bf16"}),
    ],
)
def test_members_are_there(sources, module, name, members):
    definition = Sources(sources).find(module, name)
    body = definition.body if isinstance(definition, ast.ClassDef) else definition.value.args[-1].elts
    found = {getattr(n, "name", None) or getattr(getattr(n, "target", None), "id", None) for n in body}
    found |= {t.id for n in body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
    found |= {n.value for n in ast.walk(definition) if isinstance(n, ast.Constant)}
    assert members <= found, members - found


def test_a_call_that_does_not_fit_is_noticed(sources):
    definition = Sources(sources).find("torch_tensorrt.dynamo._settings", "CompilationSettings")
    with pytest.raises(AssertionError, match="tf32_off"):
        _check_call(definition, 0, ["disable_tf32", "tf32_off"])
    with pytest.raises(LookupError):
        Sources(sources).find("torch_tensorrt.dynamo.conversion", "no_such_function")
