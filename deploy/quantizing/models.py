"""``torchmux.quantize``: a model in int8 by the tool of its backend, and how far that is from float32."""

from __future__ import annotations

import copy
import logging
import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchmux import torch_internals as ti
from torchmux.frontend.api import compile
from torchmux.registry.errors import BackendUnavailable, QuantizationFailed, Unsupported
from torchmux.registry.names import class_with_article

from . import tools

_log = logging.getLogger("torchmux.deploy")


@dataclass(frozen=True)
class Accuracy:
    """A result beside float32, over all calibration calls.

    ``relative_error`` is the norm of the difference over the norm of the float32 result, ``largest_error`` the largest
    difference of two elements, and ``largest`` the largest float32 element, all as absolute values.
    """

    name: str
    relative_error: float
    largest_error: float
    largest: float

    def __str__(self) -> str:
        return (
            f"{self.name}: relative error {self.relative_error:.2e}, largest error {self.largest_error:.2e} of values "
            f"up to {self.largest:.2e}"
        )


@dataclass(frozen=True)
class QuantizationReport:
    """What was quantized, by what, and how exact the results are; ``print`` it."""

    backend: str
    tool: str
    what: str
    calls: int
    accuracy: tuple[Accuracy, ...]
    left: tuple[str, ...]
    """Layers whose products stay in float32, and why."""
    seconds: float
    """The median of the first calibration call."""
    float_seconds: float | None
    """The same of the model in float32, compiled with the same backend, or None if that has failed."""

    def __str__(self) -> str:
        head = (
            f"int8 for {self.backend} by {self.tool}: {self.what}. Beside float32, in {self.calls} calibration calls:"
        )
        lines = [head, *(f"  {each}" for each in self.accuracy)]
        if self.float_seconds is None:
            lines.append(f"  {self.seconds * 1e3:.3g} ms a call; {self.backend} does not run the model in float32")
        else:
            lines.append(
                f"  {self.seconds * 1e3:.3g} ms a call, {self.float_seconds * 1e3:.3g} ms in float32: "
                f"{self.float_seconds / self.seconds:.2f} times as fast"
            )
        return "\n".join([*lines, *(f"  in float32: {each}" for each in self.left)])


class Quantized:
    """A quantized model, which is called like the model; ``report`` is its :class:`QuantizationReport`.

    ``compiled`` is what :func:`torchmux.compile` made for ``native`` and ``tvm``, and None for the others.

    Examples:
        >>> def error_of(model, batches):
        ...     quantized = torchmux.quantize(model, batches, backend="onnxrt")
        ...     return (quantized(batches[0]) - model(batches[0])).abs().max()
    """

    def __init__(self, made: tools.Made, report: QuantizationReport) -> None:
        self._made, self.report = made, report
        self.compiled = made.compiled

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's result.

        Raises:
            Unsupported: the arguments are of another kind than those of the calibration.
        """
        return self._made.run(args, kwargs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file of the tool: an ONNX model, or OpenVINO's IR (``.xml``, with ``.bin`` beside it).

        Raises:
            Unsupported: its backend has none.  Save ``compiled`` with :func:`torchmux.save`.
        """
        if self._made.save is None:
            raise Unsupported(
                f"{self.report.backend} has no file format of its own for quantized models. Call "
                "torchmux.save(quantized.compiled, path)."
            )
        self._made.save(os.fspath(path))

    def __repr__(self) -> str:
        return f"<Quantized {self.report.backend}: {self.report.what}>"


def quantize(
    model: torch.nn.Module, calibration_data: Iterable[Any], *, backend: str = "onnxrt", activations: bool = True
) -> Quantized:
    """``model`` in int8 for inference on the CPU, by the tool that the backend has for it.

    ==========================  =======================  ===========================================
    backend                     tool                     what is in int8
    ==========================  =======================  ===========================================
    ``onnxrt``                  onnxruntime              weights and activations
    ``openvino``                NNCF                     weights and activations
    ``native``, ``tvm``         torchao's PT2E           weights and activations of linear layers and
                                                         of convolutions in two dimensions
    ==========================  =======================  ===========================================

    Args:
        model: in eval mode; it stays as it is.
        calibration_data: one item for each call: a tensor, a tuple of arguments, or a dict of keyword arguments.  A few
            hundred inputs like those of the deployment serve best.  Sizes that differ between items become dynamic.
        backend: ``onnxrt``, ``openvino``, ``native`` or ``tvm``.
        activations: False leaves them in float32: ``native`` and ``tvm`` then take the weights of linear layers in int8
            and convert them where they are used.  This needs no export, so graphs may break.

    Raises:
        BackendUnavailable: the tool is not installed; the message has the command.
        QuantizationFailed: the tool does not take the model, torch does not export it as one graph, or there is
            nothing to quantize in it.
        TypeError, ValueError: it is no module, is in training mode, or there is no calibration data.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).eval()
        >>> torchmux.quantize(model.train(), [torch.randn(4, 64)])
        Traceback (most recent call last):
        ValueError: ...
        >>> def to_int8(model, batches):
        ...     quantized = torchmux.quantize(model.eval(), batches, backend="onnxrt")
        ...     print(quantized.report)
        ...     return quantized
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"quantize() takes an nn.Module, not {class_with_article(model)}")
    if model.training:
        raise ValueError("quantize() is for inference: call model.eval() first")
    tool = (tools.BY_BACKEND if activations else tools.WEIGHTS_ALONE).get(backend)
    if tool is None and backend in tools.BY_BACKEND:
        raise ValueError(f"quantize(activations=False) is for {' and '.join(tools.WEIGHTS_ALONE)}, not {backend}")
    if tool is None:
        raise ValueError(f"quantize() has no tool for {backend!r}. Use one of {', '.join(tools.BY_BACKEND)}.")
    calls = [_arguments(item) for item in calibration_data]
    if not calls:
        raise ValueError("quantize() needs calibration data: at least one input")
    missing = tool.missing()
    if missing:
        raise BackendUnavailable(
            f"quantize() for {backend} needs {', '.join(missing)}: python -m pip install '{tool.install}'"
        )
    with torch.no_grad():
        wanted = [model(*copy.deepcopy(args), **copy.deepcopy(kwargs)) for args, kwargs in calls]
        try:
            made = tool.make(copy.deepcopy(model), calls, backend)
        except (BackendUnavailable, QuantizationFailed, Unsupported):
            raise
        except Exception as error:
            way_out = ""
            if activations and backend in tools.WEIGHTS_ALONE:
                way_out = " Pass activations=False for weights in int8 alone, which needs no export."
            raise QuantizationFailed(
                f"{tool.name()} does not quantize {type(model).__name__}: {type(error).__name__}: "
                f"{' '.join(str(error).split())[:500]}{way_out}"
            ) from error
        found = [made.run(*copy.deepcopy(call)) for call in calls]
        accuracy = tuple(_compared(wanted, found))
        seconds, float_seconds = _speeds(made.run, _in_float32(model, backend), calls[0])
    report = QuantizationReport(
        backend, tool.name(), made.what, len(calls), accuracy, made.left, seconds, float_seconds
    )
    return Quantized(made, report)


_TURNS, _SECONDS = 21, 2.0
"""Turns of a measurement, and when it ends early."""


def _in_float32(model: torch.nn.Module, backend: str) -> Callable[..., Any]:
    compiled = compile(model, backend=backend)
    return lambda args, kwargs: compiled(*args, **kwargs)


def _speeds(run: Callable[..., Any], exact: Callable[..., Any], call: tools.Call) -> tuple[float, float | None]:
    """The medians of the seconds of both, in turns; None for ``exact`` if it fails."""
    sides: list[Callable[..., Any]] = [run, exact]
    try:
        exact(*copy.deepcopy(call))
    except Exception as error:  # what a backend does not run in float32 may still run in int8
        _log.warning("The speed in float32 is not measured: %s: %s", type(error).__name__, error)
        sides.pop()
    times: list[list[float]] = [[] for _ in sides]
    began = time.perf_counter()
    for turn in range(_TURNS):
        for side, found in zip(sides, times, strict=True):
            given = copy.deepcopy(call)
            start = time.perf_counter()
            side(*given)
            found.append(time.perf_counter() - start)
        if turn >= 2 and time.perf_counter() - began > _SECONDS:
            break
    seconds, *others = map(statistics.median, times)
    return seconds, others[0] if others else None


def _arguments(item: Any) -> tools.Call:
    if isinstance(item, torch.Tensor):
        return (item,), {}
    if isinstance(item, (tuple, list)):
        return tuple(item), {}
    if isinstance(item, dict):
        return (), item
    raise TypeError(f"calibration data are tensors, tuples or dicts, not {class_with_article(item)}")


def _compared(wanted: Sequence[Any], found: Sequence[Any]) -> list[Accuracy]:
    """Each result of floating point, by its place in the structure that the model returns."""
    squares: dict[str, list[float]] = {}
    for expected, result in zip(wanted, found, strict=True):
        there = dict(ti.pytree.tree_flatten_with_path(expected)[0])
        here = dict(ti.pytree.tree_flatten_with_path(result)[0])
        for place, value in there.items():
            if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
                continue
            exact, difference = value.double(), here[place].double() - value.double()
            totals = squares.setdefault(ti.pytree.keystr(place) or "result", [0.0, 0.0, 0.0, 0.0])
            totals[0] += float(difference.square().sum())
            totals[1] += float(exact.square().sum())
            totals[2] = max(totals[2], float(difference.abs().max()))
            totals[3] = max(totals[3], float(exact.abs().max()))
    return [
        Accuracy(name, math.sqrt(error / norm) if norm else math.sqrt(error), largest_error, largest)
        for name, (error, norm, largest_error, largest) in squares.items()
    ]
