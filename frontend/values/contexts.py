"""torch's own context managers: grad mode, autocast, and those without an effect on a graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..breaks import TORCH_STATE, GraphBreak
from ..guards.sources import Attr, Source
from ..regions import use_backend
from .base import Value
from .builtin_methods import BuiltinMethodValue
from .constants import ConstValue

if TYPE_CHECKING:
    from ..trace.tracer import FrameWriter, Tracer


class _UnknownGrad:
    """The grad mode of a graph that may run with gradients or without; it is traced without."""

    def __bool__(self) -> bool:
        return False


UNKNOWN_GRAD: Any = _UnknownGrad()
GRAD_CLASSES = (torch.no_grad, torch.enable_grad, torch.set_grad_enabled)
_enter_autocast = torch.amp.autocast_mode._enter_autocast
_exit_autocast = torch.amp.autocast_mode._exit_autocast
_enter_inference_mode = torch.autograd.grad_mode._enter_inference_mode
_exit_inference_mode = torch.autograd.grad_mode._exit_inference_mode


class ContextValue(Value):
    """A context manager that the tracer carries out itself.

    While it is entered it stands on ``tr.active_contexts``; if the graph ends inside it, the compiled frame enters the
    real one before it continues.
    """

    __slots__ = ()

    def enter(self, tr: Tracer) -> Value:
        raise NotImplementedError

    def leave(self, tr: Tracer) -> None:
        raise NotImplementedError

    def truth(self, tr: Tracer) -> bool:
        return True

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name in ("__enter__", "__exit__", "clone", "__call__", "_recreate_cm"):
            return BuiltinMethodValue(self, self.pytype(), name)
        if name == "__class__":
            return tr.lift(self.pytype())
        return super().getattr(tr, name)

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__enter__":
            result = self.enter(tr)
            tr.active_contexts.append(self)
            return result
        if name == "_recreate_cm":  # of contextlib.ContextDecorator
            return self
        if name == "__exit__":
            self.leave(tr)
            if self in tr.active_contexts:
                tr.active_contexts.remove(self)
            return ConstValue(None)
        return super().call_method(tr, name, args, kwargs)

    def restore(self) -> None:
        """Leave the real region after the trace failed inside it."""

    def close_in_graph(self, tr: Tracer) -> None:
        """The graph ends inside the context: leave it inside the graph, the compiled frame enters it for real."""
        self.leave(tr)


class GradModeValue(ContextValue):
    """``no_grad``, ``enable_grad`` or ``set_grad_enabled(mode)``."""

    __slots__ = ("cls", "mode", "previous")

    def __init__(self, cls: type, mode: bool, previous: bool, source: Source | None = None) -> None:
        self.cls = cls
        self.mode = mode
        self.previous = previous
        self.source = source

    def pytype(self) -> type:
        return self.cls

    def enter(self, tr: Tracer) -> Value:
        if self.cls is not torch.set_grad_enabled:
            self.previous = tr.grad_enabled
        tr.set_grad(self.mode)
        return ConstValue(None)

    def leave(self, tr: Tracer) -> None:
        tr.set_grad(self.previous)

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name in ("prev", "mode"):
            return ConstValue(self.previous if name == "prev" else self.mode)
        return super().getattr(tr, name)

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "clone":
            return GradModeValue(self.cls, self.mode, tr.grad_enabled)
        if name == "__call__":
            return self.call(tr, args, kwargs)
        return super().call_method(tr, name, args, kwargs)

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """As a decorator: the same Python function that torch returns."""
        wrapper = tr.lift(torch.utils._contextlib.context_decorator)
        return wrapper.call(tr, [BuiltinMethodValue(self, self.cls, "clone"), *args], kwargs)

    def rebuild(self, out: FrameWriter) -> str:
        cls = out.names.const(self.cls)
        variable = out.shell(self, f"{cls}({self.mode})" if self.cls is torch.set_grad_enabled else f"{cls}()")
        out.line(f"{variable}.prev = {self.previous}")
        return variable


class InferenceModeValue(ContextValue):
    """``torch.inference_mode()``: the graph computes without gradients, and what leaves it is made an inference tensor.

    Tracing continues in the real mode, so that fake tensors answer, and refuse, what real ones would.  Switched off
    where it is not on, it only switches gradients on.
    """

    __slots__ = ("before", "entered", "mode")

    def __init__(self, mode: bool = True, source: Source | None = None) -> None:
        self.mode = mode
        self.source = source
        self.before: Any = False
        self.entered: Any = None  # the real mode

    def pytype(self) -> type:
        return torch.inference_mode

    def enter(self, tr: Tracer) -> Value:
        if tr.region is not None or self.entered is not None:
            raise GraphBreak(TORCH_STATE, "torch.inference_mode inside of a function that torch calls")
        if not self.mode and torch.is_inference_mode_enabled():
            raise GraphBreak(TORCH_STATE, "torch.inference_mode(False) in inference mode")
        self.before = tr.grad_enabled
        tr.set_grad(not self.mode)
        self.entered = _enter_inference_mode(self.mode)
        tr.inference_modes += self.mode
        return ConstValue(None)

    def leave(self, tr: Tracer) -> None:
        if self.entered is None:
            raise GraphBreak(TORCH_STATE, "leaving torch.inference_mode, which was entered before a graph break")
        self.restore()
        tr.inference_modes -= self.mode
        tr.set_grad(self.before)

    def restore(self) -> None:
        if self.entered is not None:
            _exit_inference_mode(self.entered)
            self.entered = None

    def getattr(self, tr: Tracer, name: str) -> Value:
        return ConstValue(self.mode) if name == "mode" else super().getattr(tr, name)

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "clone":
            return InferenceModeValue(self.mode)
        if name == "__call__":
            return self.call(tr, args, kwargs)
        return super().call_method(tr, name, args, kwargs)

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """As a decorator: the same Python function that torch returns."""
        wrapper = tr.lift(torch.utils._contextlib.context_decorator)
        return wrapper.call(tr, [BuiltinMethodValue(self, torch.inference_mode, "clone"), *args], kwargs)

    def rebuild(self, out: FrameWriter) -> str:
        return out.shell(self, f"{out.names.const(torch.inference_mode)}({self.mode})")


def as_inference(tensor: torch.Tensor) -> torch.Tensor:
    """The inference tensor of the same memory."""
    if tensor.is_inference() or type(tensor) is not torch.Tensor:
        return tensor
    with torch.inference_mode():
        made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return made.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())


class AutocastValue(ContextValue):
    """``torch.autocast``: an enter and an exit node in the graph."""

    __slots__ = ("arguments", "cls", "entered")

    def __init__(self, cls: type, arguments: tuple[str, Any, bool, bool], source: Source | None = None) -> None:
        self.cls = cls
        self.arguments = arguments
        self.entered: list[tuple[Any, Any]] = []  # the node, and the real mode under which tracing continues
        self.source = source

    def pytype(self) -> type:
        return self.cls

    def enter(self, tr: Tracer) -> Value:
        node = tr.create_node("call_function", _enter_autocast, self.arguments, {})
        self.entered.append((node, _enter_autocast(*self.arguments)))
        return self

    def leave(self, tr: Tracer) -> None:
        if not self.entered:
            raise GraphBreak(TORCH_STATE, "leaving an autocast region that was entered before a graph break")
        node, real_mode = self.entered.pop()
        tr.create_node("call_function", _exit_autocast, (node,), {})
        _exit_autocast(real_mode)

    def restore(self) -> None:
        if self.entered:
            _exit_autocast(self.entered.pop()[1])

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """As a decorator: the same Python function that torch returns."""
        return tr.lift(torch.amp.autocast_mode.autocast_decorator).call(tr, [self, *args], kwargs)

    def rebuild(self, out: FrameWriter) -> str:
        device, dtype, enabled, cache = self.arguments
        dtype_text = "None" if dtype is None else out.names.const(dtype)
        text = f"{out.names.const(torch.autocast)}({device!r}, {dtype_text}, {enabled}, {cache})"
        return out.shell(self, text)


class NullContextValue(ContextValue):
    """A context manager without effect on what is computed (``nullcontext``, profiler annotations).

    ``arguments`` are its constructor's; without a ``result``, ``with ... as`` gives the object itself.
    """

    __slots__ = ("arguments", "cls", "result")

    def __init__(
        self, cls: type, result: Value | None, arguments: Sequence[Value] = (), source: Source | None = None
    ) -> None:
        self.cls = cls
        self.result: Value = self if result is None else result
        self.arguments = arguments
        self.source = source

    def pytype(self) -> type:
        return self.cls

    def enter(self, tr: Tracer) -> Value:
        return self.result

    def leave(self, tr: Tracer) -> None:
        pass

    def rebuild(self, out: FrameWriter) -> str:
        return out.shell(self, f"{out.names.const(self.cls)}({', '.join(map(out.value, self.arguments))})")


class RegionValue(ContextValue):
    """``torchmux.use_backend``: nodes that are made inside of it tell which backend the program wants for them."""

    __slots__ = ("entered", "name")

    def __init__(self, name: str, source: Source | None = None) -> None:
        self.name = name
        self.source = source
        self.entered = 0

    def pytype(self) -> type:
        return use_backend

    def enter(self, tr: Tracer) -> Value:
        self.entered += 1
        tr.pins.append(self.name)
        return ConstValue(None)

    def leave(self, tr: Tracer) -> None:
        if not self.entered:
            raise GraphBreak(TORCH_STATE, "leaving a region of torchmux.use_backend that was entered before the graph")
        self.entered -= 1
        tr.pins.pop()

    def getattr(self, tr: Tracer, name: str) -> Value:
        return ConstValue(self.name) if name == "name" else super().getattr(tr, name)

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__call__":
            decorate = tr.lift(contextlib.ContextDecorator.__call__)
            return decorate.call(tr, [self, *args], kwargs)
        return super().call_method(tr, name, args, kwargs)

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.call_method(tr, "__call__", args, kwargs)

    def rebuild(self, out: FrameWriter) -> str:
        return out.shell(self, f"{out.names.const(use_backend)}({self.name!r})")


# What else makes values of existing context managers, from outside of this package: (tr, obj, source) -> Value | None
OTHERS: list[Callable[[Tracer, Any, Source | None], Value | None]] = []


def wrap_context(tr: Tracer, obj: Any, source: Source | None) -> Value | None:
    """The value of an existing context manager object, if it is one of torch's."""
    cls = type(obj)
    if cls in GRAD_CLASSES:
        for name, value in vars(obj).items():  # its mode, and what it found when it was entered
            tr.guards_equal(source and Attr(source, name), value)
        tr.guards_type(source, cls)
        mode = obj.mode if cls is torch.set_grad_enabled else cls is torch.enable_grad
        return GradModeValue(cls, mode, vars(obj).get("prev", False), source)
    if cls is torch.inference_mode and type(obj.mode) is bool:
        tr.guards_type(source, cls)
        tr.guards_equal(source and Attr(source, "mode"), obj.mode)
        return InferenceModeValue(obj.mode, source)
    if cls is torch.autocast:
        tr.guards_type(source, cls)
        values = []
        for name in ("device", "fast_dtype", "_enabled", "_cache_enabled"):
            values.append(getattr(obj, name))
            tr.guards_equal(source and Attr(source, name), values[-1])
        return AutocastValue(cls, tuple(values), source)
    if cls is use_backend:
        tr.guards_type(source, cls)
        tr.guards_equal(source and Attr(source, "name"), obj.name)
        return RegionValue(obj.name, source)
    if cls is torch.autograd.profiler.record_function:
        tr.guards_type(source, cls)
        return NullContextValue(cls, None, source=source)
    if cls is contextlib.nullcontext:
        if source is not None:
            tr.guards.type_is(source, cls)
        result = tr.wrap(obj.enter_result, source and Attr(source, "enter_result"))
        return NullContextValue(cls, result, [result], source)
    return next((value for other in OTHERS if (value := other(tr, obj, source)) is not None), None)
