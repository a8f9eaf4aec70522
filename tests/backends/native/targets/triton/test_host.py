"""The function that launches Triton's kernels, run with Triton's interpreter in a process of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torchmux import logs
from torchmux.backends.common.cache import code_or_refusal
from torchmux.backends.native import generate
from torchmux.config import config

pytestmark = [
    pytest.mark.parametrize("target", ["triton"], indirect=True),
    pytest.mark.usefixtures("target"),
]


def network(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    hidden = F.gelu(x @ w)
    again = F.gelu((hidden + 1) @ w)
    return again.softmax(-1), hidden.sum()


def test_the_parts(check) -> None:
    """Products are torch's, equal kernels are one function, and what torch never sees lies in one piece of memory."""
    report = check(network, torch.randn(8, 16), torch.randn(16, 16))
    kernels, host = report.output_code
    assert report.share == 1.0
    assert report.kinds["library"] == 2
    assert host.count("torch.mm(") == 2
    assert kernels.count("@triton.jit") == len({line for line in kernels.splitlines() if line.startswith("def ")})
    assert "# aten.gelu.default at " in kernels
    assert "data_ptr" not in host
    report = check(lambda x, y: (x.relu().sum(-1) + 1, y.relu().sum(-1) + 1), torch.randn(5, 7), torch.randn(5, 7))
    kernels, host = report.output_code
    assert host.count("launch(") == 1  # both at once
    assert kernels.count("def kernel0_0(program") == 1
    assert kernels.count("kernel0_0(program") == 3
    report = check(lambda x: x.sum(0).cumsum(0).exp().sum(), torch.randn(5, 40))
    assert ".view(torch.float32)" in report.output_code[1]


def test_it_comes_back_from_the_cache(capture, tmp_path) -> None:
    x, w = torch.randn(8, 16), torch.randn(16, 16)
    with config.patch(cache_dir=tmp_path):
        for hits in (0, 1):
            captured = capture(network, x, w)
            compiled = captured.compile("native", strict=True)
            assert compiled.report.cache_hits == hits
            for got, wanted in zip(captured.run(compiled, x, w), network(x, w), strict=True):
                torch.testing.assert_close(got, wanted)


def test_steps_are_timed(capture, monkeypatch, tmp_path) -> None:
    told: list[Any] = []
    monkeypatch.setattr(logs, "enabled", lambda: frozenset(["kernel_times"]))
    monkeypatch.setattr(logs, "emit", lambda kind, *rest: told.append((kind, rest)))
    x, w = torch.randn(8, 16), torch.randn(16, 16)
    with config.patch(cache_dir=tmp_path):
        captured = capture(network, x, w)
        captured.run(captured.compile("native", strict=True), x, w)
    (times,) = [rest for kind, rest in told if kind == "kernel_times"]
    assert "steps" in times[0]
    assert "ms  launch(kernel0, " in times[1]


def test_a_trace_is_written(capture, tmp_path) -> None:
    options = {"trace.enabled": True, "trace.debug_dir": str(tmp_path / "traces")}
    with config.patch(cache_dir=tmp_path):
        capture(lambda x: x.softmax(-1), torch.randn(3, 4)).compile("native", strict=True, options=options)
    (folder,) = (tmp_path / "traces").iterdir()
    assert "@triton.jit" in "".join(path.read_text() for path in folder.glob("*.py"))


def test_nothing_is_launched_for_nothing(capture) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 2, x.sum(0), x.sum(1)

    captured = capture(f, torch.randn(4, 3), dynamic={0: [0]})
    compiled = captured.compile("native", strict=True)
    for rows in (4, 0, 9):
        x = torch.randn(rows, 3)
        for got, wanted in zip(captured.run(compiled, x), f(x), strict=True):
            torch.testing.assert_close(got, wanted)


def test_what_is_kept_is_text(capture, monkeypatch, tmp_path) -> None:
    """An artifact names its target, and holds what JSON can tell and the text of the kernels."""
    seen = []
    original = generate.generate

    def spy(*args: Any, **kwargs: Any) -> bytes:
        seen.append(original(*args, **kwargs))
        return seen[-1]

    monkeypatch.setattr(generate, "generate", spy)
    with config.patch(cache_dir=tmp_path):
        capture(lambda x: x.softmax(-1), torch.randn(3, 4)).compile("native", strict=True)
    code = code_or_refusal.code_in(seen[0])
    head, built = code.head, code.code
    assert head["target"] == "triton"
    assert built.decode() == head["code"]
    assert head["own"] == {"device": "interpreter", "kernels": ["kernel0"], "timers": 0}
