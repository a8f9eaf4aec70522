"""What is measured: a source, which every process can load again, and the program that it loads."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from torchmux import torch_internals as internals
from torchmux.cli.target import Program, load_programs
from torchmux.registry.names import did_you_mean
from torchmux.zoo import ARCHITECTURES, WORKLOADS, Architecture

from . import script

SEED = 20262

DEPTHS: tuple[Literal["tiny", "deep"], ...] = ("tiny", "deep")
"""An architecture of the zoo is named with its depth: ``tiny/qwen3``."""


class NoProgram(Exception):
    """There is no such program, or it cannot be as it was asked for; the message says why."""


@dataclass(frozen=True)
class Source:
    """Where a program comes from, and how it is to be; plain data.

    Args:
        kind: ``zoo``; ``target``, a function of a file or module; or ``script``, a call that a script compiles.
        place: the name in the zoo, ``(module, function)``, or the path of the script and its arguments.
        name: what tables call it.
        number: which of the programs of a target, or of the compiled functions of a script.
        batch: rows of the inputs; None for what the program has.
        dtype: of parameters and floating-point inputs, such as ``bfloat16``; None for what the program has.
        training: forward and backward, in ``train`` mode.  A script's calls train if they do so in the script.
    """

    kind: Literal["zoo", "target", "script"]
    place: tuple[str, ...]
    name: str
    number: int = 0
    batch: int | None = None
    dtype: str | None = None
    device: str = "cpu"
    training: bool = False

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Source:
        return cls(**{**told, "place": tuple(told["place"])})


@dataclass
class Loaded:
    """A program in this process.

    ``training`` says whether a backward pass follows the call, ``grad`` whether it runs with gradients enabled.
    ``module`` is the model if it is one, whose gradients and buffers are compared.
    """

    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    training: bool = False
    grad: bool = False

    def __post_init__(self) -> None:
        self.grad = self.grad or self.training

    @property
    def module(self) -> torch.nn.Module | None:
        return self.model if isinstance(self.model, torch.nn.Module) else None


def names() -> dict[str, tuple[str, str]]:
    """What the zoo has: the family and a summary of each name."""
    found = {name: (each.family, each.summary) for name, each in WORKLOADS.items()}
    for depth, words in zip(DEPTHS, ("of tiny width, with few layers", "of tiny width, with all layers"), strict=True):
        for name, entry in ARCHITECTURES.items():
            found[f"{depth}/{name}"] = (entry.kind, f"{entry.model_class} {words}")
    return found


def check_name(name: str) -> None:
    """Raise NoProgram, with near names, if the zoo has nothing of this name."""
    known = names()
    if name not in known:
        raise NoProgram(f"the zoo has no model {name!r}.{did_you_mean(name, known)} torchmux bench --list shows them.")


def load(source: Source) -> Loaded:
    """The program, with the same random numbers in every process.

    Raises:
        NoProgram: it is not there, or cannot have this batch.
        Exception: whatever the user's code raises.
    """
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    if source.kind == "script":
        return _recorded(source)
    loaded = _of_zoo(source) if source.kind == "zoo" else _of_target(source)
    dtype = None if source.dtype is None else getattr(torch, source.dtype)
    if loaded.module is not None:
        loaded.model = loaded.module.to(device=source.device, dtype=dtype).train(source.training)

    def place(tensor: torch.Tensor) -> torch.Tensor:
        moved = tensor.detach().to(source.device, dtype if tensor.is_floating_point() else None)
        return moved.requires_grad_(tensor.requires_grad)

    loaded.args, loaded.kwargs = internals.pytree.tree_map_only(torch.Tensor, place, (loaded.args, loaded.kwargs))
    return loaded


def count(source: Source) -> list[str]:
    """The names of the programs of a target, or of the functions that a script compiles and calls."""
    if source.kind == "target":
        return [program.name for program in load_programs(*source.place)]
    if source.kind == "script":
        return [each.name for each in script.record(Path(source.place[0]), source.place[1:], source.number)]
    return [source.name]


def _of_zoo(source: Source) -> Loaded:
    (name,) = source.place
    check_name(name)
    if name in WORKLOADS:
        model, inputs = WORKLOADS[name].build(source.batch or 1, training=source.training)
        return Loaded(model, (), inputs, source.training)
    depth, _, rest = name.partition("/")
    entry = ARCHITECTURES[rest]
    if source.training and not entry.trains:
        raise NoProgram(f"{name} does not work in train mode")
    model = entry.build("deep" if depth == "deep" else "tiny")
    return Loaded(model, (), _batched(entry, model, source), source.training)


def _batched(entry: Architecture, model: Any, source: Source) -> dict[str, Any]:
    """Inputs with as many rows as are asked for, from several draws of the entry's own."""

    def draw(seed: int) -> dict[str, Any]:
        return entry.example_with_targets(model, seed) if source.training else entry.example(model, seed)

    first = draw(0)
    if source.batch is None:
        return first
    rows = {v.shape[0] if isinstance(v, torch.Tensor) and v.dim() else 0 for v in first.values()}
    if len(rows) != 1 or 0 in rows:
        raise NoProgram(f"the inputs of {source.name} do not all have the batch as their first size; leave out --batch")
    (own,) = rows
    draws = [first, *(draw(seed) for seed in range(1, -(-source.batch // own)))]
    return {name: torch.cat([each[name] for each in draws])[: source.batch] for name in first}


def _of_target(source: Source) -> Loaded:
    if source.batch is not None:
        raise NoProgram("the function of a target makes its own inputs; leave out --batch")
    program: Program = load_programs(*source.place)[source.number]
    return Loaded(program.model, program.args, dict(program.kwargs or {}), source.training)


def _recorded(source: Source) -> Loaded:
    calls = script.record(Path(source.place[0]), source.place[1:], source.number + 1)
    if len(calls) <= source.number:
        raise NoProgram(f"{source.place[0]} has made {len(calls)} compiled calls this time, and more before")
    call = calls[source.number]
    return Loaded(call.model, call.args, call.kwargs, call.training, call.grad)
