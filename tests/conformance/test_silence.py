"""What torch runs in a call, beside what the report says."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from torchmux.conformance.judging import silence


def _event(name, parent=None):
    return SimpleNamespace(name=name, cpu_parent=parent)


def test_steps_of_an_operator_are_those_of_the_outermost_one():
    engine = _event("autograd::engine::evaluate_function: CompiledFunctionBackward")
    softmax, library = _event("aten::softmax", engine), _event("a_library::noted", engine)
    events = [
        engine,
        softmax,
        _event("aten::exp", softmax),
        library,
        _event("aten::sinh", _event("aten::mul", library)),
    ]
    assert set(silence._computed(events)) == {"softmax", "a_library::noted"}


def test_derivatives_of_what_torch_ran_are_told_only_within_compiled_code():
    of_torch = _event("autograd::engine::evaluate_function: MulBackward0")
    compiled = _event("autograd::engine::evaluate_function: CompiledFunctionBackward")
    within = _event("autograd::engine::evaluate_function: SinBackward0", compiled)
    events = [_event("aten::mul", of_torch), _event("aten::cos", within), _event("aten::neg", compiled)]
    assert set(silence._computed(events)) == {"cos", "neg"}


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


def test_calls_of_each_kind_are_replayed_and_the_last_one():
    """A backend may let torch run calls with some sizes only."""
    watch, x = silence.Watch(3), torch.ones(6, 6)

    def function(x):
        return x.sin() if len(x) == 1 else x.cos() if len(x) == 6 else x.tan()

    for size in (2, 1, 1, 3, 4, 5, 6):
        watch.keep(function, (x[:size],), {})
    assert watch.ran(lambda: 0) == {"sin", "cos", "tan"}
    assert len(watch.calls) == 1
