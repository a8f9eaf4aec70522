"""How a backend says, while it compiles, that it cannot take some nodes after all."""

from __future__ import annotations


class NodesRefused(Exception):
    """Raised by ``compile``: the graph is split again without these nodes, which torch runs.

    ``reasons`` maps names of nodes in the graph that ``compile`` was given to why.
    """

    def __init__(self, reasons: dict[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
        self.reasons = reasons
