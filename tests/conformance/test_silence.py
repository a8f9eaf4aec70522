"""What torch runs in a call, beside what the report says."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from torchmux.conformance.judging import silence


def _event(name, parent=None):
    return SimpleNamespace(name=name, cpu_parent=parent)


def test_steps_of_an_operator_are_those_of_the_outermost_one():
    engine = _event("autograd::engine::evaluate_function: MulBackward0")
    softmax, library = _event("aten::softmax", engine), _event("a_library::noted", engine)
    events = [
        engine,
        softmax,
        _event("aten::exp", softmax),
        library,
        _event("aten::sinh", _event("aten::mul", library)),
    ]
    assert set(silence._computed(events)) == {"softmax", "a_library::noted"}


def test_moves_and_assertions_are_nobodys_computation():
    assert (
        list(silence._computed([_event("aten::copy_"), _event("aten::_assert_async"), _event("ProfilerStep#1")])) == []
    )


@pytest.mark.parametrize(
    ("reported", "silent"),
    [(["a_library.noted.default"], []), (["aten.sinh.default"], ["a_library::noted"]), ([], ["a_library::noted"])],
)
def test_an_operator_of_a_library_is_told_by_its_name(reported, silent):
    assert silence.silently({"a_library::noted"}, reported) == silent


def test_names_of_operators():
    names = ("aten._softmax.default", "aten::softmax", "Tensor.softmax", "torch.nn.functional.softmax")
    assert {silence.bare(name) for name in names} == {"softmax"}


def test_what_autograd_runs_to_undo_a_view_is_outside_of_the_graph():
    undoing = _event("AsStridedBackward0", _event("autograd::engine::evaluate_function: AsStridedBackward0"))
    assert list(silence._computed([_event("aten::index_add_", undoing), _event("aten::exp")])) == ["exp"]
