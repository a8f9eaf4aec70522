"""What goes wrong around the compilers of others: each is reported, or an error, and the results stay right."""

from __future__ import annotations

import errno
import importlib
import importlib.util

import pytest
import torch
import torch.nn.functional as F

from torchmux.backends.common.cache import cache as cache_module
from torchmux.backends.common.cache.cache import ArtifactCache
from torchmux.config import config
from torchmux.registry import CompilationFailed, FallbackRefused, resolve

# The backend, the package that it compiles with, and the function of ours that calls the compiler.
COMPILERS = {
    "onnxrt": ("onnxruntime", "onnxrt.compiler", "to_onnx"),
    "openvino": ("openvino", "openvino.compiler", "_convert"),
    "tvm": ("tvm", "tvm.codegen.build", "compile_module"),
}
INSTALLED = [name for name, (package, _, _) in COMPILERS.items() if importlib.util.find_spec(package) is not None]


def f(x):
    return (x * 2).relu() + 1


@pytest.fixture(params=INSTALLED)
def backend(request) -> str:
    return request.param


@pytest.mark.usefixtures("compiler_errors_fall_back")
def test_a_compiler_that_raises(capture, backend: str, monkeypatch, tmp_path) -> None:
    _, module, function = COMPILERS[backend]

    def fails(*args, **kwargs):
        raise RuntimeError("the compiler is out of luck")

    x = torch.randn(3)
    captured = capture(f, x)
    with config.patch(cache_dir=tmp_path):
        monkeypatch.setattr(importlib.import_module(f"torchmux.backends.{module}"), function, fails)
        compiled = captured.compile(backend)
        assert torch.equal(captured.run(compiled, x), f(x))
        assert compiled.report.share == 0.0
        assert all("out of luck" in p.reason for p in compiled.report.fallbacks)
        with pytest.raises((CompilationFailed, FallbackRefused), match="out of luck"):
            captured.compile(backend, strict=True)


def test_a_full_disk(capture, backend: str, monkeypatch, tmp_path, caplog) -> None:
    def fails(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    x = torch.randn(4)
    captured = capture(f, x)
    with config.patch(cache_dir=tmp_path):
        resolve(backend).compile(captured.gm, captured.inputs, training=False)  # what is asked of the compiler first
        x = torch.randn(5)
        captured = capture(f, x)
        before = sorted(p for p in tmp_path.rglob("*") if p.is_file())
        monkeypatch.setattr(cache_module.os, "replace", fails)
        compiled = captured.compile(backend, strict=True)
        assert torch.allclose(captured.run(compiled, x), f(x))
        assert "No space left" in caplog.text
        assert sorted(p for p in tmp_path.rglob("*") if p.is_file()) == before


def test_an_artifact_that_is_none(capture, backend: str, monkeypatch, tmp_path) -> None:
    """Whole and with the right checksum, but not what the compiler makes: it is made again."""
    x = torch.randn(6)
    with config.patch(cache_dir=tmp_path):
        captured = capture(f, x)
        captured.compile(backend, strict=True)
        load = ArtifactCache.load

        def spoiled(self: ArtifactCache, key: str) -> bytes | None:
            found = load(self, key)
            return found[:1] + bytes(100) if found is not None and found[:1] not in b"[{" else found

        monkeypatch.setattr(ArtifactCache, "load", spoiled)
        compiled = capture(f, x).compile(backend, strict=True)
        assert torch.allclose(captured.run(compiled, x), f(x))


def test_rows_of_bags_that_are_not_there(capture, backend: str) -> None:
    def bags(rows: torch.Tensor, table: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(rows, table, offsets)

    rows, table, offsets = torch.tensor([0, 3, 1]), torch.randn(4, 3), torch.tensor([0, 2])
    captured = capture(bags, rows, table, offsets)
    compiled = captured.compile(backend)
    torch.testing.assert_close(captured.run(compiled, rows, table, offsets), bags(rows, table, offsets))
    for given in ((rows + 1, table, offsets), (rows - 1, table, offsets), (rows, table, offsets * 2)):
        with pytest.raises(RuntimeError, match="valid range|greater than"):
            captured.run(compiled, *given)
    for wrong, words in ((offsets + 1, "has to be 0"), (torch.tensor([0, -1]), ""), (torch.tensor([3, 0]), "has to")):
        with pytest.raises((RuntimeError, IndexError), match=words):
            captured.run(compiled, rows, table, wrong)
    for empty in (torch.tensor([0, 3]), torch.tensor([0, 0])):
        torch.testing.assert_close(captured.run(compiled, rows, table, empty), bags(rows, table, empty))


@pytest.mark.parametrize("many", [False, True])
def test_bags_that_the_graph_places(capture, backend: str, many: bool) -> None:
    """Where bags begin is known if it depends on no input, and is left to torch if it does."""

    def bags(rows: torch.Tensor, table: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(rows.view(2, 2) if many else rows, table, None if many else offsets - 1, mode="sum")

    rows, table, offsets = torch.tensor([0, 3, 1, 2]), torch.randn(4, 3), torch.tensor([1, 3])
    captured = capture(bags, rows, table, offsets)
    compiled = captured.compile(backend)
    torch.testing.assert_close(captured.run(compiled, rows, table, offsets), bags(rows, table, offsets))
    if not many:
        with pytest.raises(RuntimeError, match="has to be 0"):
            captured.run(compiled, rows, table, offsets + 1)
