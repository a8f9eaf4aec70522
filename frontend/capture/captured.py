"""What became of a frame, and what is remembered of its code from one capture to the next."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from torchmux.registry.report import Strict
from torchmux.stages import Seconds

from ..breaks import BreakRecord
from ..bytecode import resume_code
from ..guards.check import CompiledGuards
from ..guards.sources import Source
from ..hook.calls import Frame
from .attempts import Assumptions, Restart
from .ending import Ending
from .frame_writer import FrameParts


@dataclass(eq=False)
class Captured:
    """What one frame became."""

    # Runs in place of the frame's code; the C hook takes it over.  It refers to what it runs, and the garbage collector
    # does not see into code: kept here, it would close a cycle that never goes.
    code: types.CodeType | None
    # The same code for as long as the C hook has it.
    kept: Callable[[], types.CodeType | None] = lambda: None
    check: Callable[[], Callable[[dict], bool] | None] = lambda: None  # what the C hook calls, as long
    guards: CompiledGuards | None = None
    globals_id: int = 0  # of the globals in which it was captured
    graph: Any = None  # GraphModule, if there were operators
    compiled: Any = None  # the backend's callable
    op_count: int = 0
    broke: BreakRecord | None = None
    seconds: Seconds = field(default_factory=Seconds)  # of the capture, without what the backend takes
    number: str = ""  # of the code and the compilation of it, as in 0/1, which names the graph in profiles and traces
    reason: str = ""  # why earlier code of the frame did not fit
    text: str = ""
    qualname: str = ""
    frame: Frame = field(default_factory=lambda: Frame("", ""))
    has_effects: bool = False  # it changes objects besides tensors
    in_eager: str = ""  # what of the frame runs in eager with each call, if some does
    eager_operators: int | None = None  # how many operators those are, if known
    # The program's code, if it has no tensors to compute with: after many calls, nobody asks about it (hook/vain.py).
    of_no_tensors: Callable[[], types.CodeType | None] | None = None
    inputs: list[tuple[str, Source, bool]] = field(default_factory=list)  # placeholder, its source, is it a parameter
    parts: FrameParts | None = None  # of the frame function
    ending: Ending | None = None
    grad_modes: tuple[bool, bool] | None = None  # in which the graph begins, and after it, where it changes
    sets_switches: bool = False  # other global state of torch
    is_training: bool = False


@dataclass(eq=False)
class CodeState:
    """What is remembered of one code object under one compile() call, over all its compilations."""

    number: int = field(default_factory=itertools.count().__next__)  # in the order of first captures in the process
    seen: dict[str, Any] = field(default_factory=dict)  # input -> sizes seen, for automatic dynamic shapes
    entries: list[Captured] = field(default_factory=list)
    # (index, stack, locals) -> resume code, so that every compilation of a frame resumes in the same code object
    resumes: dict[tuple, types.CodeType] = field(default_factory=dict)
    runs_eager: bool = False
    eager_reason: str = ""  # why calls run in eager
    eager_operators: int | None = None  # how many operators such a call has, if known
    assumptions: Assumptions = field(default_factory=Assumptions)  # those that the next capture begins with
    vain: list[Captured] = field(default_factory=list)  # entries that run the program's own code (hook/vain.py)
    settled: set[str] = field(default_factory=set)  # reasons for which calls that no entry holds for have one
    wait: int = 0  # how many calls pass before the next attempt, and before the one after that
    next_wait: int = 0
    called: bool = False  # under a stance that compiles for the second call
    strict: Strict = False  # of the compile() call
    alike: Hashable = None  # equal for compile() calls that may run each other's code; None: there are none
    link_to: Callable[[types.CodeType], list] | None = None  # see hook/links.py

    def remember(self, restart: Restart) -> None:
        """Begin later captures with what this reason to start again has shown, if it holds for them as well."""
        if restart.for_good:
            self.assumptions = restart.next(self.assumptions)

    def resume(self, code: types.CodeType) -> Callable:
        """Returns, for ``break_trampoline``, the code in which to continue."""

        def make(index: int, stack: tuple[bool, ...], locals_: tuple[str, ...]) -> types.CodeType:
            key = (index, tuple(stack), tuple(locals_))
            if key not in self.resumes:
                self.resumes[key] = resume_code(code, index, stack, locals_)
            return self.resumes[key]

        return make
