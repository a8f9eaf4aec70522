"""Runs of a program: its inputs, and everything that shows what it did, also in float64.

Runs are numbered.  Run 0 has the program's own inputs; run 1 has the same integers, and other floats.  Each has a few
draws: inputs and parameters that differ by a unit in the last place or a few, which is the same problem with other
rounding errors (see ``torchmux.conformance.oracle``).
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torchmux import torch_internals as internals
from torchmux.conformance.oracle import nudged, random_like, reach
from torchmux.conformance.oracle.wide import Wide
from torchmux.zoo.compare import tensors_in

from .programs import Loaded

RUNS = 2
DRAWS = 3
"""How often eager's error is measured before any side is judged."""

SEED = 20263


@dataclass
class Shown:
    """What one run shows: outputs, gradients and buffers by name; its seconds, and whether it drew random numbers."""

    tensors: dict[str, torch.Tensor]
    seconds: float
    random: bool


class Runs:
    """The runs of one program."""

    def __init__(self, program: Loaded) -> None:
        self.program = program

    def call(self, function: Callable[..., Any]) -> Callable[[], None]:
        """A call as a program makes it, for timing: with its backward pass if it trains, and until it has finished."""
        args, kwargs = self._inputs(0)
        program, parameters = self.program, self._leaves(args, kwargs, self.program.module)
        finish = synchronizer()

        def call() -> None:
            with torch.set_grad_enabled(program.grad):
                outputs = function(*args, **kwargs)
                if program.training:
                    for leaf in parameters.values():
                        leaf.grad = None
                    loss_of(outputs).backward()
            finish()

        return call

    def show(self, function: Callable[..., Any], run: int) -> Shown:
        """Run ``function`` in the place of the program, and leave its module as it was."""
        module = self.program.module
        with _as_before(module):
            return self._shown(function, module, *self._inputs(run))

    def draw(self, run: int, draw: int) -> Shown:
        """The program in eager, with other rounding errors; ``draw`` 0 is without."""
        module = self.program.module
        with _as_before(module):
            if module is not None:
                _jitter(module, draw)
            return self._shown(self.program.model, module, *self._inputs(run, draw))

    def exact(self, run: int, draw: int) -> Shown:
        """The same in float64.

        Raises:
            Exception: the program insists on another type.
        """
        model, module = self.program.model, self.program.module
        if module is not None:
            model = module = copy.deepcopy(module)
            _jitter(module, draw)
            module.double()
            if hasattr(module, "set_experts_implementation"):
                module.set_experts_implementation("eager")  # torch multiplies by groups of experts in float32 only
        args, kwargs = internals.pytree.tree_map_only(torch.Tensor, widened, self._inputs(run, draw))
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with Wide():
                return self._shown(model, module, args, kwargs)
        finally:
            torch.set_default_dtype(default)

    def _inputs(self, run: int, draw: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        generator = torch.Generator().manual_seed(SEED + run)
        jitter = torch.Generator().manual_seed(SEED + draw)

        def fresh(tensor: torch.Tensor) -> torch.Tensor:
            made = tensor.detach().clone()
            if run and made.is_floating_point():
                made = _disturbed(made, generator)
            made = nudged(made, jitter, reach=reach(draw)) if draw else made
            return made.requires_grad_(tensor.requires_grad)

        found: tuple[tuple[Any, ...], dict[str, Any]] = internals.pytree.tree_map_only(
            torch.Tensor, fresh, (self.program.args, self.program.kwargs)
        )
        return found

    def _shown(self, function: Any, module: Any, args: Any, kwargs: Any) -> Shown:
        leaves = self._leaves(args, kwargs, module)
        for leaf in leaves.values():
            leaf.grad = None
        torch.manual_seed(SEED)
        before, finish = _random_state(), synchronizer()
        began = time.perf_counter()
        with torch.set_grad_enabled(self.program.grad):
            outputs = function(*args, **kwargs)
            if self.program.training:
                loss_of(outputs).backward()
        finish()
        seconds = time.perf_counter() - began
        drawn = any(not torch.equal(a, b) for a, b in zip(before, _random_state(), strict=True))
        # Copies, since with CUDA graphs the next call uses the memory again.
        found = {f"output{name}": _copied(tensor) for name, tensor in all_tensors(outputs)}
        gradients = {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
        found |= {f"gradient of {name}": _copied(gradient) for name, gradient in gradients.items()}
        if module is not None:
            found |= {f"buffer {name}": buffer.detach().clone() for name, buffer in module.named_buffers()}
        for leaf in leaves.values():
            leaf.grad = None
        return Shown(found, seconds, drawn)

    def _leaves(self, args: Any, kwargs: Any, module: Any) -> dict[str, torch.Tensor]:
        """What may get a gradient."""
        found = dict(module.named_parameters()) if module is not None else {}
        for number, leaf in enumerate(internals.pytree.tree_leaves((args, kwargs))):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                found[f"input {number}"] = leaf
        return found


def widened(value: torch.Tensor) -> torch.Tensor:
    """In float64 or complex128, as a leaf."""
    wide = value.detach()
    if wide.is_complex():
        wide = wide.to(torch.complex128)
    elif wide.is_floating_point():
        wide = wide.double()
    return wide.requires_grad_(value.requires_grad)


def all_tensors(outputs: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in what a program returns, also those in containers that only pytree knows."""
    found = list(tensors_in(outputs))
    if not found:
        leaves = internals.pytree.tree_leaves(outputs)
        found = [(f"[{number}]", leaf) for number, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    yield from found


def loss_of(outputs: Any) -> torch.Tensor:
    """What the backward pass starts from: the loss of the outputs, a scalar output, or a sum over all outputs.

    Raises:
        ValueError: no output depends on the parameters.
    """
    loss = getattr(outputs, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss.sum()
    tensors = [tensor for _, tensor in all_tensors(outputs) if tensor.requires_grad]
    if not tensors:
        raise ValueError("no output depends on the parameters, so there is no backward pass")
    if len(tensors) == 1 and tensors[0].dim() == 0:
        return tensors[0]
    return torch.stack([tensor.float().square().mean() for tensor in tensors]).sum()


def synchronizer() -> Callable[[], None]:
    """What waits for the accelerator, if one is in use."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.synchronize
    return lambda: None


@contextlib.contextmanager
def _as_before(module: torch.nn.Module | None) -> Iterator[None]:
    """Put parameters and buffers back, whatever the block does to them."""
    kept = [] if module is None else [(t, t.detach().clone()) for t in (*module.parameters(), *module.buffers())]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in kept:
                tensor.copy_(value)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """The same values with the same strides, in memory of its own."""
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        return tensor.clone()
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage().clone())
    return made.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _random_state() -> list[torch.Tensor]:
    found = [torch.get_rng_state()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found.append(torch.cuda.get_rng_state())
    return found


def _disturbed(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    factor = 0.5 + random_like(value, torch.rand, generator)
    return (value * factor).to(value.dtype)


def _jitter(module: torch.nn.Module, draw: int) -> None:
    if not draw:
        return
    generator = torch.Generator().manual_seed(SEED + draw)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(nudged(parameter, generator, reach=reach(draw)))
