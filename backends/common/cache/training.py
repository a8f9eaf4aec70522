"""Recipes of graphs that record gradients, so that the next process traces neither pass.

Such a recipe has the code of the forward graph, what is known of both passes, and the code of the backward graph for
each choice of results without a gradient that occurred.  It is filed when the first backward pass is compiled.  The
passes are those of :class:`internals.ShortPasses`, so what is too unusual for them is traced each time, and with it
calls that must not fall back to torch (``strict``).

A process that follows a recipe and meets a choice that no process has met before computes the gradients of that call
from the captured graph in torch, which the report says, and traces the graph in the next call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from torchmux import torch_internals as internals
from torchmux.registry.report import GraphReport

from ..pipeline import aliasing
from ..pipeline.derivatives import Derivatives, Joint, Recorder
from ..pipeline.partition import Partition
from ..pipeline.runtime import in_torch
from ..pipeline.tangents import Backward, Tangents
from . import recipes
from .cache import ArtifactCache
from .keys import text_key
from .listing import Unknown, packed, unpacked

Run = Callable[..., Sequence[Any]]
Missing = tuple[int, ...]

_TRANSFORMED = "a call under a transform of torch.func, or in forward mode, of code from the artifact cache"


def backward_key(key: str, forward: Mapping[str, Any], missing: Missing) -> str:
    """The name of the code of a backward graph without some of its tangents.

    It covers the forward pass: where several cuts of a graph are equally good, traces in two processes may save
    different values, and the backward pass of one would take those of the other for its own.
    """
    return text_key("backward", key, json.dumps(forward), missing)


def _encoded(
    gm: GraphModule, split: Partition, compiled: Mapping[int, Run], report: GraphReport, since: tuple[int, int, int]
) -> dict[str, Any]:
    """A pass as :func:`recipes.encode` gives it, and what ``report`` tells of it: what was added ``since``."""
    placed, partitions, crossed = since
    part = GraphReport(report.backend, placements=report.placements[placed:], crossings=report.crossings[crossed:])
    part.partitions = report.partitions - partitions
    return recipes.encode(gm, split, compiled, part)


def told_so_far(report: GraphReport) -> tuple[int, int, int]:
    """What :class:`Keeper` takes as ``since``."""
    return len(report.placements), report.partitions, len(report.crossings)


@dataclass
class Keeper:
    """Files the recipe of one graph, from what is compiled for it."""

    cache: ArtifactCache
    key: str
    report: GraphReport
    _forward: dict[str, Any] | None = None
    _passes: dict[str, Any] | None = None
    _backward: dict[Missing, dict[str, Any]] = field(default_factory=dict)

    def forward(self, since: tuple[int, int, int], gm: GraphModule, split: Partition, compiled: Any) -> None:
        """Keep the forward pass."""
        self._forward = self._tried(since, gm, split, compiled)

    def backward(
        self, missing: Missing, since: tuple[int, int, int], gm: GraphModule, split: Partition, compiled: Any
    ) -> None:
        """Keep the backward pass without some of its tangents."""
        if any(map(aliasing.writes, gm.graph.nodes)):
            return
        found = self._tried(since, gm, split, compiled)
        if found is not None:
            self._backward[missing] = {**found, "gradients": len(gm.graph.output_node().args[0])}
            self._file()

    def made(self, derivatives: Derivatives, *, writes: bool) -> None:
        """Keep what connects the passes; ``writes``: inputs are written to."""
        plain = derivatives.recorder.plain if derivatives.is_plain else None
        told = plain.told() if plain is not None else None
        if told is None:
            return
        joint, returns = derivatives.joint, derivatives.recorder.returns
        self._passes = {
            "plain": packed({**told, **{name: _parts(told[name]) for name in told if "saved" in name}}, {}),
            "joint": [sorted(joint.used), sorted(joint.unused), joint.is_random],
            "changed": sorted(returns.inputs_changed),
            "tangents": derivatives.tangents.count,
            "writes": writes,
        }
        self._file()

    def _tried(self, since: tuple[int, int, int], gm: GraphModule, split: Partition, compiled: Any) -> Any:
        try:
            with internals.without_modes():  # AOTAutograd compiles among fake tensors, and constants are real
                return _encoded(gm, split, compiled, self.report, since)
        except Unknown as why:
            recipes.log.debug("a graph for %s is traced each time: %s", self.report.backend, why)
            return None

    def _file(self) -> None:
        """File all that is new, once a backward pass is there."""
        if self._forward is None or self._passes is None or not self._backward:
            return
        results = {content["gradients"] for content in self._backward.values()}
        for missing, content in self._backward.items():
            self.cache.store(backward_key(self.key, self._forward, missing), json.dumps(content).encode())
        told = {"forward": self._forward, "passes": self._passes, "gradients": results.pop()}
        self.cache.store(self.key, json.dumps(told).encode())


def _parts(known: slice) -> tuple[Any, ...]:
    return known.start, known.stop, known.step


@dataclass
class Followed:
    """A recipe that a process follows."""

    captured: GraphModule
    example_inputs: Sequence[Any]
    pass_of: Callable[[bytes], Run | None]
    """The code of a pass, put together of what is filed; None if some of it is gone."""
    load: Callable[[str], bytes | None]
    trace: Callable[[Sequence[Any]], Run]
    """The graph compiled anew, for these inputs."""

    def run(self, key: str, content: bytes) -> tuple[Derivatives, bool] | None:
        """The graph, and whether it writes to inputs."""
        told = json.loads(content)
        forward = self.pass_of(json.dumps(told["forward"]).encode())
        if forward is None:
            return None
        passes = told["passes"]
        plain: dict[str, Any] = unpacked(passes["plain"], ())
        plain |= {name: slice(*plain[name]) for name in plain if "saved" in name}
        known = internals.PlainPasses.again(plain)
        tangents = Tangents()
        tangents.count = passes["tangents"]
        outdated: list[Missing] = []

        def backward_pass(missing: Missing) -> Run | None:
            filed = self.load(backward_key(key, told["forward"], missing))
            run = None if filed is None else self.pass_of(filed)
            if run is None:
                recipes.log.info("no process has compiled the backward pass without %s: the graph is traced", missing)
                outdated.append(missing)
            return run

        make = internals.not_captured(backward_pass)  # in a program that is captured
        backward = Backward(tangents, make, results=told["gradients"], writes=False)
        function = internals.plain_function(forward, backward.run, backward.is_ready)
        returns = internals.Returns(frozenset(passes["changed"]), 0, known.results, {})
        used, unused, is_random = passes["joint"]
        transformed = in_torch(self.captured, _TRANSFORMED, strict=False)

        def unusual(*args: Any) -> Sequence[Any]:
            if torch.is_grad_enabled():
                return transformed(*args)
            return tuple(forward(*args)[: known.results])

        derivatives = _Followed(
            unusual,
            self.captured,
            self.example_inputs,
            Joint(frozenset(used), frozenset(unused), is_random, is_known=True),
            tangents,
            Recorder(function, returns, known, is_of_aot=False),
            strict=False,
        )
        derivatives.outdated, derivatives.trace = outdated, internals.not_captured(self.trace)
        return derivatives, passes["writes"]


class _Followed(Derivatives):
    """The graph of a recipe, until it is traced."""

    outdated: list[Missing]
    trace: Callable[[Sequence[Any]], Run]

    def short(self, otherwise: Run) -> Run:
        usual, outdated = super().short(otherwise), self.outdated
        traced: Run | None = None

        def call(*args: Any) -> Sequence[Any]:
            nonlocal traced
            if not outdated:
                return usual(*args)
            if traced is None:
                traced = self.trace(args)
            return traced(*args)

        return call
