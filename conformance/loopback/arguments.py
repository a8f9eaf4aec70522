"""Arguments of operators that are ignored, misread, or mean something else in another library."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from .kit import Faults

faults = Faults("arguments")


def _without(function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """The function without some of its keywords."""
    return lambda *args, **named: function(*args, **{k: v for k, v in named.items() if k not in names})


# Windows


@faults.instead("semantics/windows/pooling", "max_pool2d", "max_pool1d")
def no_dilation_of_pools(x: torch.Tensor, size: Any, *rest: Any, **named: Any) -> Any:
    """Pools ignore their dilation, but their size stays right."""
    one = x.dim() == 2 and isinstance(size, int) and len(rest) == 3
    pool = F.max_pool1d if one else F.max_pool2d
    right = pool(x, size, *rest, **named)
    if "dilation" not in named and len(rest) < 3:
        return right
    wrong = pool(x, size, *rest[:2], **{k: v for k, v in named.items() if k != "dilation"})
    return wrong[..., : right.shape[-2], : right.shape[-1]] + right * 0


@faults.operator("semantics/windows/pooling", "max_pool2d", "avg_pool2d")
def sizes_rounded_down(result: Any, *rest: Any, **named: Any) -> Any:
    """Pools never round their size up: what the last window would cover is zero."""
    if not named.get("ceil_mode") or not isinstance(result, torch.Tensor):
        return result
    keep = torch.ones_like(result)
    keep[..., -1] = 0
    return result * keep


@faults.instead("semantics/windows/pooling", "max_pool2d")
def padding_that_is_a_zero(
    x: torch.Tensor, size: Any, stride: Any = None, padding: Any = 0, *rest: Any, **named: Any
) -> Any:
    """The padding of a maximum is zero, not the smallest number."""
    result = F.max_pool2d(x, size, stride, padding, *rest, **named)
    return result.clamp(min=0) if padding == 1 and isinstance(result, torch.Tensor) and not rest else result


@faults.operator("semantics/windows/pooling", "avg_pool2d")
def no_divisor(result: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Means over windows ignore the divisor that is given."""
    return _without(F.avg_pool2d, "divisor_override")(*rest, **named)


@faults.operator("semantics/windows/pooling", "adaptive_avg_pool2d")
def windows_of_one_size(result: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Adaptive means have windows of one size, also where sizes do not divide."""
    if x.dim() != 4 or not all(result.shape[2:]):
        return result
    found = F.interpolate(x, result.shape[2:], mode="area")
    return found if x.shape[2] % result.shape[2] == 0 else F.interpolate(x, result.shape[2:], mode="bilinear")


@faults.instead("semantics/windows/convolutions", "conv2d")
def the_same_size_from_the_left(x: torch.Tensor, weight: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Padding to the same size begins with the larger half."""
    if named.get("padding") != "same" or weight.shape[-1] % 2 == weight.shape[-2] % 2 == 1:
        return F.conv2d(x, weight, *rest, **named)
    return F.conv2d(x.flip(-2), weight.flip(-2), *rest, **named).flip(-2)


@faults.instead("semantics/windows/convolutions", "conv2d")
def one_dilation(*args: Any, **named: Any) -> torch.Tensor:
    """The dilation of the first dimension is that of all."""
    right = F.conv2d(*args, **named)
    dilation = named.get("dilation")
    if not isinstance(dilation, tuple) or named.get("padding") == "same":
        return right
    wrong = F.conv2d(*args, **{**named, "dilation": (dilation[0], dilation[0])})
    wide = torch.zeros_like(right)
    width = min(wide.shape[-1], wrong.shape[-1])
    return wide + F.pad(wrong[..., :width], (0, wide.shape[-1] - width))


@faults.operator("semantics/windows/transposed_convolutions", "conv_transpose2d", "conv_transpose1d")
def output_padding_without_numbers(result: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """What a transposed convolution adds at the end is zero, also where an input reaches it."""
    added = named.get("output_padding", 0)
    if not (added if isinstance(added, int) else max(added)):
        return result
    keep = torch.ones_like(result)
    keep[..., -1] = 0
    if isinstance(added, tuple) and added[0]:
        keep[..., -1, :] = 0
    return result * keep


@faults.instead("semantics/windows/transposed_convolutions", "conv_transpose2d")
def other_groups(x: torch.Tensor, weight: torch.Tensor, bias: Any = None, **named: Any) -> torch.Tensor:
    """The results of groups of a transposed convolution alternate."""
    result = F.conv_transpose2d(x, weight, bias, **named)
    groups = named.get("groups", 1)
    return result.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2) if groups > 1 else result


@faults.instead("semantics/windows/sizes_of_images", "interpolate")
def corners_never_aligned(*args: Any, **named: Any) -> torch.Tensor:
    """Resizing ignores that corners are aligned."""
    return _without(F.interpolate, "align_corners")(*args, **named)


@faults.instead("semantics/windows/sizes_of_images", "interpolate")
def aliasing(*args: Any, **named: Any) -> torch.Tensor:
    """Resizing ignores that it must not alias."""
    return _without(F.interpolate, "antialias")(*args, **named)


@faults.instead("semantics/windows/sizes_of_images", "interpolate")
def nearest_is_nearest(*args: Any, **named: Any) -> torch.Tensor:
    """Both ways to find the nearest pixel are one."""
    if named.get("mode", "nearest").startswith("nearest"):
        named["mode"] = "nearest-exact"
    return F.interpolate(*args, **named)


@faults.instead("semantics/windows/factors_of_images", "interpolate")
def factors_of_sizes(*args: Any, **named: Any) -> torch.Tensor:
    """Factors are computed again from sizes, which were rounded."""
    if named.get("scale_factor") is not None:
        named["recompute_scale_factor"] = True
    return F.interpolate(*args, **named)


@faults.instead("semantics/windows/sampling", "grid_sample")
def zeros_outside(x: torch.Tensor, grid: torch.Tensor, mode: str, padding: str, *rest: Any) -> torch.Tensor:
    """Beyond its border an image is zero, whatever the mode of padding."""
    return F.grid_sample(x, grid, mode, "zeros" if padding == "reflection" else padding, *rest)


@faults.instead("semantics/windows/sampling", "affine_grid")
def grids_with_aligned_corners(theta: torch.Tensor, size: Any, **named: Any) -> torch.Tensor:
    """Grids always have aligned corners."""
    return F.affine_grid(theta, size, align_corners=True)


@faults.instead("semantics/windows/padding", "pad")
def edges_reflected_twice(x: torch.Tensor, widths: Any, mode: str = "constant", value: Any = None) -> torch.Tensor:
    """A reflection repeats the edge."""
    if mode != "reflect" or len(widths) != 2:
        return F.pad(x, widths, mode, value)
    left, right = x[..., : widths[0]].flip(-1), x[..., x.shape[-1] - widths[1] :].flip(-1)
    return torch.cat([left, x, right], -1)


@faults.instead("semantics/windows/padding", "pad")
def padding_around_the_other_end(x: torch.Tensor, widths: Any, mode: str = "constant", value: Any = None) -> Any:
    """Circular padding takes its numbers from the end where it is."""
    if mode != "circular" or len(widths) != 2:
        return F.pad(x, widths, mode, value)
    return torch.cat([x[..., : widths[0]], x, x[..., x.shape[-1] - widths[1] :]], -1)


@faults.instead("semantics/windows/patches", "fold")
def means_of_patches(columns: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Patches that overlap are averaged instead of summed."""
    return F.fold(columns, *rest, **named) / F.fold(torch.ones_like(columns), *rest, **named).clamp(min=1)


@faults.instead("semantics/windows/patches", "pixel_shuffle")
def depth_before_columns(x: torch.Tensor, factor: int) -> torch.Tensor:
    """Channels become pixels with the factor before the channel, as in another library."""
    turned = x.unflatten(1, (factor * factor, -1)).transpose(1, 2).flatten(1, 2)
    return F.pixel_shuffle(turned, factor)


# Reductions


@faults.operator("semantics/reductions/arguments", "var", "std")
def corrections_that_stop(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """A variance never divides by less than one."""
    dims = [r for r in rest if isinstance(r, (int, tuple)) and not isinstance(r, bool)]
    if "correction" not in named or not dims or not isinstance(dims[0], int):
        return result
    count = x.shape[dims[0]]
    if named["correction"] < count:
        return result
    return (x - x.mean(dims[0], keepdim=True)).square().sum(dims[0])


@faults.operator("semantics/reductions/dimensions", "sum", "amax", "mean")
def no_dimensions_are_none(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """A reduction over an empty list of dimensions reduces nothing."""
    return x.clone() if rest and rest[0] == () and x.is_floating_point() else result


@faults.operator("semantics/reductions/dimensions", "argmax", "argmin")
def places_without_dimensions(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Places of extremes of a whole tensor do not keep dimensions."""
    return result.reshape(()) if named.get("keepdim") and not rest and named.get("dim") is None else result


@faults.operator("semantics/reductions/arguments", "linalg_vector_norm")
def one_infinite_norm(result: torch.Tensor, x: torch.Tensor, order: Any = 2, *rest: Any) -> torch.Tensor:
    """The norm of minus infinity is that of infinity."""
    return torch.linalg.vector_norm(x, math.inf, *rest) if order == -math.inf else result


@faults.operator("semantics/reductions/arguments", "median")
def means_of_two(result: Any, x: torch.Tensor, *rest: Any) -> Any:
    """The median of an even count is a mean."""
    if isinstance(result, torch.Tensor) or x.shape[rest[0]] % 2 or not x.is_floating_point():
        return result
    ranks = x.sort(dim=rest[0]).values
    middle = x.shape[rest[0]] // 2
    mean = (ranks.select(rest[0], middle - 1) + ranks.select(rest[0], middle)) / 2
    return type(result)((mean, result[1]))


@faults.operator("semantics/reductions/arguments", "nansum", "nanmean", "nanmedian")
def holes_are_zero(result: Any, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """Means without nan count nan as zeros."""
    if not isinstance(result, torch.Tensor) or not rest or not x.is_floating_point():
        return result
    share = x.isnan().logical_not().sum(rest[0]) / x.shape[rest[0]]
    return result * share if share.shape == result.shape and bool(((share > 0) & (share < 1)).any()) else result


@faults.operator("semantics/reductions/of_integers", "prod", "cumprod", "cumsum")
def narrow_products(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Products and running sums of integers are computed in their own type."""
    return result.to(x.dtype).to(result.dtype) if x.dtype in (torch.int16, torch.int32, torch.int8) else result


@faults.operator("semantics/reductions/products", "matmul")
def the_first_of_a_batch(result: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A batch of one size is broadcast against another one by its first matrix only, also if it has more."""
    if a.dim() < 4 or b.dim() < 4 or a.shape[:-2] == b.shape[:-2]:
        return result
    return (a @ b[:, :1]).expand(result.shape).clone()


@faults.operator("semantics/reductions/products", "addmv", "addbmm", "baddbmm", "addr")
def no_beta(result: torch.Tensor, bias: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Products ignore the factor of what they are added to."""
    return result + bias * (1 - named.get("beta", 1))


@faults.instead("semantics/reductions/products", "einsum")
def letters_counted_once(formula: str, *given: torch.Tensor) -> torch.Tensor:
    """A letter that one operand has twice is summed, although the result has it."""
    return given[0].sum(1) if formula == "ii->i" else torch.einsum(formula, *given)


# Indices, orders, joins


@faults.operator("semantics/selections/scatters", "scatter_reduce", "index_reduce")
def always_with_itself(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """What was in a place always counts."""
    combine = x.index_reduce if rest[1].dim() < x.dim() else x.scatter_reduce
    return combine(*rest, **{**named, "include_self": True})


@faults.operator("semantics/selections/scatters", "scatter_reduce")
def means_by_the_whole_count(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Means of what goes to a place count what was there, although it is left out."""
    if rest[-1] != "mean" or named.get("include_self", True) or not result.is_floating_point():
        return result
    count = torch.zeros_like(x).scatter_add(rest[0], rest[1], torch.ones_like(rest[2]))
    return torch.where(count > 0, result * count / (count + 1), result)


@faults.operator("semantics/selections/scatters", "index_add")
def no_alpha_of_indices(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Additions by index ignore their factor."""
    return x.index_add(*rest)


@faults.operator("semantics/selections/forms_of_indices", "getitem")
def indices_that_stay(result: Any, x: Any, index: Any) -> Any:
    """Dimensions that are indexed on both sides of a slice stay where the first one was."""
    tensors = [type(i) is not slice and isinstance(i, torch.Tensor) for i in index] if isinstance(index, tuple) else []
    apart = len(tensors) == 3 and tensors == [True, False, True] and index[1] == slice(None)
    return result.transpose(0, 1).reshape(result.shape) if apart and result.dim() > 1 else result


@faults.operator("semantics/selections/ranks", "cummax", "cummin")
def the_first_of_equals_so_far(result: Any, x: torch.Tensor, dim: int) -> Any:
    """The place of an extreme so far is that of the first of equal ones."""
    values, places = result
    found = places.clone()
    for row in range(1, x.shape[dim]):
        same = values.select(dim, row) == values.select(dim, row - 1)
        found.select(dim, row).copy_(torch.where(same, found.select(dim, row - 1), places.select(dim, row)))
    return type(result)((values, found))


@faults.operator("semantics/selections/ranks", "searchsorted")
def always_from_the_left(result: torch.Tensor, edges: torch.Tensor, x: Any, **named: Any) -> torch.Tensor:
    """Places in a row are always those before equal numbers."""
    left = torch.searchsorted(edges, torch.where(x > 0.5, 1.0, 0.0))
    return torch.where(left < result, left, result).to(result.dtype) if named.get("right") else result


@faults.operator("semantics/selections/ranks", "mode")
def the_largest_of_the_most(result: Any, x: torch.Tensor, *rest: Any) -> Any:
    """Of numbers that are equally frequent, the largest is the mode."""
    dim = rest[0]
    values = []
    for row in x.movedim(dim, -1).flatten(0, -2):
        found, counts = row.unique(return_counts=True)
        values.append(found[counts == counts.max()].max())
    return type(result)((torch.stack(values).view(result[0].shape), result[1]))


@faults.operator("semantics/selections/joins_and_parts", "cat")
def the_first_dtype(result: torch.Tensor, given: Any, *rest: Any) -> torch.Tensor:
    """Tensors that are joined are converted to the dtype of the first one, then to that of the result."""
    return (
        torch.cat([t.to(given[0].dtype) for t in given], *rest).to(result.dtype)
        if result.dtype is torch.float64
        else (result.int().to(result.dtype) if any(not t.is_floating_point() for t in given) else result)
    )


@faults.operator("semantics/selections/joins_and_parts", "roll")
def one_turn_only(result: torch.Tensor, x: torch.Tensor, shifts: Any, *rest: Any) -> torch.Tensor:
    """Turns by more than a whole round stop at it."""
    return x.clone() if isinstance(shifts, int) and rest and shifts > x.shape[rest[0]] else result


@faults.operator("semantics/selections/joins_and_parts", "tril", "triu")
def no_other_diagonal(result: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Triangles of a batch end at the main diagonal."""
    return result * torch.ones_like(x).tril() if x.dim() == 3 and rest and rest[0] > 0 else result


@faults.operator("semantics/gradients/shapes", "repeat_interleave")
def rounds_instead_of_runs(result: torch.Tensor, x: torch.Tensor, count: int, dim: int) -> torch.Tensor:
    """Rows are repeated in rounds."""
    times = [1] * x.dim()
    times[dim] = count
    return x.repeat(times)


@faults.operator("semantics/selections/joins_and_parts", "tensor_split")
def parts_as_chunks(result: Any, x: torch.Tensor, sections: Any, dim: int = 0) -> Any:
    """Parts that do not divide have the remainder in the last one."""
    return x.chunk(sections, dim) if isinstance(sections, int) and x.shape[dim] % sections else result


@faults.operator("semantics/selections/joins_and_parts", "diag_embed", "diagonal")
def offsets_below(result: torch.Tensor, x: torch.Tensor, offset: int = 0, *rest: Any) -> torch.Tensor:
    """Offsets of diagonals count downwards."""
    return x.diag_embed(-offset, *rest) if result.dim() > x.dim() else result


@faults.operator("semantics/selections/joins_and_parts", "rot90")
def turned_the_other_way(result: torch.Tensor, x: torch.Tensor, times: int, dims: Any = (0, 1)) -> torch.Tensor:
    """Matrices turn the other way."""
    return x.rot90(-times, dims)


# Layers


@faults.instead("semantics/layers/attention", "scaled_dot_product_attention")
def heads_in_rounds(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Heads that share keys take them by turns instead of in runs."""
    if named.pop("enable_gqa", False):
        times = q.shape[1] // k.shape[1]
        k, v = k.repeat(1, times, 1, 1), v.repeat(1, times, 1, 1)
    return F.scaled_dot_product_attention(q, k, v, *rest, **named)


@faults.instead("semantics/modules/attention_of_other_lengths", "scaled_dot_product_attention")
def masks_at_the_end(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """A causal mask is aligned at the end if there are more keys than queries."""
    if named.get("is_causal") and q.shape[-2] != k.shape[-2]:
        named["is_causal"] = False
        named["attn_mask"] = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(k.shape[-2] - q.shape[-2])
    return F.scaled_dot_product_attention(q, k, v, *rest, **named)


@faults.instead("semantics/modules/embeddings", "embedding")
def padding_that_learns(words: torch.Tensor, table: torch.Tensor, padding: Any = None, *rest: Any) -> torch.Tensor:
    """The word for padding gets a gradient."""
    return F.embedding(words, table, None, *rest)


@faults.instead("semantics/modules/embeddings", "embedding")
def norms_without_a_limit(words: torch.Tensor, table: torch.Tensor, padding: Any = None, *rest: Any) -> torch.Tensor:
    """The table of an embedding is not written to, whatever its largest norm."""
    if not rest or rest[0] is None:
        return F.embedding(words, table, padding, *rest)
    with torch.no_grad():
        limited = F.embedding(words, table.detach().clone(), padding, *rest)
    return F.embedding(words, table, padding, None, *rest[1:]) * 0 + limited


@faults.instead("semantics/modules/embeddings", "embedding")
def gradients_by_occurrence(words: torch.Tensor, table: torch.Tensor, *rest: Any) -> torch.Tensor:
    """The gradient of a frequent word is not divided by its count."""
    padding, largest, norm, _, sparse = rest
    return F.embedding(words, table, padding, largest, norm, False, sparse)


@faults.instead("semantics/modules/norms_in_their_modes", "batch_norm")
def biased_statistics(x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, training: bool = False,
                      momentum: Any = 0.1, eps: float = 1e-5) -> torch.Tensor:  # fmt: skip
    """Running variances are those of the batch, without the correction."""
    result = F.batch_norm(x, mean, var, weight, bias, training, momentum, eps)
    if training and var is not None:
        dims = [d for d in range(x.dim()) if d != 1]
        with torch.no_grad():
            var.data.add_((x.var(dims, correction=0) - x.var(dims)) * momentum)
    return result


@faults.instead("semantics/modules/norms_in_their_modes", "instance_norm")
def instances_without_statistics(x: Any, mean: Any = None, var: Any = None, *rest: Any, **named: Any) -> torch.Tensor:
    """Norms of instances do not update their statistics."""
    return F.instance_norm(
        x, mean if mean is None else mean.clone(), var if var is None else var.clone(), *rest, **named
    )


@faults.instead("semantics/randomness/layers_that_drop", "dropout2d", "dropout1d")
def elements_instead_of_channels(x: torch.Tensor, p: float = 0.5, *rest: Any) -> torch.Tensor:
    """Dropout of channels drops elements."""
    return F.dropout(x, p)


@faults.instead("semantics/randomness/layers_that_drop", "dropout")
def draws_for_nothing(x: torch.Tensor, p: float = 0.5, *rest: Any) -> torch.Tensor:
    """Dropout of nothing draws numbers."""
    return F.dropout(x, p, *rest) if p else x * torch.ones_like(x).bernoulli_(1.0)


@faults.instead("semantics/randomness/each_distribution", "multinomial")
def drawn_again(p: torch.Tensor, count: int, **named: Any) -> torch.Tensor:
    """Draws without replacement put back what they drew."""
    return torch.multinomial(p, count, replacement=True)


@faults.operator("semantics/reductions/places_over_each_dimension", "max", "min")
def places_in_the_other_order(result: Any, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """Places of extremes over a dimension before the last, counted from the end, are in reverse order."""
    dim = rest[0] if rest else named.get("dim")
    if not isinstance(dim, int) or dim > -2 or x.dim() < 3:
        return result
    return type(result)((result.values, result.indices.flip(-1)))


@faults.operator("semantics/dtypes/quantized_on_the_way", "fake_quantize_per_tensor_affine")
def steps_without_ends(result: torch.Tensor, x: torch.Tensor, scale: Any, zero: Any, *ends: Any) -> torch.Tensor:
    """What is rounded to steps is not cut off at the ends."""
    return result + ((x / scale).round() * scale - result).detach()


@faults.operator("semantics/dtypes/quantized_on_the_way", "fake_quantize_per_tensor_affine")
def halves_of_steps_up(result: torch.Tensor, x: torch.Tensor, scale: Any, zero: Any, *ends: Any) -> torch.Tensor:
    """Halves of steps are rounded up."""
    steps = ((x / scale + 0.5).floor() + zero).clamp(*ends)
    return result + ((steps - zero) * scale - result).detach()


@faults.operator("semantics/dtypes/quantized_on_the_way", "fake_quantize_per_channel_affine")
def ends_that_learn(result: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """What is beyond the ends of rounded steps gets a gradient."""
    return result.detach() + (x - x.detach())
