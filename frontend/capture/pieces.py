"""A graph that runs as several pieces, each compiled by itself: see ``buckets`` for the reason."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from torchmux import torch_internals as ti
from torchmux.registry.report import CallsInTorch, Crossing, GraphReport, Placement
from torchmux.stages import Seconds


@dataclasses.dataclass
class Piece:
    """A run of nodes of a graph, as a graph of its own.

    ``takes`` and ``returns`` name nodes of the whole graph by position, in the order of inputs and outputs;
    ``positions`` are those of the piece's own nodes in it.
    """

    gm: torch.fx.GraphModule
    takes: list[int]
    returns: list[int]
    positions: list[int]
    compiled: Any = None


def split(gm: torch.fx.GraphModule, cuts: Sequence[int]) -> list[Piece]:
    """The pieces of ``gm`` that begin at the nodes in the positions ``cuts``."""
    nodes = list(gm.graph.nodes)
    position = {node: at for at, node in enumerate(nodes)}
    needed = {node for node in nodes if any(user.op == "output" for user in node.users)}
    begin = [next(at for at, node in enumerate(nodes) if node.op != "placeholder"), *cuts]
    sizes = [node for node in nodes if node.op == "placeholder" and _is_symbol(node.meta.get("example_value"))]
    pieces = []
    for first, last in zip(begin, [*cuts, len(nodes) - 1], strict=True):
        own = nodes[first:last]
        inside = set(own)
        read = {each for node in own for each in node.all_input_nodes} - inside
        constants = sorted((node for node in read if node.op == "get_attr"), key=position.__getitem__)
        taken = sorted({*(read - set(constants)), *sizes}, key=position.__getitem__)
        returned = [
            node for node in own
            if node.op != "get_attr" and (node in needed or any(user not in inside for user in node.users))
        ]  # fmt: skip
        graph = torch.fx.Graph()
        copies = {node: _placeholder(graph, node) for node in taken}
        for node in (*constants, *own):
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[node] for node in returned))
        positions = [position[node] for node in (*taken, *constants, *own)]
        takes, returns = [position[node] for node in taken], [position[node] for node in returned]
        pieces.append(Piece(torch.fx.GraphModule(gm, graph), takes, returns, positions))
    return pieces


def _is_symbol(value: Any) -> bool:
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _placeholder(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node:
    """An input of a piece.  What an earlier piece makes has no history there: autograd enters each piece anew."""
    placeholder = graph.placeholder(node.name)
    placeholder.meta = dict(node.meta)
    if node.op != "placeholder":
        value = node.meta["example_value"]
        with torch.no_grad():
            fresh = value.detach()
        placeholder.meta = {"example_value": fresh.requires_grad_(value.requires_grad)}
    return placeholder


def example(fake: torch.Tensor) -> torch.Tensor:
    """A tensor like ``fake`` that stands for what an earlier piece makes: no program has computed it yet.

    Its numbers come from a generator of its own, so the program's are not disturbed.
    """
    hints = [[n if type(n) is int else n.node.hint for n in numbers] for numbers in (fake.shape, fake.stride())]
    with torch.no_grad(), ti.without_modes():
        made = torch.empty_strided(*hints, dtype=fake.dtype, device=fake.device).zero_()
        if made.is_floating_point():
            made.normal_(generator=torch.Generator(made.device).manual_seed(0))
    return made.requires_grad_(fake.requires_grad)


class Pieces:
    """The pieces of a graph, compiled: called with the flat inputs of the graph, it returns the flat outputs.

    A profile shows each piece; ``report`` puts together what theirs say.
    """

    built = "it is split where DistributedDataParallel communicates"

    def __init__(self, gm: torch.fx.GraphModule, pieces: Sequence[Piece]) -> None:
        nodes = list(gm.graph.nodes)
        position = {node: at for at, node in enumerate(nodes)}
        self._given = [position[node] for node in nodes if node.op == "placeholder"]
        (output,) = nodes[-1].args
        # A result of the graph is a node, or a number that stands in it.
        self._results = [(position[each], None) if isinstance(each, torch.fx.Node) else (-1, each) for each in output]
        self._size = len(nodes)
        kept = {at for at, _ in self._results}
        last = {at: number for number, piece in enumerate(pieces) for at in piece.takes}
        self._steps: list[tuple[Callable[..., Sequence[Any]], list[int], list[int], list[int]]] = []
        for number, piece in enumerate(pieces):
            over = [at for at in piece.takes if last[at] == number and at not in kept]
            self._steps.append((piece.compiled, piece.takes, piece.returns, over))
        self.report = ReportOfPieces(pieces)

    def __call__(self, *args: Any) -> Sequence[Any]:
        values: list[Any] = [None] * self._size
        for at, value in zip(self._given, args, strict=True):
            values[at] = value
        profiled = ti.is_profiled()
        for number, (run, takes, returns, over) in enumerate(self._steps):
            inputs = [values[at] for at in takes]
            for at in over:
                values[at] = None  # memory is freed as it would be without pieces
            if profiled:
                with torch.profiler.record_function(f"torchmux piece {number + 1} of {len(self._steps)}"):
                    made = run(*inputs)
            else:
                made = run(*inputs)
            del inputs
            for at, value in zip(returns, made, strict=True):
                values[at] = value
        return tuple(constant if at < 0 else values[at] for at, constant in self._results)


class ReportOfPieces(GraphReport):
    """The report of a graph in pieces.  Theirs grow when their backward passes are compiled, and it grows with them."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        first: GraphReport = pieces[0].compiled.report
        self.backend = first.backend
        self.phase = "training"
        self.chosen = ""

    @property
    def _reports(self) -> list[GraphReport]:
        return [piece.compiled.report for piece in self._pieces]

    @property
    def members(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(dict.fromkeys(name for report in self._reports for name in report.members))

    @property
    def placements(self) -> list[Placement]:  # type: ignore[override]
        return [
            p if p.origin is None else dataclasses.replace(p, origin=piece.positions[p.origin])
            for piece in self._pieces
            for p in piece.compiled.report.placements
        ]

    @property
    def partitions(self) -> int:  # type: ignore[override]
        return sum(report.partitions for report in self._reports)

    @property
    def cache_hits(self) -> int:  # type: ignore[override]
        return sum(report.cache_hits for report in self._reports)

    @property
    def replaced(self) -> int:  # type: ignore[override]
        return sum(report.replaced for report in self._reports)

    @property
    def seconds(self) -> dict[str, float]:  # type: ignore[override]
        together = Seconds()
        counted: Counter[str] = Counter()
        for report in self._reports:
            counted.update(report.seconds)
            together.spans += getattr(report.seconds, "spans", ())
        together.update(counted)
        return together

    @property
    def notes(self) -> list[str]:  # type: ignore[override]
        split = f"split into {len(self._pieces)} pieces at the buckets of DistributedDataParallel"
        return list(dict.fromkeys((split, *(note for report in self._reports for note in report.notes))))

    @property
    def output_code(self) -> list[str]:  # type: ignore[override]
        return [code for report in self._reports for code in report.output_code]

    @property
    def kernel_seconds(self) -> list[list[tuple[str, float]]]:  # type: ignore[override]
        return [steps for report in self._reports for steps in report.kernel_seconds]

    @property
    def calls_in_torch(self) -> list[CallsInTorch]:  # type: ignore[override]
        return [calls for report in self._reports for calls in report.calls_in_torch]

    @property
    def crossings(self) -> list[Crossing]:  # type: ignore[override]
        return [crossing for report in self._reports for crossing in report.crossings]
