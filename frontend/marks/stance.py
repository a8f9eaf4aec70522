"""``set_stance``: what compiled callables do about code that would have to be compiled."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from torchmux.registry import resolve

from .. import breaks
from ..breaks import GraphBreak
from ..handlers.table import constructs

STANCES = {
    "default": "compile what has to be compiled",
    "force_eager": "run everything as it was written, compiled or not",
    "eager_on_recompile": "use code that is compiled already, and run all else as it was written",
    "fail_on_recompile": "use code that is compiled already, and raise Unsupported where there is none",
    "eager_then_compile": "run a function's first call as it was written, and compile it for its second",
    "aot_eager_then_compile": "run a function's first call with the backend aot_eager, and compile it for its second",
}


@dataclass(frozen=True)
class Stance:
    """One of ``STANCES``; with "default", ``force_backend`` replaces the backend of every compiled callable."""

    name: str = "default"
    force_backend: Any = None


DEFAULT = Stance()


class _State:
    """The stance of the process."""

    current = DEFAULT


state = _State()


class set_stance:
    """Say what compiled callables do about code that would have to be compiled, in all threads, until further notice.

    As a function it holds from now on, as a context manager for the block, as a decorator for each call.  The stances:
    "default"; "force_eager"; "eager_on_recompile"; "fail_on_recompile", which raises :class:`~torchmux.Unsupported`;
    "eager_then_compile", which sees two calls' sizes before it compiles; "aot_eager_then_compile".  With "default",
    ``force_backend`` takes the place of every ``backend=``.

    Raises:
        ValueError: there is no such stance, or it does not go with ``force_backend``.
        UnknownBackend, BackendUnavailable: ``force_backend`` cannot be used.
    """

    def __init__(self, stance: str = "default", *, force_backend: Any = None) -> None:
        if stance not in STANCES:
            near = difflib.get_close_matches(str(stance), STANCES, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"set_stance: there is no stance {stance!r}.{hint} There are: {', '.join(STANCES)}.")
        if force_backend is not None:
            if stance != "default":
                raise ValueError(f"set_stance: force_backend goes with the stance 'default' only, not with {stance!r}")
            resolve(force_backend)
        self._stance = Stance(stance, force_backend)
        self._outer = [state.current]
        state.current = self._stance

    def __enter__(self) -> None:
        self._outer.append(state.current)
        state.current = self._stance

    def __exit__(self, *_: object) -> None:
        state.current = self._outer.pop()
        if len(self._outer) == 1:  # what making it has set ends with the block
            state.current = self._outer[0]

    def __call__(self, fn: Callable) -> Callable:
        state.current = self._outer[0]
        stance = self._stance

        @functools.wraps(fn)
        def under_stance(*args: Any, **kwargs: Any) -> Any:
            outer, state.current = state.current, stance
            try:
                return fn(*args, **kwargs)
            finally:
                state.current = outer

        return under_stance


@constructs(set_stance)
def _in_traced_code(tr: Any, cls: type, args: list, kwargs: dict) -> NoReturn:
    raise GraphBreak(breaks.TORCH_STATE, "torchmux.set_stance")
