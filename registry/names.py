"""Names: one spelling for each, and the nearest known one for a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def normalize(name: str) -> str:
    """The one spelling under which a backend is kept: lower case, ``-`` and ``_`` alike."""
    return name.strip().lower().replace("-", "_")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``" Did you mean 'x'?"`` with a leading space, or an empty string when nothing known is near."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {listed(near, 'or')}?" if near else ""


def listed(values: Iterable[object], last: str = "and") -> str:
    """The values as a person lists them: ``'a', 'b' and 'c'``."""
    words = [repr(value) for value in values]
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"
