"""From one piece of a broken function to the next, without the hook.

What a break leaves of a frame is a function of its own, for which the hook would look up compiled code, in a
microsecond and more.  The code that runs up to the break therefore asks its *link* first: a function of the globals,
the closure and the arguments, which checks the guards of the compiled code and returns what to call.  It returns False
where the hook has to decide: before the rest has been compiled, where its guards do not hold, under another session,
and once that has forgotten its code.

A link is the only item of a list, which the code up to the break refers to and which is changed from here.
"""

from __future__ import annotations

import operator
import types
import weakref
from collections.abc import Callable
from typing import Any

from torchmux import torch_internals as ti

from ..capture.captured import Captured
from ..guards.snapshot import Form, SnapshotCheck
from .interrupts import from_its_first_instruction, keep
from .thread_state import this_thread

Link = Callable[..., Any]

_MISSES = 16  # of a link, until it is made anew
_AS_IT_IS = ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.SKIP)
_WITH_CALLEES = ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.DEFAULT)
_contents = operator.attrgetter("cell_contents")


def link_to(session: weakref.ref[Any], code: types.CodeType) -> list[Link]:
    """The link to a resume function of this code, whose compiled code will be that of the session."""
    link: list[Link] = []
    link.append(_unlinked(link, session, code))
    return link


def _skipped(function: Any) -> Any:
    made = from_its_first_instruction(function)  # whose code is another
    ti.set_code_exec_strategy(made.__code__, _AS_IT_IS)
    return made


def _unlinked(link: list[Link], session: weakref.ref[Any], code: types.CodeType) -> Link:
    calls, wait, attempts = 0, 2, 0

    @_skipped
    def choose(namespace: dict[str, Any], closure: tuple | None, *values: Any) -> Any:
        nonlocal calls, wait, attempts
        try:
            calls += 1
            if calls >= wait:  # what is made takes as long as some hundred calls
                wait, attempts = 2 * wait, attempts + 1
                if (found := _linked(link, choose, session(), code, namespace, attempts)) is not None:
                    link[0] = found
                    return found(namespace, closure, *values)
        except BaseException as error:
            keep(error)
        return False

    return choose


def _entry(session: Any, code: types.CodeType, attempt: int) -> Captured | None:
    """An entry of the rest of a function that runs code made for it, and is no more than its graph and its break."""
    if (state := session.states.get(code)) is None or not state.entries:
        return None
    entry = state.entries[-1 - attempt % len(state.entries)]
    if entry.guards is None or (entry.graph is None and entry.in_eager):  # whose calls the hook's check counts
        return None
    if entry.parts is None or entry.parts.assumes_branches:
        return None
    return entry


def _linked(
    link: list[Link],
    unlinked: Link,
    session: Any,
    code: types.CodeType,
    namespace: dict[str, Any],
    attempt: int,
) -> Link | None:
    if session is None or (entry := _entry(session, code, attempt)) is None or (replaces := entry.kept()) is None:
        return None
    assert entry.guards is not None
    ti.set_code_exec_strategy(replaces, _WITH_CALLEES)
    names = (*code.co_varnames[: code.co_argcount], *code.co_freevars)
    make, known = types.FunctionType, None if code.co_freevars else types.FunctionType(replaces, namespace)
    epoch, now, bucket, local, misses = session.epoch, session.epoch[0], session.bucket, this_thread, 0

    def missed() -> bool:
        nonlocal misses
        misses += 1
        if misses >= _MISSES:
            link[0] = unlinked
        return False

    def found(space: dict[str, Any], closure: tuple | None) -> Callable[..., Any]:
        return make(replaces, space, code.co_name, None, closure)

    check = entry.check()
    if not isinstance(check, SnapshotCheck) and not code.co_freevars:
        choose = entry.guards.choosing(
            names,
            {"local": local, "epoch": epoch, "known": known, "found": found, "missed": missed, "home": namespace},
            f"local.doing.bucket == {bucket} and epoch[0] == {now}",
        )
        ti.set_code_exec_strategy(choose.__code__, _AS_IT_IS)
        return choose

    passes = _check_of_values(entry, Form(names, None))

    @_skipped
    def choose_with_more(space: dict[str, Any], closure: tuple | None, *values: Any) -> Any:
        try:
            if local.doing.bucket != bucket or epoch[0] != now:
                return missed()
            if closure is not None:
                values += tuple(map(_contents, closure))
            if passes(values):
                return known if space is namespace and known is not None else found(space, closure)
        except ValueError:  # nothing is in one of the cells
            pass
        except BaseException as error:
            keep(error)
        return missed()

    return choose_with_more


def _check_of_values(entry: Captured, form: Form) -> Callable[[tuple], bool]:
    """The check of an entry as a function of the values of some locals."""
    assert entry.guards is not None
    check = entry.check()
    if not isinstance(check, SnapshotCheck):
        return entry.guards.of_arguments(form.names)
    form = check.known(form)
    inputs, full = check.inputs, check.of_values(form)

    def passes(values: tuple) -> bool:
        snapshot = inputs.latest()
        if snapshot is not None and snapshot.form is form and snapshot.check(snapshot.values, values) is True:
            snapshot.uses += 1
            return True
        return full(values)

    return passes
