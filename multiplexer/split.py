"""A shared graph, split among the members of a team: each node to the first that takes it, in large parts."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import Graph, GraphModule, Node

from torchmux.backends.common.pipeline import lines, lower
from torchmux.backends.common.pipeline.assemble import Built, extract, inputs_of
from torchmux.backends.common.pipeline.implementation import Told
from torchmux.backends.common.pipeline.partition import Partition, takes_element
from torchmux.backends.common.pipeline.parts import Attempt, Choice, Compiler, Part, Placed, calls_of, maker
from torchmux.backends.common.pipeline.placing import Placing
from torchmux.registry.errors import CompilationFailed, NodesRefused
from torchmux.registry.report import GraphReport, Placement

from .crossings import crossings_of
from .team import Member, MemberPart, Team

MOST_ORDERS = 24
"""How many orders of members are tried for the one with the fewest parts; more for few members only."""


class MemberChoice(Choice):
    """Which member takes which node, and why those before it do not."""

    def __init__(self, team: Team, gm: GraphModule) -> None:
        self._team, self._gm = team, gm
        self._no: dict[tuple[Node, int], str] = {}
        self._yes: set[tuple[Node, int]] = set()
        self._failed: set[Node] = set()

    def taker(self, node: Node) -> int:
        for position in self._team.order(node):
            if (node, position) in self._no:
                continue
            if (node, position) not in self._yes:
                answer = self._team.members[position].supports(node, self._gm)
                if answer is not True:
                    self._no[node, position] = answer
                    continue
                self._yes.add((node, position))
            return position + 1
        return 0

    def refuse(self, node: Node, taker: int, reason: str) -> None:
        self._no[node, taker - 1] = reason
        if reason.startswith("compiler error"):
            self._failed.add(node)

    def reason(self, node: Node) -> str | None:
        order = self._team.order(node)
        if all((node, position) in self._no for position in order):
            return self.why_not(node, len(self._team.members)) or "no backend of the chain may take it"
        return None

    def failed(self, node: Node) -> bool:
        return node in self._failed

    def why_not(self, node: Node, taken_by: int) -> str | None:
        """Why the members that were asked before ``taken_by`` (a position) do not take ``node``."""
        said = []
        pin = lines.pin_of(node)
        if pin in self._team.unavailable:
            said.append(self._team.unavailable[pin])
        for position in self._team.order(node):
            if position == taken_by:
                break
            if (reason := self._no.get((node, position))) is not None:
                said.append(f"{self._team.members[position].name}: {reason}")
        return "; ".join(said) or None


@dataclass
class PlacedByMember(Placed):
    """A part, who compiled it, and what that one's report says of it."""

    placing: Placing | None = None
    reasons: dict[str, str | None] = dataclasses.field(default_factory=dict)  # by the node of a placement


@dataclass(frozen=True)
class TeamCompiler(Compiler):
    """Compiles shared graphs; each part goes through its member's own pipeline."""

    team: Any = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.placing.report.members = self.team.names
        self.placing.report.notes += self.notes

    def choice(self, gm: GraphModule) -> MemberChoice:
        return MemberChoice(self.team, gm)

    def split(self, graph: Graph, taker: Callable[[Node], int], ordered: Callable[[Node], bool]) -> Partition:
        """The order of members within a level that makes the fewest parts, then the fewest crossings."""
        takers = {node: taker(node) for node in graph.nodes if node.op.startswith("call_")}
        used = sorted({t for t in takers.values() if t})
        best: Partition | None = None
        for order in itertools.islice(itertools.permutations(used), MOST_ORDERS):
            rank = {taker: position + 1 for position, taker in enumerate(order)}
            found = super().split(graph, lambda n, rank=rank: rank.get(takers.get(n, 0), 0), ordered)  # type: ignore[misc]
            for part in found.parts:
                part.taker = order[part.taker - 1]
            if best is None or (len(found.parts), found.crossings) < (len(best.parts), best.crossings):
                best = found
        return best if best is not None else super().split(graph, lambda n: 0, ordered)

    def note(self, split: Partition) -> None:
        self.placing.report.crossings += crossings_of(split, self.team.names)

    def compile_part(
        self, part: Part, gm: GraphModule, phase: Any, constants: dict[Node, Any], attempt: Attempt
    ) -> None:
        member: Member = self.team.members[part.taker - 1]
        module = extract(part, gm)
        copies = {n.name: maker(o) for n, o in zip(calls_of(module), part.nodes, strict=True)}

        def refuse(reasons: dict[str, str]) -> None:
            """The member does not take these nodes of ``module``; all, if one of them is unknown."""
            if any(name not in copies for name in reasons):
                why = next(iter(reasons.values()))
                reasons = dict.fromkeys(copies, why)
            attempt.refused.extend((copies[name], part.taker, why) for name, why in reasons.items())

        taken = inputs_of(part)
        static = {i: constants[v] for i, v in enumerate(taken) if v in constants}
        try:
            low = _lowered(module, member)
        except NodesRefused as refusal:
            return refuse(refusal.reasons)
        placing = Placing(GraphReport(member.name), member.spec, strict=False)
        request = member.resolved.request(strict=self.request.strict)
        compiler = Compiler(member.implementation, request, placing, self.operators)
        kept: list[Any] = []
        run = compiler.compile(low, phase, static, lambda *made: kept.append(made))
        origin = _origins(low, module, copies)
        if left := [p for p in placing.report.placements if not placing.report.is_requested(p)]:
            self._check_failures(placing.report)
            return refuse({origin.get(p.node, ""): str(p.reason) for p in left})
        artifact = self.team.artifact(member, *kept[-1]) if member.implementation.restore is not None else None
        choice = attempt.choice
        assert isinstance(choice, MemberChoice)
        reasons = {
            p.node: choice.why_not(copies[origin[p.node]], part.taker - 1) if p.node in origin else None
            for p in placing.report.placements
        }
        made = MemberPart(Built(*kept[-1]), placing.report, artifact, run)
        attempt.placed.append(PlacedByMember({}, made, placing=placing, reasons=reasons))
        attempt.compiled[id(part)] = made
        return None

    def _check_failures(self, report: GraphReport) -> None:
        """Raises:
        CompilationFailed: a member raised what it should not, and the chain is strict.
        """
        if self.request.strict and report.compiler_errors:
            raise CompilationFailed(
                f"{report.backend}, of the chain {self.request.backend}, failed to compile a part: "
                f"{report.compiler_errors[0].reason}. Call without strict to let the other members, or torch, run it."
            )

    def place(self, placed: Placed) -> None:
        assert isinstance(placed, PlacedByMember) and placed.placing is not None
        reasons = placed.reasons

        def reason(placement: Placement) -> str | None:
            return reasons.get(placement.node)

        placements = self.placing.take_over(placed.placing, reason)
        Told(placed.run).follow(self.placing.report, placements)


def _lowered(module: GraphModule, member: Member) -> GraphModule:
    """``module`` as ``member`` wants it.

    Raises:
        NodesRefused: see :func:`lower.lowered`.
    """
    if member.level is not None:
        if all(member.level.is_reached(node) for node in calls_of(module) if takes_element(node) is None):
            return module
        return lower.lowered(module, member.level)
    for node in module.graph.nodes:  # a backend for captured graphs looks for values there
        if "val" in node.meta:
            node.meta["example_value"] = node.meta["val"]
    return module


def _origins(low: GraphModule, module: GraphModule, copies: dict[str, Node]) -> dict[str, str]:
    """The node of ``module`` that each node of ``low`` was made from, by name."""
    if low is module:
        return {name: name for name in copies}
    nodes: Sequence[Node] = list(module.graph.nodes)
    found = {}
    for node in low.graph.nodes:
        position = lower.position_of(node)
        if position is not None and nodes[position].name in copies:
            found[node.name] = nodes[position].name
    return found
