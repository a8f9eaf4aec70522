"""Global switches of torch that the program sets: the kernels of attention.

A switch is really set while the program is traced, so that queries and fake tensors follow it, and is restored at the
end of the trace.  The graph also sets and restores it.  If the program leaves it set, the compiled frame sets it after
the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.fx.node import has_side_effect

from torchmux import torch_internals as ti

from ..guards.kinds.functions import Returns
from ..guards.sources import Const
from ..handlers.table import handles
from ..values.base import Value
from ..values.constants import ConstValue

if TYPE_CHECKING:
    from .tracer import Tracer


class Switches:
    """The switches that one trace has set or read: what they were, and what the program left them at."""

    def __init__(self) -> None:
        self.initial: dict[Callable, Any] = {}  # by the function that sets it
        self.written: set[Callable] = set()
        self.final: dict[Callable, Any] = {}

    def read(self, tr: Tracer, setter: Callable) -> Any:
        getter = _SWITCHES[setter]
        now = getter()
        if setter not in self.initial:
            self.initial[setter] = now
            tr.guards.add(Returns(Const(getter, getter.__name__), now))
        return now

    def write(self, tr: Tracer, setter: Callable, value: Any) -> None:
        self.read(tr, setter)
        self.written.add(setter)
        tr.create_node("call_function", setter, (value,), {})
        setter(value)

    def close(self, tr: Tracer) -> None:
        """The graph ends: it restores everything, and the compiled frame continues as the program does."""
        for setter in self.written:
            now, initial = _SWITCHES[setter](), self.initial[setter]
            if now != initial:
                self.final[setter] = now
                tr.create_node("call_function", setter, (initial,), {})

    def restore(self) -> None:
        """Set everything back for real; also what a graph that fails in the middle leaves behind."""
        for setter in self.written:
            setter(self.initial[setter])


_SWITCHES = ti.switches()


def _handle(setter: Callable, getter: Callable) -> None:
    def write(tr: Tracer, value: Value) -> Value:
        tr.switches.write(tr, setter, value.const(tr))
        return ConstValue(None)

    has_side_effect(setter)
    handles(setter)(write)
    handles(getter)(lambda tr: tr.lift(tr.switches.read(tr, setter)))


for _setter, _getter in _SWITCHES.items():
    _handle(_setter, _getter)
