"""Modes of torch that are active around a call."""

from __future__ import annotations

import contextlib
import io
import warnings
from typing import Any

import torch

from torchmux import torch_internals as ti

from ..case import Collection, Trial
from ..judging.frontends import TorchFrontend

case = Collection("semantics/modes")


@case("training")
def with_and_without_gradients(trial: Trial) -> Any:
    """The same function under ``no_grad`` and outside of it."""
    x = trial.tensor(3, requires_grad=True)
    compiled = trial.compile(lambda x: x.sin() * 2)
    with torch.no_grad():
        first = compiled(x)
    second = compiled(x)
    with torch.no_grad():
        third = compiled(x)
    second.sum().backward()
    return first, second, third, x.grad


@case()
def inference_mode(trial: Trial) -> Any:
    """The same function under ``inference_mode`` and outside of it."""
    x = trial.tensor(3)
    compiled = trial.compile(lambda x: x.cos() + 1)
    with torch.inference_mode():
        first = compiled(x).clone()
    return first.clone(), compiled(x)


@case("training")
def gradients_switched_inside(trial: Trial) -> Any:
    """``no_grad`` inside the function applies only to its block."""
    x = trial.tensor(3, requires_grad=True)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            scale = x.norm()
        return x / scale, scale

    y, scale = trial.run(f, x)
    y.sum().backward()
    return y, scale, x.grad


@case("bfloat16", precision=torch.bfloat16)
def autocast(trial: Trial) -> Any:
    """Products are computed in bfloat16 under autocast, and not without it."""
    torch.manual_seed(0)
    layer = trial.module(torch.nn.Linear(8, 4))
    compiled, x = trial.compile(lambda x: layer(x).relu().sum(-1)), trial.tensor(3, 8)
    results = []
    for enabled in (True, False, True):
        with torch.no_grad(), torch.autocast(trial.device.type, torch.bfloat16, enabled=enabled):
            results.append(compiled(x))
    return results


@case("bfloat16", precision=torch.bfloat16)
def casts_inside_of_operators(trial: Trial) -> Any:
    """Autocast knows operators that others consist of, also where it does not know these."""
    matrix = 2 * trial.tensor(4, 4) + 8 * torch.eye(4, device=trial.device)

    def f(x: torch.Tensor) -> Any:
        cube = x[:, :, None] * x
        return torch.linalg.pinv(x), torch.nn.functional.bilinear(x, x, cube), torch.linalg.multi_dot([x, x, x])

    compiled = trial.compile(f)
    with torch.no_grad(), torch.autocast(trial.device.type, torch.bfloat16):
        return compiled(matrix)


@case()
def evaluation_and_training(trial: Trial) -> Any:
    """``train()`` and ``eval()`` between calls change what dropout and batch norm do."""
    torch.manual_seed(0)
    net = trial.module(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(1.0)))
    compiled, x, results = trial.compile(net), trial.tensor(3, 4), []
    with torch.no_grad():
        for training in (True, False, True):
            results.append(compiled(x) if net.train(training) else None)
    return results


class _Counting(ti.TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@case("training", reference=False)
def contexts_that_look_on(trial: Trial) -> Any:
    """Calls and backward passes are the same under a profiler, under modes that see operators, while autograd looks for
    what is not a number, and where hooks pack what it saves; calls before and after them too."""
    compiled, weight = trial.compile(lambda x, w: ((x @ w).tanh() * x.sum(1, keepdim=True)).sum(0)), trial.tensor(4, 3)
    found = []
    seeing = [] if isinstance(trial.frontend, TorchFrontend) else [_Counting]  # torch.compile leaves the call to eager
    for context in (
        contextlib.nullcontext, torch.profiler.profile, torch.autograd.profiler.profile, *seeing,
        torch.autograd.graph.save_on_cpu,
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t * 1),
        torch.autograd.detect_anomaly,
        lambda: torch.random.fork_rng(devices=[]), lambda: warnings.catch_warnings(action="error"),
        contextlib.nullcontext,
    ):  # fmt: skip
        x, w = trial.tensor(5, 4).requires_grad_(), weight.clone().requires_grad_()
        with contextlib.redirect_stderr(io.StringIO()), context():
            result = compiled(x, w)
            with torch.no_grad():
                found.append(compiled(x, w))
            result.square().sum().backward()
        found += [result.detach(), x.grad, w.grad]
    return found


@torch.library.custom_op("torchmux_conformance::settings", mutates_args=())
def _settings(x: torch.Tensor) -> torch.Tensor:
    told = (
        torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), torch.is_grad_enabled(),
        torch.get_default_dtype() is torch.float64, torch.get_float32_matmul_precision() == "high",
        torch.is_anomaly_enabled(), (torch.tensor([1e-40]) * 1.0).item() != 0, torch.is_warn_always_enabled(),
        torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled(),
    )  # fmt: skip
    return torch.tensor([float(each) for each in told], dtype=x.dtype).to(x.device)


@_settings.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(10)


@case(reference=False)
def settings_that_operators_see(trial: Trial) -> Any:
    """What runs in a call sees the settings that the program made for this call, not those of the first one."""
    compiled, x, found = trial.compile(lambda x: _settings(x.sin()) + x.sum()), trial.tensor(3), []
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    precision, dtype = torch.get_float32_matmul_precision(), torch.get_default_dtype()
    try:
        for changed in (False, True, False, True):
            torch.set_num_threads(3 if changed else threads)
            torch.use_deterministic_algorithms(changed, warn_only=True)
            torch.set_float32_matmul_precision("high" if changed else precision)
            torch.set_default_dtype(torch.float64 if changed else dtype)
            torch.set_flush_denormal(changed)
            with torch.no_grad():
                found.append(compiled(x))
            found.append(compiled(x))
            with contextlib.redirect_stderr(io.StringIO()), torch.autograd.set_detect_anomaly(changed):
                found.append(compiled(x))
            with torch.inference_mode(changed):
                found.append(compiled(x).clone())
    finally:
        torch.set_flush_denormal(False)
        torch.set_default_dtype(dtype)
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(deterministic)
        torch.set_num_threads(threads)
    return found
