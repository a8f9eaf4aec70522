"""What a case returns: nested values, compared leaf by leaf."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from . import bounds, tensors
from .tensors import Difference, compare_tensors, excess_of, largest, sharing, shift_of


class Raised:
    """An exception in place of a result; two are equal if their types have the same name."""

    def __init__(self, error: BaseException, kind: str = "") -> None:
        self.error = error
        self.kind = kind or type(error).__name__

    @property
    def words(self) -> str:
        """The type and the first line of the text."""
        lines = [line.strip() for line in str(self.error).splitlines() if line.strip()]
        return f"{self.kind}: {lines[0][:300]}" if lines else self.kind


@dataclasses.dataclass(frozen=True)
class Refused:
    """Something that eager does not do, although doing it is not an error; alone or in a list."""

    kind: str


@dataclasses.dataclass(frozen=True)
class _Container:
    """A container: its type, and the number or names of its values."""

    kind: str
    content: Any

    def __str__(self) -> str:
        return f"{self.kind} of {self.content}"


def leaves(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """The parts of a nested value that are compared, each with the path to it."""
    if isinstance(value, Mapping):
        yield where, _Container(type(value).__name__, list(value))
        for key, element in value.items():
            yield from leaves(element, f"{where}[{key!r}]")
    elif isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        yield where, _Container(type(value).__name__, len(value))
        for position, element in enumerate(value):
            yield from leaves(element, f"{where}[{position}]")
    elif dataclasses.is_dataclass(value) and not isinstance(value, (type, Refused, _Container)):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name), f"{where}.{field.name}")
    else:
        yield where, value


class Leaves(list[tuple[str, Any]]):
    """A nested value as its leaves, which another process can send."""

    @classmethod
    def portable(cls, value: Any) -> Leaves:
        """The leaves of a value, with a text for each object that is neither a tensor nor plain."""
        found = ((where, _with_memory(leaf)) for where, leaf in leaves(value))
        return cls((where, leaf if isinstance(leaf, _PORTABLE) else _Other(leaf)) for where, leaf in found)

    def stored(self) -> Leaves:
        """The same with a :class:`_View` for each tensor whose memory has another dtype in another tensor."""
        dtypes: dict[int, set[torch.dtype]] = {}
        for _, leaf in self:
            if _plain(leaf):
                dtypes.setdefault(leaf.untyped_storage().data_ptr(), set()).add(leaf.dtype)
        mixed = {place for place, found in dtypes.items() if len(found) > 1}
        return Leaves(
            (where, _View.of(leaf) if _plain(leaf) and leaf.untyped_storage().data_ptr() in mixed else leaf)
            for where, leaf in self
        )

    def viewed(self) -> Leaves:
        """The leaves that :meth:`stored` was made of."""
        return Leaves((where, leaf.tensor() if isinstance(leaf, _View) else leaf) for where, leaf in self)


def _with_memory(leaf: Any) -> Any:
    """The leaf; some gradients that are zeros have no memory, and zeros with memory stand for them."""
    if type(leaf) is not torch.Tensor or not leaf._is_zerotensor():
        return leaf
    made = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device)
    return made.zero_().requires_grad_(leaf.requires_grad)


def _plain(leaf: Any) -> bool:
    """Whether it is a tensor whose memory can be viewed."""
    return type(leaf) is torch.Tensor and leaf.layout is torch.strided and leaf.untyped_storage().nbytes() > 0


@dataclasses.dataclass(frozen=True)
class _View:
    """A tensor as its bytes and how it views them: ``torch.save`` refuses memory with several dtypes."""

    memory: torch.Tensor
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    begin: int
    bits: tuple[bool, bool, bool]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _View:
        memory = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
        bits = tensor.requires_grad, tensor.is_conj(), tensor.is_neg()
        return cls(memory, tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), bits)

    def tensor(self) -> torch.Tensor:
        needs_gradient, conjugate, negative = self.bits
        made = torch.empty(0, dtype=self.dtype, device=self.memory.device)
        made.set_(self.memory.untyped_storage(), self.begin, self.shape, self.strides)
        made = made.conj() if conjugate else made
        return (torch.ops.aten._neg_view.default(made) if negative else made).requires_grad_(needs_gradient)


def as_leaves(value: Any) -> Leaves:
    """The leaves of a value that may already be its leaves."""
    return value if isinstance(value, Leaves) else Leaves(leaves(value))


class _Other:
    """An object that cannot be sent: its type is compared."""

    def __init__(self, value: Any) -> None:
        self.kind = type(value).__qualname__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Other) and self.kind == other.kind

    def __hash__(self) -> int:
        return hash(self.kind)

    def __repr__(self) -> str:
        return f"a {self.kind}"


_PORTABLE = (
    torch.Tensor, Raised, Refused, _Container, bool, int, float, complex, str, bytes, type(None), torch.dtype,
    torch.device, torch.Size,
)  # fmt: skip


def _below(where: str, paths: tuple[str, ...]) -> bool:
    return any(where == path or where.startswith((f"{path}[", f"{path}.")) for path in paths)


def _without(value: Any, paths: tuple[str, ...]) -> Leaves:
    found = as_leaves(value)
    return Leaves(each for each in found if not _below(each[0], paths)) if paths else found


class Draws:
    """Eager's result of one case, and what further runs of eager show of how far each element may be from it.

    A run is a pair of eager's result and eager's result in float64, or None; the latter helps to judge values.  Those
    that are added have the same problem with different rounding errors.  They are held against the first one if they
    have no reference.  Only the largest numbers at each element are kept.
    """

    def __init__(self, expected: Any, reference: Any) -> None:
        theirs = as_leaves(expected)
        self._refused = tuple(where for where, value in theirs if isinstance(value, Refused))
        self._theirs = _without(theirs, self._refused)
        self._reference = None if reference is None else _without(reference, self._refused)
        self.number = 1
        nothing: list[torch.Tensor | None] = [None] * len(self._theirs)
        self._excess, self._near, self._far = list(nothing), list(nothing), list(nothing)

    def add(self, eager: Any, exact: Any, reach: float = 1.0) -> None:
        """Add a run on inputs that differ by up to ``reach`` units from those of the first."""
        eager, exact = _without(eager, self._refused), None if exact is None else _without(exact, self._refused)
        theirs = self._theirs
        excess = _each(excess_of, eager, theirs if exact is None else exact, theirs)
        shift = _each(shift_of, exact, self._reference, theirs)
        self._excess = [_larger(a, b) for a, b in zip(self._excess, excess, strict=True)]
        if reach == 1.0:
            self._near = [_larger(a, b) for a, b in zip(self._near, shift, strict=True)]
        else:
            self._far = [_larger(a, b) for a, b in zip(self._far, shift, strict=True)]
        self.number += 1

    def compare(
        self, found: Any, *, only: Collection[str] | None = None, few_draws: bool = False, **how: Any
    ) -> list[Difference]:
        """All differences between a backend's result and eager's; ``only`` names leaves, for no more than their values.

        The other arguments are those of :func:`.tensors.compare_tensors`.
        """
        if "" in self._refused:
            return []
        ours, theirs = _without(found, self._refused), self._theirs
        if [where for where, _ in ours] != [where for where, _ in theirs]:
            return [Difference("", "type", _structures(ours, theirs))]
        exact = _alike(self._reference, theirs) or [("", None)] * len(theirs)
        scale = largest(leaf for _, leaf in theirs) if self.number > 1 else 0.0
        differences = []
        for at, ((where, a), (_, b), (_, r)) in enumerate(zip(ours, theirs, exact, strict=True)):
            if only is not None and where not in only:
                continue
            if isinstance(b, torch.Tensor) and isinstance(a, torch.Tensor):
                near, far = self._near[at], self._far[at]
                difference = compare_tensors(
                    where,
                    a,
                    b,
                    r if isinstance(r, torch.Tensor) else None,
                    excess=self._excess[at],
                    shift=near,
                    jump=None if near is None or far is None or near.shape != far.shape else bounds.jump(far, near),
                    scale=scale,
                    few_draws=few_draws,
                    **how,
                )
            else:
                difference = _compare_others(where, a, b)
            if difference is not None:
                differences.append(difference)
        return differences + (_compare_sharing(ours, theirs) if only is None else [])

    def judge(self, found: Any, again: Callable[[], bool]) -> list[Difference]:
        """The differences that are left when eager's error was measured as often as it takes.

        ``again`` adds a run, or answers that it cannot.  Only values gain by that, and only what differs is looked at.
        """
        differences = self.compare(found, few_draws=self.number < bounds.DRAWS)
        while differences and self.number < bounds.DRAWS and all(each.rounded for each in differences):
            if not again():
                break
            places = [each.where for each in differences]
            differences = self.compare(found, only=places, few_draws=self.number < bounds.DRAWS)
        return differences


def compare(found: Any, draws: Sequence[tuple[Any, Any]], **how: Any) -> list[Difference]:
    """All differences between a backend's and eager's results of one case, given all runs of eager (:class:`Draws`)."""
    known = Draws(*draws[0])
    for each in draws[1:]:
        known.add(*each)
    return known.compare(found, **how)


def identical(one: Any, other: Any) -> bool:
    """Whether two results have the same bits in the same places, and share memory in the same way."""
    ours, theirs = as_leaves(one), as_leaves(other)
    if [where for where, _ in ours] != [where for where, _ in theirs]:
        return False
    for (_, a), (_, b) in zip(ours, theirs, strict=True):
        if type(a) is not type(b) or not (tensors.identical(a, b) if isinstance(a, torch.Tensor) else a == b):
            return False
    return not _compare_sharing(ours, theirs)


def _alike(value: Any, other: list[tuple[str, Any]]) -> list[tuple[str, Any]] | None:
    """The leaves of ``value`` if they are in the same positions as the others."""
    found = as_leaves(value)
    return found if [where for where, _ in found] == [where for where, _ in other] else None


def _each(
    measure: Callable[[Any, Any], torch.Tensor | None], value: Any, reference: Any, other: list[tuple[str, Any]]
) -> list[torch.Tensor | None]:
    """A number for each element, leaf by leaf; None everywhere if these are not the leaves of ``other``."""
    found, exact = _alike(value, other), _alike(reference, other)
    if found is None or exact is None:
        return [None] * len(other)
    return [measure(a, r) for (_, a), (_, r) in zip(found, exact, strict=True)]


def _larger(known: torch.Tensor | None, more: torch.Tensor | None) -> torch.Tensor | None:
    """The larger number at each element; what is known, if the other has none for these."""
    if known is None or more is None or known.shape != more.shape:
        return more if known is None else known
    return torch.maximum(known, more)


def _compare_others(where: str, found: Any, expected: Any) -> Difference | None:
    if isinstance(expected, Raised) or isinstance(found, Raised):
        kinds = [v.kind if isinstance(v, Raised) else "no exception" for v in (found, expected)]
        if kinds[0] != kinds[1]:
            return Difference(where, "exception", f"{kinds[0]}, eager has {kinds[1]}")
        return None
    if type(found) is not type(expected):
        return Difference(where, "type", f"{type(found).__name__}, eager has {type(expected).__name__}")
    if isinstance(expected, float):
        numbers = torch.tensor(found, dtype=torch.float64), torch.tensor(expected, dtype=torch.float64)
        return compare_tensors(where, *numbers, None)
    if isinstance(expected, _Container):
        return None if found == expected else Difference(where, "type", f"{found}, eager has {expected}")
    return None if found == expected else Difference(where, "value", f"{found!r}, eager has {expected!r}")


def _compare_sharing(ours: list[tuple[str, Any]], theirs: list[tuple[str, Any]]) -> list[Difference]:
    """Differences from eager in which tensors share memory."""
    names = [where for where, value in theirs if isinstance(value, torch.Tensor)]
    found, expected = (sharing([v for _, v in side if isinstance(v, torch.Tensor)]) for side in (ours, theirs))
    if len(found) != len(expected):
        return []  # already reported
    return [
        Difference(names[p], "alias", f"shares memory with {_named(names, p, a)}, in eager with {_named(names, p, b)}")
        for p, (a, b) in enumerate(zip(found, expected, strict=True))
        if a != b
    ]


def _named(names: list[str], position: int, first: int) -> str:
    return "none of the others before it" if position == first else names[first]


def _structures(found: Leaves, expected: Leaves) -> str:
    """How two values with different structures differ."""
    said = f"{_outline(found)}, eager has {_outline(expected)}"
    if any(isinstance(side[0][1], Raised) for side in (found, expected)):
        return said
    ours, theirs = ({where for where, _ in side} for side in (found, expected))
    parts = [
        f"{', '.join(sorted(some)[:3])}{' and others' if len(some) > 3 else ''} {words}"
        for some, words in ((theirs - ours, "missing"), (ours - theirs, "present, unlike in eager"))
        if some
    ]
    return "; ".join([said, *parts])


def _outline(value: Leaves) -> str:
    first = value[0][1]
    if isinstance(first, Raised):
        return f"{first.kind} raised"
    if isinstance(first, _Container):
        size = f" of {first.content}" if isinstance(first.content, int) else ""
        return f"{first.kind}{size}"
    return type(first).__name__
