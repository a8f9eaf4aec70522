"""``set_stance``: what compiled callables do when code needs compiling."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from torchmux.registry import resolve
from torchmux.wording import require, shown

from .. import breaks
from ..breaks import GraphBreak
from ..handlers.table import constructs

STANCES = {
    "default": "compile code when needed",
    "force_eager": "run everything in eager, compiled or not",
    "eager_on_recompile": "use code that is already compiled, and run everything else in eager",
    "fail_on_recompile": "use code that is already compiled, and raise Unsupported if there is none",
    "eager_then_compile": "run a function's first call in eager, and compile it for its second",
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
    """Set what compiled callables do when code needs compiling, in all threads.

    A plain call holds from then on, a context manager for the block, and a decorator during each call.  The stances are
    "default"; "force_eager"; "eager_on_recompile"; "fail_on_recompile", which raises :class:`~torchmux.Unsupported`;
    "eager_then_compile", which sees two calls' sizes before it compiles; "aot_eager_then_compile".  With "default",
    ``force_backend`` replaces every ``backend=``.  ``skip_guard_eval_unsafe`` permits to leave guards out, as torch
    does then; torchmux makes no use of it, and checks them all.

    Raises:
        ValueError: there is no such stance, or it cannot be combined with ``force_backend``.
        UnknownBackend, BackendUnavailable: ``force_backend`` cannot be used.

    Examples:
        >>> compiled = torchmux.compile(lambda x: x + 1, backend="eager")
        >>> with torchmux.set_stance("force_eager"):
        ...     result = compiled(torch.ones(2))
        >>> torchmux.report(compiled).graph_count
        0
    """

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
    ) -> None:
        require(stance, (str,), "set_stance(): the stance")
        require(skip_guard_eval_unsafe, (bool,), "set_stance(): skip_guard_eval_unsafe")
        if stance not in STANCES:
            near = difflib.get_close_matches(stance[:100], STANCES, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"set_stance: there is no stance {shown(stance)}.{hint} The stances are: {', '.join(STANCES)}."
            )
        if force_backend is not None:
            if stance != "default":
                raise ValueError(f"set_stance: force_backend works only with the stance 'default', not with {stance!r}")
            resolve(force_backend)
        asked = Stance(stance, force_backend)
        self._stance = DEFAULT if asked == DEFAULT else asked  # calls compare by identity
        self._outer = [state.current]
        state.current = self._stance

    def __enter__(self) -> None:
        self._outer.append(state.current)
        state.current = self._stance

    def __exit__(self, *_: object) -> None:
        state.current = self._outer.pop()
        if len(self._outer) == 1:  # what its creation set ends with the block
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
