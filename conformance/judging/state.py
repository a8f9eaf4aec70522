"""The state that a process shares: nothing of it may change because a backend compiled or ran something."""

from __future__ import annotations

import builtins
import contextlib
import copy
import copyreg
import ctypes
import decimal
import faulthandler
import functools
import gc
import itertools
import json
import locale
import logging
import math
import multiprocessing
import operator
import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import types
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures.thread import _threads_queues  # the threads of executors end with the process
from typing import Any

import torch

from torchmux import torch_internals
from torchmux.torch_internals.modes import count_dispatch_modes, count_function_modes

_PATCHABLE = (
    torch,
    torch.Tensor,
    torch.nn.Module,
    torch.nn.functional,
    torch.nn.init,
    torch.linalg,
    torch.fft,
    torch.special,
    torch.autograd,
    torch.autograd.Function,
    torch.optim,
    torch.optim.Optimizer,
    torch.optim.lr_scheduler,
    torch.func,
    torch.nn.utils,
    torch.utils.checkpoint,
    torch.utils.data,
    torch.utils.data.DataLoader,
    builtins,
    warnings,
    math,
    operator,
    functools,
    logging,
    tempfile,
    os,
    random,
    json,
    copy,
    pickle,
    subprocess,
    threading,
    sys.modules["time"],
)

_WITH_CLASSES = (torch.nn, torch.optim, torch.optim.lr_scheduler)
"""Modules whose classes may not get other methods either."""

_SET_BY_TORCH = (
    "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_PTXAS_PATH", "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR",
)  # fmt: skip
"""torch sets these when it imports what AOTAutograd needs, and before it compiles with Triton or C++."""

_KEPT_BY_TORCH = (os.path.join("_inductor", "compile_worker"),)
"""Processes with this in their command line: torch keeps them for the next compilations."""

_FIRST_START = multiprocessing.get_all_start_methods()[0]
"""How processes start unless somebody chooses; the first one that starts settles it."""

watched_folder = ""
"""A folder in which nobody but this process writes; empty if there is none."""

ERRORS = "standard-errors-of-the-case"
"""The file in that folder that has what a case writes to standard errors while it runs."""

declared: frozenset[str] = frozenset()
"""Environment variables and parts of the state that the backend declares to set."""

declared_processes: tuple[str, ...] = ()
"""Parts of the command lines of processes that the backend declares to keep."""

declared_words: tuple[str, ...] = ()
"""Parts of the lines that the backend declares to write to standard errors."""


def snapshot() -> dict[str, Any]:
    """Every part of the state by name; equal values mean that nothing changed."""
    found = {name: _tried(read) for name, read in _READERS.items()}
    for home in _PATCHABLE:
        found[f"functions of {home.__name__}"] = found[f"names of {home.__name__}"] = dict(vars(home))
    for module in _WITH_CLASSES:
        for name, each in list(vars(module).items()):
            if isinstance(each, type):
                found[f"functions of {module.__name__}.{name}"] = dict(vars(each))
    return found


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, str]:
    """The parts that differ by name, in words."""
    found = {}
    for name, value in before.items():
        if name not in declared and _differs(name, value, after[name]):
            found[name] = f"{name}{_which(name, value, after[name])}"
    return found


def _which(part: str, before: Any, after: Any) -> str:
    """The entries of a dictionary that differ."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return ""
    if part.startswith("functions of "):
        names = _patched(before, after)
    elif part.startswith("names of "):
        names = _new_names(before, after)
    else:
        names = [str(key) for key in {**before, **after} if before.get(key) != after.get(key)]
    return f" ({', '.join(sorted(names)[:5])})"


def restore(before: dict[str, Any], names: Iterable[str]) -> None:
    """Put back what can be, so that one change is not found again in the next case."""
    for name in names:
        if put := _RESTORERS.get(name):
            with contextlib.suppress(Exception):
                put(before[name])


def _differs(name: str, before: Any, after: Any) -> bool:
    if name.startswith("functions of "):
        return bool(_patched(before, after))
    if name.startswith("names of "):
        return bool(_new_names(before, after))
    if name in ("open files", "child processes"):
        return len(after) > len(before)
    if isinstance(before, str) or isinstance(after, str):  # it could not be read
        return bool(before != after)
    if name == "settings of torch's compilers":  # some may just have been loaded
        return any(after[module] != settings for module, settings in before.items() if module in after)
    if name in ("modules of Python", "how objects are copied"):  # more may come
        return any(after.get(module, key) != key for module, key in before.items())
    if name == "threads of Python":
        return not after <= before
    return bool(before != after)


def _patched(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The functions that were replaced by others than torch's: it wraps some when it imports its own compiler."""
    # the separator tells torch's own folder from one beside it whose name begins alike, such as torch_tensorrt's
    home = os.path.join(os.path.dirname(torch.__file__), "")
    return [
        name
        for name, value in before.items()
        if after.get(name) is not value
        and callable(value)
        and not getattr(getattr(after.get(name), "__code__", None), "co_filename", "").startswith(home)
    ]


def _new_names(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The names that came, but for those of modules, for marks of torch's own tracer, which begin with three _, and for
    what Python remembers of a class when it is pickled."""
    return [
        name
        for name, value in after.items()
        if not (name in before or isinstance(value, types.ModuleType) or name.startswith("___"))
        and name != "__slotnames__"
    ]


def _tried(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (OSError, RuntimeError, AttributeError, ValueError) as error:
        return type(error).__name__


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None)


def _numbers() -> tuple[Any, ...]:
    """Whether subnormal numbers are kept, and how the processor rounds, as this thread computes."""
    tiny, one = torch.tensor([5e-324], dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64)
    return (
        (tiny * 1.0).item() == 5e-324,
        float("5e-324") * float("1.0") != 0.0,
        (one + 2.0**-53).item(),
        (one * -1.0 - 2.0**-53).item(),
        _libc().fegetround() if hasattr(_libc(), "fegetround") else None,
    )


def _blanket_filters() -> list[Any]:
    """The filters for all warnings; modules of torch add some for single ones when they are imported."""
    wide = (Warning, UserWarning, RuntimeWarning, DeprecationWarning)
    return [f[:1] + f[2:3] for f in warnings.filters if f[1] is None and f[3] is None and f[2] in wide]


def _signals() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def _actions() -> list[int]:
    """What Linux is to do besides calling a signal's handler: whether a system call goes on after it, among others."""
    found = []
    for number in signal.valid_signals():
        action = ctypes.create_string_buffer(256)  # a handler, 1,024 bits of signals, the flags
        _libc().sigaction(number, None, action)
        found.append(ctypes.c_int.from_buffer(action, ctypes.sizeof(ctypes.c_void_p) + 128).value)
    return found


def _limits() -> list[Any]:
    import resource

    names = ("AS", "CORE", "STACK", "NOFILE", "CPU", "DATA", "NPROC", "MEMLOCK")
    return [resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in names]


def _status(*fields: str) -> list[str]:
    """Lines of what Linux says of this process."""
    with open("/proc/self/status", encoding="ascii") as file:
        return [line for line in file if line.startswith(fields)]


def _environment_of_c() -> dict[bytes, bytes]:
    """What libraries see of the environment: they may set variables that ``os.environ`` does not have."""
    entries = ctypes.POINTER(ctypes.c_char_p).in_dll(_libc(), "environ")
    found, place = {}, 0
    while (entry := entries[place]) is not None:
        name, _, text = entry.partition(b"=")
        found[name] = text
        place += 1
    left_out = {*declared, *_SET_BY_TORCH, *os.environ}
    return {n: text for n, text in found.items() if os.fsdecode(n) not in left_out and not n.startswith(b"__KMP")}


def _standard_files() -> list[tuple[int, int]]:
    """Which files standard input and errors are; output is the suite's own meanwhile."""
    return [(os.fstat(number).st_dev, os.fstat(number).st_ino) for number in (0, 2)]


def _children() -> list[str]:
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return [child for child in file.read().split() if not _is_kept(child)]


def _is_kept(process: str) -> bool:
    """Whether a process is one that a compiler keeps for its next work, as declared."""
    command = ""
    with contextlib.suppress(OSError):
        for _ in range(20):  # one that has just begun has no command line yet; one that has ended has none any more
            with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    break
            with open(f"/proc/{process}/cmdline", "rb") as file:
                command = os.fsdecode(file.read())
            if command:
                break
            time.sleep(0.001)
    return any(part in command for part in (*_KEPT_BY_TORCH, *declared_processes))


def _loggers() -> list[Any]:
    names = ("", "torch", "torchmux", "transformers")
    each = [(logging.getLogger(n).level, [id(h) for h in logging.getLogger(n).handlers]) for n in names]
    return [logging.root.manager.disable, logging.raiseExceptions, logging.getLevelNamesMapping(), *each]


def _controls() -> list[int]:
    """What a process asks of Linux for itself: dumps, slow timers, no new rights, orphans, large pages."""
    return [_libc().prctl(which, 0, 0, 0, 0) for which in (3, 30, 39, 42)] + [_reaps_orphans()]


def _reaps_orphans() -> int:
    found = ctypes.c_int()
    _libc().prctl(37, ctypes.byref(found), 0, 0, 0)
    return found.value


def _of_numpy() -> Any:
    numpy = sys.modules.get("numpy")
    return None if numpy is None else (numpy.geterr(), numpy.get_printoptions())


def _modules() -> dict[str, int]:
    """Which objects the modules of the standard library are."""
    return {name: id(sys.modules.get(name)) for name in sys.stdlib_module_names & sys.modules.keys()}


def _wakeup() -> int:
    """The file that is told of signals; only the main thread may ask."""
    if threading.current_thread() is not threading.main_thread():
        return -1
    number = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(number, warn_on_full_buffer=False)
    return number


def _aids() -> list[Any]:
    """What helps to find errors, and how modules are loaded."""
    return [
        tracemalloc.is_tracing(), faulthandler.is_enabled(), sys.dont_write_bytecode,
        getattr(sys, "getdlopenflags", int)(), sys.get_coroutine_origin_tracking_depth(),
        tuple(map(id, sys.get_asyncgen_hooks())), socket.getdefaulttimeout(), tempfile.gettempdir(),
        getattr(sys, "tracebacklimit", None),
    ]  # fmt: skip


def _loaded_by_users() -> list[Any]:
    """What may be loaded from files, but for classes of torch: its modules add theirs when they are imported."""
    return [
        g for g in torch.serialization.get_safe_globals() if not str(getattr(g, "__module__", "")).startswith("torch.")
    ]


def _ways_of_torch() -> list[Any]:
    """How modules are converted, tensors are sent, stored and loaded, products ordered; what sees optimizers' steps."""
    future, optimizer = torch.__future__, sys.modules["torch.optim.optimizer"]
    return [
        future.get_overwrite_module_params_on_conversion(), future.get_swap_module_params_on_conversion(),
        torch.multiprocessing.get_sharing_strategy(), torch.backends.quantized.engine,
        torch.backends.opt_einsum.strategy, torch.serialization.get_default_load_endianness(),
        torch.serialization.get_default_mmap_options(), _loaded_by_users(),
        list(optimizer._global_optimizer_pre_hooks), list(optimizer._global_optimizer_post_hooks),
    ]  # fmt: skip


def _switches() -> list[Any]:
    b = torch.backends
    halves = [f"allow_{kind}_reduced_precision_reduction" for kind in ("fp16", "bf16")]
    return [
        *(getattr(b.cuda.matmul, name) for name in halves), b.mkldnn.enabled, b.cudnn.enabled, b.cudnn.benchmark,
        b.cudnn.deterministic, b.cuda.matmul.allow_tf32, b.cudnn.allow_tf32, b.opt_einsum.enabled,
        getattr(b.mkldnn, "deterministic", None),
    ]  # fmt: skip


def _precisions() -> list[Any]:
    b = torch.backends.mkldnn
    return [getattr(each, "fp32_precision", None) for each in (b, getattr(b, "conv", None), getattr(b, "rnn", None))]


def _replaced_kernels() -> set[str]:
    """The kernels of torch's own operators that Python registered, but for those that compute no numbers."""
    return {n for n in torch_internals.python_registrations() if n.startswith("aten/") and not n.endswith("/Meta")}


def _environment() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name not in declared.union(_SET_BY_TORCH)}


def _restore_environment(was: dict[str, str]) -> None:
    for name in set(os.environ) - set(was) - set(_SET_BY_TORCH) - declared:
        del os.environ[name]
    os.environ.update(was)


def _deterministic() -> tuple[bool, ...]:
    return (
        torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )  # fmt: skip


def _restore_deterministic(was: tuple[bool, ...]) -> None:
    if _deterministic() != was:  # torch imports its compilers to be told
        torch.use_deterministic_algorithms(was[0], warn_only=was[1])


_frozen: list[bool] = []
_witness: list[Any] = []
"""A mark among the objects that the garbage collector looks at, in a process that :func:`settle` was called in."""


def settle() -> None:
    """Between cases: keep what the process has by now from the garbage collector, which the next cases ask often."""
    gc.collect()
    gc.freeze()
    _witness[:] = [[]]


def _is_frozen() -> bool:
    """Whether something else was kept from the garbage collector.

    Counting takes long once there is much of it, as in a process that makes copies of itself, so that answer is final.
    The mark is old, and is near the beginning of what is old.
    """
    if _witness:
        mark = itertools.repeat(_witness[0])
        return not any(any(map(operator.is_, gc.get_objects(generation), mark)) for generation in (2, 1, 0))
    if not _frozen and gc.get_freeze_count():
        _frozen.append(True)
    return bool(_frozen)


_READERS: dict[str, Callable[[], Any]] = {
    "default dtype": torch.get_default_dtype,
    "default device": torch.get_default_device,
    "number of threads": lambda: (torch.get_num_threads(), torch.get_num_interop_threads()),
    "gradient mode": lambda: (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
    "anomaly mode": torch.is_anomaly_enabled,
    "autocast": lambda: [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")],
    "deterministic algorithms": _deterministic,
    "precision of products": torch.get_float32_matmul_precision,
    "precision of layers": _precisions,
    "kernels of torch's operators": _replaced_kernels,
    "switches of torch.backends": _switches,
    "warn always": torch.is_warn_always_enabled,
    "subnormal numbers and rounding": _numbers,
    "current folder": os.getcwd,
    "files in the current folder": lambda: sorted(os.listdir(watched_folder)) if watched_folder else [],
    "environment": _environment,
    "sys.path": lambda: list(sys.path),
    "sys hooks": lambda: [
        id(each) for each in (sys.excepthook, sys.displayhook, sys.stdout, sys.stderr, sys.stdin, threading.excepthook,
                              sys.unraisablehook, sys.breakpointhook, sys.gettrace(), sys.getprofile(),
                              threading.gettrace(), threading.getprofile())
    ],
    "sys.argv": lambda: list(sys.argv),
    "recursion limit": sys.getrecursionlimit,
    "switch interval": sys.getswitchinterval,
    "signal handlers": _signals,
    "actions of signals": _actions if sys.platform == "linux" else tuple,
    "signals of the process": lambda: _status("SigBlk", "SigIgn"),
    "timers": lambda: [signal.getitimer(number)[0] > 0 for number in range(3)],
    "garbage collector": lambda: (
        gc.isenabled(), gc.get_threshold(), gc.get_debug(), _is_frozen(), list(map(id, gc.callbacks)),
    ),
    "import hooks": lambda: [id(each) for each in (*sys.meta_path, *sys.path_hooks)],
    "switches of autograd and attention": torch_internals.autograd_switches,
    "settings of torch's compilers": torch_internals.compiler_settings,
    "modules of Python": _modules,
    "file that is told of signals": _wakeup,
    "aids to find errors": _aids,
    "ways of torch": _ways_of_torch,
    "name of the process": lambda: _status("Name"),
    "controls of the process": _controls if sys.platform == "linux" else list,
    "how objects are copied": lambda: dict(copyreg.dispatch_table),
    "environment of C": _environment_of_c,
    "standard files": _standard_files,
    "locale": lambda: locale.setlocale(locale.LC_ALL),
    "decimal context": lambda: repr(decimal.getcontext()),
    "warning filters": _blanket_filters,
    "logging": _loggers,
    "NumPy's settings": _of_numpy,
    "processor affinity": lambda: os.sched_getaffinity(0),
    "priority": lambda: os.getpriority(os.PRIO_PROCESS, 0),
    "limits of resources": _limits,
    "file mode mask": lambda: _status("Umask"),
    "modes that see operators": lambda: (count_function_modes(), count_dispatch_modes()),
    "how tensors are printed": lambda: str(torch.tensor([1 / 3, 1e-9, 1e5], dtype=torch.float64)),
    "how long numbers may be as text": sys.get_int_max_str_digits,
    "stack size of threads": threading.stack_size,
    "start of processes": lambda: multiprocessing.get_start_method(allow_none=True) or _FIRST_START,
    "child processes": _children,
    "threads of Python": lambda: {
        thread for thread in threading.enumerate() if not thread.daemon and thread not in _threads_queues
    },
}  # fmt: skip

_RESTORERS: dict[str, Callable[[Any], Any]] = {
    "default dtype": torch.set_default_dtype,
    # None switches the mode off that any name would leave on
    "default device": lambda was: torch.set_default_device(None if str(was) == "cpu" else was),
    "number of threads": lambda was: torch.set_num_threads(was[0]),
    "gradient mode": lambda was: torch.set_grad_enabled(was[0]),
    "deterministic algorithms": _restore_deterministic,
    "precision of products": torch.set_float32_matmul_precision,
    "subnormal numbers and rounding": lambda was: torch.set_flush_denormal(not was[0]),
    "current folder": os.chdir,
    "environment": _restore_environment,
    "sys.argv": lambda was: sys.argv.__setitem__(slice(None), was),
    "sys.path": lambda was: sys.path.__setitem__(slice(None), was),
    "recursion limit": sys.setrecursionlimit,
    "how tensors are printed": lambda was: torch.set_printoptions(profile="default"),
    "how long numbers may be as text": sys.set_int_max_str_digits,
    "stack size of threads": threading.stack_size,
    "start of processes": lambda was: multiprocessing.set_start_method(was, force=True),
    "garbage collector": lambda was: gc.enable() if was[0] else gc.disable(),
    "locale": lambda was: locale.setlocale(locale.LC_ALL, was),
}
