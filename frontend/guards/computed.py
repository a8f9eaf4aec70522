"""Where a value came from that Python computes from numbers and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from .closed import kind
from .sources import Source, not_followed

if TYPE_CHECKING:
    from .loader import Loader


@kind
class Computed(Source):
    """What a pure function gives for numbers and texts, of which some are loaded from where they are.

    A trace has one for each computation (:func:`key_of`): operands in a tuple are compared by identity.
    """

    function: Callable
    operands: tuple  # sources, and the constants among them
    names: tuple[str, ...]  # of the last operands, which are passed by name
    parent: Source = field(compare=False)  # one of the operands

    def expression(self, out: Loader) -> str:
        loaded = [out.load(each) if isinstance(each, Source) else out.const(each) for each in self.operands]
        plain = len(loaded) - len(self.names)
        named = [f"{name}={value}" for name, value in zip(self.names, loaded[plain:], strict=True)]
        return f"{out.const(self.function)}({', '.join([*loaded[:plain], *named])})"

    def in_words(self, parent: str) -> str:
        operands = [each.words() if isinstance(each, Source) else repr(each) for each in self.operands]
        return f"{getattr(self.function, '__name__', 'function')}({', '.join(operands)})"

    follow = not_followed


def key_of(function: Callable, operands: tuple, names: tuple[str, ...]) -> Any:
    """What tells one computation from another."""
    return (
        function,
        tuple((type(each), repr(each)) if not isinstance(each, Source) else each for each in operands),
        names,
    )


def of_numpy(function: Callable, args: Iterable[Any]) -> bool:
    """Whether NumPy computes a number from these."""
    return isinstance(function, np.ufunc) or any(isinstance(each, np.generic) for each in args)


def without_warning(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """What NumPy computes, or an error where it would warn: then the line of the program does that."""
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        return function(*args, **kwargs)
