"""What the code must stay as a whole: small modules, small folders, imports that go one way.

Imports are read from the source, those under ``TYPE_CHECKING`` and inside functions included: they are what a reader
has to follow, whenever they run.
"""

from __future__ import annotations

import ast
import configparser
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]

LONGEST = 600  # lines of a module
# Programs that are captured, and judged, as they stand.
CORPORA = ("tests/frontend/snippets",)
FULLEST = 21  # modules in a folder, its __init__ among them
WIDEST = 10  # modules of one import circle

# The parts of the project, and those that each may import beside itself.  The front door and its command line may
# import all of them.
SHARED = {
    "torchmux.compile_lock",
    "torchmux.garbage",
    "torchmux.config",
    "torchmux.events",
    "torchmux.logs",
    "torchmux.otel",
    "torchmux.page",
    "torchmux.progress",
    "torchmux.quoting",
    "torchmux.scratch",
    "torchmux.program_calls",
    "torchmux.sooner",
    "torchmux.stages",
    "torchmux.support",
    "torchmux.version",
    "torchmux.torch_internals",
    "torchmux.wording",
}
MAY_IMPORT = {
    "torchmux.registry": SHARED,
    "torchmux.frontend": SHARED | {"torchmux.registry"},
    "torchmux.backends": SHARED | {"torchmux.registry"},
    # It works on backends through the registry, and with what they share.
    "torchmux.multiplexer": SHARED | {"torchmux.registry", "torchmux.backends.common", "torchmux.conformance.oracle"},
}

# The frontend's layers, lowest first: a module imports its own layer and those below it.  A folder stands for all its
# modules but those that are named in another layer.
LAYERS = (
    (
        "breaks",
        "logs",
        "regions",
        "unwrap",
        "bytecode",
        "polyfills",
        "hook.calls",
        "hook.interrupts",
        "hook.thread_state",
        "capture.attempts",
        "capture.random_operators",
    ),
    ("default_backend", "guards", "marks.shapes_spec", "marks.tensor_marks", "sizes"),
    ("values", "trace.tracer", "trace.effects", "trace.enumerations", "trace.operator_table"),
    (
        "handlers",
        "higher_order",
        "marks",
        "sizes.algebra",
        "sizes.symbolic",
        "trace.attention_switches",
        "trace.expectations",
    ),
    ("interpreter",),
    ("trace",),
    ("capture", "hook.eager_policy"),
    ("hook",),
    ("api", "callee", "compiled", "explain", "export", "exported_program", "report_data"),
)


class Import(NamedTuple):
    """``importer`` names ``imported`` in line ``line``."""

    importer: str
    imported: str
    line: int


@cache
def folders() -> dict[str, Path]:
    """The import package that each top-level folder is installed as."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    lines = [line.replace(" ", "") for line in parser["options"]["package_dir"].splitlines() if line]
    return {package: ROOT / folder for package, folder in (line.split("=") for line in lines)}


@cache
def modules() -> dict[str, Path]:
    """Every module of the project by its dotted name."""
    found = {}
    for package, folder in folders().items():
        for file in folder.rglob("*.py"):
            path = [package, *file.relative_to(folder).with_suffix("").parts]
            found[".".join(path[:-1] if path[-1] == "__init__" else path)] = file
    return found


@cache
def imports() -> tuple[Import, ...]:
    """Every import statement of the project, with absolute names."""
    return tuple(each for name in modules() for each in imports_of(name))


def imports_of(name: str) -> Iterator[Import]:
    file = modules()[name]
    package = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*start, node.module] if node.module else start)
            for alias in node.names:
                yield Import(name, f"{module}.{alias.name}", node.lineno)


def module_of(name: str) -> str | None:
    """The module of the project that an imported name is, or stands in."""
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return name or None


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The sets of modules each of which leads to all others of its set."""
    reached = {name: reachable(graph, name) for name in graph}
    found: list[set[str]] = []
    for name in graph:
        circle = {other for other in reached[name] if name in reached[other]}
        if circle and circle not in found:
            found.append(circle)
    return found


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    pending, seen = [start], set()
    while pending:
        for name in graph[pending.pop()] - seen:
            seen.add(name)
            pending.append(name)
    return seen


def is_under(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def test_every_import_is_seen():
    """The rules below hold of nothing if the reader of imports reads nothing."""
    names = {(each.importer, each.imported) for each in imports()}
    assert ("torchmux.frontend.values.base", "torchmux.frontend.trace.tracer.Tracer") in names  # under TYPE_CHECKING
    assert ("torchmux.frontend.trace.trace", "torchmux.frontend.trace.reader.Reader") in names
    assert len(modules()) > 300


def test_circles_are_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"e", "f"}, "f": {"e"}}
    assert circles(graph) == [{"a", "b", "c"}, {"e", "f"}]


def test_no_import_circle_is_wide():
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for each in imports():
        imported = module_of(each.imported)
        if imported is not None and imported != each.importer:
            graph[each.importer].add(imported)
    assert [sorted(circle) for circle in circles(graph) if len(circle) > WIDEST] == []


def test_modules_are_short():
    files = [*modules().values(), *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    long = {
        str(file.relative_to(ROOT)): lines
        for file in files
        if not str(file.relative_to(ROOT)).startswith(CORPORA)
        and (lines := len(file.read_text().splitlines())) > LONGEST
    }
    assert long == {}


def test_folders_are_small():
    counts: dict[str, int] = {}
    for file in modules().values():
        folder = str(file.parent.relative_to(ROOT))
        counts[folder] = counts.get(folder, 0) + 1
    assert {folder: count for folder, count in counts.items() if count > FULLEST} == {}


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_imports_go_one_way(part):
    allowed = {part, *MAY_IMPORT[part]}
    wrong = [
        each
        for each in imports()
        if is_under(each.importer, part)
        and is_under(each.imported, "torchmux")
        and not any(is_under(each.imported, other) for other in allowed)
    ]
    assert wrong == []


def layer_of(name: str) -> int:
    """The layer that names the module, or the nearest folder that it is in."""
    own = name.removeprefix("torchmux.frontend.")
    named = {entry: index for index, layer in enumerate(LAYERS) for entry in layer}
    while own not in named:
        assert "." in own, f"{name} is in no layer"
        own = own.rpartition(".")[0]
    return named[own]


def test_the_frontend_is_built_in_layers():
    wrong = []
    for each in imports():
        imported = module_of(each.imported)
        if imported is not None and all(is_under(x, "torchmux.frontend") for x in (each.importer, imported)):
            if "torchmux.frontend" not in (each.importer, imported) and layer_of(each.importer) < layer_of(imported):
                wrong.append(each)
    assert wrong == []


def test_private_names_of_torch_stand_behind_one_seam():
    seam = ("torchmux.torch_internals", "torchmux.backends.inductor")
    wrong = [
        each
        for each in imports()
        if each.imported.startswith("torch._") and not any(is_under(each.importer, module) for module in seam)
    ]
    assert wrong == []
