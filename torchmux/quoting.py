"""The only way in which text of the user's program enters code, pages or scripts that torchmux writes.

Names of files, functions, modules and operators are the user's, and may hold anything: a line break ends a comment,
``??/`` is a backslash to some C++ compilers, a backslash at the end of a line joins the next one to it, and U+2028 ends
a line in JavaScript.
"""

from __future__ import annotations

import keyword

MOST = 300
"""Characters of a name that are shown; what is longer loses its middle."""

# These can end a comment or a docstring, or begin what does.  Pages escape HTML besides.
_SPECIAL = frozenset('\\?*"')


def quoted(text: object, most: int = MOST) -> str:
    """``text`` as a part of one line, which any comment or docstring of generated code may hold.

    Letters, digits and most punctuation stay as they are.  Everything else becomes ``\\x..``, ``\\u....`` or
    ``\\U........``, so a backslash is always followed by one of these and never ends the text.
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
    """Whether ``text`` is a Python name, dots allowed: code may then contain it as it is."""
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in text.split("."))
