"""``options={"guard_filter_fn": ...}``: the user takes responsibility for guards that are not to be checked.

The function receives one entry per guard and returns a list of those to keep, as with ``torch.compile``, so
``torch.compiler.skip_guard_on_globals_unsafe`` and similar functions work here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchmux.registry.errors import InvalidOption

from .check import evaluate, read
from .guards import GuardSet
from .kinds.guard import Guard
from .sources import Argument, Cell, Source


@dataclass(frozen=True)
class _FilterSource:
    """What a filter may ask about where a guarded value comes from."""

    module: torch.nn.Module | None

    def is_unspecialized_nn_module(self) -> bool:
        return self.module is not None

    def is_unspecialized_builtin_nn_module(self) -> bool:
        return self.module is not None and type(self.module).__module__.startswith(("torch.nn.", "torch.ao."))


@dataclass(frozen=True)
class _OriginalGuard:
    source: _FilterSource


@dataclass(frozen=True)
class GuardFilterEntry:
    """One guard as a filter sees it; the fields are torch's."""

    name: str
    has_value: bool
    value: Any
    guard_type: str
    derived_guard_types: tuple[str, ...]
    is_global: bool
    orig_guard: Any


def filter_guards(guards: GuardSet, keep: Callable[[Sequence[GuardFilterEntry]], Sequence[bool]], frame: dict) -> None:
    """Drop the guards that ``keep`` does not want.

    Raises:
        InvalidOption: its answer is not one truth value per entry.
    """
    modules = _Modules(frame)
    plain = list(guards.guards)
    tensors = list(guards.tensors.items())
    entries = [_entry(guard, frame, modules) for guard in plain]
    for source, tensor in tensors:
        original = _OriginalGuard(_FilterSource(modules.owner(source)))
        entries.append(
            GuardFilterEntry(
                source.words(), True, tensor.tensor, "TENSOR_MATCH", (), modules.is_global(source), original
            )
        )
    nowhere = _OriginalGuard(_FilterSource(None))
    entries.append(GuardFilterEntry("", False, None, "GLOBAL_STATE", (), False, nowhere))
    entries.append(GuardFilterEntry("", False, None, "SHAPE_ENV", (), False, nowhere))
    answer = list(keep(entries))
    if len(answer) != len(entries):
        raise InvalidOption(
            f"guard_filter_fn returned {len(answer)} values for {len(entries)} guards. It must return "
            "one truth value for each guard."
        )
    wanted = iter(answer)
    guards.guards = {guard: None for guard in plain if next(wanted)}
    guards.tensors = {source: tensor for source, tensor in tensors if next(wanted)}
    guards.global_state = bool(next(wanted))
    if not next(wanted):
        guards.shape_conditions.clear()
        guards.shape_roots.clear()
    if not all(answer):
        guards.distinct = [group for group in guards.distinct if all(source in guards.tensors for source in group)]


def _entry(guard: Guard, frame: dict, modules: _Modules) -> GuardFilterEntry:
    try:
        value, has_value = evaluate(guard, frame)[0], True
    except Exception:  # a guard on what is absent has no value
        value, has_value = None, False
    original = _OriginalGuard(_FilterSource(modules.owner(guard.source)))
    return GuardFilterEntry(
        guard.source.words(), has_value, value, guard.torch_name, (), modules.is_global(guard.source), original
    )


class _Modules:
    """Which guarded values belong to modules."""

    def __init__(self, frame: dict) -> None:
        self.frame = frame
        self._known: dict[Source, Any] = {}

    def owner(self, source: Source) -> torch.nn.Module | None:
        """The innermost module on the way to a value."""
        at: Source | None = source
        while at is not None:
            value = self._value(at)
            if isinstance(value, torch.nn.Module):
                return value
            at = at.parent
        return None

    @staticmethod
    def is_global(source: Source) -> bool:
        return not isinstance(source.root(), (Argument, Cell))

    def _value(self, source: Source) -> Any:
        if source not in self._known:
            try:
                (self._known[source],) = read([source], self.frame)
            except Exception:
                self._known[source] = None
        return self._known[source]
