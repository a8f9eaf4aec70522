"""Operators that refuse the dtypes of their arguments, of which torch's fake ones know nothing.

The real ``addmm`` raises where one matrix is in float32 and the other in float64, the real ``gelu`` where it gets
integers.  A fake tells of neither, and generated code would compute a result.  So what is seldom in a program is tried:
an operator whose tensors are not all of one floating-point dtype runs once on zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

_LARGEST = 1 << 20
_taken: set[Any] = set()  # the operators with the dtypes that they take


def refuse(func: Any, args: Sequence[Any], kwargs: Any) -> None:
    """Raise what the real operator raises for these dtypes, if it does; ``args`` have fake tensors, with hints.

    Raises:
        RuntimeError, NotImplementedError, TypeError: the operator's own, which it does not raise for other dtypes.
    """
    given = list(_tensors((*args, *kwargs.values())))
    if not given or _is_usual(func, given):
        return
    key = (func, *((t.dtype, t.device, t.dim() == 0) for t in given))
    if key in _taken:
        return
    if func.namespace != "aten" or torch.Tag.nondeterministic_seeded in func.tags or _only_views(func):
        _taken.add(key)
        return
    if (error := _error(func, args, kwargs, lambda dtype: dtype)) is None:
        _taken.add(key)
    elif any(_error(func, args, kwargs, other) is None for other in _OTHERS):
        raise error


def _is_usual(func: Any, given: Sequence[torch.Tensor]) -> bool:
    if not given[0].dtype.is_floating_point or func._schema.name.startswith("aten::bitwise_"):
        return False
    return all(t.dtype is given[0].dtype for t in given)


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _only_views(func: Any) -> bool:
    return any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)


_OTHERS: tuple[Callable[[torch.dtype], torch.dtype], ...] = (
    lambda dtype: torch.float32 if dtype.is_floating_point or dtype.is_complex else dtype,
    lambda dtype: torch.float32,
    lambda dtype: torch.int64,
    lambda dtype: torch.bool,
)
"""What is tried beside the dtypes of a call: if none is taken, they are not why the operator raises."""


def _error(func: Any, args: Sequence[Any], kwargs: Any, dtype: Callable[[torch.dtype], torch.dtype]) -> Any:
    """What the real operator raises for zeros of the same sizes.  Of large ones nothing is said."""
    from torch.utils._mode_utils import no_dispatch

    def real(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else value.node.hint
        sizes = [n if type(n) is int else n.node.hint for n in value.shape]
        if None in sizes or torch.Size(sizes).numel() > _LARGEST:
            raise _Unknown
        return torch.zeros(sizes, dtype=dtype(value.dtype), device=value.device)

    try:
        with no_dispatch(), torch._C._AutoDispatchBelowAutograd():
            func(*tree_map(real, tuple(args)), **tree_map(real, dict(kwargs)))
    except (RuntimeError, TypeError) as error:  # NotImplementedError is a RuntimeError
        return error
    except _Unknown:
        return None
    return None


class _Unknown(Exception):
    pass
