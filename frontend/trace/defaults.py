"""Defaults for new tensors that the program sets: ``torch.set_default_dtype``, ``set_default_device``, and
``with torch.device(...)``.

They are in force while the program is traced.  Operators of the graph say explicitly what the default was, so neither
the graph nor what a compiler makes of it depends on a default that holds only for a part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from torchmux import torch_internals as ti

from .. import breaks
from ..breaks import GraphBreak
from ..handlers.table import handles
from ..values.base import Raised, Value
from ..values.constants import ConstValue
from ..values.contexts import ContextValue

if TYPE_CHECKING:
    from .tracer import FrameWriter, Tracer

NONE = ConstValue(None)
_UNSET: Any = object()


class Defaults:
    """What one trace has set: the dtype, really, and the device, only for the operators that the trace records."""

    def __init__(self) -> None:
        self.is_set = False  # whether operators must say explicitly what they make
        self.initial_dtype: Any = None  # before the program set another
        self.final_dtype: Any = None  # where the program leaves another
        self.device: Any = _UNSET  # that the program has set for good
        self.regions: list[DeviceRegion] = []  # which ``with torch.device(...)`` the trace is in

    def set_dtype(self, dtype: torch.dtype) -> None:
        if self.initial_dtype is None:
            self.initial_dtype = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        self.is_set = True

    def current_device(self) -> Any:
        """The device for operators that name none; None without such a default."""
        if self.regions:
            return self.regions[-1].device
        return None if self.device is _UNSET else self.device

    def close(self) -> None:
        """The trace ends: note what the compiled frame has to set."""
        now = torch.get_default_dtype()
        self.final_dtype = now if self.initial_dtype is not None and now is not self.initial_dtype else None

    def restore(self) -> None:
        """Set the dtype back to what it was before the trace."""
        if self.initial_dtype is not None:
            torch.set_default_dtype(self.initial_dtype)

    def lines(self, out: FrameWriter) -> list[str]:
        """What the compiled frame does to go on under the program's defaults."""
        found = []
        for setter, value in ((torch.set_default_dtype, self.final_dtype), (torch.set_default_device, self.device)):
            if value is not None and value is not _UNSET:
                found.append(f"{out.names.const(setter)}({out.names.const(value)})")
        return found

    # --- operators --------------------------------------------------------------------------------------------------

    def explicit(self, tr: Tracer, kind: str, target: Any, args: list[Value], kwargs: dict[str, Value]) -> dict:
        """The keyword arguments of an operator, with the dtype and the device that the defaults give it.

        Raises:
            GraphBreak: the result depends on a default that cannot be given.
        """
        region = tr.region
        while region is not None and region.transform:
            region = region.parent
        if region is not None:  # its function runs again, under other defaults
            raise GraphBreak(breaks.TORCH_STATE, f"{region.what} under a default that the program has set")
        if kind == "call_function" and target in ti.device_constructors():
            device = self.current_device()
            if device is not None and _is_none(kwargs.get("device")):
                kwargs = {**kwargs, "device": ConstValue(device)}
            return self._with_dtype(tr, kind, target, args, kwargs)
        if self.initial_dtype is not None and not any(t.dtype.is_floating_point or t.dtype.is_complex for t in
                                                      _tensors(tr, [*args, *kwargs.values()])):  # fmt: skip
            return self._with_dtype(tr, kind, target, args, kwargs)
        return kwargs

    def _with_dtype(self, tr: Tracer, kind: str, target: Any, args: list[Value], kwargs: dict[str, Value]) -> dict:
        if self.initial_dtype is None or not _is_none(kwargs.get("dtype")):
            return kwargs
        fakes = [value.fake(tr) for value in args], {name: value.fake(tr) for name, value in kwargs.items()}
        if _tensors(tr, args) and target not in ti.device_constructors():
            # Of integers: torch converts them to the default dtype where a result or another number is no integer.
            numbers = [
                v for v in [*args, *kwargs.values()] if v.is_const() and isinstance(v.const(tr), (float, complex))
            ]
            if not numbers and not str(target).endswith("_") and not _is_fractional(tr.propagate(kind, target, *fakes)):
                return kwargs
            raise GraphBreak(breaks.TORCH_STATE, "integers that an operator converts to a default dtype that is set")
        result = tr.propagate(kind, target, *fakes)
        if not _is_fractional(result):
            return kwargs
        try:
            dtype = ConstValue(result.dtype)
            tr.propagate(kind, target, fakes[0], {**fakes[1], "dtype": result.dtype})
        except (GraphBreak, AttributeError) as error:
            words = f"{getattr(target, '__name__', target)} under a default dtype that is set in the compiled function"
            raise GraphBreak(breaks.TORCH_STATE, words, error) from None
        return {**kwargs, "dtype": dtype}


def _is_none(value: Value | None) -> bool:
    return value is None or (value.is_const() and value.real() is None)


def _is_fractional(result: Any) -> bool:
    results = result if isinstance(result, (tuple, list)) else [result]
    return any(isinstance(r, torch.Tensor) and (r.dtype.is_floating_point or r.dtype.is_complex) for r in results)


def _tensors(tr: Tracer, values: list[Value]) -> list[torch.Tensor]:
    """The fake tensors among arguments, and in lists and tuples of them."""
    found: list[torch.Tensor] = []
    for value in values:
        given = value.fake(tr)
        found += [t for t in (given if isinstance(given, (tuple, list)) else [given]) if isinstance(t, torch.Tensor)]
    return found


class DeviceRegion(ContextValue):
    """``with torch.device(...)``, while it is entered."""

    __slots__ = ("device",)

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.source = None

    def pytype(self) -> type:
        return torch.device

    def enter(self, tr: Tracer) -> Value:
        tr.defaults.regions.append(self)
        tr.defaults.is_set = True
        return ConstValue(self.device)

    def leave(self, tr: Tracer) -> None:
        tr.defaults.regions.remove(self)

    def rebuild(self, out: FrameWriter) -> str:
        return out.names.const(self.device)


def enter_device(tr: Tracer, device: torch.device) -> Value:
    """``device.__enter__()``, whose result is a context object; a ``with`` statement hardly ever names it."""
    return DeviceRegion(device).call_method(tr, "__enter__", [], {})


def leave_device(tr: Tracer, device: torch.device) -> Value:
    """``device.__exit__(...)``: the innermost region ends."""
    regions = tr.defaults.regions
    if not regions:
        raise GraphBreak(breaks.TORCH_STATE, "leaving torch.device, which was entered before a graph break")
    return regions[-1].call_method(tr, "__exit__", [], {})


@handles(torch.set_default_dtype)
def set_default_dtype(tr: Tracer, d: Value) -> Value:
    dtype, before = d.const(tr), torch.get_default_dtype()
    if tr.region is not None:
        raise GraphBreak(breaks.TORCH_STATE, "torch.set_default_dtype inside of a function that torch calls")
    try:
        torch.set_default_dtype(dtype)
    except (RuntimeError, TypeError) as error:
        raise Raised(tr.exception(error)) from None
    torch.set_default_dtype(before)
    tr.defaults.set_dtype(dtype)
    return NONE


@handles(torch.set_default_device)
def set_default_device(tr: Tracer, device: Value) -> Value:
    if tr.region is not None or tr.defaults.regions or tr.guards.devices:
        raise GraphBreak(breaks.TORCH_STATE, "torch.set_default_device under another default device")
    wanted = device.const(tr)
    try:
        tr.defaults.device = None if wanted is None else torch.device(wanted)
    except (RuntimeError, TypeError) as error:
        raise Raised(tr.exception(error)) from None
    tr.defaults.is_set = True
    return NONE


@handles(torch.get_default_device)
def get_default_device(tr: Tracer) -> Value:
    if (device := tr.defaults.current_device()) is None and not tr.guards.devices:
        return ConstValue(torch.device("cpu"))
    if device is None or (device.index is None and device.type not in ("cpu", "meta")):
        raise GraphBreak(breaks.TORCH_STATE, "torch.get_default_device, which asks for the current device")
    return ConstValue(device)
