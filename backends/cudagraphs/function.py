"""The code for one part of a graph: which calls are recorded, which are replayed, and which torch runs."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchmux.registry.errors import FallbackRefused
from torchmux.registry.report import GraphReport, Placement

from .options import CudagraphsOptions
from .pool import Pool
from .recording import Recording

log = logging.getLogger("torchmux.fallback")


class CudagraphsFunction:
    """``run`` by recordings: one if sizes are fixed, one for each shape if they are ``symbolic``.

    It changes the arguments at the positions ``writes``.

    Raises:
        FallbackRefused: by a call that torch would have to run, if ``strict``.
    """

    def __init__(
        self,
        run: Callable[..., Sequence[torch.Tensor]],
        device: int,
        options: CudagraphsOptions,
        pool: Pool,
        *,
        symbolic: bool,
        strict: bool,
        writes: Sequence[int] = (),
    ) -> None:
        self._run = run
        self._device = device
        self._options = options
        self._pool = pool
        self._symbolic = symbolic
        self._strict = strict
        self._writes = writes
        self._shapes: dict[Any, _Shape] = {}
        self._told = False
        self._report: GraphReport | None = None
        self._placements: list[Placement] = []

    def follow(self, report: GraphReport, placements: list[Placement]) -> None:
        """Where to report what only a call shows."""
        self._report, self._placements = report, placements

    def __call__(self, *args: Any) -> Sequence[torch.Tensor]:
        if torch.cuda.is_current_stream_capturing():
            return self._run(*args)  # the program records its own graph, and this becomes part of it
        key = _key(args) if self._symbolic else ()
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= self._options.shape_limit:
                return self._run_plainly(args, f"{self._options.shape_limit} shapes are already recorded (shape_limit)")
            shape = self._shapes[key] = _Shape(self._run, self._options, self._pool, self._writes)
        if shape.failure is not None:
            return self._run_plainly(args, shape.failure)
        with self._pool.turn():
            if torch.cuda.current_device() == self._device:
                answer = shape.call(args)
            else:
                with torch.cuda.device(self._device):
                    answer = shape.call(args)
        if shape.failure is not None:
            return self._run_plainly(args, shape.failure, placed=not self._symbolic)
        return answer

    def _run_plainly(self, args: Sequence[Any], reason: str, *, placed: bool = False) -> Sequence[torch.Tensor]:
        if self._strict:
            raise FallbackRefused(
                f"strict=True forbids a fallback, but torch would run this call instead of CUDA graphs: {reason}."
            )
        if not self._told:
            self._told = True
            log.warning("cudagraphs: torch runs calls of a graph: %s", reason)
            if self._report is not None:
                self._report.notes.append(f"torch runs calls: {reason}")
        if placed and self._report is not None:
            moved = {id(p) for p in self._placements}
            self._report.placements[:] = [
                dataclasses.replace(p, placed_on="eager", reason=reason, kind="torch", library=None)
                if id(p) in moved
                else p
                for p in self._report.placements
            ]
        return self._run(*args)


class _Shape:
    """One shape: the recording in use, and what is known about addresses of arguments and lifetimes of results."""

    def __init__(
        self,
        run: Callable[..., Sequence[torch.Tensor]],
        options: CudagraphsOptions,
        pool: Pool,
        writes: Sequence[int],
    ) -> None:
        self.failure: str | None = None
        self._run = run
        self._writes = writes
        self._options = options
        self._pool = pool
        self._seen: dict[int, int] = {}  # addresses in the last warm-up call
        self._calls: Counter[int] = Counter()  # warm-up calls of each thread: some libraries set up a thread at a time
        self._records = 0
        self._moving: set[int] = set()
        self._held: set[int] = set()
        self._recording: Recording | None = None

    def call(self, args: Sequence[Any]) -> Sequence[torch.Tensor]:
        """The results; nothing if ``failure`` is set afterwards."""
        recording = self._recording
        if recording is not None:
            moved, held = recording.moved(args), recording.in_use()
            if not moved and not held and recording.fits(args):
                return recording.replay(args)
            self._learn(args, moved, held)
            # What the program still holds keeps its memory; the rest goes back to the pool before it is used again.
            self._recording = recording = None
        thread = threading.get_ident()
        if self._calls[thread] < self._options.warmup:
            self._calls[thread] += 1
            self._seen = _addresses(args)
            return self._run(*args)
        if not self._records:
            now = _addresses(args)
            self._moving = {p for p, a in now.items() if self._seen.get(p) != a and not self._is_settled(args[p])}
        self._records += 1
        try:
            self._recording = Recording(self._run, args, self._pool, self._moving, self._held, self._writes)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            first = str(error).strip().splitlines()[:1]
            self.failure = f"recording failed with {type(error).__name__}: {first[0] if first else ''}"
            return ()
        return self._recording.replay(args)

    def _learn(self, args: Sequence[Any], moved: list[int], held: list[int]) -> None:
        self._held.update(held)
        final = self._records >= self._options.record_limit
        self._moving.update(p for p in moved if final or not self._is_settled(args[p]))

    def _is_settled(self, tensor: torch.Tensor) -> bool:
        return self._pool.owns(tensor.untyped_storage().data_ptr())


def _addresses(args: Sequence[Any]) -> dict[int, int]:
    return {p: a.data_ptr() for p, a in enumerate(args) if isinstance(a, torch.Tensor)}


def _key(args: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(tuple(a.size()) if isinstance(a, torch.Tensor) else a for a in args)
