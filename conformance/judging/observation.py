"""What a case returns: nested values, compared leaf by leaf."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from . import oracle
from .oracle import Difference


@dataclasses.dataclass(frozen=True)
class Raised:
    """An exception in place of a result; two are equal if their types are equal."""

    error: BaseException

    @property
    def kind(self) -> str:
        return type(self.error).__name__


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
    elif dataclasses.is_dataclass(value) and not isinstance(value, (type, Raised, _Container)):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name), f"{where}.{field.name}")
    else:
        yield where, value


def compare(
    found: Any, draws: Sequence[tuple[Any, Any]], *, elementwise: bool = False, strides: bool = True
) -> list[Difference]:
    """All differences between a backend's and eager's results of one case.

    ``draws`` are pairs of eager's result and eager's result in float64, or None; the latter helps to judge values.
    ``found`` is compared with the first pair.  Further pairs, of the same problem with different rounding errors, show
    how much results may differ; they are compared with the first one if they have no reference.
    """
    expected, reference = draws[0]
    if isinstance(expected, Refused):
        return []
    if isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        found = [b if isinstance(b, Refused) else a for a, b in zip(found, expected, strict=True)]
    ours, theirs = list(leaves(found)), list(leaves(expected))
    if [where for where, _ in ours] != [where for where, _ in theirs]:
        return [Difference("", "type", _structures(found, expected))]
    exact = _alike(reference, theirs) or [("", None)] * len(theirs)
    errors = [_errors(each, expected if wide is None else wide, theirs) for each, wide in draws[1:]]
    scale = oracle.largest(leaf for _, leaf in theirs) if len(draws) > 1 else 0.0
    differences = []
    for at, ((where, a), (_, b), (_, r)) in enumerate(zip(ours, theirs, exact, strict=True)):
        if isinstance(b, torch.Tensor) and isinstance(a, torch.Tensor):
            wide = r if isinstance(r, torch.Tensor) else None
            error = max((each[at] for each in errors), default=0.0)
            difference = oracle.compare_tensors(
                where, a, b, wide, elementwise=elementwise, strides=strides, error=error, scale=scale
            )
        else:
            difference = _compare_others(where, a, b)
        if difference is not None:
            differences.append(difference)
    differences += _compare_sharing(ours, theirs)
    return differences


def _alike(value: Any, other: list[tuple[str, Any]]) -> list[tuple[str, Any]] | None:
    """The leaves of ``value`` if they are in the same positions as the others."""
    found = list(leaves(value))
    return found if [where for where, _ in found] == [where for where, _ in other] else None


def _errors(value: Any, reference: Any, other: list[tuple[str, Any]]) -> list[float]:
    """Eager's error, leaf by leaf; 0 everywhere if these are not the leaves of ``other``."""
    found, exact = _alike(value, other), _alike(reference, other)
    if found is None or exact is None:
        return [0.0] * len(other)
    return [oracle.distance(a, r) for (_, a), (_, r) in zip(found, exact, strict=True)]


def _compare_others(where: str, found: Any, expected: Any) -> Difference | None:
    if isinstance(expected, Raised) or isinstance(found, Raised):
        kinds = [v.kind if isinstance(v, Raised) else "no exception" for v in (found, expected)]
        if kinds[0] != kinds[1]:
            return Difference(where, "exception", f"{kinds[0]}, eager has {kinds[1]}")
        return None
    if type(found) is not type(expected):
        return Difference(where, "type", f"{type(found).__name__}, eager has {type(expected).__name__}")
    if isinstance(expected, float):
        tensors = torch.tensor(found, dtype=torch.float64), torch.tensor(expected, dtype=torch.float64)
        return oracle.compare_tensors(where, *tensors, None)
    if isinstance(expected, _Container):
        return None if found == expected else Difference(where, "type", f"{found}, eager has {expected}")
    return None if found == expected else Difference(where, "value", f"{found!r}, eager has {expected!r}")


def _compare_sharing(ours: list[tuple[str, Any]], theirs: list[tuple[str, Any]]) -> list[Difference]:
    """Differences from eager in which tensors share memory."""
    names = [where for where, value in theirs if isinstance(value, torch.Tensor)]
    found, expected = (oracle.sharing([v for _, v in side if isinstance(v, torch.Tensor)]) for side in (ours, theirs))
    if len(found) != len(expected):
        return []  # already reported
    return [
        Difference(names[p], "alias", f"shares memory with {_named(names, p, a)}, in eager with {_named(names, p, b)}")
        for p, (a, b) in enumerate(zip(found, expected, strict=True))
        if a != b
    ]


def _named(names: list[str], position: int, first: int) -> str:
    return "none of the others before it" if position == first else names[first]


def _structures(found: Any, expected: Any) -> str:
    """How two values with different structures differ."""
    said = f"{_outline(found)}, eager has {_outline(expected)}"
    if isinstance(found, Raised) or isinstance(expected, Raised):
        return said
    ours, theirs = ({where for where, _ in leaves(value)} for value in (found, expected))
    parts = [
        f"{', '.join(sorted(some)[:3])}{' and others' if len(some) > 3 else ''} {words}"
        for some, words in ((theirs - ours, "missing"), (ours - theirs, "present, unlike in eager"))
        if some
    ]
    return "; ".join([said, *parts])


def _outline(value: Any) -> str:
    if isinstance(value, Raised):
        return f"{value.kind} raised"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__
