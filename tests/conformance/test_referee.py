"""Eager answers from another process, also where a copy of this one could not use the device."""

from __future__ import annotations

import os

import pytest

from torchmux.conformance import semantics
from torchmux.conformance.judging import referee
from torchmux.conformance.judging.shown import differences

CASES = {case.id: case for case in semantics.cases()}
HEAD = {"level": "quick", "patterns": ["semantics/control/*"], "path": []}


def test_a_new_process_answers_as_this_one():
    """``cpu:0`` stands for a device whose driver works in no copy of a process."""
    apart = referee.started(HEAD, "cpu:0", os.environ)
    try:
        case = CASES["semantics/control/wrong_shapes"]
        told = apart.answer(case, "cpu:0")
        assert not differences(referee.Referee().answer(case, "cpu:0"), [(told, None)], case)
        assert not told.changes
        assert [leaf for _, leaf in told.value if isinstance(leaf, str)] == ["RuntimeError"], "only the second call"
    finally:
        apart.close()


def test_a_device_that_eager_cannot_use_ends_the_run():
    """Cases that eager does not run are skipped: without this, all of them would be."""
    with pytest.raises(RuntimeError, match="eager cannot run on cuda:99: "):
        referee.started(HEAD, "cuda:99", os.environ)
