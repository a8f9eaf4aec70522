"""Quotes names of the user's program in the code, pages and scripts that torchmux writes; nothing else may insert them.

Names of files, functions, modules and operators may contain anything.  A line break ends a comment, ``??/`` is a
backslash to some C++ compilers, a backslash at the end of a line continues the line, and U+2028 ends a line in
JavaScript.
"""

from __future__ import annotations

import keyword

MOST = 300
"""The most characters of a name that are shown; longer names lose their middle."""

# These can end a comment or a docstring.  Pages also escape HTML.
_SPECIAL = frozenset('\\?*"')


def quoted(text: object, most: int = MOST) -> str:
    """``text`` in a form that is safe inside one line of any comment or docstring.

    Letters, digits and most punctuation stay.  Everything else becomes ``\\x..``, ``\\u....`` or ``\\U........``, so
    no backslash ends the text.
    """
    whole = str(text)
    if len(whole) > most:
        half = (most - 3) // 2
        whole = f"{whole[:half]}...{whole[-half:]}"
    return "".join(c if c.isprintable() and c not in _SPECIAL else _escaped(c) for c in whole)


def _escaped(character: str) -> str:
    number = ord(character)
    if number <= 0xFF:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def is_name(text: str) -> bool:
    """Whether ``text`` is a Python name, possibly dotted, so that code may contain it unquoted."""
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in text.split("."))
