"""What a decision holds for, as data that a person can read and compare.

Two fingerprints are equal if a decision for the one may be used for the other.  The key of a decision is a hash of its
fingerprint.  It begins with a hash of the graph alone, so that all decisions on one graph have the same first digits.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

from .typed import dumped, written

GRAPH_DIGITS = 8
"""How many digits of a key name the graph."""

KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Backend:
    """A backend that is measured: its version, and the sets of options that are tried."""

    version: str
    options: list[dict[str, Any]]


@dataclass(frozen=True)
class Fingerprint:
    """All that a decision depends on."""

    graph: str  # a hash of the graph with all arguments, and of what is known of its inputs
    nodes: int  # how many it has
    inputs: list[str]  # the inputs without parameters and buffers: dtype, sizes and device of each
    bucket: str  # of sizes, for a graph with symbolic ones
    phase: str  # inference or training
    strict: str
    asked: dict[str, str]  # objective, limits, and which backends are allowed
    machine: dict[str, str]  # processor, capability, threads, gpu
    software: dict[str, str]  # versions of torch, torchmux and Python
    settings: dict[str, str]  # torch's settings that decide what an operator computes
    candidates: dict[str, Backend]
    about: dict[str, str] = field(default_factory=dict, compare=False)  # for readers, and no part of the key

    @property
    def key(self) -> str:
        """64 hexadecimal digits."""
        digest = hashlib.sha256(dumped(self.to_data()).encode()).hexdigest()
        return hashlib.sha256(self.graph.encode()).hexdigest()[:GRAPH_DIGITS] + digest[GRAPH_DIGITS:]

    def to_data(self) -> dict[str, Any]:
        """What the key is made of, as JSON holds it."""
        told = written(dataclasses.asdict(self))
        del told["about"]
        return dict(told)

    def on(self, machine: dict[str, str], candidates: dict[str, Backend], settings: dict[str, str]) -> Fingerprint:
        """The fingerprint of the same graph on another machine."""
        return dataclasses.replace(self, machine=machine, candidates=candidates, settings=settings)


def is_same_question(here: Fingerprint, there: Fingerprint) -> bool:
    """Whether two fingerprints differ at most in where an answer holds: machine, software, settings, candidates."""
    same = ("graph", "bucket", "phase", "strict", "asked")
    return all(getattr(here, name) == getattr(there, name) for name in same)


def differences(here: Fingerprint, there: Fingerprint) -> list[str]:
    """Why a decision with the fingerprint ``there`` does not hold for ``here``, in words; empty if it does."""
    if here.graph != there.graph:
        return ["it is for another graph"]
    said = []
    if here.bucket != there.bucket:
        said.append(f"it is for sizes {there.bucket or 'as they are'}, and these are {here.bucket or 'as they are'}")
    if here.phase != there.phase:
        said.append(f"it is for {there.phase}, and this is {here.phase}")
    if here.strict != there.strict:
        said.append(f"it is for strict={there.strict}, and this is strict={here.strict}")
    said += _changes(here.asked, there.asked, "the option {name} was {there}, and is {here}")
    for name, form in _MACHINE.items():
        told, own = there.machine.get(name, ""), here.machine.get(name, "")
        if told != own:
            said.append(form.format(there=told or "none", here=own or "none"))
    said += _changes(here.software, there.software, "it was measured with {name} {there}, and this process has {here}")
    for name in sorted({*here.candidates, *there.candidates}):
        own_one, other = here.candidates.get(name), there.candidates.get(name)
        if own_one is None:
            said.append(f"{name} was measured, and is no candidate here")
        elif other is None:
            said.append(f"{name} is a candidate here, and was not measured")
        elif own_one.version != other.version:
            said.append(f"it was measured with {name} {short(other.version)}, and here is {short(own_one.version)}")
        elif own_one != other:
            said.append(f"other options of {name} were measured than are tried here")
    said += _changes(here.settings, there.settings, "torch's setting {name} was {there}, and is {here}")
    return said


_MACHINE = {
    "processor": "it was measured on {there}, and this machine has {here}",
    "capability": "it was measured with the instructions {there}, and torch uses {here} here",
    "threads": "it was measured with threads={there}, and this process has threads={here}",
    "gpu": "it was measured on the GPU {there}, and here is {here}",
}


def _changes(here: dict[str, str], there: dict[str, str], form: str) -> list[str]:
    return [
        form.format(name=name, there=short(there.get(name, "unset")), here=short(here.get(name, "unset")))
        for name in sorted({*here, *there})
        if here.get(name) != there.get(name)
    ]


def short(text: str) -> str:
    """A version as a message shows it; those that are hashes would say nothing in full."""
    text = text or "of another version"
    return text[:12] if KEY.fullmatch(text) else text if len(text) <= 100 else f"{text[:97]}..."
