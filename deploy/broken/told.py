"""What is written of a program whose graphs break: its captured frames, each with all that it takes for granted.

What such a frame reads of modules and globals is read again when it runs, and guarded as it was: the Python that runs
between the graphs reads the same objects, and may change them.
"""

from __future__ import annotations

import platform
import types
from collections.abc import Mapping
from typing import Any

from torchmux.frontend.bytecode import resume_origin
from torchmux.frontend.capture.captured import Captured, CodeState
from torchmux.frontend.capture.ending import Ending
from torchmux.frontend.guards.sources import Source
from torchmux.frontend.hook.session import Record, Session
from torchmux.registry.errors import LoadRefused

from ..entries import World, entry_told
from ..state import State
from ..values import NotTold
from .codes import Codes, has_function
from .names import not_found


class NotSaved(Exception):
    """A frame that no file can hold; ``captured`` is it, or None, and the message says why."""

    def __init__(self, why: NotTold, captured: Captured | None) -> None:
        super().__init__(str(why))
        self.captured = captured


class AsItIs(World):
    """A world of which nothing is written down."""

    def __init__(self) -> None:
        super().__init__(frozenset(), {})

    def is_given(self, source: Source) -> bool:
        return True

    def is_only_given(self, source: Source) -> bool:
        return True


def program_told(
    session: Session, root: types.CodeType, state: State, artifacts: dict[str, bytes], *, is_method: bool
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the manifest says of the frames, and the entries of all of them.

    Args:
        root: of the function that a call runs first.
        is_method: whether ``load`` gets it with an object, rather than by its name.

    Raises:
        NotSaved: one of them cannot be written.
    """
    codes, world = Codes(session.state), AsItIs()
    entries: list[dict[str, Any]] = []
    frames: dict[int, bool] = {}
    captured: Captured | None = None
    try:
        number = codes.add(root)
        if not is_method and not has_function(codes.table[number], root):
            raise not_found(root)
        for code in sorted(session.states.keys(), key=_depth):
            kept: CodeState = session.states.get(code)
            for captured in kept.entries:
                at = codes.add(code)
                frames[at] = frames.get(at, False) or kept.runs_eager or bool(kept.vain)
                entries.append(_entry(captured, world, state, artifacts, at))
            captured = None
    except NotTold as why:
        raise NotSaved(why, captured) from why
    told = {
        "root": number,
        "codes": codes.table,
        "frames": sorted([at, eager] for at, eager in frames.items()),
        "python": python_version(),
    }
    return told, entries


def python_version() -> str:
    """``3.12``: other versions have other bytecode."""
    return ".".join(platform.python_version_tuple()[:2])


def in_eager(record: Record) -> list[str]:
    """The frames that run in eager, in words."""
    return [f"{frame.function} ({frame.place}) runs in eager: {why}" for frame, why in record.eager]


def _depth(code: types.CodeType) -> int:
    origin = resume_origin(code)
    return 0 if origin is None else 1 + _depth(origin[0])


def _entry(captured: Captured, world: World, state: State, artifacts: dict[str, bytes], code: int) -> dict[str, Any]:
    if captured.ending is None:
        raise NotTold("a part that runs in eager")
    if captured.parts is not None and captured.parts.assumes_branches:
        raise NotTold("a branch that depends on data and only raises: such a call runs again in eager")
    return {
        **entry_told(captured, world, state, artifacts),
        "code": code,
        "ending": _ending_told(captured.ending),
        "in_eager": captured.in_eager if captured.graph is None else "",
    }


def _ending_told(ending: Ending) -> dict[str, Any]:
    return {
        "arguments": None if ending.arguments is None else [list(each) for each in ending.arguments],
        "index": ending.index,
        "stack": list(ending.stack),
        "names": list(ending.names),
        "cuts": None if ending.cuts is None else list(ending.cuts),
    }


def ending_again(told: Mapping[str, Any]) -> Ending:
    """The ending that a file describes.

    Raises:
        LoadRefused: it has values of other types.
    """
    arguments, cuts, index = told["arguments"], told["cuts"], told["index"]
    numbers = [*([] if index is None else [index]), *(cuts or ())]
    texts = [*(text for each in arguments or () for text in each), *told["names"]]
    typed = ((numbers, int), (texts, str), (told["stack"], bool))
    if not all(type(value) is kind for values, kind in typed for value in values):
        raise LoadRefused("A saved file has the end of a frame that torchmux.save() does not write.")
    return Ending(
        None if arguments is None else tuple((kind, name) for kind, name in arguments),
        index,
        tuple(told["stack"]),
        tuple(told["names"]),
        None if cuts is None else tuple(cuts),
    )
