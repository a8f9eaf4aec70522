"""One ATen graph: simplified, partitioned by what the backend supports, its parts compiled, and put together again.

Nodes that compute nothing are in no report: views that end up outside of a part, sizes, checks, elements of tuples, and
the copies that write results back to mutated inputs, which torch does around any compiler.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.fx import Graph, GraphModule, Node

from torchmux import torch_internals as internals
from torchmux.registry.errors import GraphRefused, InvalidSpec, NodesRefused, TorchmuxError
from torchmux.registry.spec import CompileRequest
from torchmux.stages import stage

from .. import collectives
from ..moving import make_where_used
from . import aliasing, decompose, floats, simplify, symbols
from .assemble import assemble, extract, inputs_of
from .implementation import Implementation, Told
from .partition import Part, Partition, give_to_last_part, partition, takes_element, writes_back
from .placing import Placing, compiler_error

_CHECKS = ("_assert", "sym_constrain_range")

Run = Callable[..., Sequence[Any]]
Keep = Callable[[GraphModule, Partition, Mapping[int, Run]], None]
"""Told what came of a graph, if every part is the backend's own code."""


@dataclass
class Placed:
    """One part: its nodes by their names in the graph that the backend got, its code, and why torch runs it, if so."""

    nodes: dict[str, Node]
    run: Run
    reason: str | None = None
    compiler_error: bool = False


@dataclass
class Attempt:
    """What came of compiling the parts of one split."""

    choice: Choice
    compiled: dict[int, Run] = field(default_factory=dict)  # by id(part)
    placed: list[Placed] = field(default_factory=list)
    refused: list[tuple[Node, int, str]] = field(default_factory=list)  # the node, who was to take it, and why not


class Choice:
    """Which nodes of a graph the backend takes, and why it does not take the others."""

    def __init__(self, supports: Callable[[Node], Literal[True] | str]) -> None:
        self._supports = supports
        self._reasons: dict[Node, str] = {}

    def taker(self, node: Node) -> int:
        """Who compiles ``node``: 0 for torch."""
        answer = self._reasons.get(node) or self._supports(node)
        if answer is not True:
            self._reasons[node] = answer
        return int(answer is True)

    def refuse(self, node: Node, taker: int, reason: str) -> None:
        """``taker`` does not take ``node`` after all."""
        self._reasons[node] = reason

    def reason(self, node: Node) -> str | None:
        """Why torch runs ``node``; None if it does not, or nobody was asked."""
        return self._reasons.get(node)

    def failed(self, node: Node) -> bool:
        """Whether the reason is an exception that a backend did not mean to raise."""
        return False


@dataclass(frozen=True)
class Compiler:
    """Compiles ATen graphs of one captured graph; ``operators`` is how many that has, for messages."""

    implementation: Implementation
    request: CompileRequest
    placing: Placing
    operators: int

    def compile(
        self,
        gm: GraphModule,
        phase: Literal["inference", "forward", "backward"],
        static: Mapping[int, Any],
        keep: Keep | None = None,
        *,
        apart: bool = False,
    ) -> Run:
        """Partition a functional ATen graph, compile its parts, and put the result together.

        Args:
            static: the real tensors of parameters and buffers, by position.
            keep: is called with what :func:`assemble` gets.
            apart: whether no two inputs share memory, in any call.
        """
        simplify.fold_numbers(gm)
        make_where_used(gm.graph)
        _drop_lifts(gm)
        simplify.drop_empty_concatenands(gm.graph)
        simplify.spare_overwritten(gm.graph)
        simplify.spare_kept_dimensions(gm.graph)
        simplify.see_past_writes(gm.graph)
        if not self.implementation.takes_numbers():
            floats.as_tensors(gm.graph)
        symbols.hoist(gm.graph)
        outside = aliasing.split_off_output_views(gm.graph)
        placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
        written = {n.args[0] for n in gm.graph.nodes if writes_back(n)}
        constants = {placeholders[p]: v for p, v in static.items() if placeholders[p] not in written}
        choice = self.choice(gm)

        def taker(node: Node) -> int:
            return 0 if node in outside or is_glue(node) else choice.taker(node)

        def ordered(node: Node) -> bool:
            # Draws keep their order, whoever makes them: all advance one generator.
            return aliasing.writes(node) or decompose.is_random(node.target) or collectives.starts(node)

        if any(collectives.communicates(node) and not taker(node) for node in gm.graph.nodes):
            collectives.add_before_summing(gm.graph)

        to_torch: set[Node] = set()  # writes to inputs that the backend does not make after all
        while True:
            with internals.without_modes():  # a backend may read tensors that the graph holds: they are real
                split = self.split(gm.graph, taker, ordered)
            if apart:
                give_to_last_part(split, gm.graph, self.implementation.writes_back, to_torch)
            symbols.hand_on(split, gm.graph)
            attempt = Attempt(choice)
            for part in split.parts:
                self.compile_part(part, gm, phase, constants, attempt)
            if not attempt.refused:
                break
            for node, by, why_not in attempt.refused:
                if writes_back(node):
                    to_torch.add(node)
                else:
                    choice.refuse(node, by, why_not)
        report = self.placing.report
        for step in split.steps:
            if isinstance(step, Node) and (reason := choice.reason(step)) is not None:
                self.placing.leave([step], reason, compiler_error=choice.failed(step))
        for placed in attempt.placed:
            self.place(placed)
        report.partitions += sum(placed.reason is None for placed in attempt.placed)
        self.note(split)
        if keep is not None:
            keep(gm, split, attempt.compiled)
        self.tell_of(attempt.compiled)
        return assemble(gm, split, attempt.compiled)

    # --- what a compiler with several backends does in another way -------------------------------------------------

    def choice(self, gm: GraphModule) -> Choice:
        """Who takes which node."""
        return Choice(self.implementation.supports)

    def split(self, graph: Graph, taker: Callable[[Node], int], ordered: Callable[[Node], bool]) -> Partition:
        """The parts that are compiled."""

        def copied(node: Node) -> bool:
            return aliasing.is_view(node) and not self.implementation.makes_views(node)

        return partition(graph, taker, trivial=aliasing.is_view, copied=copied, ordered=ordered, last=writes_back)

    def note(self, split: Partition) -> None:
        """Add what the report tells of the final split."""

    def place(self, placed: Placed) -> None:
        told, nodes = Told(placed.run), list(placed.nodes.values())
        if placed.reason is not None:
            placements = self.placing.leave(nodes, placed.reason, compiler_error=placed.compiler_error)
        else:
            calls = told.library_calls
            if calls is not None:
                calls = _renamed(calls, placed.nodes)
            placements = self.placing.place(nodes, calls, _renamed(told.kernels, placed.nodes))
        told.follow(self.placing.report, placements)

    def tell_of(self, compiled: Mapping[int, Run]) -> None:
        """Report on the code of all parts.

        Raises:
            FallbackRefused: torch runs something, and that is not allowed.
        """
        report = self.placing.report
        report.cache_hits += sum(Told(run).cache_hit for run in compiled.values())
        for run in compiled.values():
            report.notes += Told(run).notes
            report.output_code += Told(run).output_code
            report.kernel_seconds += Told(run).kernel_seconds
        self.placing.check_strict()

    def compile_part(
        self, part: Part, gm: GraphModule, phase: Any, constants: dict[Node, Any], attempt: Attempt
    ) -> None:
        """The backend's code for one part; torch's own if the backend raises."""
        module = extract(part, gm)
        copies = {n.name: o for n, o in zip(calls_of(module), part.nodes, strict=True)}
        taken = inputs_of(part)
        static = tuple(i for i, v in enumerate(taken) if v in constants)
        request = dataclasses.replace(self.request, phase=phase, static_inputs=static)
        nodes = {name: node for name, node in copies.items() if takes_element(node) is None and not writes_back(node)}
        try:
            with stage("compiler"):
                run = self.implementation.compile(module, [constants.get(v, v.meta.get("val")) for v in taken], request)
            placed = Placed(nodes, run)
        except NodesRefused as refusal:
            unknown = sorted(refusal.reasons.keys() - copies.keys())
            if unknown or not refusal.reasons:
                raise InvalidSpec(
                    f"{request.backend} refused {', '.join(unknown) or 'no node at all'} while compiling a graph. "
                    "NodesRefused must name nodes of the graph that compile was given."
                ) from refusal
            attempt.refused += [(maker(copies[name]), part.taker, why) for name, why in refusal.reasons.items()]
            return
        except GraphRefused as refusal:
            placed = Placed(nodes, extract(part, gm).forward, str(refusal))
        except TorchmuxError:
            raise
        except Exception as error:
            self.placing.check_failure(error, self.operators)
            placed = Placed(nodes, extract(part, gm).forward, compiler_error(error), compiler_error=True)
        attempt.placed.append(placed)
        attempt.compiled[id(part)] = placed.run


def _renamed(told: Mapping[str, str], nodes: Mapping[str, Node]) -> dict[str, str]:
    """What code tells of the nodes of its part, by their names in the whole graph."""
    return {nodes[name].name: what for name, what in told.items() if name in nodes}


def maker(node: Node) -> Node:
    """``node``, or what makes the tuple that it is an element of: an element goes where its tuple goes."""
    while (made_by := takes_element(node)) is not None:
        node = made_by
    return node


def calls_of(gm: GraphModule) -> list[Node]:
    return [n for n in gm.graph.nodes if n.op.startswith("call_")]


def _is_check(node: Node) -> bool:
    name = getattr(node.target, "__name__", "")
    return name.startswith(_CHECKS)


def is_glue(node: Node) -> bool:
    return symbols.is_symbolic(node) or floats.is_number(node) or _is_check(node) or writes_back(node)


def _drop_lifts(gm: GraphModule) -> None:
    """Read constants directly: with no mutation left, the copy that protects them is needed for outputs only."""
    output = next(n for n in reversed(gm.graph.nodes) if n.op == "output")
    root = aliasing.roots(gm.graph)
    returned = {root[n] for n in output.all_input_nodes}
    for node in list(gm.graph.nodes):
        if node.target is torch.ops.aten.lift_fresh_copy.default and node not in returned:
            constant = node.args[0]
            constant.meta.setdefault("val", node.meta["val"])
            node.replace_all_uses_with(constant)
            gm.graph.erase_node(node)
