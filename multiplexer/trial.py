"""One run of a graph's code: its inputs, and everything that shows what it did.

Trials are numbered.  Trial 0 has the inputs of the call; the others have inputs like them, which every process makes
alike: floats are scaled and disturbed, integers and bools keep their values and change places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from .parcel import Parcel

TRIALS = 3
SEED = 20261


class Trials:
    """Inputs and runs of the graph of one parcel."""

    def __init__(self, parcel: Parcel) -> None:
        self.parcel = parcel
        self.real = parcel.real_inputs()

    def inputs(self, trial: int, *, wide: bool = False) -> list[Any]:
        """Fresh inputs; parameters and buffers are the tensors that code was compiled with, unless ``wide``."""
        draw = torch.Generator().manual_seed(SEED + trial)
        found = []
        for position, value in enumerate(self.real):
            if not isinstance(value, torch.Tensor):
                found.append(value)
                continue
            static = position in self.parcel.static_inputs
            if static and not wide:
                found.append(value)
                continue
            made = value.detach() if static or trial == 0 else _disturbed(value.detach(), draw)
            fresh = widened(made) if wide else torch.empty_like(made, memory_format=torch.preserve_format).copy_(made)
            found.append(fresh.requires_grad_(value.requires_grad))
        return found

    def results(self, run: Callable[..., Any], trial: int, *, wide: bool = False) -> dict[str, Any]:
        """What ``run`` returns, what it does to its inputs, and its gradients."""
        inputs = self.inputs(trial, wide=wide)
        before = {p: v.detach().clone() for p, v in enumerate(inputs) if p in self.parcel.static_inputs}
        torch.manual_seed(SEED)
        outputs = list(run(*inputs))
        gradients = _gradients(outputs, inputs) if self.parcel.training else []
        found = {
            "results": [_detached(v) for v in outputs],
            "inputs": [_detached(v) for v in inputs],
            "gradients": [_detached(v) for v in gradients],
            "random": torch.get_rng_state(),
        }
        if not wide:
            with torch.no_grad():
                for position, value in before.items():
                    if not torch.equal(value, inputs[position]):
                        found["inputs"][position] = inputs[position].detach().clone()
                        inputs[position].copy_(value)
        return found

    def call(self, run: Callable[..., Any]) -> Callable[[], None]:
        """A call as the program makes it, for timing; with its backward pass if the graph trains."""
        inputs = self.inputs(0)
        if not self.parcel.training:
            return lambda: run(*inputs)
        shapes = list(run(*inputs))
        weights = _weights(shapes)

        def forward_and_backward() -> None:
            outputs = list(run(*inputs))
            _gradients(outputs, inputs, weights)

        return forward_and_backward


class Wide(Interpreter):
    """Runs a graph in float64: what it says of narrower types is replaced."""

    def run_node(self, n: Node) -> Any:
        if n.op == "call_method" and n.target in ("float", "half", "bfloat16"):
            (args, _) = self.fetch_args_kwargs_from_env(n)
            return args[0].double()
        return super().run_node(n)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[Any, Any]:
        args, kwargs = super().fetch_args_kwargs_from_env(n)
        return _wide_types(args), _wide_types(kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return widened(super().get_attr(target, args, kwargs))


def wide(gm: GraphModule) -> Callable[..., Any]:
    """``gm`` in float64."""
    return lambda *inputs: Wide(gm).run(*inputs)


def widened(value: torch.Tensor) -> torch.Tensor:
    if value.is_complex():
        return value.to(torch.complex128)
    return value.double() if value.is_floating_point() else value.clone()


_NARROW = (torch.float32, torch.float16, torch.bfloat16)


def _wide_types(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return torch.float64 if value in _NARROW else value
    if isinstance(value, dict):
        return {key: _wide_types(each) for key, each in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_wide_types(each) for each in value)
    return value


def _disturbed(value: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    if not value.numel():
        return value
    order = torch.randperm(value.numel(), generator=draw)
    shuffled = value.cpu().reshape(-1)[order].reshape(value.shape)
    if value.is_floating_point() or value.is_complex():
        noise = torch.rand(value.shape, generator=draw, dtype=torch.float64)
        shuffled = (shuffled * (0.5 + noise)).to(value.dtype)
    return torch.empty_like(value).copy_(shuffled)


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _weights(outputs: Sequence[Any]) -> list[Any]:
    draw = torch.Generator().manual_seed(SEED)
    return [
        torch.randn(v.shape, generator=draw, dtype=torch.float64).to(v.device, v.dtype)
        if isinstance(v, torch.Tensor) and v.requires_grad
        else None
        for v in outputs
    ]


def _gradients(outputs: Sequence[Any], inputs: Sequence[Any], weights: Sequence[Any] | None = None) -> list[Any]:
    weights = _weights(outputs) if weights is None else weights
    ends = [(v, w) for v, w in zip(outputs, weights, strict=True) if w is not None and v.requires_grad]
    begins = [v for v in inputs if isinstance(v, torch.Tensor) and v.requires_grad and v.is_leaf]
    if not ends or not begins:
        return []
    return list(torch.autograd.grad([v for v, _ in ends], begins, [w for _, w in ends], allow_unused=True))
