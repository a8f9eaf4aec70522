"""``tuning_trials``: MetaSchedule searches for better kernel schedules in a separate process (``tuner.py``).

The result for a kernel is a record in the artifact cache, under a key of what the kernel computes, so another graph or
a second process does not search again.  A record counts as soon as it is reported: a tuner that runs out of time loses
nothing, and one that dies loses only the current kernel.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import tvm
from tvm import tirx

from torchmux import logs, progress
from torchmux.scratch import scratch_folder

from ...common.cache.cache import default_cache
from ...common.cache.keys import text_key
from .. import fingerprint

log = logging.getLogger("torchmux.tvm")

_SCRIPT = Path(__file__).with_name("tuner.py")

_BATCH = 8
"""Schedules that are measured between two reports of the tuner."""

_WORTH = 0.03
"""The share of its time that another schedule must save to be taken; less is noise."""


@dataclass
class Record:
    """What is known of a kernel: seconds of its own and of the best schedule, and that one's code if it is another."""

    own: float
    best: float
    trials: int
    code: str | None
    done: bool = False

    @property
    def is_better(self) -> bool:
        return self.code is not None and self.best < self.own * (1 - _WORTH)


@dataclass
class _Kernel:
    """A kernel that is to be tuned; several of a graph may be the same."""

    names: list[Any]
    key: str
    plain: str
    own: str
    record: Record | None = None


@dataclass
class Tuning:
    """How long to look for schedules: ``trials`` for each kernel, ``seconds`` for all of a graph."""

    target: Any
    trials: int
    seconds: float
    disabled: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    def tuned(self, plain: Mapping[Any, Any], own: Mapping[Any, Any]) -> dict[Any, Any]:
        """The kernels of ``own`` by their global variables, with a better schedule where one is known or found.

        ``plain`` has the same kernels without a schedule.  ``notes`` has the outcome afterwards.
        """
        begun = time.monotonic()
        kernels = self._kernels(plain, {n: f for n, f in own.items() if _has_known_sizes(f)})
        symbolic = len(own) - sum(len(k.names) for k in kernels)
        if symbolic:
            self.notes.append(f"MetaSchedule tunes only kernels of known sizes: {symbolic} others are not tuned")
        if not kernels:
            return dict(own)
        missing = [k for k in kernels if k.record is None or not k.record.done]
        with progress.waiting("MetaSchedule"):
            crashes = self._look(missing, begun + self.seconds) if missing else []
        result = dict(own)
        for kernel in kernels:
            if kernel.record is not None and kernel.record.is_better:
                found = tvm.ir.load_json(kernel.record.code)["main"]
                for name in kernel.names:
                    result[name] = _named_as(found, own[name])
        self._tell(kernels, missing, crashes, time.monotonic() - begun)
        return result

    def _kernels(self, plain: Mapping[Any, Any], own: Mapping[Any, Any]) -> list[_Kernel]:
        found: dict[str, _Kernel] = {}
        for name, function in own.items():
            code, own_code = (tvm.ir.save_json(_alone(f)) for f in (plain[name], function))
            described = (str(_alone(plain[name])), str(_alone(function)), str(self.target), self.trials)
            key = text_key("tuned", fingerprint(), torch.get_num_threads(), *described)
            known = found.setdefault(key, _Kernel([], key, code, own_code, _recorded(key)))
            known.names.append(name)
        return list(found.values())

    def _look(self, kernels: list[_Kernel], deadline: float) -> list[str]:
        """Fill in the records of ``kernels``; returns how the tuner died, each time that it did."""
        left, crashes = list(kernels), list[str]()
        while left and time.monotonic() < deadline:
            at: _Kernel | None = None
            done = 0
            with self._tuner(left) as (process, events, errors):
                while (event := _next(events, deadline)) is not None:
                    at = left[event["kernel"]]
                    if "own" in event:
                        at.record = Record(**{name: value for name, value in event.items() if name != "kernel"})
                        _record(at)
                        done += "done" in event
                        logs.emit("tuning", at.names[0].name_hint, _words(at.record))
                    finished = sum(k.record is not None and k.record.done for k in kernels)
                    left_s = max(0.0, deadline - time.monotonic())
                    progress.step(f"MetaSchedule, {finished}/{len(kernels)} kernels, {left_s:.0f} s left")
                if process.poll() is None and time.monotonic() >= deadline:
                    break
                code = process.wait()
                said = errors.read_text(encoding="utf-8", errors="replace")
            if code == 0:
                break
            crashes.append(_death(code, said))
            if at is None or (len(crashes) > 1 and not done):
                break
            left = [k for k in left if k is not at and not (k.record is not None and k.record.done)]
        return crashes

    @contextlib.contextmanager
    def _tuner(self, kernels: list[_Kernel]) -> Iterator[tuple[Any, queue.Queue[dict[str, Any] | None], Path]]:
        """A running tuner, the events that it writes, None at their end, and the file of what it prints besides.

        It is ended on the way out.
        """
        config = {**self.target.export(), "num-cores": torch.get_num_threads()}
        task = {
            "target": tvm.ir.save_json(tvm.target.Target(config)),
            "trials": self.trials,
            "batch": min(_BATCH, self.trials),
            "disabled": self.disabled,
            "kernels": [{"plain": k.plain, "own": k.own} for k in kernels],
        }
        with scratch_folder() as folder:
            # The tuner is killed in the end, and its temporary files go with the folder.
            own = {"TVM_NUM_THREADS": str(torch.get_num_threads()), "TMPDIR": str(folder)}
            path = folder / "task.json"
            path.write_text(json.dumps(task), encoding="utf-8")
            command = [sys.executable, "-P", str(_SCRIPT), str(path)]
            errors = folder / "errors.txt"
            with errors.open("wb") as file:
                process = subprocess.Popen(
                    command, cwd=folder, env={**os.environ, **own}, stdout=subprocess.PIPE, stderr=file, text=True
                )
            events: queue.Queue[dict[str, Any] | None] = queue.Queue()
            reader = threading.Thread(target=_read, args=(process.stdout, events), daemon=True)
            reader.start()
            try:
                yield process, events, errors
            finally:
                process.kill()
                process.wait()
                reader.join()

    def _tell(self, kernels: list[_Kernel], missing: list[_Kernel], crashes: list[str], seconds: float) -> None:
        better = [k for k in kernels if k.record is not None and k.record.is_better]
        text = f"MetaSchedule: {len(better)} of {len(kernels)} kernels have a faster schedule than torchmux's"
        if better:
            records = [k.record for k in better if k.record is not None]
            text += f", {1e6 * sum(r.best for r in records):.0f} µs for {1e6 * sum(r.own for r in records):.0f}"
        if missing:
            text += f"; it tuned {len(missing)} for {seconds:.0f} s"
        unfinished = sum(k.record is None or not k.record.done for k in kernels)
        if unfinished:
            text += f"; {unfinished} did not finish"
        self.notes.append(text)
        if crashes:
            known = ""
            if any("SIGSEGV" in c for c in crashes):
                known = (
                    f"; with {fingerprint()} that may be the version of apache-tvm-ffi: "
                    'MetaSchedule of apache-tvm 0.27 runs after python -m pip install "apache-tvm-ffi<0.1.15"'
                )
            self.notes.append(f"MetaSchedule's process {', then '.join(crashes)}{known}")
            log.warning("tuning: %s", self.notes[-1])


def _has_known_sizes(function: Any) -> bool:
    """Whether a kernel takes nothing but tensors of known shapes."""
    buffers = getattr(function, "buffer_map", None)  # since 0.27 the parameters are the buffers
    given = [p if buffers is None else buffers.get(p) for p in function.params]
    return all(all(isinstance(s, tirx.IntImm) for s in getattr(b, "shape", (None,))) for b in given)


def _alone(function: Any) -> Any:
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def _named_as(function: Any, other: Any) -> Any:
    symbol = other.attrs.get("global_symbol") if other.attrs else None
    return function.without_attr("global_symbol") if symbol is None else function.with_attr("global_symbol", symbol)


def _words(record: Record) -> str:
    return f"{1e6 * record.best:.1f} µs after {record.trials} trials, {1e6 * record.own:.1f} with torchmux's schedule"


def _death(code: int, said: str) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "no output")
    return f"failed with exit status {code} ({last[:200]})"


def _read(stream: Any, events: queue.Queue[dict[str, Any] | None]) -> None:
    with stream:
        for line in stream:
            try:
                events.put(json.loads(line))
            except ValueError:  # the last line of one that died
                break
    events.put(None)


def _next(events: queue.Queue[dict[str, Any] | None], deadline: float) -> dict[str, Any] | None:
    try:
        return events.get(timeout=min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX))
    except queue.Empty:
        return None


def _recorded(key: str) -> Record | None:
    cache = default_cache()
    stored = cache.load(key) if cache is not None else None
    return Record(**json.loads(stored)) if stored is not None else None


def _record(kernel: _Kernel) -> None:
    cache = default_cache()
    if cache is not None:
        cache.store(kernel.key, json.dumps(vars(kernel.record)).encode())
