"""Where each operator of a graph runs: the placements of a report, what ``strict`` says of them, and the log line."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from torch.fx import Node

from torchmux import torch_internals as internals
from torchmux.registry.errors import CompilationFailed, FallbackRefused, FloatsNeeded
from torchmux.registry.report import GraphReport, Placement, operator_name

from . import lines
from .partition import takes_element

log = logging.getLogger("torchmux.fallback")


class Placing:
    """Fills in a report while a graph is compiled.

    ``origins`` number the captured node of each placement.

    Args:
        report: of the backend that was asked for.
        strict: whether torch may run nothing.
    """

    def __init__(self, report: GraphReport, *, strict: bool) -> None:
        self.report = report
        self.strict = strict
        self.origins: list[int | None] = []
        self._told: int | None = None  # how many placements have been reported

    @property
    def is_told(self) -> bool:
        """Whether the user was told already; what is placed now comes from a graph that compiles when it first runs."""
        return self._told is not None

    def place(self, nodes: Sequence[Node], placed_on: str, reason: str | None = None) -> list[Placement]:
        """Note that ``nodes`` run on ``placed_on``."""
        placements = [
            Placement(node.name, operator_name(node), placed_on, reason, lines.line_of(node)) for node in nodes
        ]
        self.report.placements += placements
        self.origins += map(lines.origin_of, nodes)
        return placements

    def forget(self) -> None:
        """Begin anew: the graph is compiled in another way than the placements say."""
        self.report.placements.clear()
        self.origins.clear()

    def check_strict(self) -> None:
        """Raises:
        FallbackRefused: torch runs something, and that is not allowed.
        """
        if self.strict and self.report.fallbacks:
            raise FallbackRefused(
                f"strict=True, and {self.report.backend} would leave {len(self.report.fallbacks)} of "
                f"{len(self.report.placements)} operators to torch: {_describe(self.report.fallbacks)}. "
                f"Call without strict to let torch run them, or choose a backend that supports them."
            )

    def check_failure(self, error: Exception, operators: int) -> None:
        """Log what a backend raised for a graph of so many operators, which torch runs instead.

        Raises:
            FloatsNeeded: the graph is to be captured again, with some floats as constants.
            CompilationFailed: torch must not run it.
        """
        if (symbols := internals.floats_needed(error)) is not None:
            raise FloatsNeeded(self.report.backend, symbols) from None
        if self.strict:
            raise CompilationFailed(
                f"{self.report.backend} failed to compile a graph of {operators} operators: "
                f"{failure(error)}. Call without strict to let torch run it."
            ) from error
        log.debug("%s raised while compiling", self.report.backend, exc_info=error)

    def tell(self) -> None:
        """One line for what is new in a graph that the backend does not run whole."""
        later, placements = self.is_told, self.report.placements[self._told or 0 :]
        self._told = len(self.report.placements)
        fallbacks = [p for p in placements if p.placed_on != self.report.backend]
        if fallbacks:
            log.warning(
                "%s: torch runs %d of %d operators%s: %s",
                self.report.backend,
                len(fallbacks),
                len(placements),
                " of the backward pass" if later else "",
                _describe(fallbacks),
            )


def operators_of(graph: Sequence[Node]) -> list[Node]:
    """The nodes of a torch-level graph that a report counts."""
    return [n for n in graph if n.op.startswith("call_") and takes_element(n) is None]


def failure(error: BaseException) -> str:
    """The exception in one line; what torch.fx adds about the node being traced is left out."""
    lines_of_it = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines_of_it[0][:300]}" if lines_of_it else type(error).__name__


def _describe(fallbacks: Sequence[Placement], limit: int = 5) -> str:
    """The fallbacks in a few words, those with one reason together."""
    groups: dict[str | None, dict[str, list[Placement]]] = {}
    for placement in fallbacks:
        groups.setdefault(placement.reason, {}).setdefault(placement.op, []).append(placement)
    return "; ".join(f"{_operators_in_words(ops, limit)}: {reason}" for reason, ops in groups.items())


def _operators_in_words(groups: dict[str, list[Placement]], limit: int) -> str:
    words = []
    for op, placements in list(groups.items())[:limit]:
        times = f" ({len(placements)} times)" if len(placements) > 1 else ""
        where = next((f" at {p.where}" for p in placements if p.where), "")
        words.append(f"{op}{times}{where}")
    if len(groups) > limit:
        words.append(f"{len(groups) - limit} more")
    return ", ".join(words)
