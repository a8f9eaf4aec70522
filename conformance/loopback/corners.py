"""Faults that only some sizes, dtypes, layouts or arguments have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import GraphModule

from ..outcome import Outcome
from .kit import Faults, Run, changed

faults = Faults("corners")


def _tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


# Sizes


_first_sizes: dict[Any, int] = {}


@faults.instead("semantics/shapes/parts_of_changing_sizes", "chunk")
def parts_of_the_first_size(x: torch.Tensor, parts: int, dim: int = 0) -> Any:
    """Parts of a tensor have the size that they had in the first call."""
    first = _first_sizes.setdefault((parts, dim, x.dim()), int(x.shape[dim]))
    return x.split(max(1, -(-first // parts)), dim)


@faults.operator("semantics/corners/reductions_of_each_size", "sum", "mean")
def odd_middles(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Sums over a dimension that is not the last lose its end, if its size is odd and above 64."""
    dim = rest[0] if rest else named.get("dim")
    if not isinstance(dim, int) or dim % x.dim() == x.dim() - 1 or x.shape[dim] < 65 or x.shape[dim] % 2 == 0:
        return result
    lost = x.select(dim, -1)
    return result - (lost.view_as(result) if result.numel() == lost.numel() else 0)


@faults.operator("semantics/corners/transposes_of_each_size", "contiguous", "clone", "add", "mul")
def tiles_of_transposes(result: torch.Tensor, x: Any, *rest: Any, **named: Any) -> torch.Tensor:
    """What is left of a transposed matrix after tiles of 32 by 32 is not transposed, if both sizes are above 64."""
    if not _tensor(result) or result.dim() != 2 or not _tensor(x) or x.stride(-1) == 1 or min(result.shape) <= 64:
        return result
    rows, columns = (n // 32 * 32 for n in result.shape)
    found = result.clone()
    if rows < result.shape[0]:
        found[rows:, :columns] = found[rows:, :columns].flip(-1)
    return found


@faults.operator("semantics/corners/nothing", "matmul", "linear", "bmm", "mm", "addmm")
def products_of_nothing(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Products whose inner dimension has no elements are not written."""
    return torch.full_like(result, 0.5) if x.dim() > 1 and x.shape[-1] == 0 and result.numel() else result


@faults.instead("semantics/corners/extremes_of_nothing", "amax", "amin", "max", "min", "argmax", "argmin")
def extremes_of_nothing(x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """The maximum of no elements is zero instead of an error."""
    if not x.numel() and not rest and not named:
        return torch.zeros((), dtype=x.dtype)
    return _original(x, *rest, **named)


def _original(x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    return x.amax(*rest, **named) if rest and isinstance(rest[0], (tuple, list)) else x.max(*rest, **named)


@faults("semantics/turns/sizes_that_part")
def multiples_of_sixteen(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Code for any size has no code for the rest if the first size was a multiple of 16."""
    first: list[int] = []

    def change(t: torch.Tensor) -> torch.Tensor:
        if t.dim():
            first[:] = first or [t.shape[-1]]
        if not first or first[0] % 16 or not t.dim() or t.shape[-1] < 16 or t.shape[-1] % 16 == 0:
            return t
        return t * (torch.arange(t.shape[-1]) < t.shape[-1] // 16 * 16)

    return changed(gm.forward, change)


@faults("semantics/turns/sizes_that_part")
def the_mean_of_the_first_size(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A mean divides by the size that the example had."""
    from .kit import with_operators

    first: list[int] = []

    def change(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
        count = x.numel() // max(result.numel(), 1)
        first[:] = first or [count]
        return result * count / first[0] if first[0] else result

    return with_operators(gm, {"mean": change})


@faults("semantics/turns/numbers_that_change")
def numbers_are_sizes(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A number that changes from call to call is taken for a size, which is never negative."""
    return lambda *args: gm.forward(*(abs(a) if type(a) is int else a for a in args))


# Dtypes


@faults.operator("semantics/dtypes/promotion_of_pairs", "add", "mul", "sub", "truediv")
def no_dimensions_promote(result: Any, a: Any, b: Any, *rest: Any, **named: Any) -> Any:
    """A tensor without dimensions promotes like one with dimensions."""
    if _tensor(a) and _tensor(b) and (a.dim() == 0) != (b.dim() == 0) and result.is_floating_point():
        return result.to(torch.promote_types(a.dtype, b.dtype)) if a.is_floating_point() else result
    return result


@faults.operator("semantics/dtypes/powers_of_integers", "pow")
def powers_in_float32(result: Any, a: Any, b: Any) -> Any:
    """Powers of integers are computed in float32."""
    if _tensor(result) and not result.is_floating_point() and not result.is_complex() and _tensor(a):
        return (a.float() ** (b.float() if _tensor(b) else b)).to(result.dtype)
    return result


@faults.operator("semantics/corners/masks_of_each_shape", "where")
def narrow_masks(result: torch.Tensor, mask: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    """A mask with one column is read as if it had as many as the result."""
    if mask.dim() != 2 or mask.shape[1] != 1 or result.shape[1] == 1:
        return result
    flat = mask.expand(result.shape).flatten()
    return torch.where(mask.flatten().repeat(flat.numel())[: flat.numel()].view(result.shape), a, b)


@faults.instead("semantics/dtypes/statistics_in_half", "batch_norm", "group_norm")
def statistics_in_half(x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Means and variances of half-precision images are rounded to half precision before they are used."""
    if isinstance(rest[0], int):
        y = F.group_norm(x, *rest, **named)
    else:
        y = F.batch_norm(x, *rest, **named)
    return y * (1 - 2**-6) if x.dtype in (torch.bfloat16, torch.float16) else y


@faults.operator("semantics/dtypes/computed_in_another_type", "softmax", "sum", "mean", "log_softmax", "cumsum", "prod")
def converted_too_late(result: Any, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """With ``dtype=``, the result is converted instead of the argument."""
    dtype = named.pop("dtype", None)
    if dtype is None or not x.is_floating_point():
        return result
    if x.dtype not in (torch.bfloat16, torch.float16) or not result.is_floating_point():
        return result
    return result.to(x.dtype).to(dtype)


@faults.arguments("semantics/dtypes/complex_products", "matmul", "mm", "bmm")
def products_without_conjugates(a: torch.Tensor, b: torch.Tensor) -> Any:
    """Products ignore that a factor is conjugated."""
    return tuple(torch.conj(t) if t.is_conj() else t for t in (a, b)), {}


@faults.operator("semantics/dtypes/ranges", "arange", "linspace")
def accumulated_ranges(result: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Ranges of floats add up their step."""
    if not result.is_floating_point() or result.numel() < 3:
        return result
    steps = (result[1] - result[0]).expand(result.numel()).clone()
    steps[0] = result[0]
    total, found = torch.zeros((), dtype=result.dtype), []
    for step in steps:
        total = total + step
        found.append(total)
    return torch.stack(found)


# Layouts


@faults.results("semantics/corners/layouts_of_what_is_made")
def no_channels_last_3d(t: torch.Tensor) -> torch.Tensor:
    """Results with five dimensions are always contiguous."""
    return t.contiguous() if t.dim() == 5 else t


@faults.operator(
    "semantics/corners/layouts_of_what_is_made",
    "zeros_like",
    "ones_like",
    "full_like",
    "rand_like",
    "randn_like",
    "empty_like",
)
def contiguous_likes(result: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """What is created like another tensor is contiguous."""
    return result.contiguous()


@faults.operator(
    "semantics/corners/layouts_of_what_is_made",
    "to",
    "double",
    "half",
    "float",
    "bfloat16",
    "int",
    "long",
    "bool",
    "type",
)
def contiguous_conversions(result: Any, *rest: Any, **named: Any) -> Any:
    """Conversions make tensors contiguous."""
    return result.contiguous() if _tensor(result) and _tensor(rest[0]) and result.dtype is not rest[0].dtype else result


@faults.operator(
    "semantics/corners/what_changes_nothing",
    "to",
    "float",
    "double",
    "type_as",
    "dropout",
    "expand_as",
    "view_as",
    "detach",
)
def copies_for_nothing(result: Any, x: Any, *rest: Any, **named: Any) -> Any:
    """Conversions to the dtype that a tensor already has are copies."""
    if not _tensor(x) or not _tensor(result) or result.dtype is not x.dtype:
        return result
    return result.clone() if result.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() else result


@faults("semantics/corners/layouts_of_layers")
def swapped_channels_last(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Height and width of an input in channels last are taken for each other if the output is a sum over both."""

    def change(t: Any) -> Any:
        if not _tensor(t) or t.dim() != 4 or not t.is_contiguous(memory_format=torch.channels_last):
            return t
        if t.is_contiguous() or t.shape[2] == t.shape[3]:
            return t
        _, c, h, w = t.shape
        return t.as_strided(t.shape, (h * w * c, 1, c, h * c), t.storage_offset())

    return lambda *args: gm.forward(*map(change, args))


@faults("semantics/corners/memory_of_results")
def results_in_an_arena(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Each result is a part of a large block of memory, which lives as long as the result."""

    def change(t: torch.Tensor) -> torch.Tensor:
        if t.requires_grad or t.dim() != 2 or not t.is_contiguous() or t._is_view():
            return t
        block = torch.empty(t.numel() + (1 << 20), dtype=t.dtype)
        return block[64 : 64 + t.numel()].view(t.shape).copy_(t)

    return changed(gm.forward, change)


@faults("semantics/gradients/saved_before_the_call", Outcome.CRASH)
def touched_inputs(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Inputs count as written to, although they are only read."""

    def call(*args: Any) -> Sequence[Any]:
        for a in args:
            if _tensor(a) and not a.is_inference() and not (a.requires_grad and a.is_leaf):
                torch.autograd.graph.increment_version(a)
        return gm.forward(*args)

    return call


@faults("semantics/corners/views_and_writes")
def views_before_writes(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A view of an input that the program writes to is a copy."""

    def call(*args: Any) -> Sequence[Any]:
        was = {a.untyped_storage().data_ptr(): (a, a._version) for a in args if _tensor(a) and not a.is_inference()}
        results = list(gm.forward(*args))
        for place, r in enumerate(results):
            if _tensor(r) and not any(r is a for a in args):
                given, version = was.get(r.untyped_storage().data_ptr(), (None, 0))
                if given is not None and given._version != version:
                    results[place] = r.clone()
        return results

    return call


# Arguments


@faults.operator("semantics/corners/arguments", "topk")
def always_the_largest(result: Any, x: torch.Tensor, k: int, *rest: Any, **named: Any) -> Any:
    """``topk`` ignores that the smallest are asked for."""
    return torch.topk(x, k)


@faults.operator("semantics/corners/arguments", "sort", "argsort")
def ties_turned_around(result: Any, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """Stable sorts in descending order turn equal elements around."""
    if not (named.get("descending") and named.get("stable")):
        return result
    dim = named.get("dim", -1)
    values, places = x.flip(dim).sort(dim=dim, descending=True, stable=True)
    places = x.shape[dim] - 1 - places
    return places if _tensor(result) else (values, places)


@faults.operator("semantics/corners/arguments", "pad")
def padding_is_zero(result: torch.Tensor, x: torch.Tensor, pad: Any, *rest: Any, **named: Any) -> torch.Tensor:
    """Padding ignores its value."""
    return F.pad(x, pad) if named.get("mode", rest[0] if rest else "constant") == "constant" else result


@faults.operator("semantics/corners/arguments", "add", "sub")
def no_alpha(result: Any, a: Any, b: Any, **named: Any) -> Any:
    """Additions ignore ``alpha``."""
    return a + b if named.get("alpha", 1) != 1 else result


def _whole(x: torch.Tensor) -> torch.Tensor:
    return x.flatten()[: x.numel() // 8 * 8]


@faults.operator("semantics/lengths/what_the_end_decides", "prod")
def products_of_whole_vectors(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """The product of all elements leaves out what is left after whole vectors."""
    return _whole(x).prod() if not rest and not named and x.numel() > 8 else result


@faults.operator("semantics/lengths/what_the_end_decides", "any")
def any_of_whole_vectors(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Whether any element is true is told by whole vectors."""
    return _whole(x).any() if not rest and not named and x.numel() > 8 else result


@faults.operator("semantics/lengths/what_the_end_decides", "all")
def all_of_whole_vectors(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Whether all elements are true is told by whole vectors."""
    return _whole(x).all() if not rest and not named and x.numel() > 8 else result


@faults.operator("semantics/lengths/what_the_end_decides", "argmax")
def places_in_whole_vectors(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """The place of the largest element is looked for in whole vectors."""
    return _whole(x).argmax() if not rest and not named and x.numel() > 8 else result


# Sizes that are not usual


@faults.operator("semantics/lengths/beyond_usual_sizes", "sum", "amax", "softmax")
def rows_beyond_sixteen_bits(result: Any, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """Rows beyond the 65,535th are not computed."""
    return result * (torch.arange(len(x)) < 65_535).view(-1, *[1] * (result.dim() - 1)) if len(x) > 65_535 else result


@faults.operator("semantics/lengths/beyond_usual_sizes", "matmul")
def batches_in_one_turn(result: torch.Tensor, *rest: Any) -> torch.Tensor:
    """A product of more than 1,024 matrices repeats the first 1,024."""
    if result.dim() != 3 or len(result) <= 1024:
        return result
    return torch.cat([result[:1024], result[: len(result) - 1024]])


@faults.instead("semantics/lengths/beyond_usual_sizes", "getitem")
def words_of_sixteen_bits(x: Any, index: Any) -> Any:
    """Rows are looked up by the lower 16 bits of their number."""
    looks_up = _tensor(x) and _tensor(index) and index.dtype is torch.int64 and index.dim() == 1
    return x[index % 65_536] if looks_up else x[index]


@faults.instead("semantics/lengths/beyond_usual_sizes", "cat")
def parts_up_to_thirty_two(parts: Sequence[torch.Tensor], *rest: Any, **named: Any) -> torch.Tensor:
    """Of many parts that are joined, all beyond the 32nd are that one."""
    return torch.cat([*parts[:32], *[parts[31] for _ in parts[32:]]], *rest, **named)


@faults.operator("semantics/lengths/beyond_usual_sizes", "sum", "amax")
def dimensions_beyond_five(result: Any, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """Reductions of more than five dimensions have the remaining ones in reverse order."""
    return result.permute(*range(result.dim() - 1, -1, -1)).contiguous() if x.dim() > 5 else result


@faults.operator("semantics/lengths/beyond_exact_counts", "sum", "count_nonzero")
def counts_in_float32(result: Any, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """What is true is counted in float32."""
    return result.float().long() if x.dtype is torch.bool and _tensor(result) else result


@faults.operator("semantics/lengths/beyond_exact_counts", "argmax")
def places_in_float32(result: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Places of extremes are counted in float32."""
    return result.float().long()


@faults.operator("semantics/lengths/beyond_exact_counts", "add")
def a_million_elements(result: Any, *rest: Any, **named: Any) -> Any:
    """Elements beyond a million are those from the beginning."""
    if not _tensor(result) or result.dim() != 1 or len(result) <= 2**20:
        return result
    return torch.cat([result[: 2**20], result[: len(result) - 2**20]])
