"""The cases of a level, and the selection for a run."""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from . import life, models, operators, pairs, semantics
from .case import Case

Level = Literal["quick", "full"]


def cases(level: Level = "quick", patterns: Sequence[str] = ("*",)) -> Iterator[Case]:
    """The cases of a level whose ids match one of the patterns: about the meaning of graphs, models, operators."""
    found: Iterable[Case] = itertools.chain(
        semantics.cases(), life.cases(), models.cases(), pairs.cases(full=level == "full")
    )
    if any(_could_match(pattern, operators.PREFIX) for pattern in patterns):
        found = itertools.chain(found, operators.cases(full=level == "full"))
    for case in found:
        if (level == "full" or case.quick) and any(fnmatch.fnmatchcase(case.id, pattern) for pattern in patterns):
            yield case


def case(name: str) -> Case:
    """The case with that id, as the full level has it.

    Raises:
        KeyError: there is none.
    """
    subject = name.partition("/")[0]
    for found in cases("full", [f"{subject}/*"]):
        if found.id == name:
            return found
    raise KeyError(f"there is no case {name!r}; `python -m torchmux conformance eager --list --level full` lists all")


def _could_match(pattern: str, prefix: str) -> bool:
    """Whether an id that starts with ``prefix`` might match."""
    literal = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    return literal.startswith(prefix) or prefix.startswith(literal)


def shard(found: Iterable[Case], part: int, parts: int) -> Iterator[Case]:
    """Part ``part`` of ``parts`` (from 1) of the cases.

    The part that a case belongs to depends only on its id, so machines need not coordinate.

    Raises:
        ValueError: there is no such part.
    """
    if not 1 <= part <= parts:
        raise ValueError(f"there is no part {part} of {parts}")
    for case in found:
        number = int.from_bytes(hashlib.sha256(case.id.encode()).digest()[:8], "big")
        if number % parts == part - 1:
            yield case
