"""Who reads and writes the buffers of a program: what a pass asks before it joins two items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .expressions import Buffer, Statement
from .program import Program


class Uses:
    """How often the buffers of ``items`` are read and written, and what the program returns."""

    def __init__(self, program: Program, items: Sequence[Any]) -> None:
        self.readers: dict[Buffer, list[Any]] = {}
        self.written: dict[Buffer, int] = {}
        for item in items:
            for buffer in item.reads:
                self.readers.setdefault(buffer, []).append(item)
            for buffer in {item.target} if isinstance(item, Statement) else item.writes:
                self.written[buffer] = self.written.get(buffer, 0) + 1
        self.returned = program.returned

    def only_reader(self, buffer: Buffer) -> bool:
        return len(self.readers[buffer]) == 1 and buffer not in self.returned

    def is_whole(self, item: Any) -> bool:
        """Whether ``item`` is a statement that computes each element of its own buffer by itself."""
        return (
            isinstance(item, Statement)
            and not item.reduced
            and self.written[item.target] == 1
            and item.target.over is None
        )

    def is_reduced(self, buffer: Buffer) -> bool:
        """Whether a statement that reduces reads ``buffer``."""
        return any(isinstance(item, Statement) and item.reduced for item in self.readers.get(buffer, ()))
