"""Guards on the call itself: the exception that its caller handles, and the branches that it is expected to take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..closed import kind
from .guard import Guard, always_checked

if TYPE_CHECKING:
    from ..loader import Loader


@kind
class NoExceptionHandled(Guard):
    """The caller handles no exception; the source is the module ``sys``."""

    def condition(self, value: str, out: Loader) -> str:
        return f"{value}.exc_info()[1] is None"

    def words(self) -> str:
        return "has no exception that is being handled"

    is_watched = always_checked


@kind
class BranchesAsExpected(Guard):
    """The code's assumed branches are still assumed; the source is the object that runs calls again in eager."""

    def condition(self, value: str, out: Loader) -> str:
        return f"{value}.holds"

    def words(self) -> str:
        return "is the expected one"

    is_watched = always_checked
