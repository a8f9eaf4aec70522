"""The C++ source of a graph, whole or in pieces that are compiled in parallel."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

SMALLEST_PIECE = 8_000
"""Characters of kernels that justify a separate process: about half a second of g++."""


@dataclass(frozen=True)
class Source:
    """``kernels`` are functions by name, each text starting after the name, with ``comments`` before some; ``main``
    calls them, and has its variables, and functions that the library shows, in ``definitions``.
    """

    includes: str
    definitions: str
    kernels: Mapping[str, str]
    main: str
    comments: Mapping[str, str] = field(default_factory=dict)

    def whole(self) -> str:
        """One source, in which the compiler sees everything."""
        kernels = [
            f"{self.comments.get(name, '')}NOINLINE static void {name}{body}" for name, body in self.kernels.items()
        ]
        return _joined(self.includes, self.definitions, *kernels, self.main)

    def pieces(self, most: int) -> list[str]:
        """Up to ``most`` sources of about equal size, to be linked; the first one has ``main``."""
        size = sum(len(body) for body in self.kernels.values())
        count = min(most, size // SMALLEST_PIECE)
        if count < 2:
            return [self.whole()]
        shares: list[list[str]] = [[] for _ in range(count)]
        sizes = [len(self.main), *itertools.repeat(0, count - 1)]
        for name in sorted(self.kernels, key=lambda name: -len(self.kernels[name])):
            smallest = sizes.index(min(sizes))
            shares[smallest].append(name)
            sizes[smallest] += len(self.kernels[name])
        declared = [f"{_HIDDEN} {name}{body[: body.index('{')].rstrip()};" for name, body in self.kernels.items()]
        first, *others = ([self._shared(name) for name in share] for share in shares)
        return [
            _joined(self.includes, self.definitions, *declared, *first, self.main),
            *(_joined(self.includes, *kernels) for kernels in others),
        ]

    def _shared(self, name: str) -> str:
        return f"{self.comments.get(name, '')}{_HIDDEN} {name}{self.kernels[name]}"


_HIDDEN = '__attribute__((visibility("hidden"))) void'


def _joined(*texts: str) -> str:
    return "\n".join(text for text in texts if text)
