"""What ran where: the record that every compilation leaves behind."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Placement:
    """Where one node of a captured graph was placed.

    ``placed_on`` is a backend name or ``"eager"``; ``reason`` is set if that is not the requested backend.
    ``where`` is the user's source line (``file:line``) when it is known.
    """

    node: str
    op: str
    placed_on: str
    reason: str | None = None
    where: str | None = None


@dataclass
class GraphReport:
    """The result of handing one captured graph to one backend.

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
    output_code: list[str] = field(default_factory=list)  # the code of each part, if the backend exposes it

    @property
    def fallbacks(self) -> list[Placement]:
        """The placements that are not on the requested backend."""
        return [p for p in self.placements if p.placed_on != self.backend]

    @property
    def share(self) -> float:
        """Share of nodes, from 0 to 1, that the backend itself runs (1.0 for an empty graph)."""
        if not self.placements:
            return 1.0
        return 1.0 - len(self.fallbacks) / len(self.placements)


def place_all(graph: Any, placed_on: str, reason: str | None = None) -> list[Placement]:
    """A placement on ``placed_on`` for every node of a ``torch.fx.Graph`` that computes something."""
    return [
        Placement(node.name, operator_name(node), placed_on, reason, source_line(node))
        for node in graph.nodes
        if node.op in ("call_function", "call_method", "call_module")
    ]


def output_code_of(run: Any) -> list[str]:
    """The code that a backend's callable exposes: its ``output_code``, or the text of an FX module."""
    told = getattr(run, "output_code", None)
    if told is None:
        told = getattr(getattr(run, "__self__", run), "code", None)
    if isinstance(told, str):
        return [told]
    return list(told) if isinstance(told, (list, tuple)) else []


def operator_name(node: Any) -> str:
    """What an FX node calls, as a person would write it: ``aten.add.Tensor``, ``torch.relu``, ``Tensor.view``."""
    target = node.target
    if node.op == "call_method":
        return f"Tensor.{target}"
    if isinstance(target, str) or hasattr(target, "overloadpacket"):
        return str(target)
    name = getattr(target, "__name__", None)
    if name is None:
        return str(target)
    module = (getattr(target, "__module__", None) or "").removeprefix("_")  # operator's functions live in _operator
    return f"{module}.{name}" if module and module != "builtins" else name


def source_line(node: Any) -> str | None:
    """``file:line`` of the innermost user frame that an FX node came from, if the capture recorded it."""
    if (noted := node.meta.get("source_line")) is not None:
        return str(noted)
    found = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    return f"{found[-1][0]}:{found[-1][1]}" if found else None
