"""Values of the user in messages: short, on one line, whatever they are."""

from __future__ import annotations

import reprlib
from typing import Any

LENGTH = 120
"""How many characters of a value a message shows."""


class _Short(reprlib.Repr):
    """Looks at the beginning of large containers only, so that a message about a large value is made at once."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = self.maxdeque = 6
        self.maxarray = 6
        self.maxstring = self.maxlong = self.maxother = LENGTH


_short = _Short()


def shown(value: Any) -> str:
    """The ``repr`` of a value, cut where it is long; its type if it has no ``repr``.  Never raises because of it."""
    try:
        text = _short.repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    text = " ".join(text.split())
    return text if len(text) <= LENGTH else f"{text[: LENGTH - 3]}..."


def counted(number: int, what: str) -> str:
    """``1 graph``, ``2 graphs``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def kind(value: Any) -> str:
    """A value and its type: ``'fast' (str)``."""
    return f"{shown(value)} ({type(value).__name__})"


def cut(text: str, length: int = 500) -> str:
    """A text from elsewhere, such as the message of an exception, on one line and no longer than ``length``."""
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[: length - 3]}..."


def require(value: Any, types: tuple[type, ...], what: str) -> None:
    """Raises:
    TypeError: ``value`` is of none of the types; ``what`` names the argument.  1 is no bool.
    """
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types and object not in types):
        names = ["None" if each is type(None) else each.__name__ for each in types]
        raise TypeError(f"{what} must be {' or '.join(names)}, not {kind(value)}.")
