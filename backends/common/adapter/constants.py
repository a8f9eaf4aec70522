"""Parameters as constants of compiled code, checked as far as torch counts writes.

A runtime packs and folds constants, so a write to a parameter requires new code.  torch counts the writes of its
operators to a tensor, whatever calls them (an optimizer, ``load_state_dict``), and an assignment to ``.data`` moves the
tensor.  Each call checks both first.  Writes through ``.data``, NumPy or another alias without a counter go undetected.
That is why programs must request constants explicitly.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from torchmux.registry.spec import CompileRequest, ToolFile

from ..pipeline.implementation import Told
from .graphs import copy_graph

log = logging.getLogger("torchmux.constants")

Run = Callable[..., Sequence[Any]]


class Watched:
    """A compiled part with constants: takes all of the part's inputs, the constants at their positions included.

    Args:
        make: compiles the part with these constants, by position.
        constants: the parameters of the first call, by position; empty tensors and such that torch keeps no count for
            are watched by address alone.
    """

    def __init__(
        self, make: Callable[[Mapping[int, torch.Tensor]], Any], constants: Mapping[int, torch.Tensor]
    ) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._state = self._made(constants)

    @property
    def run(self) -> Any:
        """The code for the parameters as last seen."""
        return self._state[1]

    @property
    def cache_hit(self) -> bool:
        return Told(self.run).cache_hit

    @property
    def library_calls(self) -> Mapping[str, str] | None:
        return Told(self.run).library_calls

    @property
    def kernels(self) -> Mapping[str, str]:
        return Told(self.run).kernels

    @property
    def notes(self) -> Sequence[str]:
        return Told(self.run).notes

    @property
    def output_code(self) -> list[str]:
        return Told(self.run).output_code

    def files(self) -> Sequence[ToolFile]:
        return Told(self.run).files()

    @property
    def kernel_seconds(self) -> list[tuple[str, float]] | None:
        return next(iter(Told(self.run).kernel_seconds), None)

    def __call__(self, *args: Any) -> Sequence[Any]:
        state = self._state
        for position, address, version in state[0]:
            value = args[position]
            if value.data_ptr() != address or (version is not None and value._version != version):
                state = self._anew(args)
                break
        return state[1](*args)

    def _made(self, constants: Mapping[int, torch.Tensor]) -> tuple[Any, ...]:
        # Read before compiling: a write during compilation requires new code at the next call.
        seen = tuple((p, t.data_ptr(), None if t.is_inference() else t._version) for p, t in constants.items())
        held = {p: t.detach() for p, t in constants.items()}  # so that no other tensor gets the same address
        return seen, self._make(constants), held

    def _anew(self, args: Sequence[Any]) -> tuple[Any, ...]:
        with self._lock:
            seen = self._state[0]
            if any(_differs(args[position], address, version) for position, address, version in seen):
                log.warning("parameters that were treated as constants changed; recompiling with their new values")
                self._state = self._made({position: args[position] for position, _, _ in seen})
            return self._state


def watched(
    freeze: bool,
    gm: GraphModule,
    example_inputs: Sequence[Any],
    request: CompileRequest,
    make: Callable[[GraphModule, Mapping[int, torch.Tensor]], Any],
) -> Any:
    """What ``make(gm, constants)`` compiles, with the parameters of ``gm`` as constants if ``freeze`` asks for that.

    ``make`` may change the graph that it is given.
    """
    if not (freeze and request.static_inputs):
        return make(gm, {})
    return Watched(
        lambda constants: make(copy_graph(gm), constants), {p: example_inputs[p] for p in request.static_inputs}
    )


def _differs(value: torch.Tensor, address: int, version: int | None) -> bool:
    return value.data_ptr() != address or (version is not None and value._version != version)
