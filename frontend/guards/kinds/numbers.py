"""Guards on numbers that are symbolic in the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..closed import kind
from ..sources import Source
from ..stable_objects import StableObjects, is_scalar
from .guard import Guard, always_checked

if TYPE_CHECKING:
    from ..loader import Loader

_BOUND = 1 << 63
LARGEST_FLOAT32 = 3.4028234663852886e38


@kind
class IsInt64(Guard):
    """An int that fits into 64 bits."""

    def condition(self, value: str, out: Loader) -> str:
        return f"type({value}) is int and {-_BOUND} <= {value} < {_BOUND}"

    def words(self) -> str:
        return "is an int of 64 bits"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return is_scalar(value)


@kind
class FitsFloat32(Guard):
    """A float other than zero, whose sign is lost in algebra, that is no larger than any float32."""

    def condition(self, value: str, out: Loader) -> str:
        return f"type({value}) is float and {-LARGEST_FLOAT32} <= {value} <= {LARGEST_FLOAT32} and {value} != 0.0"

    def words(self) -> str:
        return "is a float other than zero, in the range of float32"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return is_scalar(value)


@kind
class AtLeast(Guard):
    """A size is no smaller than its mark allows."""

    low: int

    def condition(self, value: str, out: Loader) -> str:
        return f"{value} >= {self.low}"

    def words(self) -> str:
        return f">= {self.low}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return is_scalar(value)


@kind
class AtMost(Guard):
    """A size is no larger than its mark allows."""

    high: int

    def condition(self, value: str, out: Loader) -> str:
        return f"{value} <= {self.high}"

    def words(self) -> str:
        return f"<= {self.high}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return is_scalar(value)


@kind
class Decides(Guard):
    """What the program computes from numbers decides a branch as before, in Python's own arithmetic.

    ``tree`` is ``(function, *operands)``; an operand is a tree, the position of its source among ``numbers``, or the
    text of a constant.
    """

    numbers: tuple[Source, ...]
    tree: tuple
    answer: bool

    def condition(self, value: str, out: Loader) -> str:
        functions: dict[str, Callable] = {}
        parameters = ", ".join(f"a{position}" for position in range(len(self.numbers)))
        text = _text(self.tree, functions)
        lines = [f"def decides({parameters}):", f"    try: return bool({text})"]
        lines.append("    except (ArithmeticError, ValueError): return None")
        exec("\n".join(lines), functions)
        return f"{out.const(functions['decides'])}({', '.join(map(out.load, self.numbers))}) is {self.answer}"

    def words(self) -> str:
        return f"decides a branch as before ({self.answer})"

    is_watched = always_checked


def _text(tree: Any, functions: dict[str, Callable]) -> str:
    if isinstance(tree, int):
        return f"a{tree}"
    if isinstance(tree, str):
        return tree
    name = f"f{len(functions)}"
    functions[name] = tree[0]
    return f"{name}({', '.join(_text(operand, functions) for operand in tree[1:])})"
