"""``torchmux.quantize``: a model in int8 by the tool of its backend, and how far that is from float32."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchmux import torch_internals as ti
from torchmux.registry.errors import BackendUnavailable, QuantizationFailed, Unsupported
from torchmux.registry.names import class_with_article

from . import quantizers


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

    def __str__(self) -> str:
        head = (
            f"int8 for {self.backend} by {self.tool}: {self.what}. Beside float32, in {self.calls} calibration calls:"
        )
        return "\n".join([head, *(f"  {each}" for each in self.accuracy)])


class Quantized:
    """A quantized model, which is called like the model; ``report`` is its :class:`QuantizationReport`.

    ``compiled`` is what :func:`torchmux.compile` made for ``native`` and ``tvm``, and None for the others.

    Examples:
        >>> def error_of(model, batches):
        ...     quantized = torchmux.quantize(model, batches, backend="onnxrt")
        ...     return (quantized(batches[0]) - model(batches[0])).abs().max()
    """

    def __init__(self, made: quantizers.Made, report: QuantizationReport) -> None:
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


def quantize(model: torch.nn.Module, calibration_data: Iterable[Any], *, backend: str = "onnxrt") -> Quantized:
    """``model`` in int8 for inference on the CPU, by the tool that the backend has for it.

    ==========================  =======================  ===========================================
    backend                     tool                     what is in int8
    ==========================  =======================  ===========================================
    ``onnxrt``                  onnxruntime              weights and activations
    ``openvino``                NNCF                     weights and activations
    ``native``, ``tvm``         torchao                  weights of linear layers; they are converted
                                                         to float32 where they are used
    ==========================  =======================  ===========================================

    Args:
        model: in eval mode; it stays as it is.
        calibration_data: one item for each call: a tensor, a tuple of arguments, or a dict of keyword arguments.  A few
            hundred inputs like those of the deployment serve best.  Sizes that differ between items become dynamic.
        backend: ``onnxrt``, ``openvino``, ``native`` or ``tvm``.

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
    tool = quantizers.BY_BACKEND.get(backend)
    if tool is None:
        raise ValueError(f"quantize() has no tool for {backend!r}. Use one of {', '.join(quantizers.BY_BACKEND)}.")
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
            raise QuantizationFailed(
                f"{tool.name()} does not quantize {type(model).__name__}: {type(error).__name__}: "
                f"{' '.join(str(error).split())[:500]}"
            ) from error
        found = [made.run(args, kwargs) for args, kwargs in calls]
    report = QuantizationReport(backend, tool.name(), made.what, len(calls), tuple(_compared(wanted, found)))
    return Quantized(made, report)


def _arguments(item: Any) -> quantizers.Call:
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
