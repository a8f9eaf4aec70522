"""What ran where: the record that every compilation leaves behind.

Each operator is of one kind.  *Own code* is what the backend generated or its own runtime computes; a *library kernel*
is one that the backend calls, by name; the rest is *left to torch*, for a reason.  A backend that does not say which of
the first two an operator is leaves it *untold*, which is none of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from torchmux.stages import Seconds
from torchmux.wording import shown

from .errors import InvalidOption

Kind: TypeAlias = Literal["own", "library", "untold", "torch"]

KINDS: dict[Kind, str] = {
    "own": "own code",
    "library": "library kernels",
    "untold": "own code or library kernels (the backend does not say which)",
    "torch": "left to torch",
}
"""What an operator can be, in words."""

Strict: TypeAlias = Literal["own"] | bool
"""What ``strict`` may be: ``True`` leaves nothing to torch; ``"own"`` forbids library kernels as well."""


def check_strict_value(strict: Any) -> Strict:
    """``strict`` as it was given.

    Raises:
        InvalidOption: it is nothing that ``strict`` may be.
    """
    if type(strict) is bool:
        return strict
    if isinstance(strict, str) and strict == "own":
        return "own"
    raise InvalidOption(
        f"strict must be False, True (no operator is left to torch) or 'own' (and none to a library kernel), not "
        f"{shown(strict)} ({type(strict).__name__})."
    )


@dataclass(frozen=True)
class Placement:
    """Where one node of a captured graph was placed.

    ``placed_on`` is a backend name or ``"eager"``; ``reason`` is set if that is not the requested backend.
    ``where`` is the user's source line (``file:line``) when it is known.  ``library`` names the library kernel if the
    ``kind`` is that.  ``compiler_error`` says that the reason is an exception that the backend did not mean to raise.
    ``pin`` is the backend that the program wants for this node, if it wants one.  ``origin`` is the position, in the
    captured graph, of the node that this one comes from, if that is known; ``kernel`` is the generated function that
    computes it, if the backend tells.

    Examples:
        >>> compiled = torchmux.compile(torch.sin, backend="aot_eager")
        >>> result = compiled(torch.ones(3))
        >>> (placement,) = torchmux.report(compiled).placements
        >>> placement.op, placement.placed_on, placement.kind
        ('aten.sin.default', 'aot_eager', 'library')
    """

    node: str
    op: str
    placed_on: str
    reason: str | None = None
    where: str | None = None
    kind: Kind = "own"
    library: str | None = None
    compiler_error: bool = False
    pin: str | None = None
    origin: int | None = None
    kernel: str | None = None


def counts(placements: Iterable[tuple[Kind, int]]) -> dict[Kind, int]:
    """How many operators are of each kind that occurs, in the order of :data:`KINDS`."""
    found: Counter[Kind] = Counter()
    for kind, number in placements:
        found[kind] += number
    return {kind: found[kind] for kind in KINDS if found[kind]}


def counts_in_words(found: Mapping[Kind, float]) -> str:
    """``80.0% own code, 20.0% left to torch``; nothing for no operators."""
    total = sum(found.values())
    return ", ".join(f"{found[kind] / total:.1%} {words}" for kind, words in KINDS.items() if found.get(kind))


def libraries_in_words(placements: Iterable[Placement]) -> str:
    """The library kernels by name, each with how many operators it computes."""
    names = Counter(p.library or "?" for p in placements if p.kind == "library")
    return ", ".join(f"{name} ({times})" if times > 1 else name for name, times in names.items())


@dataclass(frozen=True)
class Crossing:
    """The values that one compiled part makes and another reads, or torch: how many from one backend to the other.

    ``bytes`` are those of the sizes that are known.  ``scattered`` values are not contiguous; runtimes copy these.
    """

    made_by: str
    read_by: str
    values: int
    bytes: int
    scattered: int

    def __str__(self) -> str:
        copies = f", {self.scattered} of them not contiguous" if self.scattered else ""
        plural = "value" if self.values == 1 else "values"
        return f"{self.values} {plural} ({self.bytes} bytes) from {self.made_by} to {self.read_by}{copies}"


@dataclass
class CallsInTorch:
    """How many calls of compiled code torch ran instead so far, and why the code does not take them."""

    why: str
    count: int = 0


@dataclass
class GraphReport:
    """The result of handing one captured graph to one backend, or to a chain of several.

    ``phase`` is ``"inference"`` or ``"training"``; ``seconds`` are wall-clock, by stage
    (:data:`torchmux.stages.STAGES`).  For a training graph the placements cover the forward and the backward
    graph.  ``members`` are the backends of a chain, and ``crossings`` tell what passes between them and torch.

    Examples:
        >>> compiled = torchmux.compile(torch.sin, backend="aot_eager")
        >>> result = compiled(torch.ones(3))
        >>> found = torchmux.report(compiled).graphs[0].report
        >>> found.backend, found.phase, found.share, dict(found.kinds)
        ('aot_eager', 'inference', 1.0, {'library': 1})
    """

    backend: str
    phase: str = "inference"
    placements: list[Placement] = field(default_factory=list)
    chosen: str = ""  # why this backend, if the user named none
    partitions: int = 0
    seconds: dict[str, float] = field(default_factory=Seconds)
    cache_hits: int = 0
    notes: list[str] = field(default_factory=list)
    output_code: list[str] = field(default_factory=list)  # the code of each part, if the backend exposes it
    # what the steps of each part took in its last call, where a backend takes times (TORCHMUX_LOGS=kernel_times)
    kernel_seconds: list[list[tuple[str, float]]] = field(default_factory=list)
    # calls that the backend's code does not take, such as those with inputs in other places or of other sizes
    calls_in_torch: list[CallsInTorch] = field(default_factory=list)
    members: tuple[str, ...] = ()
    crossings: list[Crossing] = field(default_factory=list)
    replaced: int = 0  # how often auto replaced what ran, since it failed in a call

    @property
    def compile_seconds(self) -> float:
        """The seconds of all stages."""
        return sum(self.seconds.values())

    @property
    def fallbacks(self) -> list[Placement]:
        """The placements that are not on a requested backend, or not on the one that the program pins them to."""
        return [p for p in self.placements if not self.is_requested(p) or (p.pin and p.pin != p.placed_on)]

    def is_requested(self, placement: Placement) -> bool:
        """Whether the backend, or a member of the chain, runs a placement."""
        return placement.placed_on == self.backend or placement.placed_on in self.members

    def kind_of(self, placement: Placement) -> Kind:
        """What a placement of this report is."""
        return placement.kind if self.is_requested(placement) else "torch"

    @property
    def kinds(self) -> dict[Kind, int]:
        """How many operators are of each kind that occurs."""
        return counts((self.kind_of(p), 1) for p in self.placements)

    @property
    def compiler_errors(self) -> list[Placement]:
        """The placements that torch runs since the backend raised an exception that it did not mean to."""
        return [p for p in self.placements if p.compiler_error]

    @property
    def library_calls(self) -> list[Placement]:
        """The placements that a library kernel computes, which the backend calls."""
        return [p for p in self.placements if self.kind_of(p) == "library"]

    def forbidden(self, strict: Strict) -> list[Placement]:
        """The placements that ``strict`` forbids."""
        if not strict:
            return []
        allowed = ("own",) if strict == "own" else ("own", "library", "untold")
        return [p for p in self.placements if self.kind_of(p) not in allowed]

    @property
    def share(self) -> float:
        """Share of nodes, from 0 to 1, that the backend or chain itself runs (1.0 for an empty graph)."""
        if not self.placements:
            return 1.0
        return sum(map(self.is_requested, self.placements)) / len(self.placements)

    @property
    def shares(self) -> dict[str, float]:
        """The share of nodes that each backend runs, and ``eager``."""
        found = Counter(p.placed_on for p in self.placements)
        return {name: number / len(self.placements) for name, number in found.most_common()}


def place_all(
    graph: Any, placed_on: str, reason: str | None = None, kind: Kind = "own", library: str | None = None
) -> list[Placement]:
    """A placement on ``placed_on`` for every node of a ``torch.fx.Graph`` that computes something."""
    return [
        Placement(node.name, operator_name(node), placed_on, reason, source_line(node), kind, library, origin=position)
        for position, node in enumerate(graph.nodes)
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
