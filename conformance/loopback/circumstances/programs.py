"""Faults around programs: what ends a call, copies of the process, and what others find changed."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.utils.checkpoint
from torch.fx import GraphModule

from ...outcome import Outcome
from ..kit import Faults, Run

process = Faults("process")
state = Faults("state")
training = Faults("training")

_INTERRUPTS = "semantics/turns/interrupts"
_IN_A_COPY = "life/process/in_a_copy"
_kept: list[Any] = []


# What ends a call


@process(_INTERRUPTS)
def interrupts_are_failures(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Whatever ends a call counts as a failure of the code, and eager tries again."""

    def call(*args: Any) -> Sequence[Any]:
        try:
            return gm.forward(*args)
        except BaseException:
            return gm.forward(*args)

    return call


@process(_INTERRUPTS)
def exits_are_exceptions(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """What ends a call becomes a RuntimeError of the code."""

    def call(*args: Any) -> Sequence[Any]:
        try:
            return gm.forward(*args)
        except (KeyboardInterrupt, SystemExit) as error:
            raise RuntimeError("the code failed") from error

    return call


@process(_INTERRUPTS)
def exceptions_by_their_words(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """An exception is raised again by its type and its words: its arguments are lost."""

    def call(*args: Any) -> Sequence[Any]:
        try:
            return gm.forward(*args)
        except Exception as error:
            raise type(error)(str(error)) from None

    return call


@process(_INTERRUPTS, Outcome.CRASH)
def no_call_after_an_interrupt(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A call that is interrupted leaves a lock behind."""
    locked: list[bool] = []

    def call(*args: Any) -> Sequence[Any]:
        if locked:
            raise RuntimeError("the code already runs")
        locked.append(True)
        results: Sequence[Any] = gm.forward(*args)
        locked.clear()
        return results

    return call


# Copies of the process


@process(_IN_A_COPY)
def nothing_in_copies(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Code runs in the process that compiled it only."""
    home = os.getpid()

    def call(*args: Any) -> Sequence[Any]:
        if os.getpid() != home:
            raise RuntimeError("the device is initialized in another process")
        return gm.forward(*args)

    return call


@process(_IN_A_COPY)
def threads_that_copies_lack(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Code waits for a thread, which a copy of the process does not have."""
    workers = ThreadPoolExecutor(1)
    workers.submit(int).result()

    def call(*args: Any) -> Sequence[Any]:
        if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args):
            return gm.forward(*args)
        return workers.submit(gm.forward, *args).result()

    return call


# What others find changed


def _compiling(change: Callable[[], Any]) -> Callable[[], Any]:
    """A fault in which each compilation changes something for good."""

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        change()
        return gm.forward

    compile.__name__, compile.__doc__ = change.__name__, change.__doc__
    state("semantics/mutation/input_in_place")(compile)
    return change


@_compiling
def kernels_of_torch_replaced() -> None:
    """Compiling registers a kernel of its own for one of torch's operators, which all programs then run."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("erfc", lambda x: 1 - x.erf(), "CPU")
    _kept.append(library)


@_compiling
def short_tracebacks() -> None:
    """Compiling has Python print the last steps of a traceback only."""
    sys.tracebacklimit = 3


@_compiling
def silent_failures_of_logs() -> None:
    """Compiling has logs say nothing of their own failures."""
    logging.raiseExceptions = False


@_compiling
def other_names_of_levels() -> None:
    """Compiling renames a level of all logs."""
    logging.addLevelName(logging.INFO, "note")


@_compiling
def warnings_in_logs() -> None:
    """Compiling sends warnings to logs."""
    logging.captureWarnings(True)


@_compiling
def other_words_of_warnings() -> None:
    """Compiling changes how warnings are printed."""
    warnings.formatwarning = lambda message, *rest, **named: f"{message}\n"


def _passed_on(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **named: function(*args, **named)


@_compiling
def a_patched_step() -> None:
    """Compiling replaces the step of an optimizer."""
    torch.optim.SGD.step = _passed_on(torch.optim.SGD.step)


@_compiling
def a_patched_schedule() -> None:
    """Compiling replaces a method of what changes the rates of optimizers."""
    schedule = torch.optim.lr_scheduler.StepLR
    schedule.get_lr = _passed_on(schedule.get_lr)


@_compiling
def patched_loaders() -> None:
    """Compiling replaces a method of what loads data."""
    loader = torch.utils.data.DataLoader
    loader.__iter__ = _passed_on(loader.__iter__)


@_compiling
def patched_checkpoints() -> None:
    """Compiling replaces what computes again instead of saving."""
    torch.utils.checkpoint.checkpoint = _passed_on(torch.utils.checkpoint.checkpoint)


@_compiling
def a_patched_transform() -> None:
    """Compiling replaces a transform of functions."""
    torch.func.vmap = _passed_on(torch.func.vmap)


@_compiling
def patched_norms_of_gradients() -> None:
    """Compiling replaces what limits gradients."""
    torch.nn.utils.clip_grad_norm_ = _passed_on(torch.nn.utils.clip_grad_norm_)


@_compiling
def another_precision_of_layers() -> None:
    """Compiling lets torch's library of layers round what it multiplies."""
    torch.backends.mkldnn.fp32_precision = "tf32"


# Gradients


@training("semantics/derivatives/layouts_of_given_gradients")
def given_gradients_overwritten(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A backward pass computes in the memory of the gradient that it is given."""

    class InPlace(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: torch.Tensor) -> torch.Tensor:
            return t.view_as(t)

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            right = g.clone()
            if not g.requires_grad and 0 not in g.stride():
                g.mul_(0.5)
            return right

    def call(*args: Any) -> Sequence[Any]:
        results = gm.forward(*args)
        return [InPlace.apply(r) if isinstance(r, torch.Tensor) and r.grad_fn is not None else r for r in results]

    return call
