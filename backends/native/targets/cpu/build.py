"""From C++ source to a shared object."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from torchmux import progress
from torchmux.config import config
from torchmux.registry.errors import BackendUnavailable, CompilationFailed
from torchmux.scratch import scratch_folder

from .toolchain import compiler_command, probe

FLAGS = [
    "-std=c++17",
    "-march=native",
    "-fopenmp",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-exceptions",
    "-fno-rtti",
    "-ffp-contract=off",
    # Integers of a program wrap around, as torch's do.
    "-fwrapv",
    # A slot of the arena holds values of one type, then of another, and all are read through plain pointers.
    "-fno-strict-aliasing",
    # Plain loops become vectors, as some of the code expects.
    "-ftree-loop-vectorize",
    "-fvect-cost-model=dynamic",
    "-Wno-psabi",
    "-w",
]
HEADER = Path(__file__).parent / "kernels.h"
LIBRARY = "libtorch_cpu.so"
_INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)
_empty_libraries: dict[tuple[str, ...], bytes] = {}  # by the compiler that made them

ANSWER_SECONDS = 10
"""How long a compiler may take to say its version."""


def compile_source(*pieces: str, optimize: str = "O2") -> bytes:
    """The shared object of these sources, which include ``kernels.h``; they are compiled at the same time.

    Raises:
        BackendUnavailable: there is no compiler.
        CompilationFailed: the compiler failed, or took longer than it may; the message says where the source was left.
    """
    command = compiler_command()
    if command is None:
        raise BackendUnavailable(f"native cannot compile: {probe().reason}.")
    if not _answers(tuple(command)):
        raise CompilationFailed(
            f"native: the C++ compiler {shlex.join(command)!r} did not answer to --version within {ANSWER_SECONDS} s. "
            f"Set CXX to a compiler that works."
        )
    with scratch() as folder:
        steps = []
        for at, source in enumerate(pieces):
            write(folder / f"graph{at}.cpp", source.encode())
            flags = [f"-{optimize}", *FLAGS, f"-I{HEADER.parent}"]
            steps.append(([*command, *flags, "-c", f"graph{at}.cpp", "-o", f"graph{at}.o"], source))
        limit = config.compiler_timeout_s * (1 + sum(map(len, pieces)) // 1_000_000)
        deadline = time.monotonic() + limit
        # The library is named as a dependency by an empty one of the same name: linking with it takes ten times longer
        # than compiling, and it is loaded already when the object is.
        if empty := _empty_libraries.get(tuple(command)):
            write(folder / LIBRARY, empty)
            run_all(steps, folder, deadline)
        else:
            making = ["-shared", "-nostdlib", "-x", "c", os.devnull, f"-Wl,-soname,{LIBRARY}", "-o", LIBRARY]
            run_all([*steps, ([*command, *making], "")], folder, deadline)
            _empty_libraries[tuple(command)] = (folder / LIBRARY).read_bytes()
        objects = [f"graph{at}.o" for at in range(len(pieces))]
        linked = ["-shared", "-nostdlib", *objects, "-Wl,--no-as-needed", f"./{LIBRARY}", "-o", "graph.so"]
        run_all([([*command, *linked], "")], folder, deadline)
        return (folder / "graph.so").read_bytes()


def alone(source: str) -> str:
    """A source with the headers that it includes in it, so that it can be compiled anywhere."""
    seen: set[str] = set()

    def included(match: re.Match[str]) -> str:
        name = match[1]
        if name in seen:
            return ""
        seen.add(name)
        return _INCLUDE.sub(included, (HEADER.parent / name).read_text(encoding="utf-8"))

    return _INCLUDE.sub(included, source).replace("#pragma once\n", "")


def assembly(source: str, optimize: str) -> str:
    """What the compiler makes of a source, as assembly; errors as :func:`compile_source`."""
    command = compiler_command()
    if command is None:
        raise BackendUnavailable(f"native cannot compile: {probe().reason}.")
    with scratch() as folder:
        write(folder / "graph.cpp", source.encode())
        flags = [f"-{optimize}", *FLAGS, f"-I{HEADER.parent}"]
        deadline = time.monotonic() + config.compiler_timeout_s
        run_all([([*command, *flags, "-S", "graph.cpp", "-o", "graph.s"], source)], folder, deadline)
        return (folder / "graph.s").read_text(encoding="utf-8")


@functools.cache
def _answers(command: tuple[str, ...]) -> bool:
    """Whether a compiler says its version: one that hangs is noticed before it is given work, and once."""
    try:
        process = _start([*command, "--version"], None)
    except OSError:
        return True  # to run it will fail in the same way, and say more
    try:
        process.communicate(timeout=ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    finally:
        _end(process)
    return True


def _start(command: Sequence[str], folder: Path | None) -> subprocess.Popen[bytes]:
    """A command in a process group of its own, with its temporary files in ``folder``."""
    return subprocess.Popen(
        command,
        cwd=folder,
        env=None if folder is None else {**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        process_group=0,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command that still runs, and what it has started."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def run_all(steps: Sequence[tuple[list[str], str]], folder: Path, deadline: float) -> None:
    """Run commands at the same time, each with the source that it compiles.

    Raises:
        CompilationFailed: one of them failed, or was not ready at the deadline; the others are ended.
    """
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command, _ in steps:
            try:
                running.append(_start(command, folder))
            except OSError as error:
                raise _cannot_run(command, error) from error
        for number, (process, (command, source)) in enumerate(zip(running, steps, strict=True), 1):
            if len(steps) > 1:
                progress.step(f"compiling, piece {number}/{len(steps)}")
            try:
                _, errors = process.communicate(timeout=max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise CompilationFailed(
                    f"native: the C++ compiler {command[0]!r} took longer than it may; "
                    f"config.compiler_timeout_s={config.compiler_timeout_s} is the limit.{_left(source)}"
                ) from None
            if process.returncode:
                text = errors.decode(errors="replace").strip()
                raise CompilationFailed(
                    f"native: the C++ compiler {command[0]!r} failed (exit status {process.returncode}): "
                    f"{text[:1500]}{_left(source)}"
                )
    finally:
        for process in running:
            _end(process)


def _cannot_run(command: list[str], error: OSError) -> CompilationFailed:
    return CompilationFailed(f"native could not run the C++ compiler {command[0]!r}: {error}")


def _left(source: str) -> str:
    """Keep the source so that a failure can be investigated; returns a sentence that says where."""
    if not source:
        return ""
    try:
        folder = Path(config.cache_dir) / "failed"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(suffix=".cpp", dir=folder)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(source)
    except OSError:
        return ""
    return f"\nThe source is in {name}; compile it with -I{HEADER.parent}."


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """:func:`scratch_folder`, with an error that says what to do."""
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(scratch_folder())
        except OSError as error:
            raise CompilationFailed(_no_room(error)) from error
        yield folder


def write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise CompilationFailed(_no_room(error)) from error


def _no_room(error: OSError) -> str:
    return (
        f"native cannot write its code to a temporary file: {error}. Free space in {tempfile.gettempdir()}, or set "
        f"TMPDIR to another folder."
    )


@functools.cache
def torch_library() -> Any:
    """torch's own library, loaded already; what is missing of it decides what can be generated."""
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / LIBRARY))


@functools.cache
def has_gemm() -> bool:
    """Whether torch's library exports the matrix product of BLAS."""
    return hasattr(torch_library(), "sgemm_") and hasattr(torch_library(), "dgemm_")
