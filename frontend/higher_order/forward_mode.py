"""``torch.autograd.forward_ad``: a level of forward derivatives that begins and ends within one graph.

Tracing continues in a real level, so fake tensors have tangents where the program's have them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad
from torch.fx.node import has_side_effect

from torchmux import torch_internals as ti

from .. import breaks
from ..breaks import GraphBreak
from ..guards.kinds.functions import Returns
from ..guards.sources import Const, Source
from ..handlers.table import constructs, handles
from ..values.base import Raised, Value
from ..values.builtin_methods import BuiltinMethodValue
from ..values.constants import ConstValue
from ..values.containers.sequences import TupleValue
from ..values.contexts import OTHERS, ContextValue
from ..values.tensors import TensorValue

if TYPE_CHECKING:
    from ..trace.tracer import FrameWriter, Tracer

NONE = ConstValue(None)
_enter, _exit = forward_ad.enter_dual_level, forward_ad.exit_dual_level
for _function in (_enter, _exit):
    has_side_effect(_function)


def unpacked(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The primal of a tensor and its tangent, if it has one."""
    primal, tangent = forward_ad.unpack_dual(tensor)
    return primal, tangent


def leaving_levels(run: Callable[..., Any], graph: torch.fx.GraphModule) -> Callable[..., Any]:
    """``run``, or a function that calls it and leaves the graph's level if it raises."""
    if not ti.has_dual_level(graph.graph):
        return run

    def run_and_leave(*inputs: Any) -> Any:
        with ti.leaving_dual_level():
            return run(*inputs)

    return run_and_leave


class DualLevelValue(ContextValue):
    """``forward_ad.dual_level()``: an enter and an exit node in the graph."""

    __slots__ = ("is_entered",)

    def __init__(self, source: Source | None = None) -> None:
        self.is_entered = False
        self.source = source

    def pytype(self) -> type:
        return forward_ad.dual_level

    def enter(self, tr: Tracer) -> Value:
        if tr.region is not None or ti.is_forward_ad_active():
            raise GraphBreak(breaks.TORCH_STATE, "a level of forward derivatives inside of another or of a transform")
        tr.guards.add(
            Returns(Const(ti.is_forward_ad_active, "whether a level of forward derivatives is active"), False)
        )
        tr.create_node("call_function", _enter, (), {})
        self.is_entered = True
        return ConstValue(_enter())

    def leave(self, tr: Tracer) -> None:
        if not self.is_entered:
            raise GraphBreak(breaks.TORCH_STATE, "leaving a level of forward derivatives that began before the graph")
        tr.create_node("call_function", _exit, (), {})
        self.restore()

    def restore(self) -> None:
        if self.is_entered:
            self.is_entered = False
            _exit()

    def close_in_graph(self, tr: Tracer) -> None:
        error = GraphBreak(
            breaks.TORCH_STATE, "the graph ends in a level of forward derivatives, and so would tangents"
        )
        error.whole_frame = True
        raise error

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "clone":
            return DualLevelValue()
        if name == "__call__":
            return self.call(tr, args, kwargs)
        return super().call_method(tr, name, args, kwargs)

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """As a decorator: the same Python function that torch returns."""
        wrapper = tr.lift(torch.utils._contextlib.context_decorator)
        return wrapper.call(tr, [BuiltinMethodValue(self, forward_ad.dual_level, "clone"), *args], kwargs)

    def rebuild(self, out: FrameWriter) -> str:
        return out.shell(self, f"{out.names.const(forward_ad.dual_level)}()")


@constructs(forward_ad.dual_level)
def dual_level(tr: Tracer, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    made = DualLevelValue()
    return made.call(tr, args, kwargs) if args else made  # used as a decorator without parentheses


def _wrap(tr: Tracer, obj: Any, source: Source | None) -> Value | None:
    if type(obj) is not forward_ad.dual_level:
        return None
    tr.guards_type(source, type(obj))
    return DualLevelValue(source)


OTHERS.append(_wrap)


def in_level(tr: Tracer) -> bool:
    """Whether the program is in a level of forward derivatives that began in the trace."""
    return any(isinstance(context, DualLevelValue) for context in tr.active_contexts)


@handles(forward_ad.make_dual)
def make_dual(tr: Tracer, tensor: Value, tangent: Value, *, level: Value = NONE) -> Value:
    _check_level(tr, level)
    for name, value in (("primal", tensor), ("tangent", tangent)):
        if not isinstance(value, TensorValue):
            raise GraphBreak(breaks.TORCH_STATE, f"make_dual with {value.describe()}")
        if not value.example.is_floating_point() and not value.example.is_complex():
            message = f"Expected {name} to be floating point or complex, but got: {value.example.dtype}"
            raise Raised(tr.make_exception(ValueError, message))
    return tr.emit("call_function", forward_ad.make_dual, [tensor, tangent], {})


@handles(forward_ad.unpack_dual)
def unpack_dual(tr: Tracer, tensor: Value, *, level: Value = NONE) -> Value:
    _check_level(tr, level)
    items = tr.emit("call_function", unpacked, [tensor], {}).unpack(tr)
    return TupleValue(items, cls=forward_ad.UnpackedDualTensor)


def _check_level(tr: Tracer, level: Value) -> None:
    if not in_level(tr) or tr.region is not None or level.const(tr) not in (None, 0):
        raise GraphBreak(breaks.TORCH_STATE, "forward derivatives of a level that began before the graph")
