"""Where each operator of a graph runs: the placements of a report, what ``strict`` says of them, and the log line."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import Node

from torchmux import torch_internals as internals
from torchmux.config import config
from torchmux.registry.errors import CompilationFailed, FallbackRefused, FloatsNeeded
from torchmux.registry.plain import kind_told
from torchmux.registry.report import GraphReport, Placement, Strict, libraries_in_words, operator_name
from torchmux.registry.spec import BackendSpec

from . import lines
from .partition import takes_element

log = logging.getLogger("torchmux.fallback")


class Placing:
    """Fills in a report while a graph is compiled.

    Args:
        report: of the backend that was asked for.
        spec: that backend's.
        strict: whether torch, and with ``"own"`` a library as well, may run nothing.
    """

    def __init__(self, report: GraphReport, spec: BackendSpec, *, strict: Strict) -> None:
        self.report = report
        self.spec = spec
        self.strict = strict
        self.is_choice = False  # torch runs the graph although the backend could
        self._told: int | None = None  # how many placements have been reported

    @property
    def is_told(self) -> bool:
        """Whether the user was told already; what is placed now comes from a graph that compiles when it first runs."""
        return self._told is not None

    def place(
        self, nodes: Sequence[Node], library_calls: Mapping[str, str] | None, kernels: Mapping[str, str] | None = None
    ) -> list[Placement]:
        """Note that the backend runs ``nodes``; the rest is what its code tells of them, by name."""
        of = [(node.name, kind_told(node.name, self.spec, library_calls)) for node in nodes]
        backend, known = self.report.backend, kernels or {}
        return self._add(nodes, [{"placed_on": backend, "kernel": known.get(name), **kind} for name, kind in of])

    def leave(self, nodes: Sequence[Node], reason: str, *, compiler_error: bool = False) -> list[Placement]:
        """Note that torch runs ``nodes``."""
        told = {"placed_on": "eager", "reason": reason, "kind": "torch", "compiler_error": compiler_error}
        return self._add(nodes, [told] * len(nodes))

    def _add(self, nodes: Sequence[Node], told: Sequence[dict[str, Any]]) -> list[Placement]:
        placements = [
            Placement(
                node.name,
                operator_name(node),
                where=lines.line_of(node),
                pin=lines.pin_of(node),
                origin=lines.origin_of(node),
                **what,
            )
            for node, what in zip(nodes, told, strict=True)
        ]
        self.report.placements += placements
        return placements

    def take_over(self, other: Placing, reason: Callable[[Placement], str | None]) -> list[Placement]:
        """Add, and return, what a member of a chain has placed, with why it is not the first that was asked."""
        taken = [dataclasses.replace(p, reason=reason(p)) for p in other.report.placements]
        self.report.placements += taken
        return taken

    def forget(self) -> None:
        """Begin anew: the graph is compiled in another way than the placements say."""
        self.report.placements.clear()

    def check_strict(self) -> None:
        """Raises:
        FallbackRefused: torch, or a library, runs something, and that is not allowed.
        """
        report = self.report
        if self.strict and (moved := [p for p in report.fallbacks if report.is_requested(p)]):
            raise FallbackRefused(
                f"strict={self.strict!r}, and {len(moved)} of {len(report.placements)} operators would not run on the "
                f"backend that they are pinned to ({', '.join(sorted({str(p.pin) for p in moved}))}): "
                f"{_describe(moved)}. Call without strict to let {report.backend} run them."
            )
        if self.strict and report.fallbacks:
            raise FallbackRefused(
                f"strict={self.strict!r}, and {report.backend} would leave {len(report.fallbacks)} of "
                f"{len(report.placements)} operators to torch: {_describe(report.fallbacks)}. "
                f"Call without strict to let torch run them, or choose a backend that supports them."
            )
        if forbidden := report.forbidden(self.strict):
            untold = any(p.kind == "untold" for p in forbidden)
            which = "which it does not tell from its own code" if untold else libraries_in_words(forbidden)
            raise FallbackRefused(
                f"strict='own', and {report.backend} would call library kernels for {len(forbidden)} of "
                f"{len(report.placements)} operators: {which}. strict=True allows them, and leaves nothing to torch."
            )

    def check_failure(self, error: Exception, operators: int) -> None:
        """Log what a backend raised for a graph of so many operators, which torch runs instead.

        Raises:
            FloatsNeeded: the graph is to be captured again, with some floats as constants.
            CompilationFailed: torch must not run it, or ``config.fail_on_compiler_errors`` is set.
        """
        if (symbols := internals.floats_needed(error)) is not None:
            raise FloatsNeeded(self.report.backend, symbols) from None
        if self.strict:
            raise CompilationFailed(
                f"{self.report.backend} failed to compile a graph of {operators} operators: "
                f"{failure(error)}. Call without strict to let torch run it."
            ) from error
        if config.fail_on_compiler_errors:
            raise CompilationFailed(
                f"{self.report.backend} failed to compile a graph of {operators} operators: {failure(error)}. "
                "torchmux.config.fail_on_compiler_errors is set; without it, torch runs the graph and the report says "
                "so."
            ) from error
        log.debug("%s raised while compiling", self.report.backend, exc_info=error)

    def tell(self) -> None:
        """One line for what is new in a graph that the backend does not run whole."""
        later, placements = self.is_told, self.report.placements[self._told or 0 :]
        self._told = len(self.report.placements)
        fallbacks = [p for p in placements if not self.report.is_requested(p)]
        if fallbacks:
            log.log(
                logging.INFO if self.is_choice else logging.WARNING,
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


def compiler_error(error: BaseException) -> str:
    """The reason of a fallback that the backend did not mean: a bug of a compiler, or a machine that lacks something.

    What a compiler cannot take, it refuses with an error for that (``NodesRefused``, ``GraphRefused``).
    """
    return f"compiler error: {failure(error)}"


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
