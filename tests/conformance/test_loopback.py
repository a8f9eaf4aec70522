"""The suite catches every fault of the loopback backends, by the case that it names, alone."""

from __future__ import annotations

import pytest

from torchmux.conformance import life, loopback, report, runner, semantics
from torchmux.conformance.judging.judge import judge
from torchmux.conformance.outcome import Outcome
from torchmux.conformance.requirements import Requirements

CASES = {case.id: case for case in (*semantics.cases(), *life.cases())}

SAMPLE = (
    "wrong_value", "half_through_bfloat16", "truncated_float32", "products_summed_in_bfloat16", "positive_zeros",
    "wide_integers_as_floats", "unchecked_words", "wrong_stride", "forgotten_beginnings", "one_memory_for_two_results",
    "lost_mutation", "stale_result", "draws_of_torch", "other_environment", "no_subnormals", "patched_function",
    "other_exceptions", "silent_fallback_of_layers", "ignored_option", "failure", "means_for_broadcasts",
    "unchecked_saved_tensors", "one_momentum", "touched_inputs", "tiles_of_transposes", "multiples_of_sixteen",
    "no_dimensions_promote", "copies_for_nothing", "results_by_version",
    "chatter_of_a_library", "silent_fallback_in_backward", "plus_nothing", "twice_by_two", "indices_that_stay",
    "no_divisor", "keys_without_strides", "numbers_by_equality", "quotients_for_products", "counts_modulo_bits",
    "environment_past_python", "marks_on_inputs", "unbounded_logarithms", "bins_that_are_open", "saturated_conversions",
    "plans_of_the_last_but_one", "keys_without_words", "places_in_float32", "no_assertions", "three_real_products",
    "memory_of_dropped_code", "made_once", "zeros_in_order_of_bits", "slopes_of_columns", "any_by_sums_of_bytes",
    "special_functions_in_float32", "groups_of_neighbors", "cuts_that_pad", "second_derivatives_of_broadcasts",
    "others_run_twice", "draws_by_any_share", "solved_from_the_left", "no_smallest_integer", "exits_are_exceptions",
    "kernels_of_torch_replaced", "opposites_as_they_lie", "given_gradients_overwritten",
    "softmax_of_a_number", "losses_of_no_examples", "places_that_are_left_out", "logarithms_of_two_by_others",
    "rectified_nan_without_slopes", "blocks_by_columns", "places_by_columns", "patched_paths",
    "a_switch_that_rounds", "hooks_after_gradients", "tables_by_their_sums", "one_call_at_a_time",
    "silent_fallback_of_doubles", "columns_as_biases", "roundings_in_rows", "half_quotients_cut",
    "rows_that_repeat", "tensors_as_numbers", "parts_of_joins_copied", "gradients_up_to_ten_thousand",
    "masks_before_their_scale", "bfloat16_in_float16",
    "integer_products_in_float32", "places_in_what_is_turned", "scales_are_positive",
    "bells_of_any_cube", "words_by_products", "lanes_of_zeros_are_the_largest", "spreads_of_the_whole_count",
    "functions_of_integers_in_half", "drops_that_select",
)  # fmt: skip
"""Every third of these is part of the default run; ``-m slow`` has all, each in a process of its own, as faults need
that only the memory of the process shows."""


def test_every_fault_is_described():
    assert len(loopback.ALL) >= 1597
    assert all(fault.text and fault.case in CASES for fault in loopback.ALL.values())
    kinds = {"numerics", "simplifications", "corners", "edges", "arguments", "layout", "training", "state", "keys",
             "turns", "process", "honesty"}  # fmt: skip
    assert {fault.kind for fault in loopback.ALL.values()} == kinds


@pytest.mark.sampled(3)
@pytest.mark.parametrize("fault", SAMPLE)
def test_fault_is_caught(fault):
    outcome, name = loopback.CAUGHT_AS[fault]
    result = judge(CASES[name], loopback.Loopback(fault))
    assert result.outcome is outcome, result.reason
    assert result.reason


@pytest.mark.slow
@pytest.mark.parametrize("fault", [fault for fault in loopback.FAULTS if fault != "crash"])
def test_each_fault_is_caught_alone(fault):
    """By one case, in a process that ran nothing before."""
    outcome, name = loopback.CAUGHT_AS[fault]
    (result,) = runner.run(
        [name],
        backend=f"loopback_{fault}",
        requirements=f"torchmux.conformance.loopback:requirements_{fault}",
        level="full",
        seconds=15 if fault == "hang" else 120,
    )
    assert result.outcome is outcome, result.reason


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({fault.case for fault in loopback.ALL.values() if fault.kind != "honesty"}))
def test_a_right_backend_passes_what_catches_faults(name):
    (result,) = runner.run([name], backend="eager", level="full")
    assert result.outcome is Outcome.PASS, result.reason


def test_a_run_goes_on_after_a_crash():
    outcome, name = loopback.CAUGHT_AS["crash"]
    other = "semantics/use/unknown_option"
    first, second = runner.run(
        [name, other],
        backend="loopback_crash",
        requirements="torchmux.conformance.loopback:requirements_crash",
        seconds=120,
    )
    assert (first.case, first.outcome) == (name, outcome)
    assert first.reason == "its process was killed by SIGSEGV"
    assert (second.case, second.outcome) == (other, Outcome.PASS), "the run does not go on"


def test_results_tell_the_kinds_of_operators():
    result = judge(CASES["semantics/structure/a_small_network"], Requirements("eager"))
    assert result.kinds["library"] > 0
    assert report.kinds([result, result]) == {kind: 2 * number for kind, number in result.kinds.items()}
