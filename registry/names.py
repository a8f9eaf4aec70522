"""Names: one spelling for each, and the closest known name for a misspelled one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def normalize(name: str) -> str:
    """The canonical spelling of a backend's name: lower case, with ``-`` and ``_`` the same."""
    return name.strip().lower().replace("-", "_")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``" Did you mean 'x'?"`` with a leading space, or an empty string if no known name is close."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {listed(near, 'or')}?" if near else ""


def listed(values: Iterable[object], last: str = "and") -> str:
    """The values as a list in prose: ``'a', 'b' and 'c'``."""
    words = [repr(value) for value in values]
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"
