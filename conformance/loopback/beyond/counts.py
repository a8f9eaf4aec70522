"""Faults that only some counts, sizes, ranges and settings have, which few programs reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ..kit import Faults, Run, with_gradient

turns = Faults("turns")
keys = Faults("keys")
layout = Faults("layout")
numerics = Faults("numerics")
training = Faults("training")

_THREADS = "semantics/counts/each_number_of_threads"
_PROGRAMS = "semantics/counts/many_programs"
_SIZES = "semantics/counts/gradients_of_any_size"
_HALVES = "semantics/counts/ranges_of_half_types"
_MANY = "semantics/counts/gradients_of_many"
_PASSING = "semantics/counts/layers_that_only_pass_on"
_DIMENSIONS = "semantics/counts/more_dimensions"
_FORMS = "semantics/counts/inputs_of_rare_forms"
_SETTINGS = "semantics/counts/rare_settings"


def _tensors(args: Sequence[Any]) -> list[torch.Tensor]:
    return [a for a in args if isinstance(a, torch.Tensor) and a.layout is torch.strided]


def _nearly(result: Any) -> Any:
    """A hundredth more, but for integers."""
    is_float = isinstance(result, torch.Tensor) and (result.is_floating_point() or result.is_complex())
    return result * 1.01 if is_float else result


def _where(faults: Faults, case: str, name: str, text: str, holds: Callable[[Sequence[Any]], bool]) -> None:
    """A fault in all results of calls whose arguments, or surroundings, are so."""

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        def call(*args: Any) -> Sequence[Any]:
            wrong = holds(args)
            return [_nearly(r) if wrong else r for r in gm.forward(*args)]

        return call

    compile.__name__, compile.__doc__ = name, text
    faults(case)(compile)


def _passing(case: str, name: str, text: str, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A fault in the gradients of all inputs."""

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        plain = lambda g: change(g) if isinstance(g, torch.Tensor) and g.layout is torch.strided else g  # noqa: E731
        return lambda *args: gm.forward(*(with_gradient(a, plain) for a in args))

    compile.__name__, compile.__doc__ = name, text
    training(case)(compile)


def _with_threads(number: int) -> Callable[[Sequence[Any]], bool]:
    return lambda args: torch.get_num_threads() == number


def _with_dimensions(number: int) -> Callable[[Sequence[Any]], bool]:
    return lambda args: any(a.dim() == number for a in _tensors(args))


for _number, _word in ((3, "three"), (5, "five"), (6, "six"), (7, "seven"), (8, "eight"), (16, "sixteen")):
    _where(turns, _THREADS, f"wrong_with_{_word}_threads", f"With {_word} threads, results are nearly right.",
           _with_threads(_number))  # fmt: skip


def _after(count: int) -> Callable[[Any, Any], Run]:
    made: list[int] = []

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        made.append(1)
        late = len(made) > count
        return lambda *args: [_nearly(r) if late else r for r in gm.forward(*args)]

    return compile


for _count, _word in ((40, "forty"), (64, "sixty_four")):
    _late = _after(_count)
    _late.__name__, _late.__doc__ = (
        f"wrong_after_{_word}_programs",
        f"Behind {_count} programs, the next is nearly right.",
    )
    keys(_PROGRAMS)(_late)

_tables: dict[int, Sequence[Any]] = {}


@keys(_PROGRAMS)
def tensors_by_the_number_of_their_program(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """What a program closes over is kept by its number, of which there are 64."""
    number = len(_tables) % 64
    first = _tables.setdefault(len(_tables), inputs)
    if len(_tables) > 64:
        first = _tables[number]

    def read(a: Any, kept: Any) -> Any:
        alike = isinstance(a, torch.Tensor) and isinstance(kept, torch.Tensor) and a.shape == kept.shape
        return kept if alike and not a.requires_grad and len(_tables) > 64 else a

    return lambda *args: gm.forward(*map(read, args, first))


_passing(_SIZES, "gradients_up_to_ten_thousand", "Gradients are at most ten thousand.", lambda g: g.clamp(-1e4, 1e4))
_passing(_SIZES, "gradients_as_in_float16", "Gradients are at most as large as float16 has numbers.",
         lambda g: g.clamp(-65504, 65504))  # fmt: skip
_passing(_SIZES, "gradients_up_to_a_quadrillion", "Gradients are at most as large as 2 to the fiftieth power.",
         lambda g: g.clamp(-(2.0**50), 2.0**50))  # fmt: skip
_passing(_SIZES, "gradients_above_a_billionth", "Gradients below a billionth are zero.",
         lambda g: torch.where(g.abs() < 1e-9, torch.zeros_like(g), g))  # fmt: skip
_passing(_SIZES, "gradients_above_almost_nothing", "Gradients below 1e-25 are zero.",
         lambda g: torch.where(g.abs() < 1e-25, torch.zeros_like(g), g))  # fmt: skip
_passing(_SIZES, "gradients_that_are_numbers", "Gradients that are nan are zero.",
         lambda g: torch.where(g.isnan(), torch.zeros_like(g), g))  # fmt: skip
_passing(_SIZES, "gradients_that_are_finite", "Infinite gradients are the largest finite number.",
         lambda g: g.clamp(torch.finfo(g.dtype).min, torch.finfo(g.dtype).max))  # fmt: skip
_passing(_SIZES, "gradients_that_are_left_out", "Where a gradient is not finite, all of it is zero.",
         lambda g: g if g.isfinite().all() else torch.zeros_like(g))  # fmt: skip
_passing(_HALVES, "bfloat16_gradients_in_float16", "Gradients in bfloat16 pass through float16.",
         lambda g: g.half().bfloat16() if g.dtype is torch.bfloat16 else g)  # fmt: skip
_passing(_HALVES, "float16_gradients_without_subnormals", "Subnormal gradients in float16 are zero.",
         lambda g: torch.where(g.abs() < 6e-5, 0, g) if g.dtype is torch.float16 else g)  # fmt: skip
_passing(_MANY, "gradients_of_the_first_elements", "Behind 65,536 elements, gradients are nearly right.",
         lambda g: torch.cat([g.flatten()[: 2**16], g.flatten()[2**16 :] * 1.01]).view(g.shape))  # fmt: skip
_passing(_MANY, "gradients_of_more_columns_than_a_block", "Behind 256 columns, gradients are nearly right.",
         lambda g: torch.cat([g[..., :256], g[..., 256:] * 1.01], -1) if g.dim() == 1 else g)  # fmt: skip
_passing(_MANY, "gradients_of_more_rows_than_a_block", "Behind 256 rows of one column, gradients are nearly right.",
         lambda g: torch.cat([g[:256], g[256:] * 1.01]) if g.shape[1:] == (1,) else g)  # fmt: skip
_passing(_PASSING, "complex_gradients_in_single_precision", "Gradients of complex128 pass through complex64.",
         lambda g: g.to(torch.complex64).to(g.dtype) if g.dtype is torch.complex128 else g)  # fmt: skip


def _weights(args: Sequence[Any]) -> list[torch.Tensor]:
    return [a for a in args if isinstance(a, torch.nn.Parameter)]


@training(_PASSING)
def frozen_layers_pass_nothing_on(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Where no weight learns, the gradient of the input is nearly right."""

    def call(*args: Any) -> Sequence[Any]:
        frozen = bool(_weights(args)) and not any(w.requires_grad for w in _weights(args))
        return gm.forward(*(with_gradient(a, _nearly) if frozen else a for a in args))

    return call


@training(_PASSING)
def wrong_where_the_engine_looks(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Where autograd looks for what is no number, gradients are nearly right."""

    def call(*args: Any) -> Sequence[Any]:
        looks = torch.is_anomaly_enabled()
        return gm.forward(*(with_gradient(a, _nearly) if looks else a for a in args))

    return call


@numerics(_HALVES)
def bfloat16_in_float16(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Results in bfloat16 pass through float16: they overflow, and lose what is small."""
    through = lambda r: r.half().bfloat16() if getattr(r, "dtype", None) is torch.bfloat16 else r  # noqa: E731
    return lambda *args: list(map(through, gm.forward(*args)))


@numerics(_HALVES)
def bfloat16_inputs_in_float16(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Inputs in bfloat16 pass through float16."""
    through = lambda r: r.half().bfloat16() if getattr(r, "dtype", None) is torch.bfloat16 else r  # noqa: E731
    return lambda *args: gm.forward(*map(through, args))


def _extreme(dtype: torch.dtype, least: float, most: float) -> Callable[[Sequence[Any]], bool]:
    def holds(args: Sequence[Any]) -> bool:
        sizes = [a.detach().abs() for a in _tensors(args) if a.dtype is dtype]
        return any(bool(((s > least) & (s < most)).any()) for s in sizes)

    return holds


_where(numerics, _HALVES, "large_bfloat16", "Beside numbers beyond float16, results in bfloat16 are nearly right.",
       _extreme(torch.bfloat16, 65504.0, 1e38))  # fmt: skip
_where(numerics, _HALVES, "tiny_bfloat16", "Beside what is tiny, results in bfloat16 are nearly right.",
       _extreme(torch.bfloat16, 0.0, 1e-9))  # fmt: skip
_where(numerics, _HALVES, "large_float16", "Beside thousands, results in float16 are nearly right.",
       _extreme(torch.float16, 2e3, 1e5))  # fmt: skip
_where(numerics, _HALVES, "infinite_float16", "Beside infinity, results in float16 are nearly right.",
       lambda args: any(a.dtype is torch.float16 and bool(a.isinf().any()) for a in _tensors(args)))  # fmt: skip
for _number, _word in ((7, "seven"), (8, "eight"), (9, "nine")):
    _where(layout, _DIMENSIONS, f"wrong_with_{_word}_dimensions", f"With {_word} dimensions, results are nearly right.",
           _with_dimensions(_number))  # fmt: skip


@layout.operator(_DIMENSIONS, "permute")
def at_most_eight_dimensions(result: torch.Tensor, x: torch.Tensor, *dims: Any) -> torch.Tensor:
    """Of more than eight dimensions, the last two are not turned."""
    return result.transpose(-1, -2) if x.dim() > 8 else result


@numerics.operator(_DIMENSIONS, "sum", "amax")
def three_dimensions_at_once(result: torch.Tensor, x: torch.Tensor, dims: Any = (), *rest: Any) -> torch.Tensor:
    """More than three dimensions are not summed, and not more than two apart from the ends."""
    return (
        _nearly(result) if isinstance(dims, tuple) and (len(dims) > 3 or (len(dims) == 3 and x.dim() > 8)) else result
    )


def _lies(a: torch.Tensor) -> bool:
    return a.dim() == 4 and a.transpose(1, 2).is_contiguous() and not a.is_contiguous()


_where(layout, _FORMS, "heads_beside_rows", "With heads that lie beside rows, results are nearly right.",
       lambda args: any(map(_lies, _tensors(args))))  # fmt: skip
_where(layout, _FORMS, "steps_of_three", "With an input in steps of three, results are nearly right.",
       lambda args: any(a.dim() == 1 and a.stride(0) == 3 for a in _tensors(args)))  # fmt: skip
_where(layout, _FORMS, "steps_in_both_dimensions", "With steps in both dimensions, results are nearly right.",
       lambda args: any(a.dim() == 2 and a.stride(1) == 3 for a in _tensors(args)))  # fmt: skip
_where(layout, _FORMS, "indices_that_repeat", "With one index that is repeated, results are nearly right.",
       lambda args: any(a.dtype is torch.int64 and a.stride() == (0,) for a in _tensors(args)))  # fmt: skip
_where(numerics, _FORMS, "masks_that_select_nothing", "With a mask that selects nothing, results are nearly right.",
       lambda args: any(a.dtype is torch.bool and a.numel() > 0 and not a.any() for a in _tensors(args)))  # fmt: skip
_where(numerics, _FORMS, "masks_that_select_everything", "With a mask that selects all, results are nearly right.",
       lambda args: any(a.dtype is torch.bool and a.dim() > 1 and bool(a.all()) for a in _tensors(args)))  # fmt: skip
_where(layout, _FORMS, "nothing_in_the_middle", "With no elements in the middle, the others are nearly right.",
       lambda args: any(a.dim() == 3 and not a.numel() for a in _tensors(args)))  # fmt: skip
_where(numerics, _FORMS, "single_beside_double_complex", "Float32 beside complex128 is nearly right.",
       lambda args: {torch.float32, torch.complex128} <= {a.dtype for a in _tensors(args)})  # fmt: skip


@numerics.operator(_FORMS, "to")
def integers_without_signs_have_one(result: torch.Tensor, x: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    """Integers of 32 bits without a sign are converted as if they had one."""
    return result.to(torch.int32).to(torch.int64) if x.dtype is torch.uint32 else result


@numerics.operator(_FORMS, "to")
def half_of_64_bits(result: torch.Tensor, x: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    """Integers of 64 bits without a sign are converted by their lower half."""
    return result % 2**32 if x.dtype is torch.uint64 else result


_where(numerics, _SETTINGS, "less_precise_than_high", "Where products may be least precise, results are nearly right.",
       lambda args: torch.get_float32_matmul_precision() == "medium")  # fmt: skip
_where(numerics, _SETTINGS, "half_types_by_default", "Where the default is a half type, results are nearly right.",
       lambda args: torch.get_default_dtype() in (torch.float16, torch.bfloat16))  # fmt: skip
_where(numerics, _SETTINGS, "float16_by_default", "Where the default is float16, results are nearly right.",
       lambda args: torch.get_default_dtype() is torch.float16)  # fmt: skip
