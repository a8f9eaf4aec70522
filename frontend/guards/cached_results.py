"""Where a value came from that a function behind ``functools.lru_cache`` returned."""

from __future__ import annotations

import functools
import gc
from typing import TYPE_CHECKING, Any

from .closed import kind
from .sources import Source, not_followed

if TYPE_CHECKING:
    from .loader import Loader


def _table(function: Any) -> dict[Any, Any] | None:
    """What a cache has, by keys; None if this is unknown.  It is no attribute, but the garbage collector sees it."""
    tables = [r for r in gc.get_referents(function) if type(r) is dict and r is not vars(function)]
    return tables[0] if len(tables) == 1 else None


@functools.cache
def _of_names(**given: int) -> int:
    return 0


_of_names(one=1)
_MARK: Any = next(iter(_table(_of_names) or [(None,)]))[0]
"""What the C code puts between the arguments by place and those by name, in the keys of all caches."""


def knows(function: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether a cache has the result, so that a call runs nothing.  False if this is unknown."""
    if function.cache_parameters()["typed"]:
        return False
    key = args[0] if len(args) == 1 and type(args[0]) in (int, str) and not kwargs else args
    if kwargs:
        key = (*args, _MARK, *(part for item in kwargs.items() for part in item))
    return key in (_table(function) or {})


def _known_result(function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What a cache has for arguments.

    Raises:
        KeyError: it has nothing, and the function would run.
    """
    if not knows(function, args, kwargs):
        raise KeyError(args)
    return function(*args, **kwargs)


@kind
class CachedResult(Source):
    """What a function behind a cache returns; equal arguments must be the same objects.

    ``known``: only what the cache has.  The program has changed something by the time of its call, which the function
    may depend on, so a check must not be what runs it.
    """

    parent: Source
    args: tuple
    kwargs: dict
    known: bool = False

    def expression(self, out: Loader) -> str:
        function = out.load(self.parent)
        if self.known:
            return f"{out.const(_known_result)}({function}, {out.const(self.args)}, {out.const(self.kwargs)})"
        return f"{function}(*{out.const(self.args)}, **{out.const(self.kwargs)})"

    def in_words(self, parent: str) -> str:
        return f"{parent}(...)"

    follow = not_followed


def _load(arg: Any, out: Loader) -> str:
    if type(arg) is tuple:
        return f"({''.join(f'{_load(each, out)}, ' for each in arg)})"
    return out.load(arg) if isinstance(arg, Source) else out.const(arg)


def is_of_a_cache(source: Source | None) -> bool:
    """Whether a path leads through what a cache has for certain arguments, which the words of the path leave out."""
    while source is not None and not isinstance(source, CachedResult):
        source = source.parent
    return source is not None


@kind
class CachedResultOf(Source):
    """What a function behind a cache returns for numbers, of which some are loaded from where they are."""

    parent: Source
    args: tuple  # with the source in the place of a number that is loaded, also in tuples
    names: tuple[str, ...]  # of the last arguments, which are passed by name

    def expression(self, out: Loader) -> str:
        loaded = [_load(arg, out) for arg in self.args]
        plain = len(loaded) - len(self.names)
        named = [f"{name}={value}" for name, value in zip(self.names, loaded[plain:], strict=True)]
        return f"{out.load(self.parent)}({', '.join([*loaded[:plain], *named])})"

    def in_words(self, parent: str) -> str:
        return f"{parent}(...)"

    follow = not_followed
