"""Faults in what all of a process shares, where it is seldom looked at: modules, logs, warnings, registries."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import ctypes
import decimal
import fcntl
import gc
import logging
import multiprocessing
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch.utils import _pytree

from ..kit import Faults

state = Faults("state")
process = Faults("process")

_ANY = "semantics/mutation/input_in_place"
_kept: list[Any] = []


def _compiling(faults: Faults = state, case: str = _ANY) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    return faults.compiling(case)


def _passed_on(home: Any, name: str) -> None:
    """Put a function in the place of one that does the same."""
    original = getattr(home, name)
    setattr(home, name, lambda *args, **named: original(*args, **named))


# Modules and classes


@_compiling()
def a_patched_module_of_python() -> None:
    """Compiling replaces a function of ``shutil``."""
    _passed_on(shutil, "rmtree")


@_compiling()
def patched_paths() -> None:
    """Compiling replaces a method of paths."""
    _passed_on(pathlib.Path, "exists")


@_compiling()
def patched_executors() -> None:
    """Compiling replaces a method of pools of threads."""
    _passed_on(concurrent.futures.ThreadPoolExecutor, "submit")


@_compiling()
def patched_sockets() -> None:
    """Compiling replaces how connections are made."""
    _passed_on(socket, "create_connection")


@_compiling()
def patched_collections_of_garbage() -> None:
    """Compiling replaces what collects garbage."""
    _passed_on(gc, "collect")


@_compiling()
def dictionaries_without_order() -> None:
    """Compiling puts plain dictionaries in the place of ordered ones."""
    collections.OrderedDict = dict  # type: ignore[assignment,misc]


@_compiling()
def patched_references() -> None:
    """Compiling replaces the type of weak references."""
    _passed_on(weakref, "ref")


@_compiling()
def patched_arrays() -> None:
    """Compiling replaces a function of NumPy."""
    _passed_on(numpy, "asarray")


@_compiling()
def patched_distributions() -> None:
    """Compiling replaces a method of distributions."""
    _passed_on(torch.distributions.Normal, "sample")


@_compiling()
def patched_scalers() -> None:
    """Compiling replaces a method of what scales gradients."""
    _passed_on(torch.amp.GradScaler, "step")


@_compiling()
def patched_graphs() -> None:
    """Compiling replaces a method of torch's graph modules."""
    _passed_on(torch.fx.GraphModule, "recompile")


@_compiling()
def patched_trees() -> None:
    """Compiling replaces what maps nested containers."""
    _passed_on(_pytree, "tree_map")


@_compiling()
def patched_overloads() -> None:
    """Compiling replaces an operator among torch's."""
    torch.ops.aten.add = torch.ops.aten.sub


@_compiling()
def another_half() -> None:
    """Compiling lets another dtype stand under the name of half precision."""
    torch.half = torch.bfloat16


@_compiling()
def a_short_pi() -> None:
    """Compiling changes a constant of torch."""
    torch.pi = 3.14159


@_compiling()
def another_generator() -> None:
    """Compiling puts a generator of its own in the place of torch's."""
    torch.default_generator = torch.Generator()


@_compiling()
def a_copied_environment() -> None:
    """Compiling puts a copy in the place of the environment: what is set later, libraries do not see."""
    os.environ = dict(os.environ)  # type: ignore[assignment]  # noqa: B003


@_compiling()
def a_copied_module() -> None:
    """Compiling puts a module of its own in the place of one of torch's."""
    sys.modules["torch.nn.functional"] = types.ModuleType("torch.nn.functional")


@_compiling()
def another_default() -> None:
    """Compiling changes the default of an argument of a function of torch."""
    function = torch.nn.functional.gumbel_softmax
    function.__defaults__ = (2.0, *(function.__defaults__ or ())[1:])


# What is registered, and settings of torch


@_compiling()
def sets_as_containers() -> None:
    """Compiling registers a type of Python as a container of tensors."""
    if set not in _pytree.SUPPORTED_NODES:
        _pytree.register_pytree_node(set, lambda s: (list(s), None), lambda values, _: set(values))


@_compiling()
def other_smaller_operators() -> None:
    """Compiling replaces what torch's compilers take for an operator."""
    table, operator = torch._decomp.decomposition_table, torch.ops.aten.silu.default
    original = table[operator]
    table[operator] = lambda *args, **named: original(*args, **named)


@_compiling()
def checked_sparse_tensors() -> None:
    """Compiling has all sparse tensors checked."""
    torch.sparse.check_sparse_tensor_invariants.enable()


@_compiling()
def unchecked_distributions() -> None:
    """Compiling has distributions check nothing."""
    torch.distributions.Distribution.set_default_validate_args(False)


@_compiling()
def slow_attention_of_layers() -> None:
    """Compiling switches the fast path of attention layers off."""
    torch.backends.mha.set_fastpath_enabled(False)


@_compiling()
def files_without_sums() -> None:
    """Compiling has stored tensors go without check sums."""
    torch.serialization.set_crc32_options(False)


@_compiling()
def another_strategy_of_scripts() -> None:
    """Compiling changes how often scripts are specialized."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.set_fusion_strategy([("STATIC", 1)])


@_compiling()
def another_folder_of_models() -> None:
    """Compiling changes where models are kept."""
    torch.hub.set_dir(os.path.join(tempfile.gettempdir(), "models"))


# Logs and warnings


@_compiling()
def no_warnings_of_the_future() -> None:
    """Compiling silences warnings of what will change."""
    warnings.simplefilter("ignore", FutureWarning)


@_compiling()
def no_warnings_with_a_word() -> None:
    """Compiling silences warnings with a word that many have."""
    warnings.filterwarnings("ignore", message=".*deprecated.*")


@_compiling()
def a_filter_of_all_logs() -> None:
    """Compiling adds a filter to the root of all logs."""
    logging.getLogger().addFilter(lambda record: False)


@_compiling()
def a_log_that_is_switched_off() -> None:
    """Compiling configures logs, which switches off those that were there."""
    logging.getLogger("concurrent.futures").disabled = True


@_compiling()
def logs_that_end_here() -> None:
    """Compiling has torch's log tell nobody above it."""
    log = logging.getLogger("torch")
    log.propagate = not log.propagate


# Python and NumPy


@_compiling()
def another_policy_of_loops() -> None:
    """Compiling chooses how programs get their loops of events."""
    asyncio.set_event_loop_policy(type("Policy", (asyncio.DefaultEventLoopPolicy,), {})())


@_compiling()
def another_python_for_processes() -> None:
    """Compiling chooses which Python new processes run."""
    multiprocessing.set_executable(os.path.join(sys.prefix, "bin", "other"))


@_compiling()
def other_names_of_temporary_files() -> None:
    """Compiling changes how temporary files are named."""
    tempfile.template = "compiled"


@_compiling()
def short_decimals_of_new_threads() -> None:
    """Compiling lowers the precision that new threads have for decimal numbers."""
    decimal.DefaultContext.prec = 5


@_compiling()
def short_prints() -> None:
    """Compiling shortens how tensors of more than ten numbers are printed."""
    torch.set_printoptions(threshold=10)


@_compiling()
def large_buffers_of_numpy() -> None:
    """Compiling changes the buffers that NumPy computes in."""
    numpy.setbufsize(16384)


@_compiling()
def told_of_errors_of_numpy() -> None:
    """Compiling leaves a function that NumPy tells of errors."""
    numpy.seterrcall(lambda *error: None)


# Linux and libraries


@_compiling()
def another_zone_of_time() -> None:
    """Compiling leaves the process in another zone of time, although the environment is as before."""
    was = os.environ.get("TZ")
    os.environ["TZ"] = "XXX-9"
    time.tzset()
    if was is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = was


@_compiling()
def another_path_past_python() -> None:
    """A library changes an environment variable that Python has otherwise."""
    ctypes.CDLL(None).setenv(b"PATH", b"/opt/compiler/bin", 1)


@_compiling()
def a_variable_taken_away() -> None:
    """A library takes an environment variable away that Python still has."""
    ctypes.CDLL(None).unsetenv(b"HOME")


@_compiling()
def errors_that_may_fail() -> None:
    """Compiling has writes to standard errors fail instead of waiting."""
    fcntl.fcntl(2, fcntl.F_SETFL, fcntl.fcntl(2, fcntl.F_GETFL) | os.O_NONBLOCK)


@_compiling()
def no_errors_of_children() -> None:
    """Compiling closes standard errors in programs that are started later."""
    fcntl.fcntl(2, fcntl.F_SETFD, fcntl.FD_CLOEXEC)


@_compiling()
def scheduled_as_a_batch() -> None:
    """Compiling has Linux run the process as one that nobody waits for."""
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


@_compiling()
def small_files() -> None:
    """Compiling lowers how large files may become."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 32, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@_compiling()
def first_to_go() -> None:
    """Compiling has Linux end this process first when memory is short."""
    pathlib.Path("/proc/self/oom_score_adj").write_text("700")


@_compiling()
def other_dumps() -> None:
    """Compiling changes what a dump of the process has."""
    pathlib.Path("/proc/self/coredump_filter").write_text("0x7f")


@_compiling()
def ended_with_its_parent() -> None:
    """Compiling has another signal come when the parent of the process ends."""
    ctypes.CDLL(None).prctl(1, int(signal.SIGTERM), 0, 0, 0)


# Threads and processes


@_compiling(process, "life/calls/nothing_runs_between_calls")
def a_thread_that_wakes_up() -> None:
    """A thread looks for work every two milliseconds."""
    ends = time.monotonic() + 5

    def look() -> None:
        while time.monotonic() < ends:
            time.sleep(0.002)

    threading.Thread(target=look, daemon=True).start()


@_compiling(process, "life/process/an_end")
def a_process_of_its_own() -> None:
    """Compiling starts a process that is nobody's child, in a group of its own."""
    command = "(setsid sleep 25 < /dev/null > /dev/null 2>&1 &)"
    subprocess.run(["/bin/sh", "-c", command], check=True)


@_compiling(process, "life/process/in_a_copy")
def no_copies() -> None:
    """Compiling has copies of the process end at once."""
    os.register_at_fork(after_in_child=lambda: os._exit(7))
