"""One graph, compiled by candidates as they are needed, each once."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from torchmux import torch_internals as internals
from torchmux.backends.common.adapter.graphs import copy_graph
from torchmux.backends.common.pipeline.runtime import in_torch
from torchmux.backends.common.pipeline.tangents import on_failure
from torchmux.registry.errors import GraphRefused
from torchmux.registry.report import GraphReport
from torchmux.registry.spec import CompiledGraph, CompileRequest

from ..candidates import pin, resolved
from ..decisions import Row
from . import background
from .buckets import Conditions, Sizes
from .effects import Effects
from .remembered import Remembered
from .watch import Run

_OTHER_SIZES = "a backend that was compiled after the capture does not take these sizes"

# Makes the error of a backward pass from the row of the candidate and the exception of its code.
FailedBackward = Callable[[Row, Exception], Exception]


@dataclass(frozen=True, eq=False)
class Code:
    """What a candidate made of the graph; ``run`` is ``compiled`` where the ``conditions`` hold, and else torch."""

    row: Row
    run: Run
    compiled: CompiledGraph
    conditions: Conditions | None = None

    @property
    def report(self) -> GraphReport:
        return self.compiled.report


class Codes:
    """The compiled forms of one captured graph.

    Args:
        inputs: of the call that the graph was captured in.  They are not kept.
        failed: see :data:`FailedBackward`.
    """

    def __init__(
        self,
        gm: GraphModule,
        request: CompileRequest,
        inputs: Sequence[Any],
        sizes: Sizes,
        effects: Effects,
        failed: FailedBackward,
    ) -> None:
        self._gm = gm
        self._request = request
        self._sizes = sizes
        self._effects = effects
        self._failed = failed
        self._mode = _mode_of(gm)
        self._inputs = Remembered(inputs, request.static_inputs)
        self._setting = background.Setting.now()
        self._settled: int | None = None  # how much torch took for granted of sizes when the capture ended
        self._made: dict[str, Code] = {}
        self._lock = threading.Lock()

    @property
    def needs_the_call(self) -> bool:
        """Whether only a thread that calls the graph has the state in which it can be compiled."""
        return self._setting.of_process is None

    def in_capture(self, row: Row, inputs: Sequence[Any]) -> Code:
        """The code of a candidate, compiled as a part of the capture, on the inputs of the call.

        Raises:
            TorchmuxError: the candidate cannot compile it.
        """
        if row.candidate not in self._made:
            compiled = self._compile(row, inputs)
            self._made[row.candidate] = Code(row, compiled, compiled)
        return self._made[row.candidate]

    def afterwards(self, row: Row, *, wait: bool = True) -> Code:
        """The code of a candidate, compiled in any thread after the capture; ``wait`` until this is possible.

        Raises:
            NotNow: it is not possible now, and ``wait`` is not set.
            TorchmuxError: the candidate cannot compile it.
            Gone: a parameter is no more.
            Ended: the program ends.
        """
        with self._lock:
            if row.candidate not in self._made:
                self._made[row.candidate] = background.compile_here(
                    self._setting, functools.partial(self._make_afterwards, row), wait=wait
                )
            return self._made[row.candidate]

    def keep(self, names: set[str]) -> None:
        """Forget the code of all other candidates, and the memory that it holds."""
        with self._lock:
            self._made = {name: code for name, code in self._made.items() if name in names}

    def _make_afterwards(self, row: Row) -> Code:
        if self._settled is None:
            self._settled = len(internals.assumptions(self._mode))
        inputs = self._inputs.make(filled=True)
        with internals.tracing_with(self._mode):
            compiled = self._compile(row, inputs)
        run: Run = compiled
        conditions = None
        # Whatever was assumed since the capture, for any candidate, holds for this one too: symbols are shared.
        if assumed := internals.assumptions(self._mode)[self._settled :]:
            conditions = Conditions(assumed, self._sizes)
            if conditions.unknown:
                raise GraphRefused(f"it depends on sizes that are not those of inputs: {', '.join(conditions.unknown)}")
            otherwise = in_torch(self._gm, _OTHER_SIZES, strict=bool(self._request.strict))
            run = _where(conditions.hold, compiled, otherwise)
        self._warm_up(compiled, inputs)
        return Code(row, run, compiled, conditions)

    def _compile(self, row: Row, inputs: Sequence[Any]) -> CompiledGraph:
        request = self._request
        backend = resolved(row.backend, row.options, dynamic=request.dynamic, strict=request.strict)
        failed = functools.partial(self._failed, row)
        token = on_failure.set(failed)
        try:
            return backend.compile(
                pin(copy_graph(self._gm), row.pins),
                inputs,
                training=request.phase != "inference",
                static_inputs=request.static_inputs,
            )
        finally:
            on_failure.reset(token)

    def _warm_up(self, compiled: CompiledGraph, inputs: Sequence[Any]) -> None:
        """One call, with its backward pass, which is compiled only when it runs, on inputs that nobody sees.

        It is left out where somebody would see it: in random numbers, in buffers, or in what it does besides.  And
        beside a process group: FSDP frees the memory of parameters while they are not used, in the program's thread.
        """
        effects = self._effects
        if effects.once or effects.devices or self._inputs.shares_parameters or _is_distributed():
            return
        if not set(effects.changed).isdisjoint(self._request.static_inputs):
            return
        training = self._request.phase != "inference"
        if training:  # the same memory, without the hooks that the program has on its parameters
            inputs = [v.detach().requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor) else v for v in inputs]
        try:
            results = compiled(*inputs)
            ends = [v for v in results if isinstance(v, torch.Tensor) and v.requires_grad]
            begins = [v for v in inputs if isinstance(v, torch.Tensor) and v.requires_grad]
            if training and ends and begins:
                weights = [torch.zeros_like(v) for v in ends]
                torch.autograd.grad(ends, begins, weights, allow_unused=True)
        except Exception:  # zeros may be no inputs for it; a call of the program shows what is wrong, if something is
            return


def _mode_of(gm: GraphModule) -> Any:
    """The fake mode of a captured graph, if it has one."""
    values = (node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder"))
    return next((value.fake_mode for value in values if internals.is_fake(value)), None)


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _where(holds: Callable[[Sequence[Any]], bool], run: Run, otherwise: Run) -> Run:
    """``run`` for the calls whose sizes it was compiled for."""

    def call(*args: Any) -> Sequence[Any]:
        return run(*args) if holds(args) else otherwise(*args)

    return call
