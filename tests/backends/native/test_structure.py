"""Which rooms of the compiler know which: everything but ``targets`` is the same for all machines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import torchmux.backends.native

ROOT = Path(torchmux.backends.native.__file__).parent
PACKAGE = "torchmux.backends.native"
NEUTRAL = ("ir", "rewrites", "lowering", "schedule")
MODULES = [path for room in NEUTRAL for path in sorted((ROOT / room).rglob("*.py"))]
TIED = [path for path in sorted(ROOT.glob("*.py")) if path.name != "__init__.py"] + sorted((ROOT / "inspect").glob("*"))

FOREIGN = frozenset(("ctypes", "subprocess", "time", "timeit", "triton"))
"""Modules that load, run or measure code."""

WORDS = ("g++", "clang", "ctypes", "perf_counter", "thread_time", "onednn", "mkldnn", "cublas")


def modules(paths: list[Path]) -> pytest.MarkDecorator:
    python = [path for path in paths if path.suffix == ".py"]
    return pytest.mark.parametrize("path", python, ids=lambda path: str(path.relative_to(ROOT)))


def imported(path: Path) -> Iterator[str]:
    """The full names of all that a module imports, wherever it does."""
    parts = [PACKAGE, *path.relative_to(ROOT).with_suffix("").parts]
    home = parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                base = ".".join(home).split(".")
                module = ".".join([*base[: len(base) - node.level + 1], *([module] if module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def test_the_names_are_read_as_python_reads_them() -> None:
    """Or nothing below could fail."""
    found = set(imported(ROOT / "lowering" / "products.py"))
    assert f"{PACKAGE}.ir.products.Product" in found
    assert f"{PACKAGE}.lowering.registry.Context" in found
    assert f"{PACKAGE}.targets.cpu.toolchain" in set(imported(ROOT / "__init__.py"))
    assert f"{PACKAGE}.targets.cpu.toolchain.probe" in set(imported(ROOT / "targets" / "cpu" / "build.py"))


@modules(MODULES)
def test_what_is_neutral_imports_no_target(path: Path) -> None:
    found = [name for name in imported(path) if is_in(name, f"{PACKAGE}.targets")]
    assert not found
    assert not [name for name in imported(path) if name.partition(".")[0] in FOREIGN]


@modules(MODULES)
def test_what_is_neutral_names_no_machine(path: Path) -> None:
    text = path.read_text().lower()
    assert not [word for word in WORDS if word in text]


@modules(TIED)
def test_what_ties_them_together_knows_the_boundary_alone(path: Path) -> None:
    for target in ("cpu", "triton"):
        assert not [name for name in imported(path) if is_in(name, f"{PACKAGE}.targets.{target}")]


@modules(sorted((ROOT / "targets").glob("*.py")))
def test_the_boundary_knows_no_target(path: Path) -> None:
    for target in ("cpu", "triton"):
        assert not [name for name in imported(path) if is_in(name, f"{PACKAGE}.targets.{target}")]


def test_targets_do_not_know_each_other() -> None:
    for one, other in (("cpu", "triton"), ("triton", "cpu")):
        for path in sorted((ROOT / "targets" / one).glob("*.py")):
            assert not [name for name in imported(path) if is_in(name, f"{PACKAGE}.targets.{other}")], path


def test_rooms_tell_what_is_in_them() -> None:
    """Each package names all of its modules in its docstring, as a map does."""
    for init in sorted(ROOT.rglob("__init__.py")):
        told = ast.get_docstring(ast.parse(init.read_text())) or ""
        modules = [path.stem for path in init.parent.glob("*.py") if path.name != "__init__.py"]
        if init.parent.name == "lowering":
            modules = ["graph", "calls", "registry"]  # the others are the kinds of operators
        missing = [name for name in modules if f"``{name}``" not in told and f"``{name}." not in told]
        assert not missing, f"{init.parent.relative_to(ROOT.parent)} does not tell of {missing}"


def test_a_process_that_finds_everything_imports_no_compiler(run_python, tmp_path) -> None:
    program = f"""
import sys, torch, torchmux
from torchmux.config import config

def f(x, w):
    return torch.softmax(torch.relu(x @ w) * 0.5, -1)

with config.patch(cache_dir={str(tmp_path)!r}):
    compiled = torchmux.compile(f, backend="native", strict=True)
    compiled(torch.randn(200, 300), torch.randn(300, 100))
    print(torchmux.report(compiled).graphs[0].report.cache_hits)
    print(*(name for name in sys.modules if name.startswith("{PACKAGE}.")))
"""
    script = tmp_path / "program.py"  # whose function can be read
    script.write_text(program)
    hits, names = run_python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')").splitlines()
    assert hits == "0"
    assert f"{PACKAGE}.lowering.graph" in names.split()
    hits, names = run_python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')").splitlines()
    assert hits == "1"
    for room in ("lowering", "schedule", "rewrites", "targets.cpu.target", "targets.triton"):
        assert not [name for name in names.split() if is_in(name, f"{PACKAGE}.{room}")]
