"""Runs one model through one backend: how long it takes, what ran where, and whether the result is right.

The reference is the same model computed in float64.  A backend's error may be at most :data:`TOLERANCE` times that of
eager in the model's own dtype.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

import torchmux
from torchmux.registry.report import Kind
from torchmux.scratch import scratch_folder

from .models import ModelFamily, Size

TOLERANCE = 10.0
"""A result is wrong if its error is more than this many times eager's own."""

# Both sides of a comparison are timed for about this long, and at least this many times.
_SECONDS = 2.0
_ROUNDS = 7
# The threads of other runtimes spin for a while after a call, on the cores that eager needs.  ONNX Runtime's spin for
# between 10 and 50 ms, which makes a call of eager twice as slow.
_QUIET = 0.05

Outcome = Literal["right", "wrong", "failed", "unavailable"]


@dataclass(frozen=True)
class Trial:
    """The result of one model on one backend; numbers that were not reached are missing.

    ``compile_seconds`` is the time to the first result, with empty caches.  ``error`` is the largest difference from
    float64 relative to the largest value, ``eager_error`` the same for eager.  ``shares`` are the parts of the
    operators that are own code of the backend, library kernels that it calls (``libraries``), and left to torch.
    """

    model: str
    backend: str
    outcome: Outcome
    message: str = ""
    compile_seconds: float = math.nan
    speedup: float = math.nan
    error: float = math.nan
    eager_error: float = math.nan
    shares: Mapping[Kind, float] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    graphs: int = 0
    breaks: int = 0


@dataclass(frozen=True)
class Subject:
    """A model with inputs, eager's results for them, and those of float64."""

    name: str
    model: torch.nn.Module
    inputs: Mapping[str, torch.Tensor]
    eager: list[torch.Tensor] = field(repr=False)
    reference: list[torch.Tensor] = field(repr=False)

    @property
    def eager_error(self) -> float:
        """Eager's error against float64."""
        return error_against(self.reference, self.eager)

    @property
    def bound(self) -> float:
        """The largest acceptable error: for a model that eager computes exactly, that of one rounding."""
        dtype = max((t.dtype for t in self.eager), key=lambda dtype: torch.finfo(dtype).eps)
        return TOLERANCE * max(self.eager_error, torch.finfo(dtype).eps)


def subject(family: ModelFamily, size: Size) -> Subject:
    """The model of a family and its reference.

    Raises:
        ImportError: ``transformers`` is not installed.
    """
    model = family.build(size)
    inputs = family.example(model, size)
    exact = copy.deepcopy(model).double()
    exact_inputs = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    with torch.no_grad():
        return Subject(family.name, model, inputs, floats(model(**inputs)), floats(exact(**exact_inputs)))


def run(subject: Subject, backend: str) -> Trial:
    """Compile the model, check its first result, and time it against eager.  Errors become outcomes."""
    torchmux.reset()
    try:
        with torch.no_grad():
            return _run(subject, backend)
    except torchmux.BackendUnavailable as error:
        return Trial(subject.name, backend, "unavailable", str(error))
    except Exception as error:
        # A backend may raise anything, at compile time or in a call; the other backends still run.
        return Trial(subject.name, backend, "failed", f"{type(error).__name__}: {error}")


def start(backend: str) -> float:
    """Seconds to compile and run a module of one operator: what importing and starting the compiler takes."""
    begun = time.perf_counter()
    with torch.no_grad():
        torchmux.compile(torch.nn.Tanh(), backend=backend)(torch.zeros(8))
    return time.perf_counter() - begun


@contextlib.contextmanager
def empty_caches() -> Iterator[None]:
    """A block in which compilers find no earlier results and leave none behind."""
    with scratch_folder() as folder:
        found = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
        try:
            with torchmux.config.patch(cache_dir=os.path.join(folder, "torchmux")):
                yield
        finally:
            if found is None:
                del os.environ["TORCHINDUCTOR_CACHE_DIR"]
            else:
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = found


def _run(subject: Subject, backend: str) -> Trial:
    model, inputs = subject.model, subject.inputs
    begun = time.perf_counter()
    compiled = torchmux.compile(model, backend=backend)
    outputs = floats(compiled(**inputs))
    seconds = time.perf_counter() - begun
    report = torchmux.report(compiled)
    error = error_against(subject.reference, outputs)
    message = _difference(subject, outputs, error)
    return Trial(
        model=subject.name,
        backend=backend,
        outcome="wrong" if message else "right",
        message=message,
        compile_seconds=seconds,
        speedup=_speedup(lambda: model(**inputs), lambda: compiled(**inputs)),
        error=error,
        eager_error=subject.eager_error,
        shares=report.shares,
        libraries=tuple(dict.fromkeys(p.library or "?" for p in report.library_calls)),
        graphs=report.graph_count,
        breaks=report.break_count,
    )


def _difference(subject: Subject, outputs: list[torch.Tensor], error: float) -> str:
    """What is wrong with the outputs; empty if nothing is."""
    expected = [(tuple(t.shape), t.dtype) for t in subject.eager]
    found = [(tuple(t.shape), t.dtype) for t in outputs]
    if found != expected:
        return f"the outputs are {found}, eager's are {expected}"
    if not error <= subject.bound:
        return f"the error against float64 is {error:.1e}, eager's is {subject.eager_error:.1e}"
    return ""


def floats(value: Any) -> list[torch.Tensor]:
    """The floating-point tensors in a model's result, including caches of keys and values."""
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, Mapping):
        return [t for item in value.values() for t in floats(item)]
    if isinstance(value, (tuple, list)):
        return [t for item in value for t in floats(item)]
    if hasattr(value, "layers"):  # a cache of transformers
        return [t for layer in value.layers for t in (layer.keys, layer.values)]
    return []


def error_against(reference: list[torch.Tensor], outputs: list[torch.Tensor]) -> float:
    """The largest difference relative to the largest value, over all outputs; infinite if they cannot be compared."""
    if len(reference) != len(outputs) or any(a.shape != b.shape for a, b in zip(reference, outputs, strict=True)):
        return math.inf
    worst = 0.0
    for exact, given in zip(reference, outputs, strict=True):
        if exact.numel() == 0:
            continue
        difference = float((given.double() - exact).abs().max())
        scale = float(exact.abs().max()) or 1.0
        # A NaN is not a small difference, although comparisons with it are false.
        worst = max(worst, math.inf if math.isnan(difference) else difference / scale)
    return worst


def _speedup(eager: Callable[[], Any], compiled: Callable[[], Any]) -> float:
    """Eager's median time divided by that of compiled code; alternating calls let a busy machine slow both."""
    eager_times: list[float] = []
    compiled_times: list[float] = []
    deadline = time.perf_counter() + _SECONDS
    while len(eager_times) < _ROUNDS or time.perf_counter() < deadline:
        for call, times in ((eager, eager_times), (compiled, compiled_times)):
            time.sleep(_QUIET)
            call()  # not timed: it wakes the threads
            begun = time.perf_counter()
            call()
            times.append(time.perf_counter() - begun)
    return statistics.median(eager_times) / statistics.median(compiled_times)
