"""Compiles an OpenVINO model and runs it on torch's memory.

Inputs are read in place.  Results of known shape are written to memory that torch allocates, and others are shared with
torch.  Nothing is copied except inputs that are not contiguous, and small results.
"""

from __future__ import annotations

import ctypes
import functools
import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from torchmux import logs
from torchmux.registry.report import GraphReport, Placement
from torchmux.registry.spec import ToolFile

from ..common.adapter.binding import Binding, Input
from ..common.adapter.indices import Limits
from ..common.adapter.results import Result
from . import files
from .counts import Counts
from .options import PRECISIONS, OpenvinoOptions

_NUMPY = {torch.float32: np.float32, torch.int64: np.int64, torch.int32: np.int32, torch.int16: np.int16,
          torch.int8: np.int8, torch.uint8: np.uint8, torch.bool: np.bool_}  # fmt: skip

_SMALL = 16 * 1024
"""Bytes up to which copying a result is faster than making a tensor for OpenVINO and binding it, which takes 5 µs."""


_started: list[int] = []  # the process that has the threads


@functools.cache
def _core() -> Any:
    import openvino

    _started.append(os.getpid())
    return openvino.Core()


def in_a_copy() -> bool:
    """Whether this process is a copy of one that used OpenVINO: the threads that compile are not copied."""
    return bool(_started) and os.getpid() not in _started


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
        config["ENABLE_CPU_PINNING"] = False  # each process would use the same first cores, however many are idle
    if options.num_streams is not None:
        config["NUM_STREAMS"] = options.num_streams
    return {**config, **options.config}


def compile_model(model: Any, device: str, config: Mapping[str, Any]) -> Any:
    """An ``openvino.CompiledModel``."""
    return _core().compile_model(model, device, dict(config))


def check_precision(compiled: Any, config: Mapping[str, Any]) -> None:
    """Check that the model computes in the requested precision.

    Raises:
        RuntimeError: OpenVINO chose another precision.
    """
    asked = config["INFERENCE_PRECISION_HINT"]
    found = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
    if found != asked:
        raise RuntimeError(f"OpenVINO was asked to compute in {asked} but would compute in {found}")


def counts_layers(config: Mapping[str, Any]) -> bool:
    """Whether OpenVINO is asked to time the layers of its model."""
    return str(config.get("PERF_COUNT", False)).upper() in ("TRUE", "YES", "1")


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

    ``inputs`` are what the model takes; ``ranges`` says for some of these, by position, between which numbers they must
    lie, and ``otherwise`` runs calls in which they do not.  ``holds`` is whatever memory the model refers to.
    ``counts`` says whether the model times its layers.
    ``cache_hit`` says whether the compiled model came from the artifact cache, ``artifact`` how to make this again.
    """

    artifact: str | None = None
    source: Callable[[], files.Source | None] = staticmethod(lambda: None)
    library_calls: Mapping[str, str] = MappingProxyType({})  # the runtime computes all itself

    def __init__(
        self,
        compiled: Any,
        inputs: Sequence[Input],
        results: Sequence[Result],
        ranges: Mapping[int, Limits],
        otherwise: Callable[..., Sequence[torch.Tensor]],
        *,
        holds: Any,
        cache_hit: bool,
        counts: bool = False,
    ) -> None:
        self.compiled = compiled
        self.cache_hit = cache_hit
        self._inputs = tuple(inputs)
        self._results = tuple(results)
        self._ranges = tuple(ranges.items())
        self._otherwise = otherwise
        self._holds = holds
        self._free: list[_Binding] = []
        self._counts = Counts() if counts else None

    @property
    def output_code(self) -> list[str]:
        """The model before it was compiled, if somebody reads it and it is kept."""
        source = self.source() if "output_code" in logs.enabled() else None
        return [] if source is None else [source.xml.decode()]

    def files(self) -> list[ToolFile]:
        found = files.ir_files(self.source(), [given.position for given in self._inputs])
        return [*found, self._counts.file()] if self._counts is not None else found

    def follow(self, report: GraphReport, placements: list[Placement]) -> None:
        """Where to tell the counts of calls, under ``PERF_COUNT``."""
        if self._counts is not None:
            self._counts.begin(report)

    def __call__(self, *args: Any) -> Sequence[torch.Tensor]:
        for position, limits in self._ranges:
            if not limits.hold(args[position]):
                return limits.as_torch(self._otherwise, args)
        try:
            binding = self._free.pop()
        except IndexError:
            binding = _Binding(self.compiled, self._inputs, self._results)
        try:
            results = binding(args)
            if self._counts is not None:
                self._counts.add(binding.request.get_profiling_info())
            return results
        finally:
            self._free.append(binding)


class _Binding(Binding):
    """An infer request and what is bound to it.

    Bound tensors are only looked at while a call holds them, so the request keeps no memory alive.
    """

    __slots__ = ("_bind_input", "_bind_output", "_infer", "_inputs_at", "_outputs_at", "_own", "_static", "request")

    def __init__(self, compiled: Any, inputs: Sequence[Input], results: Sequence[Result]) -> None:
        super().__init__(inputs, results)
        request = self.request = compiled.create_infer_request()
        self._bind_input, self._bind_output = request.set_input_tensor, request.set_output_tensor
        self._infer = request.infer
        self._inputs_at = [_View(given.dtype or torch.int64, given.shape) for given in inputs]
        self._outputs_at = [_View(r.dtype, r.shape) for r in results]
        self._own: dict[int, Any] = {}  # outputs that OpenVINO resizes when it knows their shape
        # OpenVINO may know a shape that torch does not, and then does not resize.
        self._static = [list(o.shape) if o.partial_shape.is_static else [0] for o in compiled.outputs]
        self.keep_small(_SMALL)

    def bind_input(self, port: int, value: torch.Tensor) -> None:
        self._bind_input(port, self._inputs_at[port](value))

    def bind_output(self, port: int, value: torch.Tensor) -> None:
        self._bind_output(port, self._outputs_at[port](value))

    def release_output(self, port: int) -> None:
        kind = _element_types()[self.results[port].dtype]
        own = self._own[port] = _tensor_class()(kind, self._static[port])
        self._bind_output(port, own)

    def take_output(self, port: int) -> torch.Tensor:
        return torch.from_numpy(self._own.pop(port).data)

    def run(self) -> None:
        self._infer(share_outputs=True)


class _View:
    """Makes an ``openvino.Tensor`` at the address of a tensor, which the caller keeps alive.

    ``shape`` is None if it may be another in each call.
    """

    __slots__ = ("_dtype", "_memory", "_shape", "_tensor")

    def __init__(self, dtype: torch.dtype, shape: Sequence[int] | None) -> None:
        self._dtype = np.dtype(_NUMPY[dtype])
        self._shape = None if shape is None else tuple(shape)
        self._memory = None if shape is None else ctypes.c_char * (math.prod(shape) * self._dtype.itemsize)
        self._tensor = _tensor_class()

    def __call__(self, value: torch.Tensor) -> Any:
        shape = tuple(value.shape) if self._shape is None else self._shape
        memory: Any = self._memory or ctypes.c_char * (value.numel() * self._dtype.itemsize)
        return self._tensor(np.ndarray(shape, self._dtype, memory.from_address(value.data_ptr())), shared_memory=True)


def borrowed(value: torch.Tensor) -> Any:
    """The ``openvino.Tensor`` on the memory of a contiguous tensor."""
    return _tensor_class()(value.numpy(), shared_memory=True)


@functools.cache
def _tensor_class() -> Any:
    import openvino

    return openvino.Tensor


@functools.cache
def _element_types() -> dict[torch.dtype, Any]:
    import openvino

    return {dtype: openvino.Type(array) for dtype, array in _NUMPY.items()}
