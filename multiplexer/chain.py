"""Chains: ``backend=["openvino", "native"]``, and backends with pins to others."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchmux.backends.common.adapter.graphs import copy_graph
from torchmux.backends.common.pipeline.pipeline import compile_graph
from torchmux.config import config
from torchmux.registry.contract import PIN, pins_of
from torchmux.registry.errors import BackendUnavailable, CompilationFailed, FallbackRefused
from torchmux.registry.names import JOINT
from torchmux.registry.options import as_keywords
from torchmux.registry.report import Strict
from torchmux.registry.resolve import ResolvedBackend, known_spec, resolve
from torchmux.registry.spec import ANY, BackendSpec, CompiledGraph
from torchmux.stages import collecting

from .members import Members, members, names_of
from .split import TeamCompiler
from .team import Team

log = logging.getLogger("torchmux.fallback")


@dataclass(frozen=True, eq=False)
class ResolvedChain(ResolvedBackend):
    """Members that can run here, in order; a chain of one for a backend with pins to others."""

    members: tuple[ResolvedBackend, ...] = ()
    notes: tuple[str, ...] = ()

    @functools.cached_property
    def key(self) -> Hashable:
        return ("chain", tuple(member.key for member in self.members), self.notes, self.strict)

    def _compile(
        self, gm: Any, example_inputs: Sequence[Any], training: bool, static_inputs: tuple[int, ...]
    ) -> CompiledGraph:
        pins = pins_of(gm)
        chain = list(self.members)
        tried: list[str] = []
        while not pins and chain[0].spec.graph == "torch":
            whole, why = self._whole(chain[0], gm, example_inputs, training, static_inputs)
            if whole is not None:
                whole.report.notes += (*self.notes, *tried)
                return whole
            tried.append(f"{chain[0].name} does not take the graph: {why}")
            if len(chain) == 1:
                break
            del chain[0]
        pinned = {name: _pinned(name, self) for name in sorted(pins - {member.name for member in chain})}
        symbolic = any(_is_symbolic(n.meta.get("example_value")) for n in gm.graph.find_nodes(op="placeholder"))
        seconds: dict[str, float] = {}
        with collecting(seconds, "AOT"):
            team = Team(chain, pinned, training=training, symbolic=symbolic)
        compiler = functools.partial(TeamCompiler, team=team, notes=(*self.notes, *tried))
        request = self.request(
            options={
                "members": [(m.name, m.resolved.mode, as_keywords(m.resolved.options)) for m in team.members],
                "pins": [(i, n.meta[PIN]) for i, n in enumerate(gm.graph.nodes) if PIN in n.meta],
                "notes": [*self.notes, *tried],
            },
            fingerprint=repr([m.spec.fingerprint() for m in team.members]),
            phase="forward" if training else "inference",
            static_inputs=static_inputs,
        )
        implementation = team.implementation(compiler)
        compiled = compile_graph(implementation, self.spec, gm, example_inputs, request, training=training)
        spent = compiled.report.seconds
        spent.update((stage, spent.get(stage, 0.0) + more) for stage, more in seconds.items())
        return compiled

    def _whole(
        self, member: ResolvedBackend, gm: Any, inputs: Sequence[Any], training: bool, static_inputs: tuple[int, ...]
    ) -> tuple[CompiledGraph | None, str]:
        """The captured graph compiled by a member that takes no ATen graphs, or why it is not.

        Such a member takes a graph as a whole or not at all.
        """
        try:
            compiled = member.compile(copy_graph(gm), inputs, training=training, static_inputs=static_inputs)
        except FallbackRefused as refused:
            return None, str(refused)
        except CompilationFailed as error:
            if self.strict or config.fail_on_compiler_errors:
                raise
            return None, f"compiler error: {error}"
        report = compiled.report
        if report.placements and not report.share:
            return None, str(report.placements[0].reason)
        return compiled, ""


def resolve_chain(
    backends: Sequence[Any],
    *,
    mode: str | None,
    options: Mapping[str, Any] | None,
    dynamic: bool | None,
    strict: Strict,
) -> ResolvedChain:
    """A chain, with all that can be checked without a graph; errors as in :func:`.members.members`."""
    found = members(backends, mode=mode, options=options, dynamic=dynamic, strict=strict)
    return _resolved(found, mode, dynamic, strict)


def with_pins(backend: ResolvedBackend) -> ResolvedChain:
    """A single backend, for a graph of which some nodes are pinned to others."""
    chain = _resolved(Members((backend,), {}), backend.mode, backend.dynamic, backend.strict)
    return dataclasses.replace(chain, why=backend.why)


def _resolved(found: Members, mode: str | None, dynamic: bool | None, strict: Strict) -> ResolvedChain:
    spec = _joint_spec([member.spec for member in found.usable])
    return ResolvedChain(spec.name, spec, None, mode, dynamic, strict, members=found.usable, notes=found.notes)


def chain_spec(backends: Sequence[Any]) -> BackendSpec:
    """The description of a chain, whether or not its members can run here.

    Raises:
        InvalidSpec, UnknownBackend, BackendUnavailable: as in :func:`.members.members`.
    """
    names_of(backends)
    return _joint_spec([known_spec(backend) for backend in backends])


def _joint_spec(specs: Sequence[BackendSpec]) -> BackendSpec:
    """What members claim together: whatever one does not take goes to the next, or to torch."""
    names = [spec.name for spec in specs]

    def fingerprint() -> str:
        return "; ".join(f"{spec.name} {spec.fingerprint()}".strip() for spec in specs)

    return BackendSpec(
        name=JOINT.join(names),
        summary=f"a chain: each part of a graph to the first of {', '.join(names)} that takes it",
        load=Team,
        graph="aten",
        training=any(spec.training for spec in specs),
        dynamic_shapes=any(spec.dynamic_shapes for spec in specs),
        devices=(ANY,),
        dtypes=(ANY,),
        fingerprint=fingerprint,
    )


def _is_symbolic(value: Any) -> bool:
    sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
    return any(isinstance(size, torch.SymInt) for size in sizes)


def _pinned(name: str, chain: ResolvedChain) -> ResolvedBackend | BackendUnavailable:
    """A backend that nodes are pinned to, or why it cannot run here."""
    try:
        return resolve(name, dynamic=chain.dynamic, strict=chain.strict)
    except BackendUnavailable as error:
        return error
