"""What torch's own compiler gets wrong on a CPU before torch 2.13, beside what it does later, too.

Each was seen under ``torch.compile`` as well, but for ``each_distribution`` and ``recurrent``: they show the same order
of draws, and the same results that share memory, only together with what else their case does.
"""

from __future__ import annotations

from collections.abc import Mapping

from .shared import FAILS, RAISED, SHARES, STRIDES, results

_ENDS = r"its process was killed by SIG(SEGV|ABRT|ILL|FPE)"
_UNCHECKED = r"(\[5\]|\[0\]\[22\]): Tensor, eager has str|calls: list of"  # classes of one_hot
_DRAWS = r"(\S+ is off by |(\[0\]\[[01]\]|\[[0-9]+\])|call\[[01]\]\['random'\])"

# As below, on a CPU with torch before 2.13.
BEFORE_213: tuple[tuple[str, Mapping[str, str]], ...] = (
    (
        "Inductor's code for a CPU draws in another order than the program, also with fallback_random.",
        {
            "semantics/randomness/order_of_draws": _DRAWS,
            "semantics/randomness/each_distribution": _DRAWS,
            "semantics/randomness/rare_distributions": _DRAWS,
            "semantics/randomness/layers_that_drop": _DRAWS,
            "semantics/seldom/draws_of_each_share": _DRAWS,
        },
    ),
    (
        "Inductor does not compile rows that a permutation draws.",
        {"semantics/randomness/places_that_are_drawn": "CompilationFailed: inductor raised RuntimeError"},
    ),
    (
        "Inductor does not compile bools that are read as bytes, nor bytes as bools.",
        {"semantics/selections/other_views": FAILS},
    ),
    (
        "Inductor does not compile gradients of parts of complex numbers.",
        {"semantics/slopes/of_spectra": "InductorError: AttributeError: 'complex' object"},
    ),
    (
        "Inductor's code for some functions has other results for infinities, nan and large numbers.",
        {
            "semantics/functions/special_functions": results(2, 15, 30, 31),
            "semantics/rare/losses_of_sequences_and_margins": r"(\[0\]\[5\]|\[2\]): ",
            "semantics/rare/numbers_that_are_rarely_tried": results(25, 28, 29),
            "semantics/values/functions_on_both_sides": results(21, 24),
            "semantics/values/far_from_zero": results(15, 27, 28, 35, 45, 48, 53, 58),
            "semantics/values/rarely_finite": results(31, 54, 65, 67),
            "semantics/edges/numbers_that_are_nearly_zero": results(11, 23, 25, 26, 28, 29),
        },
    ),
    (
        "Inductor's fused code does not round to half precision where a program converts to it and back.",
        {
            "semantics/identities/conversions_in_turn": results(0, 1, 3, 4, 10, 12, 15),
            "semantics/selections/joins_and_parts": r"\[1\]\[1\]: ",
            "semantics/seldom/places_of_each_form": results(66),
            "semantics/sequences/tables_and_places": results(80, 82),
        },
    ),
    (
        "Inductor chooses other strides for images in channels last that are padded or turned.",
        {"semantics/everywhere/images_in_channels_last": STRIDES},
    ),
    (
        "Inductor returns one tensor for results that are equal.",
        {"semantics/modules/recurrent": rf"({SHARES}|call\[\d\]\['begins at'\])"},
    ),
)

# What ends a process or raises another exception by chance.
EXCEPTIONS = {
    **dict.fromkeys(
        (
            "semantics/indices/read_out_of_range",
            "semantics/indices/read_before_the_beginning",
            "semantics/indices/selected_out_of_range",
            "semantics/indices/words_out_of_range",
            "semantics/indices/written_out_of_range",
            "semantics/indices/classes_out_of_range",
            "semantics/gradients/after_exceptions",
            "semantics/turns/nothing_is_kept_of_failures",
            "semantics/turns/writes_after_exceptions",
        ),
        rf"({RAISED}|{_ENDS})",
    ),
    **dict.fromkeys(
        (
            "semantics/indices/gathered_out_of_range",
            "semantics/indices/scattered_out_of_range",
            "semantics/indices/numbers_that_are_refused",
            "semantics/everywhere/of_equal_sizes",
            "semantics/smallest/refused_places",
            "semantics/smallest/refused_values",
        ),
        rf"({RAISED}|\[0\]\[\d+\]: 'RuntimeError', eager has 'IndexError'|{_UNCHECKED}|{_ENDS})",
    ),
}
