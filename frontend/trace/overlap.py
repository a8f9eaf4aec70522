"""Tensors that partially overlap: ``y.sub_(y[0])`` would read what it just wrote, and eager refuses it.

Fake tensors have no addresses, so propagation does not detect this.  Eager refuses such operators, or, where tensors
have gaps and in products of matrices, reads some elements before and some after they are written; a compiler computes
everything first.  So the graph ends there.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..breaks import OPERATION, GraphBreak
from ..guards.forms import apart, memory_of
from ..guards.kinds.tensors import ApartInMemory
from ..guards.sources import Converted, Source

if TYPE_CHECKING:
    from .tracer import Tracer


# In place, and not element by element: what they read must be other memory, even all of the same.
_BY_PLACE = frozenset(
    ("addbmm_", "addmm_", "addmv_", "addr_", "baddbmm_", "bernoulli_", "index_add_", "index_copy_", "index_put_")
    + ("index_reduce_", "masked_scatter_", "put_", "scatter_", "scatter_add_", "scatter_reduce_")
)
_MOST_WORK: Any = 10_000  # candidates that NumPy tries to find an element that two tensors share


def reads_what_it_writes(name: str, args: list[Any], kwargs: dict[str, Any], result: Any) -> bool:
    """Whether an operator that may write to an argument reads some of that memory as another element.

    All tensors are fake.  Of symbolic sizes those of this call count.
    """
    out = kwargs.get("out")
    if out is not None:
        others = _tensors_in((args, [value for key, value in kwargs.items() if key != "out"]))
        return any(_meets(written, others, _is_elementwise(name)) for written in _tensors_in(out))
    if name == "setitem" and len(args) == 3 and isinstance(args[0], torch.Tensor):
        return _assigns_what_it_writes(*args)
    if not isinstance(result, torch.Tensor) or not any(value is result for value in (*args, *kwargs.values())):
        return False
    others = _tensors_in((args[1:] if args and args[0] is result else args, list(kwargs.values())))
    return _meets(result, others, name.rpartition(".")[2] not in _BY_PLACE)


def _assigns_what_it_writes(written: torch.Tensor, index: Any, value: Any) -> bool:
    places, others = _tensors_in(index), _tensors_in(value)
    if places or any(isinstance(each, list) for each in (index if isinstance(index, tuple) else (index,))):
        return any(on_one_storage(other, written) for other in places if other.dtype is not torch.bool) or _meets(
            written, others, False
        )
    if not any(on_one_storage(other, written) for other in others):
        return False
    with torch.no_grad():
        return _meets(written.detach()[index], others, True)


def _meets(written: torch.Tensor, others: Iterable[torch.Tensor], is_elementwise: bool) -> bool:
    """Whether one of ``others`` has elements of ``written``, apart from all of the same in an elementwise operator."""
    for other in others:
        if not on_one_storage(other, written) or (other is written and is_elementwise):
            continue
        mine, theirs = _layout(written), _layout(other)
        if mine is None or theirs is None or (is_elementwise and mine == theirs):
            continue
        if not _are_apart(mine, theirs):
            return True
    return False


def _layout(tensor: torch.Tensor) -> tuple[int, list[int], list[int]] | None:
    """The first byte, the sizes, and the strides in bytes; None without elements or of a data-dependent size."""
    sizes, strides, begin = [_now(n) for n in tensor.shape], [_now(n) for n in tensor.stride()], tensor.storage_offset()
    if _now(begin) is None or None in sizes or None in strides or 0 in sizes:
        return None
    width = tensor.element_size()
    return _now(begin) * width, [*sizes, width], [*(stride * width for stride in strides), 1]


def _are_apart(*layouts: tuple[int, list[int], list[int]]) -> bool:
    """Whether no byte belongs to both; arrays that nobody reads stand for them, at addresses that are none."""
    first, second = (
        np.lib.stride_tricks.as_strided(np.asarray(_Byte(begin)), sizes, strides) for begin, sizes, strides in layouts
    )
    try:
        return not np.shares_memory(first, second, max_work=_MOST_WORK)
    except np.exceptions.TooHardError:
        return False


class _Byte:
    """One byte at an address."""

    def __init__(self, address: int) -> None:
        # NumPy takes 0 for no address.
        data = (address + 4096, True)
        self.__array_interface__ = {"shape": (1,), "typestr": "|u1", "data": data, "version": 3}


def _is_elementwise(name: str) -> bool:
    packet = getattr(torch.ops.aten, name.rpartition(".")[2], None)
    return packet is not None and any(torch.Tag.pointwise in getattr(packet, n).tags for n in packet.overloads())


def _tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [found for each in value for found in _tensors_in(each)] if isinstance(value, (list, tuple)) else []


def overlaps_itself(written: torch.Tensor) -> bool:
    """Whether several elements are certainly in one place, as in an expanded tensor: eager refuses to write to it."""
    if written.layout is not torch.strided:
        return False
    return any(
        _now(n) not in (None, 0, 1) and _now(s) == 0 for n, s in zip(written.shape, written.stride(), strict=True)
    )


def on_one_storage(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors show the same memory, wherever in it."""
    return a.layout is b.layout is torch.strided and a.untyped_storage()._cdata == b.untyped_storage()._cdata


def meets_itself(written: list, *others: Any) -> bool:
    """Whether an element of a list that an operator writes to shows memory of another element of its arguments.

    Eager goes from one element to the next, so it reads what it has just written; a compiler computes all of them
    before it writes any.
    """
    places: dict[Any, list[tuple[int, int, Any, bool]]] = {}
    for given in (written, *others):
        for at, tensor in enumerate(given) if isinstance(given, (list, tuple)) else [(None, given)]:
            if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
                begin, end = _span(tensor) or (0, sys.maxsize)
                if begin < end:
                    storage = places.setdefault(tensor.untyped_storage()._cdata, [])
                    storage.append((begin, end, at, given is written))
    for entries in places.values():
        # A flat buffer holds hundreds of parameters, so only those are compared that overlap.
        entries.sort(key=lambda entry: entry[:2])
        for one, (_, end, at, is_written) in enumerate(entries):
            for begin, _, other, is_also_written in itertools.islice(entries, one + 1, None):
                if begin >= end:
                    break
                if (is_written or is_also_written) and (at != other or (is_written and is_also_written)):
                    return True
    return False


def _span(tensor: torch.Tensor) -> tuple[int, int] | None:
    sizes, strides = [_now(n) for n in tensor.shape], [_now(n) for n in tensor.stride()]
    begin = _now(tensor.storage_offset())
    if begin is None or None in sizes or None in strides:
        return None
    if 0 in sizes:
        return begin, begin
    return begin, begin + 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def _now(number: Any) -> Any:
    """A size of this call; None if there is none yet."""
    return number if type(number) is int else number.node.hint


def guard_apart(tr: Tracer) -> None:
    """Where an input is written to, arrays must not share memory with others: each is a tensor of its own.

    Raises:
        GraphBreak: some do.
    """
    inputs = [(node, source) for node, source in tr.inputs if isinstance(tr.real_inputs[node], torch.Tensor)]
    arrays = {node: source.parent for node, source in inputs if _is_array(source)}
    if not arrays or len(inputs) < 2 or not any(node.meta["example_value"]._version for node, _ in inputs):
        return
    for node, source in arrays.items():
        assert source is not None
        others = [other for other, _ in inputs if other is not node]
        if not apart(tr.real_inputs[node].numpy(), *map(tr.real_inputs.__getitem__, others)):
            stop = GraphBreak(OPERATION, f"NumPy array {source.words()} shares memory with another input")
            stop.whole_frame = True
            raise stop
        paths = [arrays.get(other) or path for other, path in inputs if other is not node]
        tr.guards.add(ApartInMemory(source, tuple(paths)))


def _is_array(source: Source) -> bool:
    return isinstance(source, Converted) and source.function is memory_of
