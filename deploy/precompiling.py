"""``torchmux.precompile``: a program compiled for several inputs ahead of its use, each in a process of its own."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchmux.config import config
from torchmux.frontend.api import compile
from torchmux.registry.errors import CompilationFailed
from torchmux.registry.names import class_with_article
from torchmux.scratch import scratch_folder
from torchmux.wording import cut, require

from .saving import save

Call = tuple[tuple[Any, ...], Mapping[str, Any]]
Source = Callable[[int], tuple[Any, Call]]
"""Gives the program and the call of a number; it is sent to other processes."""
Say = Callable[[int, int, str], None]
"""Told how many of how many inputs are ready, and what has just happened."""


@dataclass(frozen=True)
class Row:
    """What came of one of the inputs: the seconds that its process took to compile, or the error that it raised."""

    name: str
    seconds: float
    error: str | None = None


@dataclass(frozen=True)
class Precompiled:
    """What :func:`precompile` returns.

    ``compiled`` is the program, which has code for each of the ``rows`` without an error; ``path`` is the saved file,
    and ``left_out`` what :func:`torchmux.save` has left out of it.

    Examples:
        >>> torchmux.Precompiled(compiled=torch.sin, rows=()).path is None
        True
    """

    compiled: Any
    rows: tuple[Row, ...]
    path: Path | None = None
    left_out: tuple[str, ...] = ()

    @property
    def failed(self) -> list[Row]:
        """The inputs that there is no code for."""
        return [row for row in self.rows if row.error is not None]


def precompile(
    model: Any,
    inputs: Sequence[Any],
    *,
    path: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    weights: bool = True,
    key: bytes | str | None = None,
    dynamic: bool | None = False,
    **arguments: Any,
) -> Precompiled:
    """Compile ``model`` for several inputs at the same time, and keep the code in the artifact cache or in a file.

    Each process gets the model by pickle: in a script, call this under ``if __name__ == "__main__":``.  It is called
    under ``torch.no_grad()``.  On a terminal, a line on stderr tells how far it is.

    Args:
        model: a module or function, as for :func:`torchmux.compile`.
        inputs: for each call that is to be compiled for, a tensor, a tuple of positional arguments, or a dict of
            keyword arguments.
        path: of a file to be written as by :func:`torchmux.save`, with ``weights`` and ``key``.
        workers: how many processes work at the same time; as many as there are processors without it.
        dynamic: as for ``compile``; False gives each size code of its own, True gives all sizes the same code.
        arguments: the others of ``compile``, such as ``backend`` and ``options``.

    Returns:
        The program with its code, and a row for each of the inputs.  Inputs that cannot be compiled are warned of, and
        cost the others nothing.

    Raises:
        CompilationFailed: nothing was compiled; the message has the first reason.
        SaveRefused: the program cannot be saved; what was compiled is in the cache.
        TypeError, ValueError: inputs are of another kind, or there are none; or there are no workers.

    Examples:
        >>> if __name__ == "__main__":  # each process imports the script
        ...     model = torch.nn.Linear(4, 2)
        ...     inputs = [torch.ones(rows, 4) for rows in (1, 8)]
        ...     ready = torchmux.precompile(model, inputs, backend="native", path="linear.tmx")
    """
    require(inputs, (list, tuple), "precompile(): inputs")
    require(workers, (int, type(None)), "precompile(): workers")
    require(path, (str, os.PathLike, type(None)), "precompile(): path")
    calls = [call_of(each) for each in inputs]
    with scratch_folder() as folder:
        try:
            torch.save((model, calls), folder / "program")
        except Exception as error:  # pickle raises what the program's objects raise
            raise TypeError(
                f"precompile() cannot send {class_with_article(model)} to other processes ({error}). Define it in a "
                "module, or use python -m torchmux precompile MODULE:FUNCTION, where each process makes it."
            ) from error
        source = functools.partial(_from_file, folder / "program")
        found = precompile_from(
            source, model, calls, [f"inputs[{n}]" for n in range(len(calls))], path=path, workers=workers,
            weights=weights, key=key, say=_say_on_terminal, dynamic=dynamic, **arguments,
        )  # fmt: skip
    for row in found.failed:
        warnings.warn(f"precompile: {row.name} is not compiled: {row.error}", stacklevel=2)
    return found


def precompile_from(
    source: Source,
    model: Any,
    calls: Sequence[Call],
    names: Sequence[str],
    *,
    path: str | os.PathLike[str] | None,
    workers: int | None,
    weights: bool,
    key: bytes | str | None,
    say: Say,
    **arguments: Any,
) -> Precompiled:
    """As :func:`precompile`, for a program that each process gets from ``source``; errors are not warned of."""
    if not calls:
        raise ValueError("precompile() needs inputs: a list with those of at least one call")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    if not config.cache_enabled:
        raise CompilationFailed("precompile() keeps code in the artifact cache, which config.cache_enabled turns off.")
    arguments["recompile_limit"] = max(len(calls), arguments.get("recompile_limit") or config.recompile_limit)
    compiled = compile(model, **arguments)  # first, since it refuses backends and options that there are not
    count = min(len(calls), workers or len(os.sched_getaffinity(0)))
    rows: dict[int, Row] = {}
    started = _Started()
    with ThreadPoolExecutor(count, initializer=_without_interrupts) as pool:
        jobs = {
            pool.submit(_in_a_process, source, number, names[number], arguments, started): number
            for number in range(len(calls))
        }
        try:
            for job in as_completed(jobs):
                row = rows[jobs[job]] = job.result()
                say(len(rows), len(calls), row.name if row.error is None else f"{row.name}: {row.error}")
        except BaseException:
            for job in jobs:
                job.cancel()
            started.end()
            raise
        finally:
            say(len(calls), len(calls), "")
    told = tuple(row for _, row in sorted(rows.items()))
    with torch.no_grad():
        for number, (args, kwargs) in enumerate(calls):
            if rows[number].error is None:
                compiled(*args, **kwargs)  # the code comes from the cache
    found = Precompiled(compiled, told)
    if len(found.failed) == len(told):
        raise CompilationFailed(f"precompile() has compiled nothing. {told[0].name}: {told[0].error}")
    if path is None:
        return found
    left_out = save(compiled, path, weights=weights, key=key)
    return Precompiled(compiled, told, Path(path), tuple(left_out))


def call_of(inputs: Any) -> Call:
    """The arguments of a call: ``inputs`` is one tensor, a tuple of positional arguments, or a dict of keywords.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, tuple):
        return inputs, {}
    if isinstance(inputs, Mapping) and all(isinstance(name, str) for name in inputs):
        return (), dict(inputs)
    raise TypeError(
        "precompile() takes a list of inputs, each a tensor, a tuple of positional arguments or a dict of keyword "
        f"arguments, not {class_with_article(inputs)}"
    )


def _from_file(path: Path, number: int) -> tuple[Any, Call]:
    model, calls = torch.load(path, weights_only=False, mmap=True)  # written by this program a moment ago
    return model, calls[number]


def _without_interrupts() -> None:
    """Ctrl-C reaches all processes of a terminal: those that this thread starts leave it to ours, which ends them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


class _Started:
    """The processes of a run, which end with it."""

    def __init__(self) -> None:
        self._processes: list[Any] = []
        self._ended = False

    def append(self, process: Any) -> None:
        self._processes.append(process)
        if self._ended:  # it was about to start
            process.kill()

    def end(self) -> None:
        self._ended = True
        for process in self._processes:
            process.kill()


def _in_a_process(source: Source, number: int, name: str, arguments: Mapping[str, Any], started: _Started) -> Row:
    """Compile for one call in a new process; whatever becomes of that is in the row."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    what = source, number, arguments, config.to_dict(), torch.get_num_threads(), theirs
    process = context.Process(target=_compile_one, args=what, daemon=True)
    begun = time.monotonic()
    try:
        process.start()
    except Exception as error:  # pickle raises what the program's objects raise
        return Row(name, 0.0, f"it cannot be sent to another process: {_in_words(error)}")
    started.append(process)
    theirs.close()
    try:
        told = ours.recv()
    except EOFError:
        told = None
    process.join()
    if told is None:
        code = process.exitcode or 0
        ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit status {code}"
        return Row(name, time.monotonic() - begun, f"its process {ended}")
    return Row(name, *told)


def _compile_one(
    source: Source, number: int, arguments: Mapping[str, Any], settings: Mapping[str, Any], threads: int, answer: Any
) -> None:
    """The work of a process: compile, and send the seconds and the error."""
    for name, value in settings.items():
        setattr(config, name, value)
    torch.set_num_threads(threads)
    begun = time.monotonic()
    try:
        model, (args, kwargs) = source(number)
        begun = time.monotonic()
        with torch.no_grad():
            compile(model, **arguments)(*args, **kwargs)
        error = None
    except (Exception, SystemExit) as raised:  # of the program, or of a backend
        error = _in_words(raised)
    answer.send((time.monotonic() - begun, error))
    answer.close()


def _in_words(error: BaseException) -> str:
    return cut(f"{type(error).__name__}: {error}")


def _say_on_terminal(done: int, total: int, text: str) -> None:
    """On a terminal, one line that is replaced, and goes in the end."""
    if sys.stderr.isatty():
        line = f"torchmux: {done} of {total} compiled ({text})" if text else ""
        with contextlib.suppress(OSError):
            print(f"\r\x1b[K{line[:150]}", end="", file=sys.stderr, flush=True)
