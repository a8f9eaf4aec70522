"""Graphs whose code is put together again without tracing: what is the same, what is told apart, what is left out."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from torchmux.backends.common.cache import recipes
from torchmux.backends.common.pipeline import aot
from torchmux.backends.native.options import NativeOptions
from torchmux.config import config
from torchmux.registry import CompileRequest


@pytest.fixture(autouse=True)
def own_cache(tmp_path):
    with config.patch(cache_dir=tmp_path):
        yield


@pytest.fixture
def traced(monkeypatch) -> list[int]:
    """Grows with every graph that is traced."""
    seen: list[int] = []
    original = aot.trace_inference

    def spy(*args):
        seen.append(1)
        return original(*args)

    monkeypatch.setattr(aot, "trace_inference", spy)
    return seen


def compiled(capture, function, *args, options=None, **kwargs):
    captured = capture(function, *args, **kwargs)
    run = captured.compile("native", options=options)
    return captured.run(run, *args), run.report


def several(x, y):
    """Two parts with a complex operator between them, a view among the results and a constant of its own."""
    z = (x @ y).exp()
    w = torch.fft.rfft(z).abs()
    padded = F.pad(w, (1, 1), value=2.0) + x.new_tensor([0, 1, 2, 3, 4, 5])
    return w.softmax(-1), x.t(), padded, z.to(torch.float64).sum((0,))


def test_the_second_time_is_the_same_without_tracing(capture, traced) -> None:
    x, y = torch.randn(6, 5), torch.randn(5, 7)
    first, told = compiled(capture, several, x, y)
    assert traced
    traced.clear()
    again, retold = compiled(capture, several, x, y)
    assert not traced
    torch.testing.assert_close(again, first, rtol=0, atol=0)
    for a, b in zip(again, first, strict=True):
        assert a.stride() == b.stride()
    assert again[1].data_ptr() == x.data_ptr()
    assert retold.cache_hits == retold.partitions == told.partitions
    assert retold.placements == told.placements
    assert retold.notes == told.notes
    assert retold.output_code == told.output_code


def test_reports_name_the_lines_of_the_program_that_runs(capture, traced) -> None:
    x = torch.randn(3)
    here, there = (lambda x: x.sin() + 1), (lambda x: x.sin() + 1)
    there.__code__ = there.__code__.replace(co_firstlineno=here.__code__.co_firstlineno + 5)
    _, one = compiled(capture, here, x)
    _, two = compiled(capture, there, x)
    assert len(traced) == 1
    lines = [int(r.placements[0].where.rpartition(":")[2]) for r in (one, two)]
    assert lines[1] == lines[0] + 5


def key(capture, function, *args, **fields):
    captured = capture(function, *args)
    return recipes.recipe_key(captured.gm, captured.inputs, CompileRequest("native", **fields))


def test_what_differs_is_told_apart(capture) -> None:
    x = torch.randn(4, 6)
    variants = [
        (lambda x: x * 2.0, x),
        (lambda x: x * 2, x),
        (lambda x: x * -0.0, x),
        (lambda x: x * 0.0, x),
        (lambda x: x * True, x),
        (lambda x: x * x, x),
        (lambda x: x * 2.0, x.double()),
        (lambda x: x * 2.0, torch.randn(6, 4)),
        (lambda x: x * 2.0, torch.randn(6, 4).t()),
        (lambda x: x * 2.0, torch.randn(4, 7)[:, :6]),
        (lambda x: x * 2.0, torch.randn(4, 6, requires_grad=True)),
        (lambda x: x * 2.0, torch.nn.Parameter(x)),
        (lambda x: x.sum(0), x),
        (lambda x: x.sum((0,)), x),
        (lambda x: x.sum([0]), x),
        (lambda x: torch.sum(x, 0), x),
        (lambda x: torch.sum(x, dim=0), x),
        (lambda x: x.sum(-1), x),
        (lambda x: x[0], x),
        (lambda x: x[None], x),
        (lambda x: x[..., 1:3], x),
        (lambda x: x[..., 1:3:2], x),
        (lambda x: x.to(torch.float64), x),
        (lambda x: x.to(torch.float16), x),
    ]
    keys = [key(capture, function, value) for function, value in variants]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    assert keys == [key(capture, function, value) for function, value in variants]
    told = [{"mode": "max-autotune"}, {"options": NativeOptions(fusion=False)}, {"fingerprint": "other"}]
    assert len({keys[0], *(key(capture, *variants[0], **fields) for fields in told)}) == 4


def test_inputs_that_share_memory_are_told_apart(capture) -> None:
    x = torch.randn(4)
    assert len({key(capture, lambda x, y: x + y, x, y) for y in (x, x.clone())}) == 2


def test_settings_that_change_what_operators_are_made_of(capture, traced) -> None:
    q = torch.randn(1, 2, 8, 16)
    for flash in (True, False, True):
        with torch.nn.attention.sdpa_kernel(
            torch.nn.attention.SDPBackend.FLASH_ATTENTION if flash else torch.nn.attention.SDPBackend.MATH
        ):
            compiled(capture, lambda q: F.scaled_dot_product_attention(q, q, q), q)
    assert len(traced) == 2


@torch.library.custom_op("torchmux_recipes::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


@torch.fx.wrap
def own(x):
    return x + 1


def writes(x):
    x.add_(1)
    return x * 2


def test_what_is_not_kept(capture, traced) -> None:
    x = torch.randn(4, 4)
    cases = [
        (writes, {}),
        (lambda x: twice(x) + 1, {}),
        (lambda x: own(x) * 3, {}),
        (lambda x: x.relu(), {"dynamic": {0: [0]}}),
    ]
    for function, how in cases:
        for _ in range(2):
            compiled(capture, function, x.clone(), **how)
    assert len(traced) == 2 * len(cases)
    with torch.autocast("cpu"):
        for _ in range(2):
            compiled(capture, lambda x: x @ x, x)
    assert len(traced) == 2 * len(cases) + 2


def test_a_method_that_the_program_replaced(capture, traced, monkeypatch) -> None:
    x = torch.randn(4)
    compiled(capture, lambda x: x.sin(), x)
    monkeypatch.setattr(torch.Tensor, "sin", lambda self: self.cos(), raising=False)
    got, _ = compiled(capture, lambda x: x.sin(), x)
    assert len(traced) == 2
    torch.testing.assert_close(got, torch.cos(x))


def test_an_artifact_that_is_gone(capture, traced, tmp_path) -> None:
    x = torch.randn(4)
    compiled(capture, lambda x: x.sin() + 1, x)
    largest = max((p for p in tmp_path.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    largest.unlink()
    got, report = compiled(capture, lambda x: x.sin() + 1, x)
    assert len(traced) == 2
    assert report.cache_hits == 0
    assert len(report.placements) == 2
    torch.testing.assert_close(got, x.sin() + 1)


def test_large_constants_are_not_kept(capture, traced, monkeypatch) -> None:
    monkeypatch.setattr(recipes, "MOST_CONSTANT_BYTES", 10)
    for _ in range(2):
        compiled(capture, several, torch.randn(6, 5), torch.randn(5, 7))
    assert len(traced) == 2
