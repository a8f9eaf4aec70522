"""The hook in C asks, takes answers and keeps entries as the frontend relies on."""

from __future__ import annotations

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


@checks("drop_entry")
def test_entries() -> None:
    """An entry is used while its guards hold, and can be emptied."""
    answers = []

    class Manager:
        id_matched_objs: dict = {}
        invalidation_reason = "none"

        def __init__(self, holds: bool) -> None:
            self.root = ti.RootGuardManager()
            self.root.add_lambda_guard(lambda frame_locals: holds, ["words"], None)
            self.cache_entry = self.extra_state = self.diff_guard_root = None

        def collect_diff_guard_sources(self) -> set:
            return set()

        def populate_diff_guard_manager(self) -> None:
            pass

    class Guarded:
        compile_id = None
        trace_annotation = "a test"

    class Answer:
        frame_exec_strategy = ti.FrameExecStrategy(ti.FrameAction.DEFAULT, ti.FrameAction.DEFAULT)
        apply_to_code = False
        skip_reason = None

    class Callback:
        _torchdynamo_orig_backend = object()

        def __call__(self, frame, cache_entry, frame_state):
            answer = Answer()
            if frame.f_code is not called.__code__:
                answer.guarded_code = None
                answer.frame_exec_strategy = ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.DEFAULT)
                return answer
            answer.guarded_code = Guarded()
            answer.guarded_code.code = instead.__code__
            answer.guarded_code.guard_manager = Manager(True)
            answers.append(answer.guarded_code.guard_manager)
            return answer

    def called(x):
        return x

    def instead(x):
        return -x

    previous = ti.set_eval_frame(Callback())
    try:
        assert [called(1), called(1)] == [-1, -1]
        assert len(answers) == 1
        ti.drop_entry(answers[0], Manager(False))
        ti.drop_entry(answers[0], Manager(False))  # gone already
        assert called(1) == -1
        assert len(answers) == 2
    finally:
        ti.set_eval_frame(previous)


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


@checks("set_bucket", "retired_guard_class")
def test_bucket() -> None:
    assert ti.set_bucket(ti.set_bucket(-1)) == -1
