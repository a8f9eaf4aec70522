"""Weights that autocast casts once for a region, under programs that change them inside the region."""

from __future__ import annotations

import contextlib
import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchmux
from torchmux.backends.common.pipeline.autocast import buffers, memory, regions

BACKENDS = ["eager", "aot_eager", "native"]


class Twice(nn.Module):
    """A weight that two layers share."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


class Scaled(nn.Module):
    """A weight that is no leaf, and one that is used in two ways."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(6, 6))
        self.scale = nn.Parameter(torch.empty(6))

    def forward(self, x):
        return F.linear(x, self.weight * self.scale) + x @ self.weight + self.weight.to(torch.bfloat16).sum()


class Inner(nn.Module):
    """A region of its own inside of the function."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6, bias=False)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.a(x)
        with torch.autocast("cpu", enabled=False):
            x = self.b(x.float())
        return self.a(x)


class Halves(nn.Module):
    """A graph break between two uses of a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        x = self.layer(x)
        torchmux.graph_break()
        return self.layer(x)


class Writing(nn.Module):
    """The function changes its weight between two uses."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        first = self.layer(x).detach()
        with torch.no_grad():
            self.layer.weight.mul_(2)
        return first + self.layer(x)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 6)),
    "convolution": lambda: nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3, padding=1), nn.Flatten()),
    "twice": Twice,
    "scaled": Scaled,
    "inner": Inner,
    "halves": Halves,
    "writing": Writing,
}
STEPS = [
    "call",
    "call",
    "call",
    "eager",
    "add",
    "data",
    "step",
    "backward",
    "clear",
    "leave",
    "nested",
    "off",
    "frozen",
]


def _scripts(seed: int) -> tuple[str, list[str], dict[str, Any]]:
    draw = random.Random(seed)
    region = {"cache_enabled": draw.random() < 0.8, "grad": draw.choice(["on", "on", "off", "inference"])}
    steps = ["call", *(draw.choice(STEPS) for _ in range(draw.randint(3, 8))), "call"]
    return draw.choice(list(MODELS)), steps, region


def _run(compiling: Callable[[nn.Module], Any], seed: int) -> list[torch.Tensor]:
    """What a program computes: the results of all calls, and the gradients at the end."""
    name, steps, region = _scripts(seed)
    torch.manual_seed(seed)
    model = MODELS[name]()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randint(-4, 5, p.shape) / 8)
    compiled, x = compiling(model), torch.randint(-4, 5, (3, 6)) / 4
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    results: list[torch.Tensor] = []
    mode = {"on": contextlib.nullcontext, "off": torch.no_grad, "inference": torch.inference_mode}[region["grad"]]

    def autocast(**settings: Any) -> Any:
        return torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=region["cache_enabled"], **settings)

    with contextlib.ExitStack() as outer:
        outer.enter_context(mode())
        stack = outer.enter_context(contextlib.ExitStack())
        stack.enter_context(autocast())
        for step in steps:
            if step in ("call", "eager"):
                results.append((compiled if step == "call" else model)(x))
            elif step == "nested":
                with autocast(), torch.no_grad():
                    results.append(compiled(x))
            elif step == "off":
                with autocast(enabled=False):
                    results.append(compiled(x))
            elif step == "add":
                with torch.no_grad():
                    for p in model.parameters():
                        p.add_(1)
            elif step == "data":
                for p in model.parameters():
                    p.data.mul_(-2)
            elif step == "step":
                optimizer.step()
            elif step == "backward" and results[-1].requires_grad:
                results[-1].float().pow(2).sum().backward()
            elif step == "clear":
                torch.clear_autocast_cache()
            elif step == "leave":
                stack.close()
                stack.enter_context(autocast())
            elif step == "frozen":
                next(model.parameters()).requires_grad_(False)
    gradients = [torch.zeros(1) if p.grad is None else p.grad for p in model.parameters()]
    return [r.detach().float() for r in results] + gradients


def _outcome(compiling: Callable[[nn.Module], Any], seed: int) -> Any:
    try:
        return _run(compiling, seed)
    except RuntimeError as error:
        return str(error)


def _check(backend: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with eager; odd seeds have buffers for all casts, others for those of large weights, which none is."""
    monkeypatch.setattr(buffers, "LARGE", 1 if seed % 2 else 1 << 14)
    torchmux.reset()
    expected = _outcome(lambda model: model, seed)
    got = _outcome(lambda model: torchmux.compile(model, backend=backend), seed)
    if isinstance(expected, str):  # autograd refuses what a step did
        assert isinstance(got, str), (seed, *_scripts(seed), expected)
        return
    assert not isinstance(got, str), (seed, *_scripts(seed), got)
    bound = 0 if backend == "eager" else 0.05
    for n, (a, b) in enumerate(zip(got, expected, strict=True)):
        torch.testing.assert_close(
            a, b, rtol=bound, atol=bound * float(b.abs().max()), msg=lambda m, n=n: f"{seed} {_scripts(seed)} [{n}] {m}"
        )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("start", range(0, 40, 10))
def test_programs(backend, start, monkeypatch):
    for seed in range(start, start + 10):
        _check(backend, seed, monkeypatch)


def _without_eager(start: int, count: int) -> list[int]:
    """Seeds of programs of which torch runs nothing: eager code does not get the casts of weights on a GPU."""
    in_torch = {"eager", "off"}  # the second leaves a graph with a region in it to torch
    return [seed for seed in range(start, start + 20 * count) if in_torch.isdisjoint(_scripts(seed)[1])][:count]


@pytest.mark.parametrize("seed", _without_eager(0, 12))
def test_programs_whose_casts_are_made_together(seed, monkeypatch):
    """As weights on a GPU are cast."""
    monkeypatch.setattr(regions, "_are_on_one_gpu", lambda weights: True)
    _check("aot_eager", seed, monkeypatch)


@pytest.mark.slow
def test_many_programs_whose_casts_are_made_together(monkeypatch):
    monkeypatch.setattr(regions, "_are_on_one_gpu", lambda weights: True)
    for seed in _without_eager(1000, 200):
        _check("native", seed, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_many_programs(backend, monkeypatch):
    for seed in range(1000, 1400):
        _check(backend, seed, monkeypatch)


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_an_inner_region_that_is_off_has_gradients_in_full_precision(backend):
    """Backward runs after the region, so products of what autocast left alone are not rounded."""

    class Off(nn.Linear):
        def forward(self, x):
            with torch.autocast("cpu", enabled=False):
                return super().forward(x)

    def gradient(function):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = function(x)
        return torch.autograd.grad(result.pow(2).sum(), model.weight)[0]

    torch.manual_seed(0)
    model, x = Off(6, 6), torch.randn(3, 6)
    expected = gradient(model)
    torch.testing.assert_close(gradient(torchmux.compile(model, backend=backend)), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_an_operator_that_reads_a_weight_with_and_without_its_cast(backend):
    """A cell's state is a factor of products, which autocast casts, and a term of the result, which it does not."""
    torch.manual_seed(0)
    cell, x, state = nn.GRUCell(6, 6), torch.randn(3, 6), nn.Parameter(torch.randn(3, 6))
    for hidden, is_left in ((state, True), (state.detach(), False)):
        compiled = torchmux.compile(cell, backend=backend)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            expected, got = cell(x, hidden), compiled(x, hidden)
        torch.testing.assert_close(got, expected, rtol=0.01, atol=0.01)
        assert ("with and without" in str(torchmux.report(compiled))) == is_left


def _casts() -> int:
    """How many casts there are, without those that stand for memory that outlives regions."""
    lasting = {id(each.tensor) for each in memory._all.values()}
    found = [o for o in gc.get_objects() if type(o) is torch.Tensor and id(o) not in lasting]
    return sum(t.shape == (4, 5) and t.dtype is torch.bfloat16 for t in found)


@pytest.mark.parametrize("large", [1, 1 << 14])
@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_casts_end_with_the_region(backend, large, monkeypatch):
    monkeypatch.setattr(buffers, "LARGE", large)
    compiled = torchmux.compile(nn.Linear(5, 4), backend=backend)
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            compiled(torch.ones(2, 5))
            assert _casts() == 1
        assert _casts() == 0


def test_the_first_batch_is_not_kept():
    x = torch.ones(2, 5)
    gone = weakref.ref(x)
    compiled = torchmux.compile(nn.Linear(5, 4), backend="aot_eager")
    compiled(x)
    del x
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("large", [1, 1 << 14])
def test_one_cast_for_many_calls(large, monkeypatch):
    monkeypatch.setattr(buffers, "LARGE", large)
    compiled = torchmux.compile(nn.Linear(5, 4), backend="aot_eager")

    def casts(count):
        with torch.profiler.profile(record_shapes=True) as profile:
            for _ in range(count):
                compiled(torch.ones(2, 5))
        return sum(e.name == "aten::copy_" and e.input_shapes[0] == [4, 5] for e in profile.events())

    with torch.autocast("cpu", dtype=torch.bfloat16):
        compiled(torch.ones(2, 5))
        assert casts(3) == 0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert casts(1) == 1
    assert torchmux.report(compiled).share == 1


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_a_buffer_that_is_in_use_is_left_alone(mode, monkeypatch):
    """Two graphs of a weight share its buffer, in one region after another, unless an earlier cast is in it."""
    monkeypatch.setattr(buffers, "LARGE", 1)
    layer = nn.Linear(6, 6, bias=False)
    x = torch.randn(3, 6, requires_grad=True)
    graphs = [torchmux.compile(function, backend="aot_eager") for function in (layer, lambda x: layer(x).tanh())]
    kept, addresses = [], set()
    for step in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16), mode():
            result = graphs[step % 2](x)
            cast = memory._all[id(layer.weight), torch.bfloat16]
            addresses.add(cast.tensor.data_ptr())
        is_lent = cast.lend() is None
        assert is_lent == (mode is torch.enable_grad)  # for a backward pass
        kept.append(result)
        with torch.no_grad():
            layer.weight.mul_(2)
    assert len(addresses) == 1
    if mode is torch.enable_grad:
        gradients = [torch.autograd.grad(result.sum(), x)[0] for result in (kept[0], kept[2])]
        torch.testing.assert_close(gradients[0] * 4, gradients[1])


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_kernel_of_an_encoder_layer_calls_what_autocast_casts(norm_first):
    layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", norm_first=norm_first, batch_first=True)
    layer.eval().requires_grad_(False)
    x, hidden = torch.randn(2, 5, 16), torch.rand(2, 5) < 0.3

    def function(x, hidden):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(x, src_key_padding_mask=hidden)

    compiled = torchmux.compile(function, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, hidden), function(x, hidden), rtol=2e-2, atol=4e-2)
