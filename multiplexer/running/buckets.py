"""Graphs with symbolic sizes: a decision for each bucket, that is, for each range of sizes.

Each symbolic size of a call is in one range.  The ranges are those between powers of two (5 to 8, 9 to 16), or between
the bounds that the user gives.  The ranges of all sizes together are the bucket.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from torchmux import torch_internals as internals

from .watch import Run

Key = tuple[int, ...]

ONLY: Key = ()
"""The bucket of a graph without symbolic sizes."""


_DISPATCH = """
def call(*args):
    key = {bucket}
    run = get(key)
    return run(*args) if run is not None else new(key, args)(*args)
"""


class Sizes:
    """Where the symbolic sizes of a graph stand among its inputs, and the bucket of a call.

    Args:
        places: the position of the input, and its dimension (None: a number), by symbol.
        bounds: the largest size of each range; None for powers of two.
        names: of symbols, for people.
    """

    def __init__(
        self,
        places: Mapping[Any, tuple[int, int | None]],
        bounds: Sequence[int] | None,
        names: Mapping[Any, str] | None = None,
    ) -> None:
        self.bounds = None if bounds is None else sorted(bounds)
        self.places = dict(places)
        self._names = dict(names or {})
        self.of: Callable[[Sequence[Any]], Key] = self._written("def call(args): return {sizes}")
        """All symbolic sizes of a call."""
        self.bucket: Callable[[Sequence[Any]], Key] = self._written("def call(args): return {bucket}")
        """The bucket of a call."""

    @classmethod
    def of_graph(cls, gm: GraphModule, bounds: Sequence[int] | None) -> Sizes:
        """Those of a captured graph."""
        places: dict[Any, tuple[int, int | None]] = {}
        names: dict[Any, str] = {}
        for position, node in enumerate(gm.graph.find_nodes(op="placeholder")):
            value = node.meta.get("example_value")
            sizes = list(enumerate(value.shape)) if isinstance(value, torch.Tensor) else [(None, value)]
            for dimension, size in sizes:
                symbol = internals.symbol_of(size)
                if symbol is not None:
                    places.setdefault(symbol, (position, dimension))
                    if dimension is not None:
                        names.setdefault(symbol, f"{node.name}.shape[{dimension}]")
        return cls(places, bounds, names)

    def dispatch(self, runs: Mapping[Key, Run], new: Callable[[Key, Sequence[Any]], Run]) -> Run:
        """A function that runs what a call's bucket has in ``runs``; ``new`` makes it for one that has nothing yet."""
        return self._written(_DISPATCH, get=runs.get, new=new)

    def _written(self, text: str, **names: Any) -> Any:
        """A function in which the sizes and the bucket are written out: a loop over them takes three times as long."""
        sizes = [f"args[{at}]" if dim is None else f"args[{at}].shape[{dim}]" for at, dim in self.places.values()]
        part = "({} - 1).bit_length(), " if self.bounds is None else "place(bounds, {}), "
        names |= {"bounds": self.bounds, "place": bisect.bisect_left}
        exec(
            text.format(
                sizes=f"({''.join(f'{size}, ' for size in sizes)})", bucket=f"({''.join(map(part.format, sizes))})"
            ),
            names,
        )
        return names["call"]

    def words(self, bucket: Key) -> str:
        """``l_x.shape[0] in 9 to 16, l_x.shape[1] over 64``."""
        names = (self._names.get(symbol, str(symbol)) for symbol in self.places)
        return ", ".join(f"{name} {self._range(part)}" for name, part in zip(names, bucket, strict=True))

    def _range(self, part: int) -> str:
        if self.bounds is None:
            return f"in {2 ** (part - 1) + 1} to {2**part}" if part > 0 else "up to 1"
        if not self.bounds:
            return "of any size"
        low = self.bounds[part - 1] + 1 if part else 0
        return f"over {low - 1}" if part == len(self.bounds) else f"in {low} to {self.bounds[part]}"


def nearest(bucket: Key, known: Sequence[Key]) -> Key | None:
    """The bucket of ``known`` that is the fewest ranges away; the one of smaller sizes if two are."""
    if not known:
        return None
    return min(known, key=lambda other: (sum(abs(a - b) for a, b in zip(bucket, other, strict=True)), other))


class Conditions:
    """What torch has taken for granted of symbolic sizes while a graph was compiled after its capture.

    The guards of the capture do not cover it, so each call is asked.  Answers are kept by sizes.
    """

    MOST = 4096

    def __init__(self, expressions: Sequence[Any], sizes: Sizes) -> None:
        self._expressions = list(expressions)
        self._sizes = sizes
        self._known: dict[Key, bool] = {}
        self.unknown = sorted(
            {str(s) for e in expressions for s in e.free_symbols} - {str(s) for s in sizes.places}
        )  # symbols that no input has

    @property
    def texts(self) -> list[str]:
        """Each as Python, whose variables are the symbols."""
        return [internals.as_python(expression) for expression in self._expressions]

    def hold(self, args: Sequence[Any]) -> bool:
        """Whether they hold for the sizes of a call."""
        key = self._sizes.of(args)
        answer = self._known.get(key)
        if answer is None:
            if len(self._known) >= self.MOST:
                self._known.clear()
            values = dict(zip(self._sizes.places, key, strict=True))
            answer = all(internals.holds(each, values) for each in self._expressions)
            self._known[key] = answer
        return answer
