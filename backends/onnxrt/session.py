"""Running an ONNX model on torch's memory.

Inputs are bound where torch has them, outputs of known shape are allocated by torch and filled by onnxruntime, others
come back through DLPack; nothing is copied except inputs that are not contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..common.results import Result
from .options import CPU, OnnxrtOptions

# ONNX's numbers for element types (TensorProto.DataType).
ELEMENT = {
    torch.float32: 1, torch.uint8: 2, torch.int8: 3, torch.int16: 5, torch.int32: 6, torch.int64: 7, torch.bool: 9,
    torch.float64: 11,
}  # fmt: skip

_LEVELS = {
    "disabled": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}  # fmt: skip

# What onnxruntime gets as the address of a tensor without elements; it does not take a null pointer.
_NOWHERE = torch.zeros(1, dtype=torch.int64)


def make_session(model: bytes, options: OnnxrtOptions, constants: dict[int, torch.Tensor]) -> Any:
    """An ``InferenceSession``; ``constants`` is the data of the initializers, by the position in their name.

    The session refers to the memory of the constants: whoever holds the session must hold them too.
    """
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = getattr(
        onnxruntime.GraphOptimizationLevel, _LEVELS[options.graph_optimization_level]
    )
    settings.intra_op_num_threads = options.intra_op_num_threads or torch.get_num_threads()
    settings.inter_op_num_threads = options.inter_op_num_threads
    if options.inter_op_num_threads > 1:
        settings.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    settings.log_severity_level = 3  # errors; its warnings are about shapes that the exporter annotates loosely
    if CPU not in options.providers:
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if constants:
        names = [f"input_{position}" for position in constants]
        data = [onnxruntime.OrtValue.ortvalue_from_numpy(t.numpy()) for t in constants.values()]
        settings.add_external_initializers(names, data)
    return onnxruntime.InferenceSession(model, settings, providers=list(options.providers))


_TYPES = {
    torch.float32: "float", torch.uint8: "uint8", torch.int8: "int8", torch.int16: "int16", torch.int32: "int32",
    torch.int64: "int64", torch.bool: "bool", torch.float64: "double",
}  # fmt: skip


def check_types(session: Any, results: Sequence[Result]) -> None:
    """Make sure that the model returns the dtypes that torch would.

    Raises:
        TypeError: it does not, so that filling torch's memory would give nonsense.
    """
    for found, wanted in zip(session.get_outputs(), results, strict=True):
        if found.type != f"tensor({_TYPES[wanted.dtype]})":
            raise TypeError(f"the ONNX model returns {found.type} where torch has {wanted.dtype}")


class OnnxFunction:
    """A compiled part: takes the part's inputs, returns its outputs; may be called from several threads.

    ``cache_hit`` says whether the model came from the artifact cache.
    """

    def __init__(
        self, session: Any, count: int, results: Sequence[Result], constants: dict[int, torch.Tensor], cache_hit: bool
    ) -> None:
        self.session = session
        self.cache_hit = cache_hit
        self._positions = [p for p in range(count) if p not in constants]
        self._results = tuple(results)
        self._constants = constants  # keeps the memory that the session refers to
        self._free: list[_Binding] = []

    def __call__(self, *args: Any) -> tuple[torch.Tensor, ...]:
        try:
            binding = self._free.pop()
        except IndexError:
            binding = _Binding(self.session, self._positions)
        try:
            return binding.run(args, self._results)
        finally:
            self._free.append(binding)


class _Binding:
    """One set of bound inputs and outputs, used by one call at a time.

    An input stays bound from call to call while it is at the same address with the same shape, which parameters are.
    """

    __slots__ = ("bound", "io", "numbers", "positions", "session")

    def __init__(self, session: Any, positions: Sequence[int]) -> None:
        self.session = session
        self.io = session.io_binding()
        self.positions = positions
        self.bound: dict[int, Any] = {}
        self.numbers: dict[int, torch.Tensor] = {}

    def run(self, args: Sequence[Any], results: Sequence[Result]) -> tuple[torch.Tensor, ...]:
        held = []  # copies that must outlive the run
        bound = self.bound
        for position in self.positions:
            value = args[position]
            if not isinstance(value, torch.Tensor):
                value = self._number(position, value)
            elif not value.is_contiguous():
                value = value.contiguous()
                held.append(value)
            now = (value.data_ptr(), value.shape)
            if bound.get(position) != now:
                self._bind_input(position, value)
                bound[position] = now
        outputs = [self._bind_output(i, result) for i, result in enumerate(results)]
        self.session.run_with_iobinding(self.io)
        if None in outputs:
            made = self.io.get_outputs()
            outputs = [_from_runtime(made[i], results[i]) if t is None else t for i, t in enumerate(outputs)]
        return tuple(r.arrange(t) for t, r in zip(outputs, results, strict=True))

    def _number(self, position: int, value: int) -> torch.Tensor:
        """A size as the int64 scalar that the model takes, always at the same address."""
        scalar = self.numbers.get(position)
        if scalar is None:
            scalar = self.numbers[position] = torch.empty((), dtype=torch.int64)
        scalar.fill_(value)
        return scalar

    def _bind_input(self, position: int, value: torch.Tensor) -> None:
        self.io.bind_input(
            f"input_{position}", "cpu", 0, ELEMENT[value.dtype], list(value.shape), value.data_ptr() or _nowhere()
        )

    def _bind_output(self, position: int, result: Result) -> torch.Tensor | None:
        """Memory for one output, or None if onnxruntime is to allocate it."""
        name = f"output_{position}"
        if result.shape is None:
            self.io.bind_output(name, "cpu")
            return None
        out = torch.empty(result.shape, dtype=result.dtype)
        self.io.bind_output(name, "cpu", 0, ELEMENT[result.dtype], list(result.shape), out.data_ptr() or _nowhere())
        return out


def _nowhere() -> int:
    return _NOWHERE.data_ptr()


def _from_runtime(value: Any, result: Result) -> torch.Tensor:
    """Share the memory of an OrtValue; DLPack has no bool there, it comes as uint8."""
    tensor = torch.from_dlpack(value)
    return tensor.view(torch.bool) if result.dtype is torch.bool else tensor
