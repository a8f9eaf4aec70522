"""Runs an ONNX model on torch's memory.

Inputs are bound at their address in torch.  torch allocates outputs of known shape, and onnxruntime fills them; other
outputs return through DLPack.  Nothing is copied except inputs that are not contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from torchmux import logs
from torchmux.registry.spec import ToolFile

from ..common.adapter.binding import Binding, Input
from ..common.adapter.indices import Limits
from ..common.adapter.results import Result
from . import devices, files
from .options import CPU, OnnxrtOptions

# ONNX's numbers for element types (TensorProto.DataType).
ELEMENT = {
    torch.float32: 1, torch.uint8: 2, torch.int8: 3, torch.int16: 5, torch.int32: 6, torch.int64: 7, torch.bool: 9,
    torch.float16: 10, torch.float64: 11, torch.bfloat16: 16,
}  # fmt: skip

_LEVELS = {
    "disabled": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}  # fmt: skip

# What onnxruntime gets as the address of a tensor without elements; it does not take a null pointer.
_NOWHERE = torch.zeros(1, dtype=torch.int64)


def make_session(model: bytes, options: OnnxrtOptions, constants: dict[int, torch.Tensor], place: devices.Place) -> Any:
    """An ``InferenceSession`` that runs where ``place`` says.

    ``constants`` is the data of the initializers, by the position in their name.  The session refers to their memory:
    the owner of the session must also hold them.

    Raises:
        RuntimeError: onnxruntime would run the model elsewhere than it was asked to.
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
    for name, value in options.session_options.items():
        setattr(settings, name, value)
    for name, value in options.session_config_entries.items():
        settings.add_session_config_entry(name, value)
    if options.enable_profiling:
        settings.enable_profiling = True
        if "profile_file_prefix" not in options.session_options:
            settings.profile_file_prefix = files.profile_prefix()
    if CPU not in place.providers:
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if constants:
        names = [f"input_{position}" for position in constants]
        data = [onnxruntime.OrtValue.ortvalue_from_numpy(t.numpy()) for t in constants.values()]
        settings.add_external_initializers(names, data)
    place.prepare(settings)
    session = onnxruntime.InferenceSession(model, settings, providers=place.with_options(), enable_fallback=0)
    place.check(session)
    return session


_TYPES = {
    torch.float32: "float", torch.uint8: "uint8", torch.int8: "int8", torch.int16: "int16", torch.int32: "int32",
    torch.int64: "int64", torch.bool: "bool", torch.float64: "double", torch.float16: "float16",
    torch.bfloat16: "bfloat16",
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

    ``inputs`` are what the session takes; ``lifted`` are tensors that it takes after the arguments.  ``cache_hit`` says
    whether the model came from the artifact cache, ``artifact`` how to make this again, ``notes`` is for the report.
    ``checked`` says which inputs, by position, are indices; calls in which one is out of range run ``otherwise``, as
    do calls that onnxruntime refuses: torch's exception tells the program what it expects to be told.
    """

    artifact: str | None = None
    model = b""  # of ONNX, without weights
    library_calls: Mapping[str, str] = MappingProxyType({})  # the runtime computes all itself

    def __init__(
        self,
        session: Any,
        inputs: Sequence[Input],
        results: Sequence[Result],
        constants: dict[int, torch.Tensor],
        place: devices.Place,
        *,
        lifted: Sequence[torch.Tensor] = (),
        checked: Mapping[int, Limits] = MappingProxyType({}),
        otherwise: Callable[..., Sequence[torch.Tensor]] | None = None,
        cache_hit: bool = False,
    ) -> None:
        self.session = session
        self.cache_hit = cache_hit
        self.notes = place.notes(session)
        self._profile = files.Profile(session) if session.get_session_options().enable_profiling else None
        self._inputs = tuple(inputs)
        self._results = tuple(results)
        self._constants = constants  # keeps the memory that the session refers to
        self._lifted = tuple(lifted)
        self._place = place
        self._checked = tuple(checked.items())
        self._otherwise = otherwise
        self._free: list[_Binding] = []

    @property
    def output_code(self) -> list[str]:
        """The model as text, if somebody reads it."""
        return [files.text(self.model)] if "output_code" in logs.enabled() else []

    def files(self) -> list[ToolFile]:
        found = [files.onnx_file(self.model, self._constants)]
        return [*found, self._profile.file()] if self._profile is not None else found

    def __call__(self, *args: Any) -> Sequence[torch.Tensor]:
        if self._otherwise is not None:
            for position, limits in self._checked:
                if not limits.hold(args[position]):
                    return limits.as_torch(self._otherwise, args)
        try:
            binding = self._free.pop()
        except IndexError:
            binding = _Binding(self.session, self._inputs, self._results, self._place)
        try:
            return binding(args + self._lifted if self._lifted else args)
        except Exception:
            if self._otherwise is not None:
                self._otherwise(*args)
            raise
        finally:
            self._free.append(binding)


class _Binding(Binding):
    __slots__ = ("_io", "_names", "_outputs_at", "_place", "_session")

    def __init__(self, session: Any, inputs: Sequence[Input], results: Sequence[Result], place: devices.Place) -> None:
        super().__init__(inputs, results)
        self._session = session
        self._io = session.io_binding()
        self._names = tuple(f"input_{given.position}" for given in inputs)
        self._outputs_at: dict[int, int] = {}  # onnxruntime lists outputs in the order of their first binding
        self._place = place

    def bind_input(self, port: int, value: torch.Tensor) -> None:
        device = value.device
        self._io.bind_input(
            self._names[port],
            device.type,
            device.index or 0,
            ELEMENT[value.dtype],
            list(value.shape),
            value.data_ptr() or _NOWHERE.data_ptr(),
        )

    def bind_output(self, port: int, value: torch.Tensor) -> None:
        self._outputs_at.setdefault(port, len(self._outputs_at))
        device = value.device
        self._io.bind_output(
            f"output_{port}",
            device.type,
            device.index or 0,
            ELEMENT[value.dtype],
            list(value.shape),
            value.data_ptr() or _NOWHERE.data_ptr(),
        )

    def release_output(self, port: int) -> None:
        self._outputs_at.setdefault(port, len(self._outputs_at))
        device = self.results[port].device
        self._io.bind_output(f"output_{port}", device.type, device.index or 0)

    def take_output(self, port: int) -> torch.Tensor:
        """Share the memory of an OrtValue; DLPack has no bool there, it comes as uint8."""
        tensor = torch.from_dlpack(self._io.get_outputs()[self._outputs_at[port]])
        return tensor.view(torch.bool) if self.results[port].dtype is torch.bool else tensor

    def run(self) -> None:
        self._place.run(self._session, self._io)
