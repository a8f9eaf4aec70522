"""Guards on the results of functions: of the program, of torch and of torchmux."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ..closed import kind
from .guard import Guard, always_checked

if TYPE_CHECKING:
    from ..loader import Loader


@kind
class MethodNameIs(Guard):
    """A bound method of a builtin class has this name."""

    name: str

    def condition(self, value: str, out: Loader) -> str:
        return f"{value}.__name__ == {self.name!r}"

    def words(self) -> str:
        return f"is method {self.name}"

    is_watched = always_checked


@kind
class Returns(Guard):
    """A function of torch without parameters, which reads a setting, returns this."""

    result: Any

    def condition(self, value: str, out: Loader) -> str:
        return f"{value}() == {out.const(self.result)}"

    def words(self) -> str:
        return f"returns {self.result}"

    is_watched = always_checked


@kind
class AutocastDtypeIs(Guard):
    """Outside every ``torch.autocast``, a device has this dtype; the source is ``torch.get_autocast_dtype``.

    torch's own guard of the global state compares the dtype only for devices whose autocast is on.
    """

    device: str
    dtype: Any

    def condition(self, value: str, out: Loader) -> str:
        return f"{value}({self.device!r}) is {out.const(self.dtype)}"

    def words(self) -> str:
        return f"returns {self.dtype} for {self.device}"

    is_watched = always_checked


@kind
class Dispatches(Guard):
    """A generic function dispatches a class to this implementation; the source is its ``dispatch``."""

    cls: type
    found: Any

    def condition(self, value: str, out: Loader) -> str:
        cls = out.const(self.cls)
        return f"{value}({cls}) is {out.const(self.found)}"

    def words(self) -> str:
        return f"finds the same for {self.cls.__qualname__}"

    is_watched = always_checked


@kind
class FunctionGives(Guard):
    """A function of torchmux returns this for the value."""

    function: Callable
    result: Any
    what: str = field(compare=False)  # words

    def condition(self, value: str, out: Loader) -> str:
        return f"{out.const(self.function)}({value}) == {out.const(self.result)}"

    def words(self) -> str:
        return self.what

    is_watched = always_checked
