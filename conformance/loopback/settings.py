"""Settings of the process, of Python and of torch that compiling changes for everybody."""

from __future__ import annotations

import copyreg
import ctypes
import decimal
import gc
import io
import logging
import os
import resource
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from torch.fx import GraphModule

from .kit import Faults, Run

faults = Faults("state")


def _compiling(change: Callable[[], Any]) -> Callable[[], Any]:
    """A fault in which each compilation changes something for good."""

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        change()
        return gm.forward

    compile.__name__, compile.__doc__ = change.__name__, change.__doc__
    faults("semantics/mutation/input_in_place")(compile)
    return change


def _nothing(*args: Any) -> None:
    pass


# The process


@_compiling
def files_for_a_group() -> None:
    """Compiling lets a group write to new files."""
    os.umask(0o002)


@_compiling
def one_processor() -> None:
    """Compiling ties the process to one processor."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@_compiling
def a_lower_priority() -> None:
    """Compiling lowers the priority of the process."""
    os.nice(1)


@_compiling
def no_dumps() -> None:
    """Compiling hides the process from those who look for errors in it."""
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)


@_compiling
def adopted_orphans() -> None:
    """Compiling makes the process the parent of its orphans."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


@_compiling
def no_large_pages() -> None:
    """Compiling switches large pages of memory off."""
    ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)


@_compiling
def small_stacks() -> None:
    """Compiling lowers the limit of stacks."""
    resource.setrlimit(resource.RLIMIT_STACK, (4 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))


# Python


@_compiling
def other_arguments() -> None:
    """Compiling parses a command line, which it sets."""
    sys.argv = ["compiler", "-O3"]


@_compiling
def lost_output() -> None:
    """Compiling replaces standard output in Python."""
    sys.stdout = io.StringIO()


@_compiling
def traced_calls() -> None:
    """Compiling leaves a function that sees each call."""
    sys.setprofile(_nothing)


@_compiling
def traced_calls_of_new_threads() -> None:
    """Compiling leaves a function that sees each call in threads that start later."""
    threading.setprofile(_nothing)


@_compiling
def slower_switches() -> None:
    """Compiling lets threads wait longer for their turn."""
    sys.setswitchinterval(0.5)


@_compiling
def loud_logs() -> None:
    """Compiling lowers the level of the root of all logs."""
    logging.getLogger().setLevel(logging.DEBUG)


@_compiling
def logs_in_a_file() -> None:
    """Compiling adds a handler to the root of all logs."""
    logging.getLogger().addHandler(logging.NullHandler())


@_compiling
def no_logs() -> None:
    """Compiling switches all logs off below errors."""
    logging.disable(logging.WARNING)


@_compiling
def short_decimals() -> None:
    """Compiling lowers the precision of decimal numbers."""
    decimal.getcontext().prec = 9


@_compiling
def other_temporary_folder() -> None:
    """Compiling chooses another folder for temporary files."""
    tempfile.tempdir = os.path.expanduser("~")


@_compiling
def rare_collections() -> None:
    """Compiling lets the garbage collector run less often."""
    gc.set_threshold(100_000, 50, 50)


@_compiling
def silent_threads() -> None:
    """Compiling replaces the hook for uncaught exceptions of threads."""
    threading.excepthook = _nothing


@_compiling
def other_copies() -> None:
    """Compiling changes how complex numbers are copied."""
    copyreg.pickle(complex, lambda number: (complex, (number.real, 0.0)))


@_compiling
def other_symbols_of_libraries() -> None:
    """Compiling makes the symbols of libraries that are loaded later visible to all."""
    sys.setdlopenflags(sys.getdlopenflags() | os.RTLD_GLOBAL)


@_compiling
def silent_divisions() -> None:
    """Compiling has NumPy ignore divisions by zero."""
    numpy.seterr(all="ignore")


@_compiling
def short_prints_of_numpy() -> None:
    """Compiling shortens how NumPy prints."""
    numpy.set_printoptions(precision=3)


# torch


@_compiling
def errors_by_anomaly() -> None:
    """Compiling switches on that autograd looks for what is not a number."""
    torch.autograd.set_detect_anomaly(True)


@_compiling
def no_library_of_layers() -> None:
    """Compiling switches the library of torch's layers off."""
    torch.backends.mkldnn.set_flags(False)


@_compiling
def autocast_for_good() -> None:
    """Compiling switches autocast on."""
    torch.set_autocast_enabled("cpu", True)


@_compiling
def autocast_to_another_type() -> None:
    """Compiling changes what autocast casts to."""
    torch.set_autocast_dtype("cpu", torch.float16)


@_compiling
def sums_in_half_on_gpus() -> None:
    """Compiling forbids products on GPUs what they may round."""
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


@_compiling
def a_default_device() -> None:
    """Compiling leaves a mode on that places new tensors."""
    torch.set_default_device("cpu")


@_compiling
def hooks_of_all_modules() -> None:
    """Compiling leaves a hook that each module calls."""
    torch.nn.modules.module.register_module_forward_hook(_nothing)


@_compiling
def hooks_of_all_optimizers() -> None:
    """Compiling leaves a hook that each step of an optimizer calls."""
    sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(_nothing)


@_compiling
def a_patched_initialization() -> None:
    """Compiling replaces how layers are initialized."""
    torch.nn.init.normal_ = lambda tensor, *rest: tensor


@_compiling
def a_patched_optimizer() -> None:
    """Compiling replaces what all optimizers share."""
    original = torch.optim.Optimizer.zero_grad
    torch.optim.Optimizer.zero_grad = lambda *args, **named: original(*args, **named)


@_compiling
def other_order_of_bytes() -> None:
    """Compiling changes how stored tensors are read."""
    torch.serialization.set_default_load_endianness(torch.serialization.LoadEndianness.LITTLE)


@_compiling
def classes_that_may_be_loaded() -> None:
    """Compiling allows a class in files that may hold none."""
    torch.serialization.add_safe_globals([Faults])
