"""Backends that are wrong on purpose, each in one way, to test the suite itself.

Each is ``eager`` with one fault.  The suite has to catch every fault, with the outcome in ``CAUGHT_AS``.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from torchmux.registry import register_backend
from torchmux.registry.options import FreeOptions
from torchmux.registry.spec import ANY, BackendSpec

from .outcome import Outcome
from .requirements import Requirements

Run = Callable[..., Sequence[Any]]


def _first_float(results: Sequence[Any]) -> int | None:
    for position, value in enumerate(results):
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 1:
            return position
    return None


def _changed(run: Run, change: Callable[[torch.Tensor], torch.Tensor]) -> Run:
    """``run`` with its first floating-point result changed."""

    def call(*args: Any) -> Sequence[Any]:
        results = list(run(*args))
        position = _first_float(results)
        if position is not None:
            results[position] = change(results[position])
        return results

    return call


def _one_element(tensor: torch.Tensor) -> torch.Tensor:
    off = torch.zeros_like(tensor, requires_grad=False)
    off.view(-1)[-1] = 0.01 * tensor.detach().abs().max() + 1e-3
    return tensor + off


def wrong_value(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """One element of one result is off by a hundredth."""
    return _changed(gm.forward, lambda t: _one_element(t) if t.is_contiguous() else t + 1)


def wrong_stride(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The first result has transposed strides."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() < 2:
            return tensor
        turned = tensor.transpose(0, -1)
        return turned.contiguous().transpose(0, -1) if tensor.is_contiguous() else tensor.contiguous()

    return _changed(gm.forward, change)


def lost_mutation(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Inputs are copied first, so the caller does not see what the graph changes in place."""

    def call(*args: Any) -> Sequence[Any]:
        return gm.forward(*(a.clone() if isinstance(a, torch.Tensor) and not a.requires_grad else a for a in args))

    return call


def less_precision(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """float32 results pass through bfloat16."""
    return _changed(gm.forward, lambda t: t.bfloat16().to(t.dtype))


def wrong_dtype(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """float32 results become float64."""
    return _changed(gm.forward, lambda t: t.double() if t.dtype is torch.float32 else t)


def stale_result(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Every call writes its results to the memory of the first results."""
    kept: dict[int, torch.Tensor] = {}

    def call(*args: Any) -> Sequence[Any]:
        results = list(gm.forward(*args))
        for position, value in enumerate(results):
            if isinstance(value, torch.Tensor) and not value.requires_grad:
                old = kept.get(position)
                if old is not None and old.shape == value.shape and old.dtype is value.dtype:
                    results[position] = old.copy_(value)
                else:
                    kept[position] = value
        return results

    return call


def non_deterministic(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Results differ slightly from call to call."""
    count = 0

    def change(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return tensor * (1 + (count % 3) * 1e-7)

    return _changed(gm.forward, change)


def crash(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The process dies during a compilation."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return gm.forward


def hang(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A compilation never ends."""
    while True:
        time.sleep(3600)


def failure(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiled code raises an exception when it is called."""

    def call(*args: Any) -> Sequence[Any]:
        raise RuntimeError("this backend's code does not run")

    return call


def silent_fallback(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The backend claims to compute by itself, but lets torch run the graph."""
    return gm.forward


def ignored_option(gm: GraphModule, inputs: Sequence[Any], **options: Any) -> Run:
    """The backend accepts every option and ignores it."""
    return gm.forward


FAULTS: dict[str, Callable[..., Run]] = {
    function.__name__: function
    for function in (
        wrong_value, wrong_stride, lost_mutation, less_precision, wrong_dtype, stale_result, non_deterministic, crash,
        hang, failure, ignored_option, silent_fallback,
    )
}  # fmt: skip

# The outcome, and a case that must have it.
CAUGHT_AS: dict[str, tuple[Outcome, str]] = {
    "wrong_value": (Outcome.MISMATCH, "semantics/structure/a_small_network"),
    "wrong_stride": (Outcome.MISMATCH, "semantics/aliasing/strides_of_results"),
    "lost_mutation": (Outcome.MISMATCH, "semantics/mutation/input_in_place"),
    "less_precision": (Outcome.MISMATCH, "semantics/structure/a_small_network"),
    "wrong_dtype": (Outcome.MISMATCH, "semantics/numbers/promotion"),
    "stale_result": (Outcome.MISMATCH, "semantics/aliasing/results_outlive_the_next_call"),
    "non_deterministic": (Outcome.MISMATCH, "semantics/use/the_same_twice"),
    "crash": (Outcome.CRASH, "semantics/mutation/input_in_place"),
    "hang": (Outcome.TIMEOUT, "semantics/mutation/input_in_place"),
    "failure": (Outcome.CRASH, "semantics/mutation/input_in_place"),
    "silent_fallback": (Outcome.MISMATCH, "semantics/use/runs_what_it_says"),
    "ignored_option": (Outcome.MISMATCH, "semantics/use/unknown_option"),
}


_registered: set[str] = set()


class Loopback(Requirements):
    """The requirements of a backend with one fault; they are those of a correct backend."""

    seconds = 20.0

    def __init__(self, fault: str) -> None:
        super().__init__(f"loopback_{fault}")
        self.fault = fault
        if fault in _registered:
            return
        _registered.add(fault)
        everything = {"training": True, "dynamic_shapes": True, "devices": (ANY,), "dtypes": (ANY,)}
        register_backend(
            BackendSpec(
                self.name,
                FAULTS[fault].__doc__ or "",
                FAULTS[fault],
                graph="torch",
                options=FreeOptions if fault == "ignored_option" else None,
                **everything,  # type: ignore[arg-type]
            )
        )

    @property
    def own_kernels(self) -> bool:
        """Only the fault that concerns this claims it."""
        return self.fault == "silent_fallback"


def __getattr__(name: str) -> Callable[[], Loopback]:
    """``loopback:requirements_FAULT``, for a worker that receives its requirements by name."""
    fault = name.removeprefix("requirements_")
    if fault not in FAULTS or fault == name:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return functools.partial(Loopback, fault)
