"""Small graphs called from C++: the extension module of ``calls.cpp``, and when it is built.

A call of a small graph takes longer in the Python function ``run`` than in its kernels.  What is in C++ needs torch's
headers, which take a compiler some seconds, so it is compiled once for each torch and Python, and kept in the artifact
cache.  Nobody waits for it: a graph that has been called often looks for it, starts the compiler if it is not there,
and looks again after some more calls.  Until then, and wherever anything is missing, ``run`` is called as ever.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch

from torchmux import sooner, torch_internals as internals
from torchmux.config import config
from torchmux.scratch import scratch_folder

from .....common.cache import turns
from .....common.cache.cache import default_cache
from .. import toolchain
from ..libraries import load as load_library

log = logging.getLogger("torchmux.native")

SOURCES = tuple(Path(__file__).with_name(name) for name in ("calls.cpp", "runner.cpp", "caller.cpp"))
HEADER = Path(__file__).with_name("held.h")
COUNTED = 4  # of the kinds of results, the one that is a number

_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w")
_LIBRARIES = ("libc10.so", "libtorch_cpu.so", "libtorch_python.so")


class Unusable(Exception):
    """Why there is no extension in this process."""


class _Extension:
    """The extension of a process: unknown, in the making, there, or not to be had."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.cls: Any = None
        self.why_not: str | None = None
        self.compiling: _Compilation | None = None

    def look(self) -> Any:
        """The class of calls, or None: not yet, or never, if ``why_not`` says why."""
        if self.cls is not None or self.why_not is not None or not self.lock.acquire(blocking=False):
            return self.cls
        try:
            if self.cls is None and self.why_not is None:
                self.cls = self._found()
        except Unusable as why:
            self._give_up(str(why))
        except Exception as error:  # the program goes on without
            self._give_up(f"{type(error).__name__}: {error}")
        finally:
            self.lock.release()
        return self.cls

    def _give_up(self, why: str) -> None:
        self.why_not = why
        log.info("native calls small graphs from Python: %s", why)

    def _found(self) -> Any:
        cache = default_cache()
        if cache is None:
            raise Unusable("there is no artifact cache to keep the extension in")
        key = _key()
        if self.compiling is None:
            if (content := cache.load(key)) is not None:
                return self._loaded(content, key)
            self.compiling = _Compilation.begun(key)
        elif (content := self.compiling.content()) is not None:
            self.compiling = None
            cache.store(key, content)
            return self._loaded(content, key)
        return None

    def _loaded(self, content: bytes, key: str) -> Any:
        try:
            return _class_in(content)
        except Exception:
            if (cache := default_cache()) is not None:
                cache.drop(key)
            raise


_extension = _Extension()


def _here() -> _Extension:
    """The extension of this process, which may have been forked while another one compiled."""
    global _extension
    if _extension.process != os.getpid():
        found = _Extension()
        found.cls, found.why_not = _extension.cls, _extension.why_not
        _extension = found
    return _extension


# --- the compiler -----------------------------------------------------------------------------------------------------


def _python_headers() -> str:
    return sysconfig.get_paths()["include"]


def _key() -> str:
    """What the extension depends on."""
    sources = [path.read_bytes() for path in (*SOURCES, HEADER)]
    torchs = torch.__version__, torch.version.git_version, torch.__file__
    pythons = sys.version, sysconfig.get_config_var("SOABI"), _python_headers()
    told = sources, toolchain.fingerprint(), torchs, pythons, _FLAGS
    return hashlib.sha256(repr(told).encode()).hexdigest()


class _Compilation:
    """A compiler at work, for which nobody waits."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, holds: ExitStack) -> None:
        self.process, self.folder = process, folder
        self._holds = holds
        self._end = functools.partial(_ended, process, os.getpid())
        atexit.register(self._end)

    @classmethod
    def begun(cls, key: str) -> _Compilation | None:
        """A compiler that has been started; None while another process compiles the same.

        Raises:
            Unusable: something is missing that it needs.
        """
        command = toolchain.compiler_command()
        if command is None:
            raise Unusable(f"{toolchain.probe().reason}")
        if not (Path(_python_headers()) / "Python.h").exists():
            raise Unusable(f"there is no Python.h in {_python_headers()}")
        torchs = Path(torch.__file__).parent
        if not (torchs / "include/ATen/core/TensorBase.h").exists():
            raise Unusable("torch is installed without its headers")
        abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
        paths = [f"-I{torchs / 'include'}", f"-I{_python_headers()}"]
        libraries = [str(torchs / "lib" / name) for name in _LIBRARIES]
        politely = ["nice"] if shutil.which("nice") else []
        with ExitStack() as stack:
            if not stack.enter_context(turns.turn_without_waiting(key)):
                return None
            folder = stack.enter_context(scratch_folder())
            process = subprocess.Popen(
                [*politely, *command, *_FLAGS, abi, *paths, *map(str, SOURCES), *libraries, "-o", "calls.so"],
                cwd=folder,
                env={**os.environ, "TMPDIR": str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=(folder / "errors").open("wb"),
                process_group=0,
            )
            return cls(process, folder, stack.pop_all())

    def content(self) -> bytes | None:
        """The shared object; None while the compiler runs.

        Raises:
            Unusable: the compiler failed.
        """
        if self.process.poll() is None:
            return None
        atexit.unregister(self._end)
        with self._holds:
            if self.process.returncode:
                said = (self.folder / "errors").read_text(encoding="utf-8", errors="replace").strip()
                raise Unusable(f"the C++ compiler failed (exit status {self.process.returncode}): {said[:500]}")
            return (self.folder / "calls.so").read_bytes()


def _ended(process: subprocess.Popen[bytes], owner: int) -> None:
    if owner == os.getpid() and process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# --- the code ---------------------------------------------------------------------------------------------------------


def _class_in(content: bytes) -> Any:
    """The class of calls in a shared object.

    Raises:
        Unusable: what it takes tensors for is not what they are.
    """
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise Unusable("this Python has no global lock")
    library = load_library(content)
    _keep.append(library)  # instances of its class may outlive all that Python knows of
    functions = ctypes.PyDLL(library._name, handle=library._handle)
    make, told_of = functions.call_class, functions.told_of
    make.argtypes, make.restype = (ctypes.c_ssize_t, ctypes.py_object, ctypes.py_object), ctypes.py_object
    told_of.argtypes, told_of.restype = (ctypes.py_object,), ctypes.py_object
    with internals.without_modes(), torch.inference_mode(False):  # a program may be in some
        samples = _samples()
        cls = make(internals.place_of_address(samples), torch.Tensor, torch.nn.Parameter)
        for tensor in samples:
            expected = [tensor._cdata, None, tensor.data_ptr(), tensor._version, *tensor.shape, *tensor.stride()]
            found = told_of(tensor)
            if found is None or [*found[:1], None, *found[2:]] != expected:
                raise Unusable("it does not find what tensors of this torch consist of")
        for name in _DTYPES:
            if (dtype := getattr(torch, name, None)) is not None:
                _numbers[str(dtype)] = told_of(torch.empty(2, dtype=dtype, device="cpu"))[1]
    if len(set(_numbers.values())) != len(_numbers):
        raise Unusable("it does not know the dtypes of this torch")
    for kind in sooner.KINDS:
        class_of = functions[f"{kind}_class"]
        class_of.argtypes, class_of.restype = (), ctypes.py_object
        sooner.bring(kind, class_of())
    return cls


_keep: list[Any] = []
_DTYPES = (
    "float32", "float64", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128",
)  # fmt: skip
_numbers: dict[str, int] = {}


def _samples() -> list[torch.Tensor]:
    zeros = functools.partial(torch.zeros, device="cpu")
    written = zeros(3, 5)
    written += 1
    leaf = torch.nn.Parameter(zeros(2, 3, 4, dtype=torch.float32))
    return [zeros(7), written, written.t()[1:], leaf, zeros(2, 2, dtype=torch.int64), written[0, 0]]


# --- calls ------------------------------------------------------------------------------------------------------------


class Sooner:
    """What stands in for ``run`` of a graph, once there is something: called with ``run`` and its names.

    It returns the call, or None where there is none yet; ``why_not`` says why there never will be one.
    """

    def __init__(self, plan: Sequence[Any], function: Any) -> None:
        self._plan, self._function = plan, function
        self._failed: str | None = None

    @property
    def is_there(self) -> bool:
        """Whether this process has the extension already."""
        return config.calls_in_cpp and _here().cls is not None

    @property
    def why_not(self) -> str | None:
        if not config.calls_in_cpp:
            return "config.calls_in_cpp is off"
        return self._failed or _here().why_not

    def __call__(self, run: Callable[..., Any], names: Mapping[str, Any]) -> Any:
        if not config.calls_in_cpp or self._failed or (cls := _here().look()) is None:
            return None
        try:
            return _made(cls, run, self._plan, names, self._function)
        except Unusable as why:
            self._failed = str(why)
            return None
        except Exception as error:  # Python calls it then
            if config.fail_on_compiler_errors:
                raise
            self._failed = f"{type(error).__name__}: {error}"
            log.warning("native calls a graph from Python: %s", self._failed)
            return None


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, (list, tuple)) else value


def _made(cls: Any, run: Callable[..., Any], plan: Sequence[Any], names: Mapping[str, Any], function: Any) -> Any:
    """The call that ``plan`` describes, of the code ``function``; ``names`` are those of ``run``."""
    count, symbols, needs, inputs, made, written, table, arena, verifies, results = plan
    constants: list[torch.Tensor] = []
    at: dict[str, int] = {}
    if missing := {dtype for _, dtype, *_ in (*inputs, *((0, dtype) for dtype, *_ in made))} - _numbers.keys():
        raise Unusable(f"it knows no tensors of {', '.join(sorted(missing))}")

    def placed(place: Sequence[Any]) -> tuple[int, int]:
        kind, which = place
        if not isinstance(which, str):
            return kind, which
        if which not in at:
            at[which] = len(constants)
            constants.append(names[which])
        return kind, at[which]

    told = (
        count,
        symbols,
        needs,
        [(parameter, _numbers[dtype], strides) for parameter, dtype, strides in inputs],
        [(_numbers[dtype], sizes, strides) for dtype, sizes, strides in made],
        written,
        [placed(place) for place in table],
        arena,
        verifies,
        [(kind, first if kind == COUNTED else placed(first), *rest) for kind, first, *rest in results],
    )
    address = ctypes.cast(function, ctypes.c_void_p).value
    return cls(run, address, names["fault"], names["kept_arena"], tuple(constants), _tupled(told))
