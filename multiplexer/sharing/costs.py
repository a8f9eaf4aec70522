"""What a graph costs when several backends share it: its pieces, and the crossings between them.

The graph is a chain of pieces.  Each backend was measured on the whole graph, on each piece alone, and on a graph that
computes next to nothing, which shows what one call costs it.  Two things follow for each backend:

* Pieces that together take longer than the whole graph, beyond their calls, pay for their ends: for values that are
  copied, laid out anew, or written and read instead of fused.  This is a rate by the bytes that pass.
* Pieces that together take less find their weights and inputs in the processor's caches, because each was measured
  again and again on its own.  Their times are scaled to the whole graph.

The model therefore gives each backend's measured time for an assignment that uses this backend alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Assignment = tuple[str, ...]
"""The backend of each piece, in order."""


@dataclass(frozen=True)
class _Terms:
    """What is known of one backend, in seconds."""

    own: tuple[float, ...]  # of each piece, without its call and its ends
    call: float
    rate: float  # for each byte that passes an end of a part


class Costs:
    """Times of assignments.

    Args:
        pieces: the seconds of each piece alone, by backend; infinite where a backend does not have the piece.
        whole: the seconds of the whole graph, by backend.
        call: the seconds of a call that computes nothing, by backend.
        passed: the bytes that pass from each piece to the next, one less than there are pieces.
    """

    def __init__(
        self,
        pieces: Mapping[str, Sequence[float]],
        whole: Mapping[str, float],
        call: Mapping[str, float],
        passed: Sequence[int],
    ) -> None:
        self.count = len(passed) + 1
        self._passed = passed
        self._terms = {b: _terms(pieces[b], whole[b], call[b], passed) for b in pieces}

    def predicted(self, assignment: Sequence[str]) -> float:
        """The seconds of the graph when each piece goes to its backend, and neighbors of one backend are one part."""
        return self.alone(assignment) + self.crossings(assignment)

    def alone(self, assignment: Sequence[str]) -> float:
        """The seconds of the pieces and of one call, as if nothing had to pass between backends."""
        first = self._terms[assignment[0]].call
        return first + math.fsum(self._terms[b].own[i] for i, b in enumerate(assignment))

    def crossings(self, assignment: Sequence[str]) -> float:
        """The seconds that passing from backend to backend takes: a call of the next one, and the bytes."""
        return math.fsum(self._crossing(i, a, b) for i, (a, b) in enumerate(itertools.pairwise(assignment)))

    def quickest_pieces(self) -> Assignment:
        """The backend that computes each piece the quickest, whatever the crossings cost."""
        return tuple(min(self._terms, key=lambda b: self._terms[b].own[i]) for i in range(self.count))

    def best(self) -> dict[int, Assignment]:
        """The quickest assignment with exactly so many crossings, for each number of them that is possible.

        Dynamic programming over the chain (Viterbi's algorithm), with the number of crossings as part of the state.
        """
        reached: dict[tuple[str, int], tuple[float, Assignment]] = {
            (b, 0): (terms.call + terms.own[0], (b,)) for b, terms in self._terms.items()
        }
        for position in range(1, self.count):
            further: dict[tuple[str, int], tuple[float, Assignment]] = {}
            for (a, crossings), (seconds, path) in reached.items():
                for b, terms in self._terms.items():
                    state = (b, crossings + (a != b))
                    total = seconds + self._crossing(position - 1, a, b) + terms.own[position]
                    if total < further.get(state, (math.inf, ()))[0]:
                        further[state] = (total, (*path, b))
            reached = further
        found: dict[int, tuple[float, Assignment]] = {}
        for (_, crossings), candidate in reached.items():
            if candidate[0] < found.get(crossings, (math.inf, ()))[0]:
                found[crossings] = candidate
        return {crossings: path for crossings, (_, path) in sorted(found.items())}

    def _crossing(self, position: int, a: str, b: str) -> float:
        """What it costs that piece ``position`` is with ``a`` and the next one with ``b``."""
        if a == b:
            return 0.0
        made, read = self._terms[a], self._terms[b]
        return read.call + (made.rate + read.rate) / 2 * self._passed[position]


def _terms(pieces: Sequence[float], whole: float, call: float, passed: Sequence[int]) -> _Terms:
    together = math.fsum(pieces)
    if math.isinf(together):
        return _Terms(tuple(max(0.0, t - call) for t in pieces), call, 0.0)
    beyond = together - whole - len(passed) * call
    rate = max(0.0, beyond) / max(1, sum(passed))
    ends = [(a + b) / 2 * rate for a, b in zip((0, *passed), (*passed, 0), strict=True)]
    own = [max(0.0, t - call - end) for t, end in zip(pieces, ends, strict=True)]
    total = math.fsum(own)
    scale = max(0.0, whole - call) / total if total else 1.0
    return _Terms(tuple(t * scale for t in own), call, rate)
