"""From C++ source to a loaded shared object."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from torchmux.config import config
from torchmux.registry.errors import BackendUnavailable, CompilationFailed

from . import compiler_command, probe

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
    "-Wno-psabi",
    "-w",
]
HEADER = Path(__file__).parent / "kernels.h"
LIBRARY = "libtorch_cpu.so"


def compile_source(source: str, optimize: str = "O2") -> bytes:
    """The shared object of ``source``, which includes ``kernels.h``.

    Raises:
        BackendUnavailable: there is no compiler.
        CompilationFailed: the compiler failed; the message says where the source was left.
    """
    command = compiler_command()
    if command is None:
        raise BackendUnavailable(f"native cannot compile: {probe().reason}.")
    with _scratch_folder() as folder:
        _write(folder / "graph.cpp", source.encode())
        # The library is named as a dependency by an empty one of the same name: linking with it takes ten times longer
        # than compiling, and it is loaded already when the object is.
        empty = ["-shared", "-nostdlib", "-x", "c", os.devnull, f"-Wl,-soname,{LIBRARY}", "-o", LIBRARY]
        try:
            stub = subprocess.Popen([*command, *empty], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        except OSError as error:
            raise _cannot_run(command, error) from error
        include = f"-I{HEADER.parent}"
        try:
            _run([*command, f"-{optimize}", *FLAGS, include, "-c", "graph.cpp", "-o", "graph.o"], folder, source)
        finally:
            _, errors = stub.communicate()
        if stub.returncode:
            raise CompilationFailed(f"native: the compiler cannot link: {errors.decode(errors='replace')[:500]}")
        linked = ["-shared", "-nostdlib", "graph.o", "-Wl,--no-as-needed", f"./{LIBRARY}", "-o", "graph.so"]
        _run([*command, *linked], folder, source)
        return (folder / "graph.so").read_bytes()


def _run(command: list[str], folder: Path, source: str) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    except OSError as error:
        raise _cannot_run(command, error) from error
    if done.returncode:
        text = done.stderr.decode(errors="replace").strip()
        raise CompilationFailed(
            f"native: the C++ compiler {command[0]!r} failed (exit status {done.returncode}): {text[:1500]}"
            f"{_leave(source)}"
        )


def _cannot_run(command: list[str], error: OSError) -> CompilationFailed:
    return CompilationFailed(f"native could not run the C++ compiler {command[0]!r}: {error}")


def _leave(source: str) -> str:
    """Keep the source for whoever looks into a failure; says where."""
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
        f"native cannot put its code into a temporary file: {error}. Make room in {tempfile.gettempdir()}, or set "
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
