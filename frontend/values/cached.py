"""Functions behind ``functools.lru_cache``."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import torch

from ..breaks import C_FUNCTION, GraphBreak
from ..capture.attempts import StateChanged
from ..guards.sources import CachedResult, Const, Source
from .base import MISSING, Value
from .classes import BuiltinValue
from .containers.sequences import TupleValue

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

# function -> arguments -> how often a call was run in eager so that the cache gets to know them
_waited_for: weakref.WeakKeyDictionary[Any, dict[tuple, int]] = weakref.WeakKeyDictionary()
_PATIENCE = 3


def _look_at(tr: Tracer, value: Value) -> None:
    """Read what an existing tuple has in it, which shows whether it is a constant."""
    if isinstance(value, TupleValue):
        for item in value.items(tr):
            _look_at(tr, item)


def _real(tr: Tracer, value: Value) -> Any:
    return value.const(tr) if value.is_const() else value.real()


class CachedFunctionValue(BuiltinValue):
    """A function behind ``functools.lru_cache``: called for real, because the program gets the cache's own objects.

    What it returns is reached by calling it again, which takes it out of the cache.
    """

    __slots__ = ()

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        paths = [self._path(tr, value) for value in args]
        named_paths = {name: self._path(tr, value) for name, value in kwargs.items()}
        before = self.obj.cache_info()
        if before.maxsize is not None and before.currsize >= before.maxsize:
            raise GraphBreak(C_FUNCTION, f"the cache of {self.describe()} is full and may drop entries")
        plain, named = tuple(_real(tr, a) for a in args), {k: _real(tr, v) for k, v in kwargs.items()}
        if tr.effects and not self._knows(plain, named):
            raise self._not_yet(plain, named)
        try:
            result = self.obj(*plain, **named)
        except Exception as error:
            raise GraphBreak(C_FUNCTION, f"cached function {self.describe()}", error) from None
        if self.obj.cache_info().misses > before.misses:
            raise StateChanged(f"cached function {self.describe()} has run")  # and may have changed what was read
        base = self.source or Const(self.obj, self.describe())
        if all(path is None for path in (*paths, *named_paths.values())):
            return tr.wrap(result, CachedResult(base, tr.keep_equal(plain), tr.keep_equal(named)))
        found = tuple(path or real for path, real in zip(paths, plain, strict=True))
        return tr.wrap(
            result, CachedResult(base, found, {name: named_paths[name] or real for name, real in named.items()})
        )

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name in ("cache_info", "cache_clear"):
            raise GraphBreak(C_FUNCTION, f"{name} of cached function {self.describe()}, which tracing calls too")
        return super().getattr(tr, name)

    def _path(self, tr: Tracer, value: Value) -> Source | None:
        """Where an argument is that the cache knows by its identity; None for a constant.

        Raises:
            GraphBreak: the cache compares it, or the trace has made it.
        """
        _look_at(tr, value)
        if value.is_const():
            return None
        obj, cls = value.real(), value.pytype()
        if obj is MISSING or value.source is None or type(obj) is not cls or isinstance(obj, torch.Tensor):
            raise GraphBreak(C_FUNCTION, f"cached function {self.describe()} of {value.describe()}")
        for name in ("__hash__", "__eq__"):
            if tr.static_lookup(cls, name) is not getattr(object, name):
                raise GraphBreak(C_FUNCTION, f"cached function {self.describe()} of {value.describe()}")
            tr.guard_lookup(cls, name, getattr(object, name))
        tr.guards.is_object(value.source, obj)
        return value.source

    def _knows(self, plain: tuple, named: dict[str, Any]) -> bool:
        """Whether the cache has the result, so that a call runs nothing.  False if this is unknown.

        The cache is no attribute, but the garbage collector sees it; its keys are what the C code makes of arguments.
        """
        if named or self.obj.cache_parameters()["typed"]:
            return False
        key = plain[0] if len(plain) == 1 and type(plain[0]) in (int, str) else plain
        tables = [r for r in gc.get_referents(self.obj) if type(r) is dict and r is not vars(self.obj)]
        return len(tables) == 1 and key in tables[0]

    def _not_yet(self, plain: tuple, named: dict[str, Any]) -> GraphBreak:
        """The function has to run amid changes that the trace has not made yet, and which it may depend on."""
        stop = GraphBreak(
            C_FUNCTION, f"cached function {self.describe()} runs for the first time while there are pending changes"
        )
        waited_for = _waited_for.setdefault(self.obj, {})
        asked = (plain, tuple(named.items()))
        waited_for[asked] = waited_for.get(asked, 0) + 1
        if waited_for[asked] <= _PATIENCE:
            stop.reason += "; this call runs in eager, and the next call finds its result"
            stop.whole_frame = stop.only_now = True
        return stop
