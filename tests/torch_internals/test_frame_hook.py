"""The hook in C asks, takes answers and keeps entries as the frontend relies on."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import torch

from torchmux import torch_internals as ti

from .walk import checks


@checks("RootGuardManager")
def test_root_guard_manager() -> None:
    seen = []
    manager = ti.RootGuardManager()
    manager.add_lambda_guard(lambda frame_locals: seen.append(frame_locals) or True, ["words"], None)
    assert manager.check({"x": 1})
    assert seen == [{"x": 1}]


@checks("set_eval_frame", "FrameAction", "FrameExecStrategy")
def test_hook() -> None:
    """The C hook asks a callback about a frame and takes its answer."""
    seen = []

    class Answer:
        guarded_code = None
        frame_exec_strategy = ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.DEFAULT)
        apply_to_code = False
        skip_reason = None

    class Callback:
        _torchdynamo_orig_backend = None

        def __call__(self, frame, cache_entry, frame_state):
            seen.append((frame.f_code.co_name, dict(frame.f_locals), frame.closure))
            return Answer()

    def called(x):
        return x + 1

    previous = ti.set_eval_frame(Callback())
    try:
        assert called(1) == 2
    finally:
        ti.set_eval_frame(previous)
    assert seen[0][:2] == ("called", {"x": 1})


class Manager:
    id_matched_objs: dict = {}
    invalidation_reason = "none"

    def __init__(self, check: Callable[[dict], bool]) -> None:
        self.root = ti.RootGuardManager()
        self.root.add_lambda_guard(check, ["words"], None)
        self.cache_entry = self.extra_state = self.diff_guard_root = None

    def collect_diff_guard_sources(self) -> set:
        return set()

    def populate_diff_guard_manager(self) -> None:
        pass


class Guarded:
    compile_id = None
    trace_annotation = "a test"

    def __init__(self, code: CodeType, check: Callable[[dict], bool]) -> None:
        self.code, self.guard_manager = code, Manager(check)


class Negates:
    """A callback: functions called ``called`` return ``-x``, with an entry whose check ``make_check(frame)`` makes."""

    _torchdynamo_orig_backend = object()

    def __init__(self, make_check: Callable[[Any], Callable[[dict], bool]]) -> None:
        self.make_check = make_check
        self.managers: list[Manager] = []

    def __call__(self, frame, cache_entry, frame_state):
        class Answer:
            guarded_code = None
            frame_exec_strategy = ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.DEFAULT)
            apply_to_code = False
            skip_reason = None

        if frame.f_code.co_name == "called":
            Answer.guarded_code = Guarded(_negated.__code__, self.make_check(frame))
            Answer.frame_exec_strategy = ti.FrameExecStrategy(ti.FrameAction.DEFAULT, ti.FrameAction.DEFAULT)
            self.managers.append(Answer.guarded_code.guard_manager)
        return Answer()


def _negated(x):
    return -x


@checks("drop_entry")
def test_entries() -> None:
    """An entry is used while its guards hold, and can be emptied."""

    def called(x):
        return x

    callback = Negates(lambda frame: lambda frame_locals: True)
    previous = ti.set_eval_frame(callback)
    try:
        assert [called(1), called(1)] == [-1, -1]
        assert len(callback.managers) == 1
        ti.drop_entry(callback.managers[0], Manager(lambda frame_locals: False))
        ti.drop_entry(callback.managers[0], Manager(lambda frame_locals: False))  # gone already
        assert called(1) == -1
        assert len(callback.managers) == 2
    finally:
        ti.set_eval_frame(previous)


@checks("keep_order_of_entries")
def test_order_of_entries() -> None:
    """An entry that is found stays behind the others."""
    looked_at = []

    def called(x):
        return x

    def make_check(frame):
        wanted = frame.f_locals["x"]
        return lambda frame_locals: looked_at.append(wanted) or frame_locals["x"] == wanted

    ti.keep_order_of_entries()
    previous = ti.set_eval_frame(Negates(make_check))
    try:
        assert [called(x) for x in (1, 2)] == [-1, -2]
        del looked_at[:]
        assert [called(2), called(2)] == [-2, -2]
    finally:
        ti.set_eval_frame(previous)
    assert looked_at == [1, 2, 1, 2]


@checks("set_code_exec_strategy")
def test_strategy() -> None:
    def called():
        return 1

    ti.set_code_exec_strategy(called.__code__, ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.SKIP))
    assert called() == 1


@checks("not_captured")
def test_not_captured() -> None:
    def called(x):
        return x

    assert ti.not_captured(called) is called


@checks("set_bucket", "has_buckets", "retired_guard_class")
def test_bucket() -> None:
    assert ti.has_buckets == hasattr(torch._C._dynamo.eval_frame, "set_eval_frame_isolate_recompiles_id")
    assert ti.set_bucket(ti.set_bucket(-1)) == -1
