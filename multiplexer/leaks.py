"""What calls leave behind: memory, threads and processes that become more turn after turn."""

from __future__ import annotations

from collections.abc import Mapping

WARM = 2
"""Turns that do not count: allocators and pools of threads take what they keep in the first calls."""

FEWEST = 4
"""Turns after these, before anything is a leak."""

LEAST_BYTES = 4 << 20
"""Growth below this is no leak: pages are taken as a heap happens to lie."""


class Growth:
    """What one process has after each turn of calls."""

    def __init__(self) -> None:
        self._calls = 0
        self._seen: list[tuple[int, Mapping[str, int]]] = []

    def fault(self, calls: int, left: Mapping[str, int]) -> str:
        """What grows call by call, after a turn of so many calls which left so much; empty if nothing does.

        Args:
            left: ``memory`` in bytes, the number of ``threads``, and that of ``processes``.
        """
        self._calls += calls
        self._seen.append((self._calls, left))
        for kind in ("threads", "processes"):  # which take memory, too
            if more := self._per_call(kind, FEWEST):
                return f"it leaks {kind}: {more:.3g} more with each call"
        if memory := self._per_call("memory", LEAST_BYTES):
            return f"it leaks memory: {memory / 2**20:.3g} MiB more with each call"
        return ""

    def _per_call(self, kind: str, least: int) -> float:
        """How much comes with a call, if it grows steadily: in both halves of the turns, about as fast."""
        turns = self._seen[WARM:]
        if len(turns) <= FEWEST:
            return 0.0
        (first, begin), (middle, half), (last, end) = turns[0], turns[len(turns) // 2], turns[-1]
        early = (half[kind] - begin[kind]) / (middle - first)
        late = (end[kind] - half[kind]) / (last - middle)
        if end[kind] - begin[kind] < least or min(early, late) < max(early, late) / 2:
            return 0.0
        return (end[kind] - begin[kind]) / (last - first)
