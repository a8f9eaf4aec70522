"""The compiler and the cache: what is missing, what fails, what is kept."""

from __future__ import annotations

import stat

import pytest
import torch

import torchmux
from torchmux.backends.native import SPEC
from torchmux.config import config
from torchmux.registry import BackendUnavailable, CompilationFailed, availability, resolve

X = torch.randn(4, 5)


@pytest.fixture
def script(tmp_path):
    def make(body: str) -> str:
        path = tmp_path / "compiler"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return make


def test_no_compiler(monkeypatch, capture) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    availability.forget()
    try:
        assert "CXX='no-such-compiler' is not on PATH" in SPEC.probe().reason
        with pytest.raises(BackendUnavailable, match="no-such-compiler"):
            resolve("native")
        monkeypatch.delenv("CXX")
        monkeypatch.setenv("PATH", "")
        assert "g++ or clang++ is not on PATH" in SPEC.probe().reason
    finally:
        availability.forget()


def test_a_compiler_that_fails(monkeypatch, capture, script, tmp_path) -> None:
    monkeypatch.setenv("CXX", script("echo 'out of luck' >&2; exit 3"))
    with config.patch(cache_dir=tmp_path / "cache"):
        captured = capture(lambda x: x + 1, X)
        with pytest.raises(CompilationFailed, match=r"exit status 3\): out of luck"):
            captured.compile("native", strict=True)
        left = list((tmp_path / "cache" / "failed").iterdir())
    assert len(left) == 1
    assert "kernels.h" in left[0].read_text()


def test_the_compiler_that_was_asked_for(monkeypatch, capture, script, tmp_path) -> None:
    monkeypatch.setenv("CXX", script(f'echo "$@" >> {tmp_path}/log; exec g++ "$@"'))
    with config.patch(cache_dir=tmp_path / "cache"):
        captured = capture(lambda x: x + 1, X)
        torch.testing.assert_close(captured.run(captured.compile("native"), X), X + 1)
    assert "-march=native" in (tmp_path / "log").read_text()


def test_large_code_is_compiled_in_pieces(monkeypatch, capture, script, tmp_path) -> None:
    """As many at once as torch has threads, and linked to what the whole source gives."""

    def f(x, y):
        for n in range(6):
            x = (x * (n + 1.5)).softmax(-1) + y.sum(0) * n
            y = (y + x.amax()).cumsum(0) / (n + 2)
        return x, y

    args = torch.randn(3, 7), torch.randn(5, 7)
    captured, wanted = capture(f, *args), f(*args)
    log = tmp_path / "log"
    monkeypatch.setenv("CXX", script(f'echo "$@" >> {log}; exec g++ "$@"'))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    for smallest, files in ((10**9, 1), (300, 3)):
        monkeypatch.setattr("torchmux.backends.native.targets.cpu.source.SMALLEST_PIECE", smallest)
        log.unlink(missing_ok=True)
        with config.patch(cache_dir=tmp_path / str(files)):
            compiled = captured.compile("native", strict=True)
        assert sum(" -c graph" in line for line in log.read_text().splitlines()) == files
        for one, other in zip(captured.run(compiled, *args), wanted, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("freeze", [False, True])
def test_products_and_convolutions_are_in_one_of_the_pieces(freeze: bool, monkeypatch, tmp_path) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.image, self.one, self.two = (
                torch.nn.Conv2d(3, 32, 3),
                torch.nn.Linear(128, 160),
                torch.nn.Linear(160, 128),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.image(x).tanh().reshape(-1, 128).softmax(-1)
            return self.two(self.one(y).cumsum(-1)).softmax(0)

    model, x = Model().eval(), torch.randn(1, 3, 34, 34)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr("torchmux.backends.native.targets.cpu.source.SMALLEST_PIECE", 100)
    monkeypatch.setattr("torchmux.backends.native.targets.cpu.selection.is_own_faster", lambda shape: True)
    with config.patch(cache_dir=tmp_path), torch.no_grad():
        compiled = torchmux.compile(model, backend="native", options={"freeze": freeze}, strict=True)
        torch.testing.assert_close(compiled(x), model(x))
    (cpp, _) = torchmux.report(compiled).graphs[0].report.output_code
    for name in ("packed_product(", "convolution<") if freeze else ("chosen_product(",):
        assert f"  {name}" in cpp


def test_the_second_time_nothing_is_compiled(monkeypatch, capture, tmp_path) -> None:
    with config.patch(cache_dir=tmp_path):
        first = capture(lambda x: (x * 3).softmax(-1), X).compile("native", strict=True)
        assert first.report.cache_hits == 0
        from torchmux.backends.native.targets.cpu import build

        monkeypatch.setattr(build, "compile_source", None)
        again = capture(lambda x: (x * 3).softmax(-1), X)
        second = again.compile("native", strict=True)
        assert second.report.cache_hits == 1
        torch.testing.assert_close(again.run(second, X), (X * 3).softmax(-1))


def test_a_damaged_artifact_is_made_again(capture, tmp_path) -> None:
    with config.patch(cache_dir=tmp_path):
        capture(lambda x: x.exp() + 2, X).compile("native", strict=True)
        for path in (tmp_path / "artifacts").rglob("*"):
            if path.is_file():
                path.write_bytes(path.read_bytes()[:-100])
        again = capture(lambda x: x.exp() + 2, X)
        compiled = again.compile("native", strict=True)
        assert compiled.report.cache_hits == 0
        torch.testing.assert_close(again.run(compiled, X), X.exp() + 2)


def test_times_of_kernels(capture, capfd, tmp_path) -> None:
    torchmux.set_logs(kernel_times=True)
    try:
        with config.patch(cache_dir=tmp_path):
            captured = capture(lambda x: (x @ x.t()).softmax(-1), X)
            captured.run(captured.compile("native", strict=True), X)
    finally:
        torchmux.set_logs()
    told = capfd.readouterr().err
    assert "ms in 2 steps" in told
    assert "ms  product(" in told
    assert "ms  kernel0(" in told
