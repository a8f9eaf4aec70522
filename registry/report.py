"""What ran where: the record that every compilation leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Placement:
    """Where one node of a captured graph was placed.

    ``placed_on`` is a backend name or ``"eager"``; ``reason`` is set when that is not the backend asked for.
    ``where`` is the user's source line (``file:line``) when it is known.
    """

    node: str
    op: str
    placed_on: str
    reason: str | None = None
    where: str | None = None


@dataclass
class GraphReport:
    """The outcome of handing one captured graph to one backend.

    ``phase`` is ``"inference"`` or ``"training"``; seconds are wall-clock.  For a training graph the placements cover
    the forward and the backward graph.
    """

    backend: str
    phase: str = "inference"
    placements: list[Placement] = field(default_factory=list)
    partitions: int = 0
    compile_seconds: float = 0.0
    cache_hits: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def fallbacks(self) -> list[Placement]:
        """The placements that are not on the backend asked for."""
        return [p for p in self.placements if p.placed_on != self.backend]

    @property
    def share(self) -> float:
        """Share of nodes, 0 to 1, that the backend itself runs (1.0 for an empty graph)."""
        if not self.placements:
            return 1.0
        return 1.0 - len(self.fallbacks) / len(self.placements)
