"""What a case returns: nested values, compared leaf by leaf."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

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
        return cls((where, leaf if isinstance(leaf, _PORTABLE) else _Other(leaf)) for where, leaf in leaves(value))

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


def _without(value: Any, paths: tuple[str, ...]) -> Any:
    return None if value is None else Leaves(each for each in as_leaves(value) if not _below(each[0], paths))


def compare(
    found: Any,
    draws: Sequence[tuple[Any, Any]],
    *,
    elementwise: bool = False,
    strides: bool = True,
    signs: bool = True,
    terms: int = 0,
    subnormals: bool = True,
    independent: bool = True,
    few_draws: bool = False,
    around: float = 0.0,
) -> list[Difference]:
    """All differences between a backend's and eager's results of one case.

    ``draws`` are pairs of eager's result and eager's result in float64, or None; the latter helps to judge values.
    ``found`` is compared with the first pair.  Further pairs, of the same problem with different rounding errors, show
    how much each element may differ; they are compared with the first one if they have no reference.  The other
    arguments are those of :func:`.tensors.compare_tensors`.
    """
    expected, reference = draws[0]
    theirs = as_leaves(expected)
    refused = tuple(where for where, value in theirs if isinstance(value, Refused))
    if "" in refused:
        return []
    ours = Leaves(each for each in as_leaves(found) if not _below(each[0], refused))
    theirs = Leaves(each for each in theirs if not _below(each[0], refused))
    if reference is not None:
        reference = Leaves(each for each in as_leaves(reference) if not _below(each[0], refused))
    draws = [draws[0], *((_without(a, refused), _without(b, refused)) for a, b in draws[1:])]
    if [where for where, _ in ours] != [where for where, _ in theirs]:
        return [Difference("", "type", _structures(ours, theirs))]
    exact = _alike(reference, theirs) or [("", None)] * len(theirs)
    excesses = [_excesses(each, theirs if wide is None else wide, theirs) for each, wide in draws[1:]]
    shifts = [_shifts(wide, reference, theirs) for _, wide in draws[1:]]
    scale = largest(leaf for _, leaf in theirs) if len(draws) > 1 else 0.0
    differences = []
    for at, ((where, a), (_, b), (_, r)) in enumerate(zip(ours, theirs, exact, strict=True)):
        if isinstance(b, torch.Tensor) and isinstance(a, torch.Tensor):
            difference = compare_tensors(
                where,
                a,
                b,
                r if isinstance(r, torch.Tensor) else None,
                elementwise=elementwise,
                strides=strides,
                signs=signs,
                excess=_most([each[at] for each in excesses]),
                shift=_most([each[at] for each in shifts]),
                scale=scale,
                terms=terms,
                subnormals=subnormals,
                independent=independent,
                few_draws=few_draws,
                around=around,
            )
        else:
            difference = _compare_others(where, a, b)
        if difference is not None:
            differences.append(difference)
    differences += _compare_sharing(ours, theirs)
    return differences


def _alike(value: Any, other: list[tuple[str, Any]]) -> list[tuple[str, Any]] | None:
    """The leaves of ``value`` if they are in the same positions as the others."""
    found = as_leaves(value)
    return found if [where for where, _ in found] == [where for where, _ in other] else None


def _excesses(value: Any, reference: Any, other: list[tuple[str, Any]]) -> list[torch.Tensor | None]:
    """Eager's excess, leaf by leaf; None everywhere if these are not the leaves of ``other``."""
    found, exact = _alike(value, other), _alike(reference, other)
    if found is None or exact is None:
        return [None] * len(other)
    return [excess_of(a, r) for (_, a), (_, r) in zip(found, exact, strict=True)]


def _shifts(value: Any, reference: Any, other: list[tuple[str, Any]]) -> list[torch.Tensor | None]:
    """How far the exact numbers of a draw are from those of the first one, leaf by leaf."""
    found, exact = _alike(value, other), _alike(reference, other)
    if found is None or exact is None:
        return [None] * len(other)
    return [shift_of(a, r) for (_, a), (_, r) in zip(found, exact, strict=True)]


def _most(excesses: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """The largest number at each element; None if no draw has one."""
    known = [each for each in excesses if each is not None]
    same = [each for each in known if each.shape == known[0].shape]
    return torch.stack(same).amax(0) if same else None


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
