"""Wrong whole numbers, orders and indices."""

from __future__ import annotations

from typing import Any

import torch

from .kit import Faults

faults = Faults("numerics")


def _of(result: Any, dtype: torch.dtype) -> bool:
    return isinstance(result, torch.Tensor) and result.dtype is dtype


@faults.operator("semantics/integers/int8", "add", "mul")
def saturated_bytes(result: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    """Sums and products of int8 stop at the limits instead of wrapping around."""
    if not _of(result, torch.int8):
        return result
    wide = [x.int() if isinstance(x, torch.Tensor) else x for x in (a, b)]
    total = wide[0] + wide[1]
    return total.clamp(-128, 127).to(torch.int8) if torch.equal(total.to(torch.int8), result) else result


@faults.operator("semantics/integers/uint8", "gt", "lt", "le")
def signed_bytes(result: torch.Tensor, a: torch.Tensor, b: Any) -> torch.Tensor:
    """Comparisons of uint8 take them for signed numbers."""
    if not _of(a, torch.uint8):
        return result
    left, right = (x.view(torch.int8) if isinstance(x, torch.Tensor) else x for x in (a, b))
    return left > right if torch.equal(a > b, result) else left < right if torch.equal(a < b, result) else left <= right


@faults.operator("semantics/integers/beyond_floating_point", "add")
def wide_integers_as_floats(result: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    """Sums of int64 are computed in float64."""
    return result.double().long() if _of(result, torch.int64) else result


@faults.operator("semantics/integers/beyond_floating_point", "mul", "floordiv")
def integers_as_floats(result: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    """Products and quotients of int32 are computed in float32."""
    return result.float().int() if _of(result, torch.int32) else result


@faults.operator("semantics/integers/int16", "sum")
def narrow_sums(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Sums of int16 wrap around in 16 bits before they become int64."""
    return result.short().long() if _of(x, torch.int16) and _of(result, torch.int64) else result


@faults.operator("semantics/integers/int32", "rshift")
def logical_shifts(result: torch.Tensor, a: torch.Tensor, b: Any) -> torch.Tensor:
    """Shifts of negative numbers to the right bring in zeros."""
    return ((a.long() & 0xFFFFFFFF) >> b).int() if _of(result, torch.int32) else result


@faults.operator("semantics/numbers/integer_division", "floordiv")
def truncating_division(result: torch.Tensor, a: torch.Tensor, b: Any) -> torch.Tensor:
    """Integer division rounds towards zero."""
    return torch.div(a, b, rounding_mode="trunc") if not result.is_floating_point() else result


@faults.operator("semantics/integers/int64", "mod")
def remainders_of_c(result: torch.Tensor, a: torch.Tensor, b: Any) -> torch.Tensor:
    """Remainders have the sign of the dividend."""
    return torch.fmod(a, b) if not result.is_floating_point() else result


@faults.operator("semantics/integers/from_floating_point", "int", "long")
def rounded_integers(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Conversions of floats to integers round."""
    return x.round().to(result.dtype) if x.is_floating_point() else result


@faults.operator("semantics/integers/bools", "add")
def sums_of_bools_that_cancel(result: torch.Tensor, a: torch.Tensor, b: Any) -> torch.Tensor:
    """The sum of two bools is their exclusive or."""
    return a ^ b if _of(result, torch.bool) and _of(b, torch.bool) else result


@faults.operator("semantics/indices/orders_with_ties", "argmax")
def the_last_of_equals(result: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """The largest number is the last of equal ones."""
    return x.shape[-1] - 1 - x.flip(-1).argmax(-1) if rest == (-1,) else result


@faults.operator("semantics/indices/written_twice", "index_add", "scatter_add")
def lost_additions(
    result: torch.Tensor, x: torch.Tensor, dim: int, index: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    """Of several additions to one element, the last one counts."""
    rows = index if index.dim() == y.dim() else index[:, None].expand_as(y)
    return x + torch.zeros_like(x).scatter(dim, rows, y)


@faults.instead("semantics/indices/words_out_of_range", "embedding")
def unchecked_words(words: torch.Tensor, table: torch.Tensor, *rest: Any) -> torch.Tensor:
    """An embedding reads some row for a word that is out of range."""
    return torch.nn.functional.embedding(words.clamp(0, len(table) - 1), table)


@faults.instead("semantics/indices/gathered_out_of_range", "gather")
def unchecked_gather(x: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """``gather`` wraps indices that are out of range."""
    return x.gather(dim, index % x.shape[dim])


@faults.operator("semantics/indices/negative", "index_put")
def negative_indices_lost(result: torch.Tensor, x: torch.Tensor, index: Any, values: torch.Tensor, *rest: Any) -> Any:
    """Writes with negative indices are lost."""
    (rows,) = index
    return x.index_put((rows[rows >= 0],), values[rows >= 0])


@faults.operator("semantics/indices/selected_by_masks", "masked_fill")
def masks_turned_around(result: torch.Tensor, x: torch.Tensor, mask: torch.Tensor, value: Any) -> torch.Tensor:
    """A mask that is False everywhere fills everything."""
    return result if bool(mask.any()) else torch.full_like(x, value)


@faults.instead("semantics/indices/orders_of_zeros", "sort")
def zeros_in_order_of_bits(x: torch.Tensor, *rest: Any, dim: int = -1, **named: Any) -> Any:
    """Numbers are sorted by their bits: minus zero comes before zero."""
    if x.dtype is not torch.float32 or rest or named.get("descending"):
        return torch.sort(x, *rest, dim=dim, **named) if not rest else torch.sort(x, *rest, **named)
    bits = x.view(torch.int32)
    places = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).sort(dim=dim, stable=True).indices
    return torch.return_types.sort((x.gather(dim, places), places))
