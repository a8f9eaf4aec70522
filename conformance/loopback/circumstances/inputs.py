"""Faults of inputs that lie elsewhere than usual, and of draws, numbers and calls that programs try rarely."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ..kit import Faults, Run, with_gradient

layout = Faults("layout")
numerics = Faults("numerics")
state = Faults("state")
turns = Faults("turns")

_FLOATS = "semantics/inputs/of_floats"
_DRAWS = "semantics/randomness/rare_distributions"
_FAR = "semantics/rare/numbers_far_out"


def _inputs(case: str, is_meant: Callable[[torch.Tensor], bool]) -> Callable[[Any], Any]:
    """A fault in inputs that lie in a certain way: the function returns what is read in their place."""

    def add(change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
            def read(a: Any) -> Any:
                return change(a) if isinstance(a, torch.Tensor) and is_meant(a) else a

            return lambda *args: gm.forward(*map(read, args))

        compile.__name__, compile.__doc__ = change.__name__, change.__doc__
        layout(case)(compile)
        return change

    return add


def _repeats(a: torch.Tensor) -> int:
    """Over how many dimensions elements are repeated."""
    return sum(stride == 0 and size > 1 for stride, size in zip(a.stride(), a.shape, strict=True))


@_inputs(_FLOATS, lambda a: a.dim() == 3 and a.stride(-1) != 1 and a.storage_offset() > 0 and not a.requires_grad)
def volumes_from_their_beginning(a: torch.Tensor) -> torch.Tensor:
    """A part of a turned tensor of three dimensions is read from the beginning of the memory."""
    return a.as_strided(a.shape, a.stride(), 0)


@_inputs(_FLOATS, lambda a: a.dim() == 3 and a.stride(1) == 0 and a.stride(2) != 0)
def rows_repeated_in_the_middle(a: torch.Tensor) -> torch.Tensor:
    """Rows of an input that is expanded in the middle are nearly right."""
    return a * 1.01


@_inputs(_FLOATS, lambda a: _repeats(a) > 1)
def numbers_repeated_twice(a: torch.Tensor) -> torch.Tensor:
    """An input that is expanded in two dimensions is nearly right."""
    return a * 1.01


@_inputs("semantics/inputs/of_half_types", lambda a: a.dtype is torch.bfloat16 and a.dim() == 3 and a.stride(-1) == 2)
def steps_in_half(a: torch.Tensor) -> torch.Tensor:
    """Steps of an input in half precision are read twice as far."""
    return a * 1.1


@_inputs("semantics/inputs/of_integers", lambda a: a.dtype is torch.bool and a.dim() == 3 and not a.is_contiguous())
def bools_in_order(a: torch.Tensor) -> torch.Tensor:
    """Bools of three dimensions are read as if they were contiguous."""
    return ~a


@_inputs("semantics/inputs/of_complex_numbers", lambda a: a.is_complex() and a.dim() == 3 and not a.is_contiguous())
def complex_volumes_in_order(a: torch.Tensor) -> torch.Tensor:
    """Complex numbers that are turned in three dimensions are nearly right."""
    return a * 1.1


@_inputs("semantics/inputs/with_gradients", lambda a: a.requires_grad and a.dim() == 1 and a.stride(0) > 1)
def gradients_of_steps(a: torch.Tensor) -> torch.Tensor:
    """The gradient of an input with steps is nearly right."""
    return with_gradient(a, lambda g: g * 1.01)


@layout("semantics/inputs/parts_of_one_memory")
def other_shapes_are_copies(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """An input that begins where another one of another shape does is copied before the program runs."""

    def call(*args: Any) -> Sequence[Any]:
        seen: dict[int, Any] = {}
        given = list(args)
        for at, a in enumerate(args):
            if not isinstance(a, torch.Tensor) or a.requires_grad or not a.numel():
                continue
            first = seen.setdefault(a.data_ptr(), a)
            if first.shape != a.shape:
                given[at] = a.clone()
        return gm.forward(*given)

    return call


@layout("semantics/corners/memory_of_results")
def results_behind_a_header(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Results lie behind sixteen bytes of the compiler's own."""

    def behind(r: Any, others: Sequence[Any]) -> Any:
        is_own = isinstance(r, torch.Tensor) and not r.requires_grad and r.is_contiguous() and not r._is_view()
        if not is_own or any(r is each for each in others):
            return r
        skipped = 16 // r.element_size()
        return r.new_empty(r.numel() + skipped)[skipped:].view(r.shape).copy_(r)

    return lambda *args: [behind(r, args) for r in gm.forward(*args)]


@numerics.operator(_DRAWS, "binomial")
def one_more_of_many(result: torch.Tensor, counts: torch.Tensor, *args: Any) -> torch.Tensor:
    """Of many trials, one more succeeds."""
    return torch.where(counts > 30, result + 1, result)


@numerics.operator(_DRAWS, "binomial")
def certain_trials(result: torch.Tensor, counts: torch.Tensor, shares: torch.Tensor, *args: Any) -> torch.Tensor:
    """What is certain to succeed fails once."""
    return torch.where(shares == 1, result - 1, result)


@numerics.operator(_DRAWS, "poisson")
def large_rates(result: torch.Tensor, rates: torch.Tensor, *args: Any) -> torch.Tensor:
    """Counts at a large rate are one more."""
    return torch.where(rates > 10, result + 1, result)


@numerics.operator(_DRAWS, "randperm")
def orders_of_more_than_a_warp(result: torch.Tensor, count: int, **named: Any) -> torch.Tensor:
    """More than 32 places are in reverse order."""
    return result.flip(0) if count > 32 else result


@numerics.operator(_DRAWS, "randint")
def draws_of_32_bits(result: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    """Integers that are drawn have at most 32 bits."""
    return result.clamp(-(2**31), 2**31 - 1) if result.dtype is torch.int64 else result


@numerics.operator(_FAR, "var_mean", "std_mean")
def counts_of_many(result: Any, x: torch.Tensor, *args: Any, **named: Any) -> Any:
    """Spreads of more than 256 numbers that are computed with their mean divide by the count."""
    count = x.numel() // max(1, result[0].numel())
    return (result[0] * (1 - 1 / count), result[1]) if count > 256 else result


@numerics.operator("semantics/rare/powers_of_two_and_steps", "ldexp")
def powers_of_two_that_vanish(result: torch.Tensor, x: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """What a power of two makes subnormal is zero."""
    return torch.where(result.abs() < 1.1e-38, torch.zeros_like(result), result)


@numerics.operator(_FAR, "mish")
def activations_that_end(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Above ten, an activation is the number itself, also in float64."""
    return torch.where(x > 10, x, result)


@numerics.operator(_FAR, "quantile")
def places_of_many_rounded(result: torch.Tensor, x: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    """The place of a quantile among many numbers is rounded."""
    return result + 1e-3 if x.shape[-1] > 256 else result


@numerics.instead("semantics/edges/beyond_integers", "to")
def narrow_integers_saturate(x: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    """A float that does not fit into an integer of 8 or 16 bits becomes the nearest that does."""
    dtype = args[0] if args else named.get("dtype")
    if x.is_floating_point() and dtype in (torch.int8, torch.uint8, torch.int16):
        limits = torch.iinfo(dtype)
        x = x.clamp(limits.min, limits.max)
    return x.to(*args, **named)


@state.compiling("semantics/mutation/input_in_place")
def sums_in_half_on_devices() -> None:
    """Compiling lets products on devices keep partial sums in half precision."""
    torch.backends.cuda.matmul.allow_fp16_accumulation = True


@state.compiling("semantics/mutation/input_in_place")
def errors_in_other_letters() -> None:
    """Compiling has Python leave out letters that standard errors do not have."""
    if isinstance(sys.__stderr__, io.TextIOWrapper):
        sys.__stderr__.reconfigure(errors="ignore")


@state.compiling("semantics/mutation/input_in_place")
def names_of_layers() -> None:
    """Compiling gives a class of layers another name."""
    torch.nn.RMSNorm.eps = 1e-3


@turns("life/calls/thousands_of_calls")
def wrong_after_four_hundred_calls(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """From the four hundredth call on, results are nearly right."""
    return _wrong_from(gm, 400)


@turns("life/calls/thousands_of_calls")
def wrong_after_a_thousand_calls(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """From the thousandth call on, results are nearly right."""
    return _wrong_from(gm, 1000)


def _wrong_from(gm: GraphModule, number: int) -> Run:
    calls = [0]

    def call(*args: Any) -> Sequence[Any]:
        calls[0] += 1
        results = gm.forward(*args)
        return results if calls[0] < number else [r * 1.01 if r.is_floating_point() else r for r in results]

    return call
