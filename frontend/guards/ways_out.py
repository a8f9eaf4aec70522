"""What a user reads when code has been compiled too often: the guard that failed, the values seen, and the way out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .kinds.containers import HasKey, HasKeyFrom, Keys, KeysAt, Length, NotEmpty, RawLength, SameElements
from .kinds.guard import Guard
from .kinds.objects import Is, SameObject, TypeIs
from .sources import Argument

_MOST = 4  # values that a message lists
_CONTAINERS = (HasKey, HasKeyFrom, Keys, KeysAt, Length, NotEmpty, RawLength, SameElements)


@dataclass(frozen=True)
class Failure:
    """A guard that does not hold, in words; ``about`` says what it is about if it is none of the program's values."""

    words: str
    guard: Guard | None = None
    value: Any = None  # what the guard is about, as it is now
    about: str = ""  # "tensor", "shape", "state"
    held: int = 0  # how many kinds of checks passed before it

    def way_out(self) -> str:
        """What to change in a program in which such a value goes on changing."""
        if self.about:
            return _ABOUT[self.about]
        guard, value = self.guard, self.value
        if isinstance(guard, _CONTAINERS):
            return (
                "The number and the keys of what a container holds are constants of the code: pass containers of one "
                "size, or a tensor of the stacked items."
            )
        if isinstance(guard, (Is, SameObject)):
            return "The code belongs to this object: make it once, and pass the same one to each call."
        if isinstance(guard, TypeIs):
            return "The code belongs to objects of one class: convert the value before the call."
        for classes, words in _VALUES:
            if issubclass(type(value), classes):
                return words
        if issubclass(type(value), (int, float)):
            return _NUMBER_OF_CALL if isinstance(guard, Guard) and isinstance(guard.source, Argument) else _NUMBER
        return "Keep the value the same, or read it outside of the compiled function."


_ABOUT = {
    "tensor": (
        "Sizes that change are dynamic from the second on; mark others with torchmux.mark_dynamic, and convert dtype, "
        "device, strides and requires_grad to one kind before the call."
    ),
    "shape": (
        "The line that needs the condition decides it anew for other sizes: remove the dependence on the size there, "
        "or pad the input."
    ),
    "state": "Enter modes around all calls in the same way, and pass different objects as different arguments.",
}
_NUMBER_OF_CALL = (
    "Python reads this number, to run a loop or to choose a branch, and each value needs code of its own: compute with "
    "it in operators only, or pass a tensor."
)
_NUMBER = (
    "Numbers deep in a module and those that Python reads are constants: pass the number as an argument or as a "
    "tensor, or set torchmux.config.allow_unspec_int_on_nn_module."
)
_VALUES: tuple[tuple[Any, str], ...] = (
    (bool, "A flag needs code for each of its values: decide it outside of the compiled function."),
    (type(None), "The code differs with and without a value: decide it outside of the compiled function."),
    (str, "A text needs code of its own: pass a number or a tensor in its place, or read the text outside."),
    (np.generic, "Code that reads a NumPy number keeps it as a constant: pass int(), float() or a tensor of it."),
)


def told(entries: Iterable[Any], frame_locals: dict) -> str:
    """Sentences on why none of ``entries`` holds: what failed last, what others ask for, and the way out."""
    checks = [entry.guards for entry in reversed(list(entries)) if entry.guards is not None]
    if not checks:
        return "that was in this process, under another compile() call. New calls run in eager."
    failure = checks[0].why_not(frame_locals)
    seen = _asked_elsewhere(failure, checks[1:], frame_locals)
    others = f" Code for other values: {'; '.join(seen)}." if seen else ""
    return f"the guard that failed last: {failure.words}.{others} New calls run in eager. {failure.way_out()}"


def _asked_elsewhere(failure: Failure, checks: list[Any], frame_locals: dict) -> list[str]:
    """What the guards of other entries on the same value ask for."""
    if failure.guard is None:
        found = [check.why_not(frame_locals).words for check in checks]
    else:
        found = [
            f"{guard.source.words()} {guard.words()}"
            for check in checks
            for guard in check.conditions
            if type(guard) is type(failure.guard) and guard.source == failure.guard.source
        ]
    distinct = [words for words in dict.fromkeys(found) if words not in failure.words]
    return [*distinct[:_MOST], *(["..."] if len(distinct) > _MOST else [])]
