"""The state that a process shares: nothing of it may change because a backend compiled or ran something."""

from __future__ import annotations

import asyncio
import collections.abc
import contextlib
import copyreg
import decimal
import faulthandler
import gc
import io
import itertools
import locale
import logging
import multiprocessing
import multiprocessing.spawn
import numbers
import operator
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures.thread import _threads_queues  # the threads of executors end with the process
from typing import Any

import torch

from torchmux import torch_internals
from torchmux.torch_internals.modes import count_dispatch_modes, count_function_modes

from . import namespaces, process

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
    found["namespaces"] = namespaces.read()
    return found


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, str]:
    """The parts that differ by name, in words."""
    found = {}
    for name, value in before.items():
        if name == "namespaces":
            found.update(namespaces.changes(value, after[name]))
        elif name not in declared and _differs(name, value, after[name]):
            found[name] = f"{name}{_which(value, after[name])}"
    return {name: words for name, words in found.items() if name not in declared}


def _which(before: Any, after: Any) -> str:
    """The entries of a dictionary that differ."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return ""
    names = [str(key) for key in {**before, **after} if before.get(key) != after.get(key)]
    return f" ({', '.join(sorted(names)[:5])})"


def restore(before: dict[str, Any], names: Iterable[str]) -> None:
    """Put back what can be, so that one change is not found again in the next case."""
    for name in names:
        if put := _RESTORERS.get(name):
            with contextlib.suppress(Exception):
                put(before[name])


def _differs(name: str, before: Any, after: Any) -> bool:
    if name in ("open files", "child processes"):
        return len(after) > len(before)
    if isinstance(before, str) or isinstance(after, str):  # it could not be read
        return bool(before != after)
    if name == "settings of torch's compilers":  # some may just have been loaded
        return any(after[module] != settings for module, settings in before.items() if module in after)
    if name == "warning filters":
        return before != [each for each in after if each in before or not _is_of_a_library(each)]
    if name in ("modules of Python", "how objects are copied", "logging", "settings of scripts", "code of functions"):
        return any(after.get(module, key) != key for module, key in before.items())  # more may come
    if name == "threads of Python":
        return not after <= before
    return bool(before != after)


def _tried(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (OSError, RuntimeError, AttributeError, ValueError) as error:
        return type(error).__name__


def _numbers() -> tuple[Any, ...]:
    """Whether subnormal numbers are kept, and how the processor rounds, as this thread computes."""
    tiny, one = torch.tensor([5e-324], dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64)
    return (
        (tiny * 1.0).item() == 5e-324,
        float("5e-324") * float("1.0") != 0.0,
        (one + 2.0**-53).item(),
        (one * -1.0 - 2.0**-53).item(),
        process.libc().fegetround() if hasattr(process.libc(), "fegetround") else None,
    )


_TO_PRINT = torch.arange(24)
_PLAIN = torch.tensor([0.5, 1.5])
_KINDS: tuple[Any, ...] = (
    numbers.Number, numbers.Complex, numbers.Real, collections.abc.Sequence, collections.abc.Mapping,
    collections.abc.Set, collections.abc.Callable, collections.abc.Iterator,
)  # fmt: skip


def _what_tensors_are() -> list[bool]:
    """Which of Python's abstract classes tensors, modules and sizes count as."""
    return [issubclass(each, kind) for kind in _KINDS for each in (torch.Tensor, torch.nn.Module, torch.Size)]


def _filters() -> list[Any]:
    """The filters of warnings, but for those of modules of torch, which add them when they are imported."""
    return [(*f[:1], _text(f[1]), f[2], _text(f[3])) for f in warnings.filters]


def _is_of_a_library(found: tuple[Any, ...]) -> bool:
    """Whether it is about one library's warnings: its classes, or words that only this library uses."""
    _, message, category, module = found
    return category.__module__ != "builtins" or any(word in message + module for word in ("torch", "size changed"))


def _text(pattern: Any) -> str:
    return getattr(pattern, "pattern", pattern) or ""


def _loggers() -> dict[str, Any]:
    """How each logger is set, and what holds for all."""
    manager = logging.root.manager
    found: dict[str, Any] = {
        "all": (manager.disable, logging.raiseExceptions, logging.getLevelNamesMapping(), logging.getLoggerClass()),
        "root": _logger(logging.root),
    }
    loggers = ((name, each) for name, each in list(manager.loggerDict.items()) if isinstance(each, logging.Logger))
    return found | {name: _logger(each) for name, each in loggers}


def _logger(each: logging.Logger) -> Any:
    always = each.disabled, list(map(id, each.filters))
    if each.name.startswith("torch."):  # torch sets the rest when it imports its own compilers
        return always
    return *always, each.level, each.propagate, list(map(id, each.handlers))


def _of_numpy() -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    return numpy.geterr(), numpy.get_printoptions(), id(numpy.geterrcall()), numpy.getbufsize()


def _modules() -> dict[str, int]:
    """Which objects the modules of torch, of NumPy and of the standard library are, and the environment."""
    known = {"torch", "numpy", *sys.stdlib_module_names}
    found = {name: id(module) for name, module in list(sys.modules.items()) if name.partition(".")[0] in known}
    return {**found, "os.environ": id(os.environ)}


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _aids() -> list[Any]:
    """What helps to find errors, and how modules are loaded."""
    return [
        tracemalloc.is_tracing(), faulthandler.is_enabled(), sys.dont_write_bytecode,
        getattr(sys, "getdlopenflags", int)(), sys.get_coroutine_origin_tracking_depth(),
        tuple(map(id, sys.get_asyncgen_hooks())), socket.getdefaulttimeout(), tempfile.gettempdir(),
        getattr(sys, "tracebacklimit", None), tempfile.template, multiprocessing.spawn.get_executable(),
    ]  # fmt: skip


def _events() -> list[Any]:
    """Which loops of events programs get."""
    policy = asyncio.get_event_loop_policy()
    return [type(policy), id(policy), id(getattr(getattr(policy, "_local", None), "_loop", None))]


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
        torch.sparse.check_sparse_tensor_invariants.is_enabled(), torch.backends.mha.get_fastpath_enabled(),
        torch.serialization.get_crc32_options(), torch.hub.get_dir(),
    ]  # fmt: skip


def _switches() -> list[Any]:
    b = torch.backends
    halves = [f"allow_{kind}_reduced_precision_reduction" for kind in ("fp16", "bf16")]
    return [
        *(getattr(b.cuda.matmul, name) for name in halves), b.mkldnn.enabled, b.cudnn.enabled, b.cudnn.benchmark,
        b.cudnn.deterministic, b.cuda.matmul.allow_tf32, b.cudnn.allow_tf32, b.opt_einsum.enabled,
        getattr(b.mkldnn, "deterministic", None), getattr(b.cuda.matmul, "allow_fp16_accumulation", None),
    ]  # fmt: skip


def _precisions() -> list[Any]:
    b = torch.backends.mkldnn
    return [getattr(each, "fp32_precision", None) for each in (b, getattr(b, "conv", None), getattr(b, "rnn", None))]


def _streams() -> list[Any]:
    """How Python's own streams write and read."""
    return [
        (s.encoding, s.errors, s.newlines, s.line_buffering, s.write_through)
        for s in (sys.__stdin__, sys.__stdout__, sys.__stderr__)
        if isinstance(s, io.TextIOWrapper) and not s.closed
    ]


def _replaced_kernels() -> set[str]:
    """The kernels of torch's own operators that Python registered, but for those that compute no numbers."""
    return {n for n in torch_internals.python_registrations() if n.startswith("aten/") and not n.endswith("/Meta")}


def _environment() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name not in declared.union(process.SET_BY_TORCH)}


def _restore_environment(was: dict[str, str]) -> None:
    for name in set(os.environ) - set(was) - set(process.SET_BY_TORCH) - declared:
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
    "signal handlers": process.signals,
    "actions of signals": process.actions,
    "signals of the process": lambda: process.status("SigBlk", "SigIgn"),
    "timers": lambda: [signal.getitimer(number)[0] > 0 for number in range(3)],
    "garbage collector": lambda: (
        gc.isenabled(), gc.get_threshold(), gc.get_debug(), _is_frozen(), list(map(id, gc.callbacks)),
    ),
    "import hooks": lambda: [id(each) for each in (*sys.meta_path, *sys.path_hooks)],
    "switches of autograd and attention": torch_internals.autograd_switches,
    "settings of torch's compilers": torch_internals.compiler_settings,
    "modules of Python": _modules,
    "file that is told of signals": lambda: process.wakeup(_is_main),
    "aids to find errors": _aids,
    "ways of torch": _ways_of_torch,
    "name of the process": lambda: process.status("Name"),
    "controls of the process": process.controls,
    "how objects are copied": lambda: dict(copyreg.dispatch_table),
    "environment of C": lambda: process.environment_of_c(declared),
    "standard files": process.standard_files,
    "streams of Python": _streams,
    "locale": lambda: locale.setlocale(locale.LC_ALL),
    "time zone": lambda: (time.tzname, time.timezone),
    "loops of events": _events,
    "decimal context": lambda: [repr(each) for each in (decimal.getcontext(), decimal.DefaultContext)],
    "code of functions": namespaces.code,
    "settings of scripts": torch_internals.settings_of_scripts,
    "warning filters": _filters,
    "logging": _loggers,
    "NumPy's settings": _of_numpy,
    "standing of the process": process.standing,
    "scheduling": process.scheduling,
    "priority of input and output": process.io_priority,
    "processor affinity": lambda: os.sched_getaffinity(0),
    "priority": lambda: os.getpriority(os.PRIO_PROCESS, 0),
    "limits of resources": process.limits,
    "file mode mask": lambda: process.status("Umask"),
    "modes that see operators": lambda: (count_function_modes(), count_dispatch_modes()),
    "how tensors are printed": lambda: str([torch.tensor([1 / 3, 1e-9, 1e5], dtype=torch.float64), _TO_PRINT, _PLAIN]),
    "how long numbers may be as text": sys.get_int_max_str_digits,
    "stack size of threads": threading.stack_size,
    "start of processes": lambda: multiprocessing.get_start_method(allow_none=True) or _FIRST_START,
    "child processes": lambda: process.children(declared_processes),
    "name of the main thread": lambda: threading.main_thread().name,
    "what tensors are to Python": _what_tensors_are,
    "where modules are kept compiled": lambda: [sys.pycache_prefix],
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
