"""Programs with hostile names everywhere, through frontend, backends, reports, traces and reproducers.

Each program has such a name as its file, function, ``__name__`` and keyword argument, or as its class, submodule,
parameter, buffer and keyword argument.
"""

from __future__ import annotations

import ast
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

import torchmux
from tests.test_quoting import HOSTILE, random_names
from torchmux.config import config

# Python refuses NUL in the text of a program; x is the name of the first argument.
NAMES = [name.replace("\0", "") or "empty" for name in [*HOSTILE.values(), *random_names(20)] if name != "x"]
SOURCE = """
def f(x, **more):
    for value in more.values():
        x = x + value
    return torch.softmax(x.relu() * 0.25, -1)
"""


def function(name: str):
    namespace = {"torch": torch, "__name__": name}
    exec(compile(SOURCE, name, "exec"), namespace)
    made = namespace["f"]
    encodable = name.encode(errors="replace").decode()  # torch's hook ends the process for others
    made.__code__ = made.__code__.replace(co_name=encodable, co_qualname=encodable)
    made.__name__ = made.__qualname__ = name
    return made


class Parts(torch.nn.Module):
    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = [name.replace(".", "") for name in names]
        for name in self.names:
            self.add_module(name, torch.nn.Linear(3, 3))
            self.register_parameter(f"{name} weight", torch.nn.Parameter(torch.ones(3)))
            self.register_buffer(f"{name} state", torch.ones(3))

    def forward(self, x, **more):
        for name in self.names:
            x = self._modules[name](x) * getattr(self, f"{name} weight") + getattr(self, f"{name} state")
        for value in more.values():
            x = x * value
        return x


def module(name: str):
    kind = type(name.encode(errors="replace").decode(), (Parts,), {"__module__": name})
    return kind([name]).eval()


def check(program, backend: str, names: list[str], **more):
    """Compile and compare; the text of what is told must be sound."""
    x = torch.linspace(-1, 1, 12).reshape(4, 3)
    given = {name: torch.full((3,), 0.5) for name in [*names, "b"]}
    with torch.no_grad():
        compiled = torchmux.compile(program, backend=backend, **more)
        torch.testing.assert_close(compiled(x, **given), program(x, **given))
    told = torchmux.report(compiled)
    assert told.graph_count == 1
    assert str(told)
    return told


@pytest.mark.parametrize("make", [function, module])
def test_capture(make):
    for name in NAMES:
        check(make(name), "eager", [name])
        torchmux.reset()


@pytest.mark.parametrize("make", [function, module])
def test_graphs_are_python(make):
    for name in NAMES:
        explained = torchmux.explain(make(name))(torch.ones(4, 3), **{name: torch.ones(3)})
        (graph,) = explained.graphs
        assert all(node.name.isidentifier() for node in graph.graph.nodes)
        assert "injected" not in {node.id for node in ast.walk(ast.parse(graph.code)) if isinstance(node, ast.Name)}
        assert str(explained)
        torchmux.reset()


@pytest.mark.parametrize("backend", ["aot_eager", "native", "onnxrt", "openvino", "tvm"])
def test_backends(backend):
    """All names in one module, so that each compiler is started once."""
    if backend not in torchmux.list_backends():
        pytest.skip(f"{backend} is not installed")
    names = [name.replace(".", "") for name in HOSTILE.values()]
    names = [name.replace("\0", "") or "empty" for name in names if name != "x"]
    check(Parts(list(dict.fromkeys(names))).eval(), backend, names)
    check(function("".join(names)[:3000]), backend, names)


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_traces(name, tmp_path):
    name = name.replace("\0", "") or "empty"
    options = {"trace.enabled": True, "trace.graph_diagram": True, "trace.debug_dir": str(tmp_path / "trace")}
    with config.patch(cache_dir=tmp_path / "cache"):
        told = check(module(name), "native", [name], options=options, strict=True)
    (code, python) = told.graphs[0].report.output_code
    assert not [line for line in code.splitlines() if "injected" in line and not line.startswith("//")]
    ast.parse(python)
    written = [path for path in (tmp_path / "trace").rglob("*") if path.is_file()]
    assert written
    for path in written:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".svg":
            ElementTree.fromstring(text)
        if path.suffix == ".py":
            assert "injected" not in {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}


@pytest.mark.parametrize("make", [function, module])
def test_reproducers(make, tmp_path, own_catalog):
    @torchmux.register_backend(name="fails")
    def fails(gm, inputs, **options):
        raise ValueError('no kernel for */ ??/\n""" injected()')

    with config.patch(cache_dir=tmp_path):
        for name in NAMES:
            with pytest.raises(torchmux.CompilationFailed) as caught:
                check(make(name), "fails", [name])
            assert caught.value.reproducer is not None
            torchmux.reset()
    for path in Path(tmp_path, "reproducers").iterdir():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert "injected" not in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        kinds = (ast.Expr, ast.Import, ast.ImportFrom, ast.ClassDef, ast.Assign)
        assert all(isinstance(statement, kinds) for statement in tree.body)
