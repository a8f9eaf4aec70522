"""The results of a call or a training step, and how two of them differ."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .architecture import Inputs

Tensors = dict[str, torch.Tensor]


def tensors_in(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors in a model's result, with the path to each, including caches of keys and values."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_in(item, f"{name}.{key}")
    elif isinstance(value, (tuple, list)):
        for number, item in enumerate(value):
            yield from tensors_in(item, f"{name}.{number}")
    elif type(value).__module__.startswith("transformers") and hasattr(value, "__dict__"):
        for key, item in vars(value).items():
            yield from tensors_in(item, f"{name}.{key}")


@dataclass(frozen=True)
class Result:
    """The type of the outputs, and every tensor that a call created or changed."""

    kind: type
    tensors: Tensors

    def digest(self) -> str:
        """A digest that is equal for equal bits."""
        found = hashlib.sha256()
        for name, tensor in self.tensors.items():
            found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            if tensor.numel():
                found.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return found.hexdigest()[:16]


def run(call: Callable[..., Any], inputs: Inputs, seed: int = 7) -> Result:
    """A call without gradients.  ``seed`` seeds its random numbers."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # layers are dropped by its numbers
    with torch.no_grad():
        outputs = call(**copy.deepcopy(inputs))
    return Result(type(outputs), dict(tensors_in(outputs)))


def train(model: torch.nn.Module, call: Callable[..., Any], inputs: Inputs, seed: int = 7) -> Result:
    """A forward and a backward pass of ``model`` through ``call``: outputs, gradients and buffers."""
    model.zero_grad()
    torch.manual_seed(seed)
    np.random.seed(seed)  # layers are dropped by its numbers
    outputs = call(**copy.deepcopy(inputs))
    loss_of(outputs).backward()
    left = {f"output{name}": t.detach() for name, t in tensors_in(outputs)}
    left |= {f"gradient.{name}": p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    left |= {f"buffer.{name}": b.detach().clone() for name, b in model.named_buffers()}
    return Result(type(outputs), left)


def loss_of(outputs: Any) -> torch.Tensor:
    """The model's own loss, or a sum over its outputs if it has none."""
    loss = getattr(outputs, "loss", None)
    if loss is None:
        loss = sum(t.float().square().mean() for _, t in tensors_in(outputs) if t.requires_grad)
    if not isinstance(loss, torch.Tensor):
        raise ValueError("no output depends on the parameters")
    return loss.sum()


def difference(found: Result, expected: Result) -> str:
    """How ``found`` differs, in words; empty if all bits are equal."""
    if found.kind is not expected.kind:
        return f"a {found.kind.__name__} instead of a {expected.kind.__name__}"
    if found.tensors.keys() != expected.tensors.keys():
        missing, extra = expected.tensors.keys() - found.tensors.keys(), found.tensors.keys() - expected.tensors.keys()
        return f"without {sorted(missing)[:3]}, with {sorted(extra)[:3]}"
    worst, where, unequal = 0.0, "", 0
    for name, tensor in expected.tensors.items():
        other = found.tensors[name]
        if (tensor.dtype, tensor.shape) != (other.dtype, other.shape):
            return f"{name}: {other.dtype} {tuple(other.shape)} instead of {tensor.dtype} {tuple(tensor.shape)}"
        if torch.equal(tensor, other) or _equal_with_nan(tensor, other):
            continue
        unequal += 1
        gap = float((tensor.double() - other.double()).abs().max()) if tensor.numel() else 0.0
        if not gap <= worst:
            worst, where = gap, name
    return f"{unequal} of {len(expected.tensors)} tensors, by {worst:.1e} at {where.lstrip('.')}" if unequal else ""


def _equal_with_nan(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        one.is_floating_point()
        and torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))
        and torch.equal(one.isnan(), other.isnan())
    )
