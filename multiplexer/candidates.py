"""What ``auto`` measures: eager, and each backend whose claims fit the graph, with the options worth trying."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torchmux.registry.availability import availability
from torchmux.registry.errors import TorchmuxError
from torchmux.registry.lookup import backends
from torchmux.registry.resolve import known_spec
from torchmux.registry.spec import ANY, BackendSpec

from .decisions.fingerprint import Backend as Measured

EAGER = "eager"
_NOT_MEASURED = (EAGER, "aot_eager", "auto")


@dataclass(frozen=True)
class Candidate:
    """A backend with options; ``spec`` is pickled if only this process knows it."""

    backend: str
    options: dict[str, Any] = field(default_factory=dict)
    spec: str = ""

    @property
    def name(self) -> str:
        """As the table shows it: ``native`` or ``native(keep_scratch=True)``."""
        options = ", ".join(f"{key}={value!r}" for key, value in self.options.items())
        return f"{self.backend}({options})" if options else self.backend

    @property
    def complexity(self) -> int:
        """Ties go to the lower one."""
        return 0 if self.backend == EAGER else 1 + len(self.options)


@dataclass(frozen=True)
class Field:
    """The candidates for one graph, simplest first, and why other backends are none."""

    candidates: tuple[Candidate, ...]
    excluded: dict[str, str]
    fingerprint: dict[str, Measured]  # of each backend but eager: its version, and the options that are tried


def candidates_for(
    inputs: Sequence[Any],
    *,
    training: bool,
    freeze: bool,
    allow: Sequence[str] | None,
    forbid: Sequence[str],
) -> Field:
    """All that can compile a graph with these inputs.

    Args:
        freeze: whether the user promises that weights change only in ways that torch counts.
        allow: the only backends to measure besides eager; None for all.
        forbid: backends not to measure.
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
            if training:
                tries = [options for options in tries if not options.get("freeze")]
            found += [Candidate(spec.name, dict(options), pickled) for options in ({}, *tries)]
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
