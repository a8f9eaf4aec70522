"""Names: one spelling for each, and the closest known name for a misspelled one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from torchmux.wording import shown

_LONGEST = 200
"""No name of torchmux is nearly as long."""


def normalize(name: str) -> str:
    """The canonical spelling of a backend's name: lower case, with ``-`` and ``_`` the same."""
    return name.strip().lower().replace("-", "_")


JOINT = "+"
"""Between the members of a chain in its name, ``onnxrt+native``; no backend has it in its own."""


def members_of(backend: Any) -> Sequence[Any] | None:
    """The members of a chain, which is a list, a tuple, or names with ``+`` between them; None for one backend."""
    if isinstance(backend, (list, tuple)):
        return backend
    return backend.split(JOINT) if isinstance(backend, str) and JOINT in backend else None


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """``" Did you mean 'x'?"`` with a leading space, or an empty string if no known name is close."""
    if not isinstance(name, str) or len(name) > _LONGEST:
        return ""  # the comparison of long texts takes quadratic time
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {listed(near, 'or')}?" if near else ""


def class_with_article(value: object) -> str:
    """The class of a value with its article: ``an int``, ``a str``."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def listed(values: Iterable[object], last: str = "and") -> str:
    """The values as a list in prose: ``'a', 'b' and 'c'``."""
    words = [shown(value) for value in values]
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"
