"""The code around compiled code at each call."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch.fx import GraphModule

from torchmux import torch_internals as internals
from torchmux.registry.contract import SmallCalls
from torchmux.registry.errors import FallbackRefused
from torchmux.registry.report import CallsInTorch, GraphReport

from .assemble import Built
from .overlap import PLAIN, Sharing

log = logging.getLogger("torchmux.fallback")


class Compiled(functools.partial):
    """A compiled graph: call it with the flat inputs, get the flat outputs; ``report`` says what ran where.

    ``built`` is what it is put together of, the captured graph if torch runs it, or why it cannot be told.  The class
    derives from ``partial`` because a call of a class written in Python takes a frame of its own.
    """

    report: GraphReport
    built: Built | GraphModule | str

    def __new__(
        cls, run: Callable[..., Sequence[Any]], report: GraphReport, built: Built | GraphModule | str
    ) -> Compiled:
        made = super().__new__(cls, run)
        made.report, made.built = report, built
        return made

    @property
    def run(self) -> Callable[..., Sequence[Any]]:
        """What it calls."""
        return self.func


class WithoutAutocast:
    """``run`` with autocast switched off: the casts of the capture are in the graph already."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[..., Sequence[Any]]) -> None:
        self.run = run

    def __call__(self, *args: Any) -> Sequence[Any]:
        if internals.is_any_autocast_enabled():
            with internals.disable_autocast():
                return self.run(*args)
        return self.run(*args)


_noting: ContextVar[list[CallsInTorch] | None] = ContextVar("noting", default=None)


@contextlib.contextmanager
def noting_calls(report: GraphReport) -> Iterator[None]:
    """Let ``report`` have the calls that torch will run of whatever is compiled in this block."""
    token = _noting.set(report.calls_in_torch)
    try:
        yield
    finally:
        _noting.reset(token)


def _noted(why: str) -> CallsInTorch:
    calls = CallsInTorch(why)
    if (noted := _noting.get()) is not None:
        noted.append(calls)
    return calls


def in_torch(captured: Any, message: str, *, strict: bool) -> Callable[..., Sequence[Any]]:
    """Code for the calls that a compiled part does not take; ``message`` says which, in the log and in the report.

    Raises:
        FallbackRefused: on such a call, if ``strict``.
    """
    calls = _noted(message)

    def call(*args: Any) -> Sequence[Any]:
        if strict:
            raise FallbackRefused(f"strict=True forbids a fallback, but this call would run in torch: {message}.")
        log.warning("torch runs this call: %s", message)
        calls.count += 1
        return captured.forward(*args)

    return call


def eager_when_overlap_differs(
    run: Callable[..., Sequence[Any]], captured: GraphModule, example_inputs: Sequence[Any], *, strict: bool
) -> Callable[..., Sequence[Any]]:
    """Guard code that writes to its inputs: it holds only for inputs that overlap as they did when it was compiled.

    Other calls run the captured graph in torch, and are logged.

    Raises:
        FallbackRefused: on such a call, if ``strict``.
    """
    positions = [at for at, value in enumerate(example_inputs) if isinstance(value, torch.Tensor)]
    expected = Sharing.of(captured, example_inputs)
    apart = len(set(expected.first)) == len(positions) and all(type(example_inputs[at]) in PLAIN for at in positions)
    if apart and len(positions) == 1:
        return run
    only_tensors = len(positions) == len(example_inputs)
    message = "inputs that the graph changes in place overlap in memory otherwise than when it was compiled"
    otherwise = in_torch(captured, message, strict=strict)

    def guarded(run: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        def call(*args: Any) -> Sequence[Any]:
            if apart:
                tensors = args if only_tensors else [args[at] for at in positions]
                if len(set(map(_address_of, map(_storage_of, tensors)))) == len(positions):
                    return run(*args)  # no two share memory, which is found in half the time
            return run(*args) if expected.holds(args) else otherwise(*args)

        return call

    made = guarded(run)
    if isinstance(run, WithoutAutocast):
        made.outside_autocast = guarded(run.run)  # type: ignore[attr-defined]
    return made


def outside_autocast(run: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
    """``run`` for calls that are made without autocast: it need not switch that off."""
    found: Callable[..., Sequence[Any]] = (
        run.run if isinstance(run, WithoutAutocast) else getattr(run, "outside_autocast", run)
    )
    return found


def small_in_torch(
    run: Callable[..., Sequence[Any]], captured: GraphModule, small: SmallCalls
) -> Callable[..., Sequence[Any]]:
    """Leave calls to torch that it runs sooner than ``run``.  The report counts them."""
    position, below, calls = small.position, small.below, _noted(small.reason)

    def call(*args: Any) -> Sequence[Any]:
        if args[position].numel() >= below:
            return run(*args)
        calls.count += 1
        return captured.forward(*args)

    return call


_storage_of = torch.Tensor.untyped_storage
_address_of = torch.UntypedStorage.data_ptr
