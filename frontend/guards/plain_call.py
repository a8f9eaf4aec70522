"""Whether a call of a module comes to nothing but its ``forward``, which is then called without the rest."""

from __future__ import annotations

import operator
import types

import torch

from torchmux import torch_internals as ti

from .stable_objects import StableObjects

_OF_ALL = torch.nn.modules.module
_CALL, _CALL_IMPL = torch.nn.Module.__call__, torch.nn.Module._call_impl
_TABLES = (
    "_global_forward_pre_hooks", "_global_forward_hooks", "_global_backward_hooks", "_global_backward_pre_hooks",
)  # fmt: skip
_is_traced = ti.get_tracing_state


class PlainCall:
    """That a call of ``module`` comes to a call of ``function``."""

    def __init__(self, module: torch.nn.Module, function: types.FunctionType) -> None:
        self.module = module
        self.function = function
        self._global_hooks = tuple(getattr(_OF_ALL, name) for name in _TABLES)

    def is_like(self, other: PlainCall) -> bool:
        same = self.module is other.module and self.function is other.function
        return same and all(map(operator.is_, self._global_hooks, other._global_hooks))

    def holds(self) -> bool:
        cls, own = type(self.module), self.module.__dict__
        return not (
            cls.__call__ is not _CALL
            or cls._call_impl is not _CALL_IMPL
            or cls.forward is not self.function
            or "forward" in own
            or "_call_impl" in own
            or own.get("_compiled_call_impl") is not None
            or own["_forward_hooks"]
            or own["_forward_pre_hooks"]
            or own["_backward_hooks"]
            or own["_backward_pre_hooks"]
            or any(self._global_hooks)
            or _is_traced() is not None
        )

    def is_watched(self, objects: StableObjects) -> bool:
        """Whether it holds until ``objects`` sees a write, or ``torch.jit.trace`` records a call."""
        return (
            objects.owns(self.module)
            and objects.notes_class(type(self.module))
            and objects.notes_no_hooks(self.module)
            and objects.notes_empty(_OF_ALL, _TABLES)
            and self.holds()
        )
