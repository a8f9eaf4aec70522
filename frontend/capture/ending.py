"""How captured code ends: in the frame's result, at a break, or before a loop that is left to eager."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..bytecode import break_trampoline, eager_trampoline, return_trampoline

Resumes = Callable[[int, tuple[bool, ...], tuple[str, ...]], types.CodeType]
LinkTo = Callable[[types.CodeType], list]
Home = tuple[dict[str, Any], Callable[[], None]]


@dataclass(frozen=True)
class Ending:
    """What the code that replaces a frame does besides calling the frame function.

    * ``arguments``: of the frame function, ``("local" | "cell", name)``; None if there is no such function.
    * ``index``, ``stack``, ``names``: the raw instruction at which the capture ends, which entries of the stack are
      NULL there, and the locals that the frame function returns; ``index`` is None if the frame returns.
    * ``cuts``: where a loop that runs in eager is left; None if there is no such loop.
    * ``may_end``: whether the frame function may have the result of the frame already.
    """

    arguments: tuple[tuple[str, str], ...] | None
    index: int | None = None
    stack: tuple[bool, ...] = ()
    names: tuple[str, ...] = ()
    cuts: tuple[int, ...] | None = None
    may_end: bool = False

    def code(
        self,
        code: types.CodeType,
        frame_fn: Callable | None,
        resumes: Resumes | None,
        home: Home | None,
        link_to: LinkTo | None = None,
    ) -> types.CodeType:
        """Code with the signature of ``code`` that calls ``frame_fn``, and goes on in what ``resumes`` returns.

        ``home`` is as for :func:`~torchmux.frontend.bytecode.return_trampoline`, ``link_to`` as for
        :func:`~torchmux.frontend.bytecode.break_trampoline`.
        """
        found: types.CodeType
        if self.cuts is not None:
            captured = None
            if self.arguments is not None:
                captured = frame_fn, list(self.arguments), list(self.stack), list(self.names)
            found = eager_trampoline(code, captured, self.index, self.cuts, resumes, self.may_end, home, link_to)
        elif self.index is None:
            found = return_trampoline(code, frame_fn, list(self.arguments or ()), home)
        else:
            arguments, stack, names = list(self.arguments or ()), list(self.stack), list(self.names)
            found = break_trampoline(
                code, frame_fn, arguments, self.index, stack, names, resumes, self.may_end, home, link_to
            )  # fmt: skip
        return found
