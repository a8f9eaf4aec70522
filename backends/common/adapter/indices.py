"""Which numbers of a graph are indices, and between which limits they must lie.

torch raises where an index is out of range.  A runtime that reads whatever memory is there needs another answer: an
adapter checks the indices that a call brings along, and leaves to torch what a graph computes without known bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from ..pipeline import aliasing
from ..pipeline.decompose import is_random

_aten = torch.ops.aten


@dataclass(frozen=True)
class Limits:
    """The limits of an index; one more number may be ``spared``, which the graph does not use as an index.

    ``bags``: the indices are where bags begin, the first of them at 0, and none before the one that it follows.
    """

    low: float
    high: float
    spared: int | None = None
    bags: bool = False

    def narrowed(self, other: Limits) -> Limits:
        """Both at once; what only one of them spares is not spared."""
        spared = self.spared if self.spared == other.spared else None
        return Limits(max(self.low, other.low), min(self.high, other.high), spared, self.bags or other.bags)

    def hold(self, value: Any) -> bool:
        """Whether an integer, or every integer in a tensor, is within them."""
        if not isinstance(value, torch.Tensor):
            return self.low <= value <= self.high or value == self.spared
        if not value.numel():
            return True
        if self.bags and not are_bags(value):
            return False
        if self._hold_all(value):
            return True
        if self.spared is None:
            return False
        numbers = value.detach().numpy()
        rest = numbers[numbers != self.spared]
        return not rest.size or bool(self.low <= rest.min() and rest.max() <= self.high)

    def as_torch(self, otherwise: Callable[..., Any], args: Sequence[Any]) -> Any:
        """A call in which they do not hold, by torch's operators, which raise what eager would.

        Raises:
            IndexError: a class of a loss is out of range; a decomposed loss gathers, and would raise something else.
        """
        try:
            return otherwise(*args)
        except RuntimeError as error:
            if self.spared is None:
                raise
            raise IndexError(str(error)) from error

    def _hold_all(self, value: torch.Tensor) -> bool:
        least, most = torch.aminmax(value)
        return self.low <= int(least) and int(most) <= self.high


def are_bags(offsets: torch.Tensor) -> bool:
    """Whether bags may begin there: the first one at 0, and none before the one that it follows."""
    return int(offsets[0]) == 0 and bool((offsets[1:] >= offsets[:-1]).all())


def unchecked_bags(node: Node) -> bool:
    """Whether ``node`` adds up bags that begin where no call's input says, and of which it is not known that they may.

    torch raises where the first one does not begin at 0, or one before the one that it follows.
    """
    if getattr(node.target, "overloadpacket", None) not in _BAGS:
        return False
    rows, offsets = node.args[1:3]
    count = _size(rows, 0)
    if type(count) is not int or not isinstance(offsets, Node):
        return True
    if offsets.op == "placeholder":
        return False
    found = computed(offsets)
    return found is None or not found.numel() or not are_bags(found) or int(found[-1]) > count


def computed(node: Node) -> torch.Tensor | None:
    """The exact numbers of ``node`` if they depend on no input; None if they do, or are many."""
    order, pending, seen = [], [node], {node}
    while pending:
        found = pending.pop()
        value = found.meta.get("val")
        if found.op != "call_function" or not isinstance(value, torch.Tensor) or len(seen) > 64:
            return None
        if is_random(found.target) or getattr(found.target, "overloadpacket", None) in _UNWRITTEN:
            return None  # another call has other numbers
        if any(type(size) is not int for size in value.shape) or value.numel() > 1 << 20:
            return None
        order.append(found)
        new = [n for n in found.all_input_nodes if n not in seen]
        seen.update(new)
        pending += new
    values: dict[Node, Any] = {}
    for each in sorted(order):
        args, kwargs = torch.fx.node.map_arg((each.args, each.kwargs), values.__getitem__)
        values[each] = each.target(*args, **kwargs)
    return values[node]


def limits(node: Node) -> Iterator[tuple[Node, Limits | None]]:
    """The indices that ``node`` reads or writes with; None if the size of what they index is not known."""
    packet = getattr(node.target, "overloadpacket", None)
    rule = _RULES.get(packet)
    if rule is not None:
        for index, size, counts_back in rule(node):
            if not isinstance(index, Node) or index.meta["val"].dtype is torch.bool:
                continue
            known = type(size) is int
            bags = packet in _BAGS and index is node.args[2]
            yield index, Limits(-size if counts_back else 0, size - 1, bags=bags) if known else None


def origin(index: Node, limits: Limits) -> tuple[Node, Limits]:
    """The node whose numbers ``index`` holds, in another shape or type, and what must hold of them.

    Losses replace the class that they ignore before they look: this one is spared.
    """
    while True:
        if index.op != "call_function":
            return index, limits
        if aliasing.is_view(index) or getattr(index.target, "overloadpacket", None) in _SAME:
            source = index.all_input_nodes[0] if index.all_input_nodes else index
            value = source.meta.get("val")
            if not isinstance(value, torch.Tensor) or value.is_floating_point() or value.dtype is torch.bool:
                return index, limits
            index = source
            continue
        replaced = _without_ignored(index, limits)
        if replaced is None:
            return index, limits
        index, limits = replaced


def of_input(node: Node) -> Limits | None:
    """The limits for a graph's input, from whatever uses it as an index; None if nothing does."""
    found: Limits | None = None
    pending, seen = [node], {node}
    while pending:
        for user in pending.pop().users:
            for index, wanted in limits(user):
                if wanted is None:
                    continue
                source, wanted = origin(index, wanted)
                if source is node:
                    found = wanted if found is None else found.narrowed(wanted)
            if user not in seen and user.op == "call_function":
                seen.add(user)
                if aliasing.is_view(user) or getattr(user.target, "overloadpacket", None) in (*_SAME, _aten.where):
                    pending.append(user)
    return found


_SAME = frozenset(
    (
        _aten._to_copy, _aten.clone, _aten.expand, _aten.repeat, _aten._unsafe_view, _aten.flip,
        _aten.gather, _aten.index_select, _aten.index, _aten.take_along_dim,
    )
)  # fmt: skip
"""Operators whose results hold no numbers but those of their first argument."""


def _without_ignored(index: Node, limits: Limits) -> tuple[Node, Limits] | None:
    """``where(x != ignored, x, other)`` with another number that is a right index."""
    if index.target is not _aten.where.self or limits.spared is not None:
        return None
    test, kept, other = index.args
    if not isinstance(test, Node) or test.target is not _aten.ne.Scalar or test.args[0] is not kept:
        return None
    number = _number(other)
    if number is None or not limits.low <= number <= limits.high or type(test.args[1]) is not int:
        return None
    return kept, Limits(limits.low, limits.high, test.args[1])


def _number(value: Any) -> float | None:
    """What ``value`` is, as a number of the program or a tensor filled with one."""
    if isinstance(value, Node):
        packet = getattr(value.target, "overloadpacket", None)
        place = {_aten.scalar_tensor: 0, _aten.full: 1, _aten.full_like: 1}.get(packet)
        value = None if place is None else value.args[place]
    return value if isinstance(value, (int, float)) else None


def _size(node: Any, dim: Any) -> Any:
    shape = node.meta["val"].shape
    return shape[dim] if len(shape) else 1


def _along(position: int) -> Callable[[Node], Iterator[tuple[Any, Any, bool]]]:
    """The argument at ``position`` indexes dimension ``args[1]`` of ``args[0]``."""

    def rule(node: Node) -> Iterator[tuple[Any, Any, bool]]:
        if len(node.args) > position and isinstance(node.args[1], int):
            yield node.args[position], _size(node.args[0], node.args[1]), False

    return rule


def _each_dimension(node: Node) -> Iterator[tuple[Any, Any, bool]]:
    indices: Any = node.args[1]
    if not any(isinstance(i, Node) and i.meta["val"].dtype is torch.bool for i in indices):
        for dim, index in enumerate(indices):
            yield index, _size(node.args[0], dim), True


def _rows(node: Node) -> Iterator[tuple[Any, Any, bool]]:
    yield node.args[1], _size(node.args[0], 0), False


def _bags(node: Node) -> Iterator[tuple[Any, Any, bool]]:
    weight, rows, offsets = node.args[:3]
    yield rows, _size(weight, 0), False
    count: Any = _size(rows, 0)
    yield offsets, count + 1, False


def _classes(node: Node) -> Iterator[tuple[Any, Any, bool]]:
    number = node.args[1] if len(node.args) > 1 else -1
    if number != -1:
        yield node.args[0], number, False


def _taken(node: Node) -> Iterator[tuple[Any, Any, bool]]:
    if len(node.args) > 2 and isinstance(node.args[2], int):
        yield node.args[1], _size(node.args[0], node.args[2]), False


_UNWRITTEN = frozenset((_aten.empty, _aten.empty_like, _aten.empty_strided, _aten.new_empty, _aten.new_empty_strided))

_BAGS = frozenset((_aten._embedding_bag, _aten._embedding_bag_forward_only, _aten.embedding_bag))

_RULES: dict[Any, Callable[[Node], Iterator[tuple[Any, Any, bool]]]] = {
    **dict.fromkeys(
        (_aten.gather, _aten.index_select, _aten.scatter, _aten.scatter_add, _aten.scatter_reduce, _aten.index_add,
         _aten.index_copy, _aten.index_fill),
        _along(2),
    ),
    **dict.fromkeys((_aten.index, _aten.index_put), _each_dimension),
    _aten.embedding: _rows,
    **dict.fromkeys(_BAGS, _bags),
    _aten.one_hot: _classes,
    _aten.take_along_dim: _taken,
}  # fmt: skip
