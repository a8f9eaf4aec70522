"""What ``auto`` measures: eager, and each backend whose claims fit the graph, with the options worth trying."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from torchmux.registry.availability import availability
from torchmux.registry.contract import PIN
from torchmux.registry.errors import TorchmuxError
from torchmux.registry.lookup import backends
from torchmux.registry.report import Strict
from torchmux.registry.resolve import ResolvedBackend, known_spec, resolve
from torchmux.registry.spec import ANY, BackendSpec

from .decisions.fingerprint import Backend as Measured

EAGER = "eager"
_NOT_MEASURED = (EAGER, "aot_eager", "auto")

# Who accepts the first also accepts the others: they ask for less patience or promise more.
INCLUDED: Mapping[str, tuple[str, ...]] = {
    "max-autotune": ("reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune"),
}


@dataclass(frozen=True)
class Candidate:
    """A backend with options, or several that share the graph.

    ``backend`` names a chain as ``"onnxrt+native"``, whose options are by member.  A split also has ``pins``: the
    backend of each node, by the node's number in the graph.  ``specs`` are those that only this process knows, pickled.
    Without ``keeps``, a call may use the memory of earlier results again: the user has asked for a mode that does.
    """

    backend: str
    options: dict[str, Any] = field(default_factory=dict)
    specs: tuple[str, ...] = ()
    pins: dict[int, str] = field(default_factory=dict)
    keeps: bool = True

    @property
    def members(self) -> list[str]:
        """The backends that share the graph; one for a single backend."""
        return self.backend.split("+")

    @property
    def name(self) -> str:
        """As the table shows it: ``native(keep_scratch=True)``, ``onnxrt+native``, ``split native 2, openvino 1``."""
        by_member = self.options if len(self.members) > 1 else {self.backend: self.options}
        shown = [_shown(member, by_member.get(member, {})) for member in self.members]
        if not self.pins:
            return "+".join(shown)
        parts = Counter(self.parts)
        named = dict(zip(self.members, shown, strict=True))
        return f"split {', '.join(f'{named.get(member, member)} {count}' for member, count in sorted(parts.items()))}"

    @property
    def parts(self) -> list[str]:
        """The backends of a split's parts, in the order of the graph; neighbors of one backend are one part."""
        order = [self.pins[number] for number in sorted(self.pins)]
        return [name for name, _ in itertools.groupby(order)]

    @property
    def told_pins(self) -> dict[str, str]:
        """The pins as JSON has them."""
        return {str(number): backend for number, backend in self.pins.items()}

    @property
    def complexity(self) -> int:
        """Ties go to the lower one."""
        if self.backend == EAGER:
            return 0
        by_member = self.options.values() if len(self.members) > 1 else [self.options]
        return len(self.members) + sum(map(len, by_member)) + 10 * len(self.parts)


def resolved(
    backend: str, options: Mapping[str, Any], *, dynamic: bool | None = None, strict: Strict = False
) -> ResolvedBackend:
    """The backend or chain that a candidate or a row of a decision names; errors as in :func:`resolve`."""
    members = backend.split("+")
    return resolve(members if len(members) > 1 else backend, options=options or None, dynamic=dynamic, strict=strict)


def pin(gm: GraphModule, pins: Mapping[Any, str]) -> GraphModule:
    """Mark the nodes of ``gm`` for the backends of a split; ``pins`` has their numbers, which JSON makes texts."""
    nodes = list(gm.graph.nodes)
    for number, backend in pins.items():
        nodes[int(number)].meta[PIN] = backend
    return gm


def _shown(backend: str, options: Mapping[str, Any]) -> str:
    told = ", ".join(f"{key}={value!r}" for key, value in options.items())
    return f"{backend}({told})" if told else backend


@dataclass(frozen=True)
class Field:
    """The candidates for one graph, simplest first, and why other backends are none."""

    candidates: tuple[Candidate, ...]
    excluded: dict[str, str]
    fingerprint: dict[str, Measured]  # of each backend but eager: its version, and the options that are tried

    @property
    def in_turn(self) -> list[Candidate]:
        """The candidates as they are tried: the best backend first, each with all its options.

        A budget that ends early costs the backends that are rarely the quickest, and not the options of the best.
        """
        order = list(dict.fromkeys(candidate.backend for candidate in self.candidates))
        return sorted(self.candidates, key=lambda candidate: order.index(candidate.backend))


def candidates_for(
    inputs: Sequence[Any],
    *,
    training: bool,
    freeze: bool,
    allow: Sequence[str] | None,
    forbid: Sequence[str],
    mode: str | None = None,
) -> Field:
    """All that can compile a graph with these inputs.

    Args:
        freeze: whether the user promises that weights change only in ways that torch counts.
        allow: the only backends to measure besides eager; None for all.
        forbid: backends not to measure.
        mode: backends are also measured in this mode of theirs, and in those that it includes (:data:`INCLUDED`).
    """
    found, excluded, told = [Candidate(EAGER)], {}, {}
    for row in backends():
        if row.name in _NOT_MEASURED or row.retired or row.error:
            continue
        if row.name in forbid or (allow is not None and row.name not in allow):
            excluded[row.name] = "the options forbid it"
            continue
        if not row.available:
            excluded[row.name] = row.reason or "whether it can run here is not known"
            continue
        try:
            spec = known_spec(row.name)
        except TorchmuxError as error:
            excluded[row.name] = str(error)
            continue
        pickled = "" if row.distribution is not None else sendable(spec)
        if pickled is None:
            excluded[row.name] = "only this process knows it, and it cannot be sent to another"
        elif why := _unfit(spec, inputs, training):
            excluded[row.name] = why
        else:
            tries = [options for options in spec.tries if freeze or not options.get("freeze")]
            modes = () if mode is None else INCLUDED.get(mode, (mode,))
            asked = [own for each in modes if (own := dict(spec.modes.get(each, {}))) and own not in tries]
            tries += asked
            if training:
                tries = [options for options in tries if not options.get("freeze")]
            specs = (pickled,) if pickled else ()
            found += [
                Candidate(spec.name, dict(options), specs, keeps=options not in asked) for options in ({}, *tries)
            ]
            told[spec.name] = Measured(spec.fingerprint(), [dict(options) for options in tries])
    return Field(tuple(sorted(found, key=lambda c: c.complexity)), excluded, told)


def _unfit(spec: BackendSpec, inputs: Sequence[Any], training: bool) -> str:
    """Why the claims of a backend rule it out, if so."""
    if training and not spec.training:
        return "it does not support training"
    answer = availability(spec)
    if not answer.ok:
        return answer.reason
    for value in inputs:
        if not isinstance(value, torch.Tensor):
            continue
        if ANY not in spec.devices and value.device.type not in spec.devices:
            return f"it does not run on {value.device.type}"
        dtype = str(value.dtype).removeprefix("torch.")
        if (value.is_floating_point() or value.is_complex()) and ANY not in spec.dtypes and dtype not in spec.dtypes:
            return f"it does not compute in {dtype}"
    return ""


def sendable(spec: BackendSpec) -> str | None:
    """A backend that only this process knows, as text for another; None if it cannot be sent."""
    try:
        return pickle.dumps(dataclasses.replace(spec, modes=dict(spec.modes))).hex()
    except Exception:
        return None


def received(text: str) -> BackendSpec:
    """What :func:`sendable` has made of a backend, in another process of the same program."""
    spec: BackendSpec = pickle.loads(bytes.fromhex(text))
    return spec
