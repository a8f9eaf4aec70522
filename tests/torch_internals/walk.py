"""Which test is about which of the private names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Test = TypeVar("Test", bound=Callable[[], None])


def checks(*names: str) -> Callable[[Test], Test]:
    """Note that the decorated test shows that these names do what we use them for."""

    def note(test: Test) -> Test:
        test.checked_names = names  # type: ignore[attr-defined]
        return test

    return note
