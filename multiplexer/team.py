"""Several backends as one: what the pipeline traces a graph with, and whom a node may go to."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.fx import GraphModule, Node

from torchmux import torch_internals as internals
from torchmux.backends.common.cache import recipes
from torchmux.backends.common.cache.keys import describe
from torchmux.backends.common.cache.listing import Unknown
from torchmux.backends.common.pipeline import lines, lower
from torchmux.backends.common.pipeline.assemble import Built, assemble
from torchmux.backends.common.pipeline.implementation import Implementation, Several, Told, as_backend
from torchmux.backends.common.pipeline.partition import Partition, takes_element
from torchmux.backends.common.pipeline.parts import Run, calls_of, is_glue
from torchmux.backends.common.pipeline.placing import failure
from torchmux.registry.errors import BackendUnavailable, LeftToTorch, NodesRefused
from torchmux.registry.loading import load_implementation
from torchmux.registry.report import GraphReport, Placement
from torchmux.registry.resolve import ResolvedBackend
from torchmux.registry.spec import ANY, BackendSpec, CompileRequest


@dataclass(eq=False)
class Member:
    """One backend of a team; ``excluded`` says why it takes no node of this graph."""

    resolved: ResolvedBackend
    implementation: Implementation
    level: lower.Level | None  # None: it takes operators of any size
    excluded: str = ""
    _answers: dict[Any, Literal[True] | str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.resolved.name

    @property
    def spec(self) -> BackendSpec:
        return self.resolved.spec

    def supports(self, node: Node, gm: GraphModule) -> Literal[True] | str:
        """``True``, or why it does not take ``node``, an operator of the shared graph ``gm``."""
        if self.excluded:
            return self.excluded
        if self.level is None:
            return self._outside_of_spec(node) or self.implementation.supports(node)
        if self.level.is_reached(node):
            return self.implementation.supports(node)
        key = _key(node)
        if key not in self._answers:
            self._answers[key] = self._supports_parts(node, gm, self.level)
        return self._answers[key]

    def _supports_parts(self, node: Node, gm: GraphModule, level: lower.Level) -> Literal[True] | str:
        """The answer for the operators that ``node`` consists of here."""
        try:
            small = lower.lowered(lower.alone(node, gm), level)
        except NodesRefused as refusal:
            return next(iter(refusal.reasons.values()))
        except Exception as error:
            return f"it cannot be taken apart: {failure(error)}"
        for each in calls_of(small):
            if is_glue(each) or takes_element(each) is not None:
                continue
            answer = self.implementation.supports(each)
            if answer is not True:
                return answer
        return True

    def _outside_of_spec(self, node: Node) -> str:
        """Why the description rules out a node that the implementation would not look at."""
        found = node.meta.get("val")
        for value in found if isinstance(found, (tuple, list)) else (found,):
            if not isinstance(value, torch.Tensor):
                continue
            if ANY not in self.spec.devices and value.device.type not in self.spec.devices:
                return f"{self.name} does not run on {value.device.type}"
            dtype = str(value.dtype).removeprefix("torch.")
            computes = value.is_floating_point() or value.is_complex()
            if computes and ANY not in self.spec.dtypes and dtype not in self.spec.dtypes:
                return f"{self.name} does not compute in {dtype}"
        return ""


class Team:
    """The members of a chain for one captured graph, and those that nodes are pinned to.

    Args:
        chain: the members that any node may go to, in order.
        pinned: further backends, for the nodes that are pinned to them; or why one cannot run here.
    """

    def __init__(
        self,
        chain: Sequence[ResolvedBackend],
        pinned: Mapping[str, ResolvedBackend | BackendUnavailable],
        *,
        training: bool,
        symbolic: bool,
    ) -> None:
        make = functools.partial(_member, training=training, symbolic=symbolic)
        self.unavailable = {name: str(found) for name, found in pinned.items() if isinstance(found, Exception)}
        extra = [found for found in pinned.values() if isinstance(found, ResolvedBackend)]
        self.members = [make(each) for each in (*chain, *extra)]
        self.open = len(chain)  # the members that nodes without a pin may go to
        levels = [member.level for member in self.members if member.level is not None]
        self._table, self._whole = lower.shared(levels) if levels else ({}, frozenset())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    def order(self, node: Node) -> list[int]:
        """The members that ``node`` may go to, by position, best first."""
        pin = lines.pin_of(node)
        first = [i for i, member in enumerate(self.members) if member.name == pin]
        return first + [i for i in range(self.open) if i not in first]

    def implementation(self, compiler: Any) -> Several:
        """The team as the pipeline sees it; ``compiler`` makes what compiles its graphs."""
        can_restore = any(member.implementation.restore is not None for member in self.members)
        return Several(
            supports=lambda node: True,
            compile=_not_asked,
            rewrite=self._rewrite,
            small_calls=lambda gm, request: None,
            decompositions=lambda: self._table,
            keep_whole=lambda: self._whole,
            differentiate_whole=frozenset,
            writes_back=lambda node: False,
            makes_views=lambda node: False,
            takes_numbers=lambda: False,
            casting=self._casting,
            restore=self._restore if can_restore else None,
            compiler=compiler,
        )

    def _casting(self) -> Any:
        """The first one's that has its own: casts are numbers that all members read."""
        return next(filter(None, (member.implementation.casting() for member in self.members)), None)

    def _rewrite(self, gm: GraphModule, request: CompileRequest) -> GraphModule:
        """As the first member wants it: what a later one makes of the graph would be taken from those before it."""
        first = self.members[0]
        if first.excluded:
            return gm
        try:
            return first.implementation.rewrite(gm, first.resolved.request(phase=request.phase))
        except LeftToTorch:  # a chain asks who compiles the graph
            return gm

    def artifact(self, member: Member, gm: GraphModule, split: Partition, compiled: Mapping[int, Run]) -> str | None:
        """What :meth:`_restore` needs of a part that ``member`` has compiled; None if it cannot be described."""
        scratch = GraphReport(member.name)
        try:
            with internals.without_modes():  # the tensors that the part holds are real
                return json.dumps([member.name, recipes.encode(gm, split, compiled, scratch)])
        except Unknown:
            return None

    def _restore(self, artifact: str, constants: Mapping[str, torch.Tensor]) -> MemberPart | None:
        name, recipe = json.loads(artifact)
        member = next((m for m in self.members if m.name == name), None)
        if member is None or member.implementation.restore is None:
            return None
        empty, report = GraphModule({}, torch.fx.Graph()), GraphReport(name)
        found = recipes.follow(json.dumps(recipe).encode(), empty, member.implementation.restore, report)
        if found is None:
            return None
        gm, split, compiled = found
        told = [Told(run) for run in compiled.values()]
        report.cache_hits = len(told)
        report.notes = [note for each in told for note in each.notes]
        report.output_code = [code for each in told for code in each.output_code]
        return MemberPart(Built(gm, split, compiled), report, artifact)


class MemberPart:
    """The code of one member for one part; ``report`` is its own of that part."""

    __slots__ = ("artifact", "backend", "built", "cache_hit", "notes", "output_code", "run")

    def __init__(self, built: Built, report: GraphReport, artifact: str | None, run: Run | None = None) -> None:
        self.run = assemble(built.gm, built.split, built.compiled) if run is None else run
        self.backend = report.backend
        self.built = built
        self.artifact = artifact
        self.cache_hit = report.cache_hits > 0
        self.notes = [f"{report.backend}: {note}" for note in report.notes]
        self.output_code = report.output_code

    def __call__(self, *args: Any) -> Sequence[Any]:
        return self.run(*args)

    def follow(self, report: GraphReport, placements: list[Placement]) -> None:
        """Hand the report of the chain to the member's code; of several pieces, none knows which placements it has."""
        runs = list(self.built.compiled.values())
        for run in runs:
            Told(run).follow(report, placements if len(runs) == 1 else [])


def _member(resolved: ResolvedBackend, *, training: bool, symbolic: bool) -> Member:
    spec = resolved.spec
    implementation = as_backend(load_implementation(spec), spec)
    excluded = ""
    if training and not spec.training:
        excluded = f"{spec.name} does not support training"
    elif symbolic and not spec.dynamic_shapes:
        excluded = f"{spec.name} does not support symbolic sizes"
    if spec.graph == "torch":
        implementation = dataclasses.replace(implementation, compile=_on_its_own(implementation.compile))
    level = None if spec.graph == "torch" or excluded else lower.level_of(implementation, training=training)
    return Member(resolved, implementation, level, excluded)


def _on_its_own(compile: Callable[..., Any]) -> Callable[..., Any]:
    """``compile`` outside of the compilation that surrounds it: such a member may have a differentiation of its own."""

    def compile_part(gm: GraphModule, example_inputs: Sequence[Any], request: CompileRequest) -> Any:
        with internals.without_modes(), internals.tracing_context(lower.mode_of(gm)):
            return compile(gm, example_inputs, request)

    return compile_part


def _not_asked(*args: Any) -> Any:
    raise AssertionError("a team compiles by its members")


def _key(node: Node) -> Any:
    """What the answer of a member depends on, besides the place of the node in its graph."""
    args = torch.fx.map_arg((node.args, dict(node.kwargs)), lambda n: _Described(describe(n.meta.get("val"))))
    return str(node.target), repr(args), describe(node.meta.get("val"))


class _Described:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text
