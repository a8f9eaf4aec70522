"""Exceptions leave compiled code with eager's traceback, as far as it can be reconstructed.

Compiled code differs in three ways: frames of torchmux appear between the program's own, a function with a graph break
is two frames, and no line of the program calls an operator of a graph.
"""

from __future__ import annotations

import linecache
import os
import sys
import types
from collections.abc import Iterator
from typing import Any

from torchmux import torch_internals as ti
from torchmux.config import config
from torchmux.registry.errors import CompilationFailed

from ..bytecode.identity import CodeMap
from ..bytecode.resume import resume_origin
from ..trace.recorder import USER_STACK

_trampolines = CodeMap()
_starts_again = CodeMap()


def stands_for(trampoline: types.CodeType, code: types.CodeType) -> None:
    """Note that frames of ``code`` run as ``trampoline`` from now on."""
    if resume_origin(code) is not None:
        _trampolines.set(trampoline, True)


def starts_again(function: Any) -> None:
    """Record that ``function`` calls what the compiled frame before it replaces."""
    _starts_again.set(function.__code__, True)


def _goes_on(code: types.CodeType) -> bool:
    """Whether this is the rest of a function, called by its first part."""
    return resume_origin(code) is not None or _trampolines.get(code) is not None


def _own_folders() -> tuple[str, ...]:
    names = ("torchmux", "torchmux.frontend", "torchmux.registry", "torchmux.backends")
    modules = [sys.modules[name] for name in names if name in sys.modules]
    return tuple({os.path.dirname(os.path.abspath(m.__file__)) + os.sep for m in modules if m.__file__})


def tidy(error: BaseException) -> None:
    """Take torchmux's frames out of the traceback of ``error``, and put in the lines of the program's operators.

    ``config.verbose`` leaves it unchanged.  Call this where ``error`` is caught and raised again.
    """
    if config.verbose:
        return
    previous = ti.set_eval_frame(None)
    try:
        own, seen = _own_folders(), set()
        pending: list[BaseException | None] = [error]
        while pending:
            each = pending.pop()
            if each is None or id(each) in seen:
                continue
            seen.add(id(each))
            each.__traceback__ = _tidied(each, own)
            if not isinstance(each, CompilationFailed):  # the details of a backend's failure are for its developers
                pending += [each.__cause__, each.__context__]
    except RecursionError:
        pass  # there is too little stack or memory left: the traceback stays unchanged
    finally:
        ti.set_eval_frame(previous)


def _tidied(error: BaseException, own: tuple[str, ...]) -> types.TracebackType | None:
    entries = list(_entries(error.__traceback__))
    kept: list[tuple[types.FrameType, int, int]] = []
    changed = False
    position = 0
    while position < len(entries):
        entry = entries[position]
        code, file = entry.tb_frame.f_code, entry.tb_frame.f_code.co_filename
        position += 1
        if file.startswith("<torchmux frame"):
            changed = True
            position = _in_graph(error, entries, position, own, kept)
        elif _runs_graph(entry, own):  # called by the frame itself
            changed = True
            position = max(position, _in_graph(error, entries, position - 1, own, kept))
        elif file.startswith(own) or file.startswith("<torchmux"):
            changed = True
            if kept and _starts_again.get(code) is not None:
                kept.pop()
        else:
            if kept and _goes_on(code) and entry.tb_frame.f_back is kept[-1][0]:
                kept.pop()  # the first part of the same function, which called this part
                changed = True
            kept.append((entry.tb_frame, entry.tb_lasti, entry.tb_lineno))
    if not changed:
        return error.__traceback__
    made = None
    for frame, lasti, line in reversed(kept):
        made = types.TracebackType(made, frame, lasti, line)
    return made


def _entries(traceback: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _in_graph(
    error: BaseException, entries: list[types.TracebackType], position: int, own: tuple[str, ...], kept: list
) -> int:
    """Replace the frames between the compiled frame and the operator that raised; the position after them."""
    last = None
    for index in range(position, len(entries)):
        file = entries[index].tb_frame.f_code.co_filename
        is_another = index > position and _runs_graph(entries[index], own) and not _runs_graph(entries[index - 1], own)
        if file.startswith("<torchmux frame") or is_another:
            break
        if file.startswith("<eval_with_key>"):
            last = index
    if last is None:
        if kept and any(_runs_graph(e, own) for e in entries[position : position + 1]):
            frame, _, line = kept[-1]
            code = frame.f_code
            kept[-1] = (frame, -1, line)
            _note(error, f"raised by the compiled graph of {code.co_qualname} ({code.co_filename}:{line})")
        return position
    stack = _user_stack(entries[last])
    if not stack:
        return last + 1
    if kept and kept[-1][0].f_code.co_filename == stack[-1][0]:
        kept[-1] = (kept[-1][0], -1, stack[-1][1])
        stack = stack[:-1]
    kept.extend((_frame(*place), -1, place[1]) for place in reversed(stack))
    return last + 1


def _runs_graph(entry: types.TracebackType, own: tuple[str, ...]) -> bool:
    """Whether this is the function that runs a graph (``capture/finish.py``)."""
    code = entry.tb_frame.f_code
    return code.co_name == "run_graph" and code.co_filename.startswith(own)


def _note(error: BaseException, text: str) -> None:
    if text not in getattr(error, "__notes__", ()):
        error.add_note(text)


def _user_stack(entry: types.TracebackType) -> tuple[tuple[str, int, str], ...]:
    """Where in the program the operator comes from that a line of an FX module's code runs."""
    frame = entry.tb_frame
    module = frame.f_locals.get("self")
    name = linecache.getline(frame.f_code.co_filename, entry.tb_lineno).partition("=")[0].partition(":")[0].strip()
    for node in getattr(getattr(module, "graph", None), "nodes", ()):
        if node.name == name:
            return node.meta.get(USER_STACK) or node.meta.get("custom", {}).get(USER_STACK) or ()
    return ()


def _raise() -> Any:
    raise RuntimeError


def _frame(file: str, line: int, name: str) -> types.FrameType:
    """A frame at a line of the program, for a call that was captured and so never made."""
    code = _raise.__code__.replace(co_filename=file, co_firstlineno=line, co_name=name, co_qualname=name)
    try:
        types.FunctionType(code, {"__name__": name})()
    except RuntimeError as error:
        assert error.__traceback__ is not None and error.__traceback__.tb_next is not None
        return error.__traceback__.tb_next.tb_frame
    raise AssertionError("unreachable")
