"""What the C hook is told about a frame, and what it keeps of one that was captured."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

from torchmux import torch_internals as ti

from ..capture.captured import Captured
from ..guards.snapshot import check_of
from . import vain

_DEFAULT, _SKIP = ti.FrameAction.DEFAULT, ti.FrameAction.SKIP


class Decision:
    """What the C hook reads from a callback's result."""

    def __init__(self, guarded_code: Any, action: Any, apply_to_code: bool, callees: Any = _DEFAULT) -> None:
        self.guarded_code = guarded_code
        self.frame_exec_strategy = ti.FrameExecStrategy(action, callees)
        self.apply_to_code = apply_to_code
        self.skip_reason = None


SKIP_FRAME = Decision(None, _SKIP, False)
SKIP_CODE = Decision(None, _SKIP, True)
SKIP_CALLEES = Decision(None, _SKIP, True)
SKIP_CALLEES.frame_exec_strategy = ti.FrameExecStrategy(_SKIP, _SKIP)
SKIP_CALL = Decision(None, _SKIP, False, callees=_SKIP)  # the frame and all that it calls


class GuardManager:
    """Our guard function in the shape that the C hook expects."""

    id_matched_objs: dict = {}
    invalidation_reason = "belongs to torchmux"

    def __init__(self, check: Callable[[dict], bool]) -> None:
        self.root = ti.RootGuardManager()
        self.root.add_lambda_guard(check, ["torchmux guard"], None)
        self.cache_entry = None
        self.extra_state = None
        self.diff_guard_root = None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """To torch's own tracer, which walks all entries of a code object, ours pass for retired ones."""
        return ti.retired_guard_class() or GuardManager

    def collect_diff_guard_sources(self) -> set[str]:
        """Asked by torch's own tracer; none of ours may be checked apart from the others."""
        return set()

    def populate_diff_guard_manager(self) -> None:
        self.diff_guard_root = None


def _never(frame_locals: dict) -> bool:
    return False


def _counting(check: Callable[[dict], bool], captured: Captured, owner: Callable[[], Any]) -> Callable[[dict], bool]:
    """``check`` for an entry whose frame runs in eager, which counts the calls that it lets through."""
    frame, reason, operators = captured.frame, captured.in_eager, captured.eager_operators
    code = captured.of_no_tensors
    latest: tuple[Callable[[], Any], Any] = (lambda: None, None)  # the record that counted last, and its count

    def counting(frame_locals: dict) -> bool:
        nonlocal latest
        if not check(frame_locals):
            return False
        record = owner()
        if record is None:
            return True
        known, counted = latest
        if known() is record:
            counted.calls += 1
        else:
            counted = record.note_calls(frame, reason)
            counted.operators = operators
            latest = weakref.ref(record), counted
        if code is not None and (known_code := code()) is not None and not vain.counts(known_code):
            counted.more = True
        return True

    return counting


_REFUSES = GuardManager(_never)


class _GuardedCode:
    def __init__(self, captured: Captured, code: types.CodeType, owner: Callable[[], Any], once: bool) -> None:
        assert captured.guards is not None
        self.code = code
        check = check_of(captured.guards, owner)
        if captured.in_eager and captured.graph is None:  # no graph counts its calls
            check = _counting(check, captured, owner)
        captured.check = weakref.ref(check)
        self.guard_manager = GuardManager(_never if once else check)
        self.compile_id = None
        self.trace_annotation = f"torchmux {code.co_name}"


def keep(captured: Captured, owner: Callable[[], Any], once: bool = False) -> tuple[Decision, GuardManager]:
    """What tells the C hook to run captured code and, unless just for ``once``, to keep it; and its guards.

    ``owner()`` is the record of the compiled callable that is running, or None.  The code is given away: see
    :class:`~torchmux.frontend.capture.captured.Captured`.
    """
    assert captured.code is not None
    guarded = _GuardedCode(captured, captured.code, owner, once)
    captured.kept, captured.code = weakref.ref(captured.code), None
    # For the code as well, in the bucket of its session: what is said of it elsewhere counts no more there.  That is
    # what torch's own tracer says, and that nobody asks about the code any more.
    return Decision(guarded, _DEFAULT, captured.of_no_tensors is None), guarded.guard_manager


def run_once(captured: Captured, owner: Callable[[], Any]) -> tuple[Decision, GuardManager] | None:
    """As :func:`keep`, for this call only, of what the C hook keeps already; None if it does so no longer."""
    if (code := captured.kept()) is None:
        return None
    guarded = _GuardedCode(captured, code, owner, once=True)
    return Decision(guarded, _DEFAULT, False), guarded.guard_manager


def drop(managers: list[GuardManager]) -> None:
    """Free what the C hook holds of a session: its entries are the code object's, which may live for longer."""
    while managers:
        ti.drop_entry(managers.pop(), _REFUSES)
