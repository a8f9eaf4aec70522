"""Statistics in half precision with symbolic sizes: what went wrong together is tried in all combinations."""

from __future__ import annotations

import contextlib
import functools
import itertools
from typing import Any

import pytest
import torch
from torch import nn

import torchmux
from torchmux.torch_internals import fake_results, new_fake_mode

LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "batch norm 1d": (lambda: nn.BatchNorm1d(6), (6,)),
    "batch norm of sequences": (lambda: nn.BatchNorm1d(6), (6, 5)),
    "batch norm 2d": (lambda: nn.BatchNorm2d(6), (6, 4, 5)),
    "batch norm 3d": (lambda: nn.BatchNorm3d(6), (6, 2, 3, 4)),
    "batch norm without weight": (lambda: nn.BatchNorm1d(6, affine=False), (6,)),
    "batch norm without statistics": (lambda: nn.BatchNorm2d(6, track_running_stats=False), (6, 4, 5)),
    "instance norm": (lambda: nn.InstanceNorm2d(6, affine=True), (6, 4, 5)),
    "instance norm with statistics": (lambda: nn.InstanceNorm1d(6, track_running_stats=True), (6, 9)),
    "group norm": (lambda: nn.GroupNorm(3, 6), (6, 7)),
    "layer norm": (lambda: nn.LayerNorm(6), (5, 6)),
    "layer norm without weight": (lambda: nn.LayerNorm(6, elementwise_affine=False), (6,)),
    "variance": (lambda: _Function(lambda x: x - x.var(0)), (6,)),
    "deviation": (lambda: _Function(lambda x: x / (1 + x.std(-1, keepdim=True))), (6,)),
    "variance and mean": (lambda: _Function(lambda x: sum(torch.var_mean(x, 0)) + x), (6,)),
    "logsumexp": (lambda: _Function(lambda x: x - x.logsumexp(0)), (6,)),
    "mean": (lambda: _Function(lambda x: x * x.mean((0, 1))), (6,)),
    "softmax": (lambda: _Function(lambda x: x.softmax(0)), (6,)),
    "log softmax": (lambda: _Function(lambda x: x.log_softmax(0)), (6,)),
}
QUICK = ("batch norm 1d", "group norm", "variance")
KINDS = ("bfloat16", "float16", "mixed bfloat16", "mixed float16", "autocast bfloat16", "autocast float16", "float32")
PHASES = ("inference", "evaluation", "training")  # evaluation has gradients
COUNTS = {True: (4, 7, 2), False: (7,)}
"""Of how many samples calls are, with symbolic sizes and without: without, each costs a compilation."""


class _Function(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def _run(
    layer: Any, sizes: tuple[int, ...], kind: str, phase: str, counts: tuple[int, ...], compile_: Any, exact: bool
) -> list[torch.Tensor]:
    """Results, gradients and buffers of calls of several sizes; ``exact`` ones begin with the same rounded numbers."""
    torch.manual_seed(0)
    made = layer()
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    casts = kind.startswith("autocast")
    model = _Between(made, sizes[-1]) if casts else nn.Sequential(made, nn.GELU())
    half = getattr(torch, kind.rpartition(" ")[2])
    if kind in ("bfloat16", "float16"):
        model.to(half)
    if exact:
        model.double()
    model.train(phase == "training")
    compiled = compile_(model)
    found = []
    for count in counts:
        x = torch.randn(count, *sizes).to(torch.float32 if casts else half)
        x = (x.double() if exact else x).requires_grad_(phase != "inference")
        cast = torch.autocast("cpu", half) if casts and not exact else contextlib.nullcontext()
        with cast, torch.set_grad_enabled(phase != "inference"):
            result = compiled(x)
        found.append(result.detach())
        if phase != "inference":
            weight = torch.linspace(-1, 1, result.numel(), dtype=torch.float64 if exact else torch.float32)
            (result.to(weight.dtype) * weight.reshape(result.shape)).sum().backward()
            found.append(x.grad)
    found += [p.grad for p in model.parameters() if p.grad is not None]
    return [*found, *(b.detach().clone() for b in model.buffers())]


class _Between(nn.Module):
    """A layer after a product that autocast computes in half precision, and before one."""

    def __init__(self, layer: nn.Module, features: int) -> None:
        super().__init__()
        self.layer = layer
        self.linear = nn.Linear(features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.layer(self.linear(x)))


def _is_quick(name: str, kind: str, phase: str) -> bool:
    """Every phase of a layer with every second kind of numbers, and all kinds."""
    return name in QUICK and (KINDS.index(kind) + PHASES.index(phase)) % 2 == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "kind", "phase"),
    [
        pytest.param(*each, marks=[] if _is_quick(*each) else pytest.mark.slow)
        for each in itertools.product(LAYERS, KINDS, PHASES)
    ],
)
def test_statistics(name: str, kind: str, phase: str) -> None:
    """No further from what float64 computes than eager is, and a few units."""
    layer, sizes = LAYERS[name]
    unit = torch.finfo(getattr(torch, kind.rpartition(" ")[2])).eps
    for dynamic in (True, False) if phase == "training" else (True,):
        torchmux.reset()
        run = functools.partial(_run, layer, sizes, kind, phase, COUNTS[dynamic])
        eager, exact = run(lambda m: m, False), run(lambda m: m, True)
        got = run(functools.partial(torchmux.compile, backend="native", dynamic=dynamic), False)
        for n, (a, b, c) in enumerate(zip(got, eager, exact, strict=True)):
            assert a.dtype is b.dtype and a.shape == b.shape, n
            if not b.is_floating_point():
                assert torch.equal(a, b)
                continue
            assert a.isfinite().all(), n
            scale = max(float(c.abs().max()), 1.0)
            error = float((b.double() - c).abs().max())
            assert float((a.double() - c).abs().max()) <= 2 * error + 8 * unit * scale, (n, dynamic)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_variance_of_a_few(rows: int) -> None:
    """What is left of the degrees of freedom may be 0, and is never negative."""
    for correction in (0, 1, 2, 3):
        compiled = torchmux.compile(lambda x, c=correction: x.var(0, correction=c), backend="native", dynamic=True)
        for n in (7, rows):
            x = torch.arange(3.0 * n).reshape(n, 3)
            torch.testing.assert_close(compiled(x), x.var(0, correction=correction), equal_nan=True)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mixed", [False, True])
def test_fake_results_have_the_dtypes_of_real_ones(half: torch.dtype, mixed: bool) -> None:
    aten = torch.ops.aten
    x = torch.randn(4, 8, 3).to(half)
    w = torch.ones(8, dtype=torch.float32 if mixed else half)
    own = {
        aten.native_layer_norm.default: (x.mT.contiguous(), [8], w, w, 1e-5),
        aten.native_group_norm.default: (x, w, w, 4, 8, 3, 2, 1e-5),
        aten.native_batch_norm_backward.default: (x, x, None, w, w, w, w, True, 1e-5, [True] * 3),
        aten._native_batch_norm_legit.no_stats: (x, w, w, True, 0.1, 1e-5),
        aten._native_batch_norm_legit_no_training.default: (x, w, w, w, w, 0.1, 1e-5),
    }
    for op in fake_results.RULES:
        flags = (True, 0.1, 1e-5) if any(a.name == "training" for a in op._schema.arguments) else (0.1, 1e-5)
        args = own.get(op, (x, w, w, w.clone(), w.clone(), *flags))
        real = op(*args)
        mode = new_fake_mode()
        with mode:
            fake = op(*(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args))
        said = [(t.dtype, t.shape, t.stride()) for t in fake]
        assert said == [(t.dtype, t.shape, t.stride()) for t in real], op


@pytest.mark.parametrize("scale", [1e20, 1e-25])
@pytest.mark.parametrize("function", [torch.std, torch.var, torch.std_mean, torch.var_mean])
def test_squares_that_float32_cannot_hold(function, scale):
    x = torch.randn(33, 65) * scale
    compiled = torchmux.compile(lambda x: (function(x, 1), function(x)), backend="native", strict="own")
    torch.testing.assert_close(compiled(x), (function(x, 1), function(x)), rtol=1e-5, atol=1e-6 * scale)
