"""Guards on ``nn.Module`` objects: what they register, and whether they have hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..closed import kind
from ..stable_objects import HOOKS, TABLES, StableObjects
from .guard import Guard, always_checked

if TYPE_CHECKING:
    from ..loader import Loader


@kind
class NoHooks(Guard):
    """A module has no hooks of its own."""

    def condition(self, value: str, out: Loader) -> str:
        return f"not ({' or '.join(f'{value}.{table}' for table in HOOKS)})"

    def words(self) -> str:
        return "has no hooks"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return objects.notes_no_hooks(value)


@kind
class NoGlobalHooks(Guard):
    """These tables of ``torch.nn.modules.module``, which hold hooks for all modules, are empty."""

    tables: tuple[str, ...]

    def condition(self, value: str, out: Loader) -> str:
        return f"not ({' or '.join(f'{value}.{table}' for table in self.tables)})"

    def words(self) -> str:
        return "has no global module hooks"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return objects.notes_empty(value, self.tables)


@kind
class Unregistered(Guard):
    """A module has no attribute, parameter, buffer or submodule of this name."""

    name: str

    def condition(self, value: str, out: Loader) -> str:
        return "not (" + " or ".join(f"{self.name!r} in {value}.{table}" for table in ("__dict__", *TABLES)) + ")"

    def words(self) -> str:
        return f"has no {self.name}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return objects.notes_tables(value)


@kind
class Unshadowed(Guard):
    """A module has no attribute of its own of a name that it registers, which would be found first."""

    name: str

    def condition(self, value: str, out: Loader) -> str:
        return f"{self.name!r} not in {value}.__dict__"

    def words(self) -> str:
        return f"has its {self.name} registered alone"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return objects.notes_namespace(value)


@kind
class RegistersNothingBut(Guard):
    """A name is neither a parameter nor a submodule of a module; whether it is a buffer has not changed."""

    name: str
    is_buffer: bool

    def condition(self, value: str, out: Loader) -> str:
        parameter, submodule, buffer = (
            f"{self.name!r} in {value}.{t}" for t in ("_parameters", "_modules", "_buffers")
        )
        return f"not ({parameter} or {submodule} or ({buffer}) is not {self.is_buffer})"

    def words(self) -> str:
        return f"registers {self.name} as before"

    is_watched = always_checked
