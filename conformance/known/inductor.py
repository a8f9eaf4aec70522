"""What torch's own compiler gets wrong, by the script that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..requirements import Expected, Requirements
from .shared import SCRIPTS

_STRIDES = r"(\[.*\]: strides |call\[\d+\]\['strides'\])"
_RAISED = r"(\[.*\]|call\[\d+\]\['raised'\]): 'RuntimeError', eager has 'IndexError'"
_SHARES = r"(\[.*\]: shares memory |call\[\d+\]\['(shares memory with|is an input)'\])"
_FAILS = "CompilationFailed: inductor raised InductorError"


def _results(*numbers: int) -> str:
    """How the words of a difference in one of these results begin."""
    return rf"\[({'|'.join(map(str, numbers))})\]: "


# By script: why, on which device, and the cases with how the words of each of their differences begin.
_INDUCTOR: tuple[tuple[str, str, str, Mapping[str, str]], ...] = (
    (
        "gpu_functions",
        "Inductor's code for GPUs takes numbers near zero for zero, loses signs of zeros and last digits.",
        "cuda",
        {
            "semantics/special/roots_and_powers": _results(1, 8),
            "semantics/special/rounding": _results(1, 2),
            "semantics/special/activations": _results(3, 7, 12),
            "semantics/special/powers_of_pairs": _results(0),
            "semantics/special/functions_of_pairs": _results(0, 2),
            "semantics/edges/numbers_that_are_nearly_zero": r"\[\d+\]: ",
            "semantics/functions/arithmetic": r"(\[0\]\[24\]|\[1\]\[0\]): ",
            "semantics/identities/orders": _results(26),
            "semantics/inputs/of_floats": _results(3),
            "semantics/structure/nested_results": r"\['b'\]\['c'\]: ",
        },
    ),
    (
        "gpu_numbers",
        "Inductor's code for GPUs has other results for infinities, nan, powers of ten and large remainders; and what "
        "torch_cumulative_products.py shows.",
        "cuda",
        {
            "semantics/functions/special_functions": _results(6, 7, 15, 27, 28, 29),
            "semantics/everywhere/functions_in_float64": r"\[0\]\[33\]: ",
            "semantics/rare/numbers_that_are_rarely_tried": _results(8, 9, 18, 25),
            "semantics/slopes/at_kinks": r"\[0\]\[1\]\[(35|37|46)\]: ",
            "semantics/values/at_exact_points": _results(18, 27),
            "semantics/values/far_from_zero": _results(35, 54),
            "semantics/values/rarely_finite": _results(28, 31, 54, 67, 77),
            "semantics/unusual/arguments_of_orders_and_places": r"\[0\]\[(44|45|56)\]: ",
        },
    ),
    (
        "gpu_conversions",
        "Inductor on GPUs leaves out conversions to half precision, and converts what is out of range in other ways.",
        "cuda",
        {
            "semantics/accuracy/conversions": _results(2, 3, 6, 7),
            "semantics/identities/conversions_in_turn": _results(0, 1, 3, 4, 10, 12, 15),
            "semantics/dtypes/eight_bits": _results(0, 1),
            "semantics/edges/beyond_integers": _results(2, 7, 8, 9, 10, 11, 12, 15),
            "semantics/unusual/narrow_and_unsigned_types": _results(45, 46),
            "semantics/selections/joins_and_parts": r"(\[0\]\[4\]|\[1\]\[1\]): ",
            "semantics/widths/numbers_beside_half_types": _results(0, 1, 2, 3, 4, 5),
            "semantics/identities/layers_in_turn": r"\[0\]\[58\]: ",
            "semantics/attributes/converted": _results(22, 23, 24, 32, 34, 37),
        },
    ),
    (
        "gpu_conversions",
        "Inductor on GPUs leaves out conversions to half precision; and what inductor_simplifications.py and "
        "inductor_gpu_orders.py show of products with zero and of the place of the largest.",
        "cuda",
        {
            "semantics/joins/functions_of_functions": rf"({_results(35, 36, 39)}|{_SHARES})",
            "semantics/joins/reductions_behind_others": _results(30, 31, 32, 44),
        },
    ),
    (
        "gpu_code",
        "Inductor's code for some programs does not compile for GPUs.",
        "cuda",
        {
            "semantics/dtypes/ranges": _FAILS,
            "semantics/selections/other_views": _FAILS,
            "semantics/derivatives/sums_of_what_was_written": "CompilationFailed: inductor raised AssertionError",
            "semantics/everywhere/of_parts": "CompilationFailed: inductor raised AssertionError",
            "semantics/randomness/places_that_are_drawn": "CompilationFailed: inductor raised RuntimeError",
            "semantics/slopes/of_spectra": "InductorError: AttributeError: 'complex' object",
        },
    ),
    (
        "gpu_orders",
        "Inductor's code for GPUs takes nan for less than all edges, and positive zeros for negative ones.",
        "cuda",
        {
            "semantics/selections/ranks": rf"({_results(28, 29, 30, 31)}|\[43\]\[1\]: )",
            "semantics/windows/padding": r"\[0\]\[10\]: ",
            "semantics/values/places_of_each_kind": _results(64, 132),
        },
    ),
    (
        "gpu_random",
        "Inductor's code for GPUs draws other numbers than eager, also with fallback_random.",
        "cuda",
        {
            "semantics/randomness/order_of_draws": r"\S+ is off by ",
            "semantics/randomness/each_distribution": r"(\[0\]\[[01]\]|call\[[01]\]\['random'\])",
            "semantics/randomness/layers_that_drop": r"\[(0|1)\]",
        },
    ),
    (
        "gpu_recordings",
        "Inductor's recordings of CUDA graphs give the memory of a result to the next call, as torch documents.",
        "cuda",
        {"semantics/use/modes_and_switches": "comparing its results raises RuntimeError: "},
    ),
    (
        "settings",
        "AOTAutograd turns gradients off for all operators of a graph that needs none.",
        "",
        {"semantics/modes/settings_that_operators_see": r"\[\d+\]: "},
    ),
    (
        "simplifications",
        "Inductor loses nan and signs in products with zero and returns inputs where eager returns copies.",
        "cuda",
        {"semantics/identities/nothing_and_one": rf"({_results(0, 1, 5, 8, 11, 15, 17, 18, 24, 26, 31)}|{_SHARES})"},
    ),
    (
        "integers",
        "Inductor: whether any uint8 is not zero is a bool, and in eager a uint8; it finds another of equal bools.",
        "cuda",
        {"semantics/reductions/of_integers": rf"({_results(11, 16)}|\[135\]\[1\]: )"},
    ),
    (
        "functions",
        "Inductor's code for expm1, atanh, erf and what consists of them has fewer digits than torch's kernels.",
        "cpu",
        {
            "semantics/numbers/far_from_one": _results(4),
            "semantics/special/exponentials": _results(2),
            "semantics/special/hyperbolic_functions": _results(4, 5),
            "semantics/special/whole_ranges": _results(0),
            "semantics/special/activations": _results(2, 3, 4, 12),
            "semantics/layers/activations": r"\[[01]\]\[0\]: ",
            "semantics/functions/activations": r"\[0\]\[[012]\]: ",
            "semantics/corners/arguments": _results(26),
            **{
                f"operators/{op}/float32-forward": r"\[\d+\]: \S+ is off by "
                for op in ("atanh", "erf", "expm1", "nn.functional.gelu")
            },
        },
    ),
    (
        "simplifications",
        "Inductor loses nan and signs in products with zero, signs of zeros at bounds, and takes other powers.",
        "",
        {
            "semantics/numbers/not_finite": _results(8),
            "semantics/special/signs_of_zeros": r"\[\d+\]: -?0\.0 at ",
            "semantics/keys/numbers_that_are_equal": r"\[[01]\]\[(5|11)\]\[4\]: ",
            "semantics/identities/nothing_and_one": rf"({_results(0, 1, 5, 11, 24, 31)}|{_SHARES})",
        },
    ),
    (
        "simplifications",
        "Inductor takes a power of minus one half for the inverse of a root, which it is not at minus infinity.",
        "cpu",
        {"semantics/special/roots_and_powers": _results(8)},
    ),
    (
        "roundings",
        "Inductor's fused code does not round to half precision where a program converts to it and back.",
        "",
        {
            "semantics/accuracy/conversions": _results(2, 3),
            "semantics/dtypes/remainders_of_halves": _results(0, 1, 2),
            "semantics/identities/conversions_in_turn": _results(0, 1, 4, 10, 12, 15),
            "semantics/widths/of_half_types": _results(26, 27),
        },
    ),
    (
        "roundings",
        "Inductor's fused code does not round to half precision where a program converts to it and back; nor has its "
        "expm1 the digits of torch's.",
        "cpu",
        {
            "semantics/edges/numbers_that_are_nearly_zero": _results(11, 23, 25, 26, 28),
            "semantics/widths/numbers_beside_half_types": _results(0, 1, 2, 3, 4, 5),
            "semantics/identities/layers_in_turn": r"\[0\]\[58\]: ",
        },
    ),
    (
        "layouts",
        "Inductor chooses other strides for results than eager.",
        "",
        {
            "semantics/aliasing/layouts_of_joined_images": _STRIDES,
            "semantics/numbers/no_elements": _STRIDES,
            "semantics/indices/classes_of_transposed_labels": _STRIDES,
            "semantics/corners/layouts_of_what_is_made": rf"({_STRIDES}|{_SHARES})",
            "models/qwen3/inference": _STRIDES,
            "models/t5/inference": _STRIDES,
        },
    ),
    (
        "aliases",
        "Inductor returns inputs where eager returns copies, such as products with ones and sums with zeros.",
        "",
        {"semantics/corners/transposes_of_each_size": _SHARES},
    ),
    (
        "aliases",
        "Inductor returns one tensor for results that are equal.",
        "",
        {
            "semantics/mutation/what_is_made_is_written": _SHARES,
            "semantics/rare/decompositions": _SHARES,
        },
    ),
    (
        "aliases",
        "Inductor returns one tensor for results that are equal.",
        "cpu",
        {"semantics/modules/recurrent": _SHARES},
    ),
    (
        "windows",
        "Inductor loses elements between windows that are written to.",
        "",
        {"semantics/rare/windows_that_are_written": rf"({_results(1)}|\[0\]\[[12]\]: |call\[0\]\['inputs'\]\[0\]: )"},
    ),
    (
        "exceptions",
        "Inductor's code on a CPU raises a RuntimeError for an index out of range.",
        "cpu",
        {
            **{
                f"semantics/indices/{case}": _RAISED
                for case in (
                    "read_out_of_range",
                    "read_before_the_beginning",
                    "selected_out_of_range",
                    "words_out_of_range",
                    "written_out_of_range",
                    "classes_out_of_range",
                )
            },
            "semantics/gradients/after_exceptions": _RAISED,
            "semantics/turns/nothing_is_kept_of_failures": _RAISED,
            "semantics/turns/writes_after_exceptions": _RAISED,
        },
    ),
    (
        "exceptions",
        "Inductor does not compile the largest of no elements, and eager's exception is another.",
        "",
        {"semantics/corners/extremes_of_nothing": r"(\[[03]\]|call\[[03]\]\['raised'\]): 'CompilationFailed'"},
    ),
    (
        "gradients",
        "AOTAutograd gives results without a gradient zeros, which lead to nan at the poles of their derivatives.",
        "",
        {"semantics/special/gradients": r"\[\d+\]: nan at "},
    ),
    (
        "gradients",
        "AOTAutograd has no derivatives of backward passes.",
        "",
        {
            f"semantics/{case}": "DerivativeUnavailable: inductor computes gradients, and no other derivatives"
            for case in (
                "gradients/second_derivatives",
                "derivatives/gradients_of_gradients",
                "derivatives/second_derivatives_of_each_kind",
            )
        },
    ),
    (
        "pooling",
        "Inductor's gradients of means over windows that end outside of the image are wrong.",
        "",
        {
            "semantics/layers/pooling": r"\[2\]\[0\]: ",
            "semantics/attributes/pools": r"\[1\]\[0\]: ",
            "semantics/attributes/values_at_once": r"\[1\]\[0\]: ",
        },
    ),
    (
        "remainders",
        "Inductor computes remainders and rounded quotients by a division, which is another result at infinities.",
        "",
        {
            "semantics/special/remainders_of_pairs": _results(0, 2),
        },
    ),
    (
        "remainders",
        "Inductor computes remainders and rounded quotients by a division, which is another result at infinities.",
        "cpu",
        {"operators/remainder/float32-forward": r"\[1\]: "},
    ),
    (
        "integers",
        "Inductor: whether any uint8 is not zero is a bool, and in eager a uint8.",
        "",
        {"semantics/integers/uint8": r"\[2\]\[6\]: dtype torch.bool"},
    ),
    (
        "integers",
        "Inductor's code for comparisons of int64 assumes that nothing overflows.",
        "cpu",
        {"semantics/identities/integers_at_their_limits": _results(33)},
    ),
    (
        "integers",
        "Inductor does not compile extremes of bools, nor sums of uint8 as bools.",
        "cpu",
        {"semantics/selections/ranks": _FAILS, "semantics/reductions/of_integers": _FAILS},
    ),
    (
        "integers",
        "Inductor does not compile the logarithm of a sum of exponentials of nothing but minus infinities.",
        "",
        {"semantics/reductions/arguments": _FAILS},
    ),
    (
        "division_by_zero",
        "Inductor's code for truncating divisions of integers ends the process when it divides by zero.",
        "cpu",
        {"semantics/identities/divisions_by_nothing": "its process was killed by SIGFPE"},
    ),
    (
        "sampling",
        "Inductor's samples at nan are zeros, and its zeros have other signs.",
        "",
        {"semantics/edges/between_pixels": r"\[\d+\]: ", "semantics/windows/sampling": r"\[0\]\[7\]: -?0\.0 at "},
    ),
    (
        "autocast",
        "Under autocast, torch.compile computes a pseudo-inverse in float32.",
        "",
        {"semantics/modes/casts_inside_of_operators": r"\[0\]: dtype torch.float32"},
    ),
    (
        "views",
        "Inductor has no conjugates by a flag, so that their imaginary parts are no views.",
        "cpu",
        {
            "semantics/selections/other_views": rf"({_SHARES}|call\[0\]\['results'\]\[5\]: )",
        },
    ),
)


class Inductor(Requirements):
    """torch's own compiler, with the option for torch's random numbers; by default it draws different ones."""

    backend = "inductor"
    seconds = 600.0  # it compiles one kernel after another
    # Signals are blocked or ignored otherwise after the first kernel for a GPU; what does it is not known.  What builds
    # code for CPUs imports setuptools, which adds to the path.
    sets = ("recursion limit", "signals of the process", "import hooks", "sys.path")
    options: Mapping[str, Any] = {"fallback_random": True}
    expected = (
        *(
            Expected(
                cases,
                "torch uses zeros for results without a gradient, under torch.compile as well.",
                SCRIPTS + "torch_zeros_for_no_gradient.py",
                "torch>=2.11,<2.16",
            )
            for cases in (
                "semantics/training/a_part_of_the_results",
                "semantics/training/beside_an_infinite_derivative",
            )
        ),
        *(
            Expected(case, why, f"{SCRIPTS}inductor_{script}.py", "torch>=2.11,<2.16", only=only, device=device)
            for script, why, device, cases in _INDUCTOR
            for case, only in cases.items()
        ),
        Expected(
            "semantics/orders/of_products",
            "Inductor pads products on a GPU where it finds that quicker; this case has the strides among its results.",
            SCRIPTS + "inductor_padding.py",
            "torch>=2.11,<2.16",
            sometimes=True,
            only=rf"({_STRIDES}|\[.*\]: \d+, eager has \d+)",
            device="cuda",
        ),
        Expected(
            "*",
            "Inductor pads products on a GPU where it finds that quicker, and returns parts of what it computed.",
            SCRIPTS + "inductor_padding.py",
            "torch>=2.11,<2.16",
            sometimes=True,  # it measures each time
            only=rf"(process \d of \d: )?{_STRIDES}",
            device="cuda",
        ),
    )
