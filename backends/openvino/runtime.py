"""Compiling an OpenVINO model, and running it on torch's memory.

Inputs are read where torch has them.  Results of known shape are written to memory that torch allocates, others are
shared with torch.  Nothing is copied except inputs that are not contiguous.
"""

from __future__ import annotations

import ctypes
import functools
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..common.results import Result
from .integers import Bounds
from .options import PRECISIONS, OpenvinoOptions

_NUMPY = {torch.float32: np.float32, torch.int64: np.int64, torch.int32: np.int32, torch.int16: np.int16,
          torch.int8: np.int8, torch.uint8: np.uint8, torch.bool: np.bool_}  # fmt: skip


@functools.cache
def _core() -> Any:
    import openvino

    return openvino.Core()


@functools.cache
def choose_device(device: str) -> str:
    """The device itself for a name, or OpenVINO's choice for AUTO.

    AUTO is asked once and then left out of it: it would change devices while the program runs.
    """
    if device != "AUTO":
        return device
    import openvino

    x = openvino.op.Parameter(openvino.Type.f32, openvino.Shape([1]))
    model = openvino.Model([openvino.opset13.relu(x)], [x])
    return str(
        _core().compile_model(model, "AUTO", {"ENABLE_STARTUP_FALLBACK": False}).get_property("EXECUTION_DEVICES")[0]
    )


def configuration(options: OpenvinoOptions, device: str) -> dict[str, Any]:
    """The properties that OpenVINO gets, by its names."""
    config: dict[str, Any] = {
        "PERFORMANCE_HINT": options.performance_hint,
        "INFERENCE_PRECISION_HINT": PRECISIONS[options.precision][0],
    }
    if device == "CPU":
        config["INFERENCE_NUM_THREADS"] = torch.get_num_threads()
    if options.num_streams is not None:
        config["NUM_STREAMS"] = options.num_streams
    return {**config, **options.config}


def compile_model(model: Any, device: str, config: Mapping[str, Any]) -> Any:
    """An ``openvino.CompiledModel``."""
    return _core().compile_model(model, device, dict(config))


def check_precision(compiled: Any, config: Mapping[str, Any]) -> None:
    """Make sure that the model computes in what it was asked for.

    Raises:
        RuntimeError: OpenVINO chose another precision.
    """
    asked = config["INFERENCE_PRECISION_HINT"]
    found = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
    if found != asked:
        raise RuntimeError(f"OpenVINO was asked to compute in {asked} and would compute in {found}")


def can_export(device: str) -> bool:
    """Whether compiled models of the device can be kept."""
    return "EXPORT_IMPORT" in _core().get_property(device, "OPTIMIZATION_CAPABILITIES")


def to_bytes(compiled: Any) -> bytes:
    """A compiled model as :func:`from_bytes` takes it."""
    stream = io.BytesIO()
    compiled.export_model(stream)
    return stream.getvalue()


def from_bytes(stored: bytes, device: str, config: Mapping[str, Any]) -> Any:
    """The compiled model of :func:`to_bytes`, without compiling.

    Raises:
        RuntimeError: it was made by another OpenVINO, or for another processor.
    """
    return _core().import_model(io.BytesIO(stored), device, dict(config))


class OpenvinoFunction:
    """A compiled part: takes the part's inputs, returns its outputs; may be called from several threads.

    ``kept`` are the positions of the inputs that the model takes; ``ranges`` says for some of these between which
    numbers they must lie, and ``otherwise`` runs calls in which they do not.  ``holds`` is whatever memory the model
    refers to.  ``cache_hit`` says whether the compiled model came from the artifact cache.
    """

    def __init__(
        self,
        compiled: Any,
        kept: Sequence[int],
        results: Sequence[Result],
        ranges: Mapping[int, Bounds],
        otherwise: Callable[..., Sequence[torch.Tensor]],
        *,
        holds: Any,
        cache_hit: bool,
    ) -> None:
        self.compiled = compiled
        self.cache_hit = cache_hit
        self._kept = tuple(kept)
        self._results = tuple(results)
        self._ranges = tuple(ranges.items())
        self._otherwise = otherwise
        self._holds = holds
        self._free: list[_Binding] = []

    def __call__(self, *args: Any) -> Sequence[torch.Tensor]:
        for position, (low, high) in self._ranges:
            if not within(args[position], low, high):
                return self._otherwise(*args)
        try:
            binding = self._free.pop()
        except IndexError:
            binding = _Binding(self.compiled.create_infer_request(), self._kept)
        try:
            return binding.run(args, self._results)
        finally:
            self._free.append(binding)


def within(value: Any, low: float, high: float) -> bool:
    """Whether an integer, or all integers in a tensor, lie between two numbers."""
    if not isinstance(value, torch.Tensor):
        return low <= value <= high
    if not value.numel():
        return True
    least, most = torch.aminmax(value)
    return low <= int(least) and int(most) <= high


class _Binding:
    """An infer request and what is bound to it, used by one call at a time.

    An input stays bound from call to call while it is at the same address with the same shape, which parameters are.
    Bound tensors are only looked at while a call holds them, so the request keeps no memory alive.
    """

    __slots__ = ("bound", "kept", "numbers", "request")

    def __init__(self, request: Any, kept: Sequence[int]) -> None:
        self.request = request
        self.kept = tuple(enumerate(kept))
        self.bound: dict[int, Any] = {}
        self.numbers: dict[int, torch.Tensor] = {}

    def run(self, args: Sequence[Any], results: Sequence[Result]) -> tuple[torch.Tensor, ...]:
        held = []  # copies that must outlive the run
        bound, request = self.bound, self.request
        for port, position in self.kept:
            value = args[position]
            if not isinstance(value, torch.Tensor):
                value = self._number(port, value)
            elif not value.is_contiguous():
                value = value.contiguous()
                held.append(value)
            now = (value.data_ptr(), value.shape)
            if bound.get(port) != now:
                request.set_input_tensor(port, _shared(value))
                bound[port] = now
        outputs = [self._bind_output(port, result) for port, result in enumerate(results)]
        request.infer(share_outputs=True)
        return tuple(
            r.arrange(t if isinstance(t, torch.Tensor) else torch.from_numpy(t.data))
            for t, r in zip(outputs, results, strict=True)
        )

    def _number(self, port: int, value: int) -> torch.Tensor:
        """A size as the int64 scalar that the model takes, always at the same address."""
        scalar = self.numbers.get(port)
        if scalar is None:
            scalar = self.numbers[port] = torch.empty((), dtype=torch.int64)
        scalar.fill_(value)
        return scalar

    def _bind_output(self, port: int, result: Result) -> Any:
        """Memory for one output: torch's, or a tensor that OpenVINO resizes when it knows the shape."""
        if result.shape is None:
            own = _resizable(result.dtype)
            self.request.set_output_tensor(port, own)
            return own
        out = torch.empty(result.shape, dtype=result.dtype)
        self.request.set_output_tensor(port, _shared(out))
        return out


def _shared(value: torch.Tensor) -> Any:
    """An ``openvino.Tensor`` at the address of ``value``, which the caller keeps alive."""
    size = value.numel() * value.element_size()
    memory = (ctypes.c_char * size).from_address(value.data_ptr())
    array = np.ndarray(value.shape, _NUMPY[value.dtype], memory)
    return _tensor_class()(array, shared_memory=True)


def _resizable(dtype: torch.dtype) -> Any:
    return _tensor_class()(_element_types()[dtype], [0])


@functools.cache
def _tensor_class() -> Any:
    import openvino

    return openvino.Tensor


@functools.cache
def _element_types() -> dict[torch.dtype, Any]:
    import openvino

    return {dtype: openvino.Type(array) for dtype, array in _NUMPY.items()}
