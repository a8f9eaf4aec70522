"""What torch's own compiler gets wrong, by the script that shows it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..requirements import Expected, Requirements
from .before_213 import BEFORE_213, EXCEPTIONS
from .shared import CUMULATIVE, FAILS, RAISED, SCRIPTS, SHARES, STRIDES, results

# By script: why, on which device, and the cases with how the words of each of their differences begin.
_INDUCTOR: tuple[tuple[str, str, str, Mapping[str, str]], ...] = (
    (
        "gpu_functions",
        "Inductor's code for GPUs takes numbers near zero for zero, loses signs of zeros and last digits.",
        "cuda",
        {
            "semantics/special/roots_and_powers": results(1, 8),
            "semantics/special/rounding": results(1, 2),
            "semantics/special/activations": results(3, 7, 12),
            "semantics/special/powers_of_pairs": results(0),
            "semantics/special/functions_of_pairs": results(0, 2),
            "semantics/edges/numbers_that_are_nearly_zero": r"\[\d+\]: ",
            "semantics/functions/arithmetic": r"(\[0\]\[24\]|\[1\]\[0\]): ",
            "semantics/identities/orders": results(26),
            "semantics/inputs/of_floats": results(3),
            "semantics/structure/nested_results": r"\['b'\]\['c'\]: ",
        },
    ),
    (
        "gpu_numbers",
        "Inductor's code for GPUs has other results for infinities, nan, powers of ten and large remainders; and what "
        "torch_cumulative_products.py shows.",
        "cuda",
        {
            "semantics/functions/special_functions": results(6, 7, 15, 27, 28, 29),
            "semantics/everywhere/functions_in_float64": r"\[0\]\[33\]: ",
            "semantics/rare/numbers_that_are_rarely_tried": results(8, 9, 18, 25),
            "semantics/slopes/at_kinks": r"\[0\]\[1\]\[(35|37|46)\]: ",
            "semantics/values/at_exact_points": results(18, 27),
            "semantics/values/far_from_zero": results(35, 54),
            "semantics/values/rarely_finite": results(28, 31, 54, 67, 77),
            "semantics/unusual/arguments_of_orders_and_places": r"\[0\]\[(44|45|56)\]: ",
        },
    ),
    (
        "gpu_conversions",
        "Inductor on GPUs leaves out conversions to half precision, and converts what is out of range in other ways.",
        "cuda",
        {
            "semantics/accuracy/conversions": results(2, 3, 6, 7),
            "semantics/identities/conversions_in_turn": results(0, 1, 3, 4, 10, 12, 15),
            "semantics/dtypes/eight_bits": results(0, 1),
            "semantics/edges/beyond_integers": results(2, 7, 8, 9, 10, 11, 12, 15),
            "semantics/unusual/narrow_and_unsigned_types": results(45, 46),
            "semantics/selections/joins_and_parts": r"(\[0\]\[4\]|\[1\]\[1\]): ",
            "semantics/widths/numbers_beside_half_types": results(0, 1, 2, 3, 4, 5),
            "semantics/identities/layers_in_turn": r"\[0\]\[58\]: ",
            "semantics/attributes/converted": results(22, 23, 24, 32, 34, 37),
            "semantics/sequences/tables_and_places": results(80, 82),
        },
    ),
    (
        "gpu_conversions",
        "Inductor on GPUs leaves out conversions to half precision; and what inductor_simplifications.py and "
        "inductor_gpu_orders.py show of products with zero and of the place of the largest.",
        "cuda",
        {
            "semantics/joins/functions_of_functions": rf"({results(35, 36, 39)}|{SHARES})",
            "semantics/joins/reductions_behind_others": results(30, 31, 32, 44),
        },
    ),
    (
        "gpu_code",
        "Inductor's code for some programs does not compile for GPUs.",
        "cuda",
        {
            "semantics/dtypes/ranges": FAILS,
            "semantics/selections/other_views": FAILS,
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
            "semantics/selections/ranks": rf"({results(28, 29, 30, 31)}|\[43\]\[1\]: )",
            "semantics/windows/padding": r"\[0\]\[10\]: ",
            "semantics/values/places_of_each_kind": results(64, 132),
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
            "semantics/randomness/rare_distributions": r"(\[0\]\[[01]\]|\[1\]: |call\[[01]\]\['random'\])",
            "semantics/seldom/draws_of_each_share": r"(\[\d+\]: |call\[0\]\['random'\])",
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
        {"semantics/identities/nothing_and_one": rf"({results(0, 1, 5, 8, 11, 15, 17, 18, 24, 26, 31)}|{SHARES})"},
    ),
    (
        "integers",
        "Inductor: whether any uint8 is not zero is a bool, and in eager a uint8; it finds another of equal bools.",
        "cuda",
        {"semantics/reductions/of_integers": rf"({results(11, 16)}|\[135\]\[1\]: )"},
    ),
    (
        "functions",
        "Inductor's code for expm1, atanh, erf and what consists of them has fewer digits than torch's kernels.",
        "cpu",
        {
            "semantics/numbers/far_from_one": results(4),
            "semantics/special/exponentials": results(2),
            "semantics/special/hyperbolic_functions": results(4, 5),
            "semantics/special/whole_ranges": results(0),
            "semantics/special/activations": results(2, 3, 4, 12),
            "semantics/layers/activations": r"\[[01]\]\[0\]: ",
            "semantics/functions/activations": r"\[0\]\[[012]\]: ",
            "semantics/corners/arguments": results(26),
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
            "semantics/numbers/not_finite": results(8),
            "semantics/special/signs_of_zeros": r"\[\d+\]: -?0\.0 at ",
            "semantics/keys/numbers_that_are_equal": r"\[[01]\]\[(5|11)\]\[4\]: ",
            "semantics/identities/nothing_and_one": rf"({results(0, 1, 5, 11, 24, 31)}|{SHARES})",
        },
    ),
    (
        "simplifications",
        "Inductor takes a power of minus one half for the inverse of a root, which it is not at minus infinity.",
        "cpu",
        {"semantics/special/roots_and_powers": results(8)},
    ),
    (
        "roundings",
        "Inductor's fused code does not round to half precision where a program converts to it and back.",
        "",
        {
            "semantics/accuracy/conversions": results(2, 3),
            "semantics/dtypes/remainders_of_halves": results(0, 1, 2),
            "semantics/identities/conversions_in_turn": results(0, 1, 4, 10, 12, 15),
            "semantics/widths/of_half_types": results(26, 27),
        },
    ),
    (
        "roundings",
        "Inductor's fused code does not round to half precision where a program converts to it and back; nor has its "
        "expm1 the digits of torch's.",
        "cpu",
        {
            "semantics/edges/numbers_that_are_nearly_zero": results(11, 23, 25, 26, 28),
            "semantics/widths/numbers_beside_half_types": results(0, 1, 2, 3, 4, 5),
            "semantics/identities/layers_in_turn": r"\[0\]\[58\]: ",
        },
    ),
    (
        "layouts",
        "torch's fakes of draws from a tensor of rates have other strides than its kernels.",
        "",
        {"semantics/effects/draws_in_order_of_memory": "AssertionError: expected size"},
    ),
    (
        "layouts",
        "Inductor chooses other strides for results than eager.",
        "",
        {
            "semantics/aliasing/layouts_of_joined_images": STRIDES,
            "semantics/numbers/no_elements": STRIDES,
            "semantics/indices/classes_of_transposed_labels": STRIDES,
            "semantics/corners/layouts_of_what_is_made": rf"({STRIDES}|{SHARES})",
            "models/qwen3/inference": STRIDES,
            "models/t5/inference": STRIDES,
        },
    ),
    (
        "aliases",
        "Inductor returns inputs where eager returns copies, such as products with ones and sums with zeros.",
        "",
        {"semantics/corners/transposes_of_each_size": SHARES},
    ),
    (
        "aliases",
        "Inductor returns one tensor for results that are equal.",
        "",
        {
            "semantics/mutation/what_is_made_is_written": SHARES,
            "semantics/rare/decompositions": SHARES,
        },
    ),
    (
        "aliases",
        "Inductor returns one tensor for results that are equal.",
        "cpu",
        {"semantics/modules/recurrent": SHARES},
    ),
    (
        "windows",
        "Inductor loses elements between windows that are written to.",
        "",
        {"semantics/rare/windows_that_are_written": rf"({results(1)}|\[0\]\[[12]\]: |call\[0\]\['inputs'\]\[0\]: )"},
    ),
    (
        "exceptions",
        "Inductor's code on a CPU raises a RuntimeError for an index out of range.",
        "cpu",
        {
            **{
                f"semantics/indices/{case}": RAISED
                for case in (
                    "read_out_of_range",
                    "read_before_the_beginning",
                    "selected_out_of_range",
                    "words_out_of_range",
                    "written_out_of_range",
                    "classes_out_of_range",
                )
            },
            "semantics/gradients/after_exceptions": RAISED,
            "semantics/turns/nothing_is_kept_of_failures": RAISED,
            "semantics/turns/writes_after_exceptions": RAISED,
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
            "semantics/seldom/gradients_of_layers_apart": r"\[1\]\[1\]: ",
            "semantics/attributes/values_at_once": r"\[1\]\[0\]: ",
        },
    ),
    (
        "remainders",
        "Inductor computes remainders and rounded quotients by a division, which is another result at infinities.",
        "",
        {
            "semantics/special/remainders_of_pairs": results(0, 2),
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
        {"semantics/identities/integers_at_their_limits": results(33)},
    ),
    (
        "integers",
        "Inductor does not compile extremes of bools, nor sums of uint8 as bools.",
        "cpu",
        {"semantics/selections/ranks": FAILS, "semantics/reductions/of_integers": FAILS},
    ),
    (
        "integers",
        "Inductor does not compile the logarithm of a sum of exponentials of nothing but minus infinities.",
        "",
        {"semantics/reductions/arguments": FAILS},
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
            "semantics/selections/other_views": rf"({SHARES}|call\[0\]\['results'\]\[5\]: )",
        },
    ),
)


_TO_BE_MENDED = (
    (
        "semantics/effects/draws_of_rarer_forms",
        "Inductor's graphs name an overload of random as Python cannot, and it draws in another order.",
        r"(CompilationFailed: inductor raised InductorError.*SyntaxError|\[\d+\]|call\[)",
        "",
    ),
    *(
        (
            case,
            "Inductor does not compile this program, nor does torch.compile; which of its writes it is is not known.",
            "(CompilationFailed: inductor raised AssertionError|InductorError: CppCompileError)",
            "",
        )
        for case in (
            "semantics/selections/writes_of_each_form",
            "semantics/derivatives/sums_of_what_was_written",
            "semantics/everywhere/of_parts",
            "semantics/inputs/parts_of_any_size",
            "semantics/orders/along_dimensions",
        )
    ),
    *(
        (case, "Inductor's variance has fewer digits than eager's, under torch.compile as well.", only, "cpu")
        for case, only in (
            ("semantics/numbers/variance_of_shifted_numbers", results(0)),
            ("semantics/edges/usual_batches", r"\[0\]\[5\]: "),
        )
    ),
    (
        "semantics/orders/of_functions",
        "On a CPU, one result has other strides than eager's and one has fewer digits; whose fault it is is not known.",
        r"(\[[01]\]\[(45|48)\]|call\[[01]\]\['strides'\]\[45\])",
        "cpu",
    ),
    (
        "semantics/orders/of_products",
        "On a CPU, one result of one column has another stride than eager's; whose fault it is is not known.",
        r"\[[03]\]\[4\]\[1\]\[0\]: 1, eager has 9",
        "cpu",
    ),
    (
        "semantics/inputs/aligned_and_not",
        "On a GPU, a kernel reads an input that is not aligned as if it were; whose fault it is is not known.",
        "AcceleratorError: CUDA error: misaligned address",
        "cuda",
    ),
    (
        "semantics/seldom/places_of_each_form",
        "On a GPU, a formula multiplies tensors of two devices; which one is not known.",
        "CompilationFailed: inductor raised RuntimeError.*Unhandled FakeTensor Device Propagation",
        "cuda",
    ),
    (
        "semantics/seldom/forms_of_layers_and_moves",
        "On a GPU, the process ends; why is not known.",
        "its process ended with exit status 1",
        "cuda",
    ),
    (
        "semantics/counts/more_rows_and_columns",
        "On a GPU, Inductor does not compile one of the programs; which one is not known.",
        "CompilationFailed: inductor raised InductorError.*TypeError: list indices",
        "cuda",
    ),
)
"""Cases, what is known of them, how the words of their differences begin, and the device."""


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
        dataclasses.replace(CUMULATIVE, device="cpu"),
        *(
            Expected(case, why, SCRIPTS + "inductor_before_213.py", "torch>=2.11,<2.13", only=only, device="cpu")
            for why, cases in BEFORE_213
            for case, only in cases.items()
        ),
        *(
            Expected(
                case,
                "Where Inductor's code for a CPU raises, it is a RuntimeError, or ends the process, as divisions do.",
                SCRIPTS + "inductor_exceptions.py",
                "torch>=2.11,<2.13",
                sometimes=True,  # which signal it is, if one, differs from machine to machine
                only=only,
                device="cpu",
            )
            for case, only in EXCEPTIONS.items()
        ),
        *(
            Expected(case, f"To be mended: {why}", "", "torch>=2.11,<2.16", only=only, sometimes=True, device=device)
            for case, why, only, device in _TO_BE_MENDED
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
            only=rf"({STRIDES}|\[.*\]: \d+, eager has \d+)",
            device="cuda",
        ),
        Expected(
            "*",
            "Inductor pads products on a GPU where it finds that quicker, and returns parts of what it computed.",
            SCRIPTS + "inductor_padding.py",
            "torch>=2.11,<2.16",
            sometimes=True,  # it measures each time
            only=rf"(process \d of \d: )?{STRIDES}",
            device="cuda",
        ),
    )
