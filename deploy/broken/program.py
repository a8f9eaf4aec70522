"""The callable that the file of a program with graph breaks becomes."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torchmux import support, torch_internals as ti
from torchmux.frontend.bytecode import reads_globals
from torchmux.frontend.bytecode.identity import CodeMap
from torchmux.frontend.callee import with_frame
from torchmux.frontend.capture.captured import Captured
from torchmux.frontend.capture.tracebacks import stands_for
from torchmux.frontend.compiled import call
from torchmux.frontend.hook import library
from torchmux.frontend.hook.calls import frame_of
from torchmux.frontend.hook.entries import SKIP_CALLEES, SKIP_CODE, SKIP_FRAME, Decision
from torchmux.frontend.hook.session import Record, Session
from torchmux.frontend.hook.thread_state import shared
from torchmux.registry.errors import LoadRefused, Unsupported

from ..entries import Entry
from .codes import codes_again, function_again, globals_of
from .told import ending_again, python_version

_SKIP = ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.SKIP)


class LoadedProgram:
    """A program from a file whose graphs break: call it as the compiled one was called.

    Between its graphs it runs the Python of ``model``, or of the function that was saved.  ``entries`` are those of all
    frames; ``weights`` are the tensors that graphs hold besides what they read of the model, by name.

    Raises (when created):
        LoadRefused: this Python is of another version, there is no model, or a function of the program is not here.
    Raises (when called):
        Unsupported: a frame that was compiled has no entry that takes the call; the message says what each was
            compiled for.  The Python before it has run.
    """

    def __init__(
        self,
        manifest: Mapping[str, Any],
        entries: Sequence[tuple[Entry, Mapping[str, Any]]],
        weights: Mapping[str, torch.Tensor],
        model: torch.nn.Module | None,
    ) -> None:
        support.check()
        told = manifest["broken"]
        if told["python"] != python_version():
            raise LoadRefused(
                f"The graphs of {manifest['name']} break, and what runs between them was saved with Python "
                f"{told['python']}; this is Python {python_version()}. Save the file again with this version, or call "
                "load(..., model=model, recompile=True)."
            )
        if model is None and manifest["structure"]:
            raise LoadRefused(
                f"The graphs of {manifest['name']} break, and what runs between them is the model's own Python. Pass "
                "the model: load(..., model=model)."
            )
        self.name = self.__name__ = manifest["name"]
        self.entries = tuple(entry for entry, _ in entries)
        self.weights = dict(weights)
        self.manifest = dict(manifest)
        self._frames = CodeMap()  # the code of a frame -> whether some of its calls run in eager
        self._session = Session(_compiles_nothing, self._decide, fullgraph=False, dynamic=None)
        codes = codes_again(told["codes"], self._session.state)
        for at, eager in told["frames"]:
            self._frames.set(codes[at], bool(eager))
        for entry, about in entries:
            code, namespace = codes[about["code"]], globals_of(told["codes"][about["code"]], told["codes"])
            self._session.state(code).entries.append(self._captured(entry, about, code, namespace))
        at = told["root"]
        root = function_again(told["codes"][at], codes[at]) if model is None else _checked(model, codes[at])
        self._codes = codes
        self._called, self._record = with_frame(root), Record(model)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return call(self._session, self._record, self._called, args, kwargs)

    def __repr__(self) -> str:
        backends = ", ".join(sorted({entry.backend for entry in self.entries} - {"none"}))
        return f"<loaded {self.name}, {len(self.entries)} of {backends}, with graph breaks>"

    # --- entries ---------------------------------------------------------------------------------------------------

    def _captured(
        self, entry: Entry, about: Mapping[str, Any], code: types.CodeType, namespace: dict[str, Any]
    ) -> Captured:
        """An entry as the frame hook takes it."""
        ending = ending_again(about["ending"])
        home = (namespace, _refuses_other_globals(code)) if reads_globals(code) else None
        frame_fn = None if ending.arguments is None else _frame_function(entry.run, ending.arguments)
        replaces = ending.code(code, frame_fn, self._session.state(code).resume(code), home)
        stands_for(replaces, code)
        return Captured(
            replaces,
            guards=entry.guards,
            qualname=code.co_qualname,
            frame=frame_of(code),
            in_eager=about["in_eager"],
            ending=ending,
        )

    def _decide(self, session: Session | None, frame: Any) -> Decision:
        """The answer to the frame hook: what the file has for this call, and otherwise the Python as it stands."""
        code = frame.f_code
        if session is None or (eager := self._frames.get(code)) is None:
            return _not_in_file(code)
        with shared.lock:
            entries = session.state(code).entries
            for captured in entries:
                if captured.guards is not None and captured.guards.check(frame.f_locals):
                    found = session.keep(captured) if captured.code is not None else session.run_once(captured)
                    if found is not None:
                        return found
        if eager:
            return SKIP_FRAME
        checks = [captured.guards for captured in entries if captured.guards is not None]
        reasons = "; ".join(f"entry {at}: {each.why_not(frame.f_locals).words}" for at, each in enumerate(checks))
        raise Unsupported(
            f"The file of {self.name} has nothing for this call of {code.co_qualname} "
            f"({code.co_filename}:{code.co_firstlineno}), and a file compiles nothing ({reasons}). Call the compiled "
            "program with such inputs, then save it again."
        )


def _checked(model: torch.nn.Module, code: types.CodeType) -> torch.nn.Module:
    """``model``, whose forward has this code.

    Raises:
        LoadRefused: it has another.
    """
    if getattr(model.forward, "__code__", None) is not code:
        raise LoadRefused(
            f"The model has another forward than {code.co_qualname} ({code.co_filename}:{code.co_firstlineno}), with "
            "which it was saved. Pass the same model, or save it again."
        )
    return model


def _not_in_file(code: types.CodeType) -> Decision:
    """As for a compiled program, but that nothing is captured."""
    if library.is_graph_module(code.co_filename) or not library.is_library(code.co_filename):
        return SKIP_FRAME
    return SKIP_CALLEES if library.is_quiet(code.co_filename) else SKIP_CODE


def _frame_function(run: Callable[[dict[str, Any]], Any], arguments: Sequence[tuple[str, str]]) -> Callable[..., Any]:
    """What the code of a frame calls with these arguments, from what takes them by name."""
    names = [f"cell {name}" if kind == "cell" else name for kind, name in arguments]

    def frame_function(*values: Any) -> Any:
        return run(dict(zip(names, values, strict=True)))

    ti.set_code_exec_strategy(frame_function.__code__, _SKIP)
    return frame_function


def _refuses_other_globals(code: types.CodeType) -> Callable[[], None]:
    def refuse() -> None:
        raise Unsupported(f"{code.co_qualname} is called as a function of another module than the one that was saved.")

    ti.set_code_exec_strategy(refuse.__code__, _SKIP)
    return refuse


def _compiles_nothing(*args: Any) -> Any:
    raise Unsupported("a file compiles nothing")
