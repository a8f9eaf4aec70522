"""From C++ source to a loaded shared object."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from torchmux.config import config
from torchmux.registry.errors import BackendUnavailable, CompilationFailed

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
    "-Wno-psabi",
    "-w",
]
HEADER = Path(__file__).parent / "kernels.h"
LIBRARY = "libtorch_cpu.so"


def compile_source(*pieces: str, optimize: str = "O2") -> bytes:
    """The shared object of these sources, which include ``kernels.h``; they are compiled at the same time.

    Raises:
        BackendUnavailable: there is no compiler.
        CompilationFailed: the compiler failed; the message says where the source was left.
    """
    command = compiler_command()
    if command is None:
        raise BackendUnavailable(f"native cannot compile: {probe().reason}.")
    with _scratch_folder() as folder:
        # The library is named as a dependency by an empty one of the same name: linking with it takes ten times longer
        # than compiling, and it is loaded already when the object is.
        empty = ["-shared", "-nostdlib", "-x", "c", os.devnull, f"-Wl,-soname,{LIBRARY}", "-o", LIBRARY]
        steps = []
        for at, source in enumerate(pieces):
            _write(folder / f"graph{at}.cpp", source.encode())
            flags = [f"-{optimize}", *FLAGS, f"-I{HEADER.parent}"]
            steps.append(([*command, *flags, "-c", f"graph{at}.cpp", "-o", f"graph{at}.o"], source))
        _run([*steps, ([*command, *empty], "")], folder)
        objects = [f"graph{at}.o" for at in range(len(pieces))]
        linked = ["-shared", "-nostdlib", *objects, "-Wl,--no-as-needed", f"./{LIBRARY}", "-o", "graph.so"]
        _run([([*command, *linked], "")], folder)
        return (folder / "graph.so").read_bytes()


def _run(steps: Sequence[tuple[list[str], str]], folder: Path) -> None:
    """Run commands at the same time, each with the source that it compiles.

    Raises:
        CompilationFailed: one of them failed; the others are ended.
    """
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command, _ in steps:
            try:
                running.append(subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
            except OSError as error:
                raise _cannot_run(command, error) from error
        for process, (command, source) in zip(running, steps, strict=True):
            _, errors = process.communicate()
            if process.returncode:
                text = errors.decode(errors="replace").strip()
                raise CompilationFailed(
                    f"native: the C++ compiler {command[0]!r} failed (exit status {process.returncode}): "
                    f"{text[:1500]}{_leave(source) if source else ''}"
                )
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.communicate()


def _cannot_run(command: list[str], error: OSError) -> CompilationFailed:
    return CompilationFailed(f"native could not run the C++ compiler {command[0]!r}: {error}")


def _leave(source: str) -> str:
    """Keep the source so that a failure can be investigated; returns a sentence that says where."""
    try:
        folder = Path(config.cache_dir) / "failed"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(suffix=".cpp", dir=folder)
        with os.fdopen(handle, "w") as file:
            file.write(source)
    except OSError:
        return ""
    return f"\nThe source is in {name}; compile it with -I{HEADER.parent}."


@contextlib.contextmanager
def _scratch_folder() -> Iterator[Path]:
    try:
        made = tempfile.TemporaryDirectory(prefix="torchmux-")
    except OSError as error:
        raise CompilationFailed(_no_room(error)) from error
    with made as name:
        yield Path(name)


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise CompilationFailed(_no_room(error)) from error


def _no_room(error: OSError) -> str:
    return (
        f"native cannot write its code to a temporary file: {error}. Free space in {tempfile.gettempdir()}, or set "
        f"TMPDIR to another folder."
    )


def load(content: bytes) -> Any:
    """The library of what :func:`compile_source` returned; the file can go once it is loaded."""
    _torch_library()
    with _scratch_folder() as folder:
        path = folder / "graph.so"
        _write(path, content)
        return ctypes.CDLL(str(path))


@functools.cache
def _torch_library() -> Any:
    """torch's own library, loaded already; what is missing of it decides what can be generated."""
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / LIBRARY))


@functools.cache
def has_gemm() -> bool:
    """Whether torch's library exports the matrix product of BLAS."""
    return hasattr(_torch_library(), "sgemm_") and hasattr(_torch_library(), "dgemm_")
