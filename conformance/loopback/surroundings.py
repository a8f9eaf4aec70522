"""What compiling or calling leaves around compiled code: switches, signals, hooks, files, threads, marks on inputs."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import signal
import socket
import sys
import threading
import tracemalloc
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx.config
import torch.utils.checkpoint
from torch.fx import GraphModule

from torchmux import torch_internals as ti

from .kit import Faults, Run, calls

faults = Faults("state")

_ANY = "semantics/mutation/input_in_place"
_kept: list[Any] = []


def _compiling(case: str = _ANY) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    return faults.compiling(case)


@_compiling()
def no_flash_attention() -> None:
    """Compiling switches one of attention's kernels off."""
    torch.backends.cuda.enable_flash_sdp(False)


@_compiling()
def attention_summed_in_half() -> None:
    """Compiling allows sums in half precision in attention."""
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)


@_compiling()
def hooks_that_stay() -> None:
    """Compiling leaves hooks for whatever autograd saves."""
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x)
    hooks.__enter__()
    _kept.append(hooks)


@_compiling()
def a_replaced_module() -> None:
    """Compiling puts a copy in the place of a module of Python."""
    sys.modules["json"] = types.ModuleType("json")


@_compiling()
def impatient_sockets() -> None:
    """Compiling sets how long sockets wait."""
    socket.setdefaulttimeout(3)


@_compiling()
def a_file_for_signals() -> None:
    """Compiling has signals written to a file of its own."""
    ends = os.pipe()
    os.set_blocking(ends[1], False)
    _kept.append(ends)
    signal.set_wakeup_fd(ends[1])


@_compiling()
def traced_memory() -> None:
    """Compiling switches the tracing of memory on."""
    tracemalloc.start()


@_compiling()
def tensors_sent_through_files() -> None:
    """Compiling changes how tensors are sent to other processes."""
    torch.multiprocessing.set_sharing_strategy("file_system")


@_compiling()
def one_thread_of_autograd() -> None:
    """Compiling has autograd use one thread."""
    torch.autograd.set_multithreading_enabled(False)


@_compiling()
def views_that_are_replayed() -> None:
    """Compiling has autograd replay views."""
    torch.autograd._force_original_view_tracking(True)


@faults(_ANY)
def no_cache_of_autocast(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Calls switch off that autocast remembers what it converted."""
    return calls(gm, lambda: torch.set_autocast_cache_enabled(False))


@_compiling()
def environment_past_python() -> None:
    """A library sets an environment variable that Python does not see."""
    ctypes.CDLL(None).setenv(b"OMP_WAIT_POLICY_OF_A_COMPILER", b"passive", 1)


@_compiling()
def ignored_signals() -> None:
    """A library ignores a signal, past Python."""
    ctypes.CDLL(None).signal(signal.SIGUSR1, ctypes.c_void_p(1))


@_compiling()
def blocked_signals() -> None:
    """Compiling blocks a signal in the thread that compiles."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})


@_compiling()
def uninterrupted_calls() -> None:
    """Compiling has system calls go on after a signal instead of ending."""
    signal.siginterrupt(signal.SIGTERM, False)


@_compiling()
def checkpoints_to_the_end() -> None:
    """Compiling has checkpoints compute again all, and not only what is missing."""
    ends = torch.utils.checkpoint.set_checkpoint_early_stop(False)
    ends.__enter__()
    _kept.append(ends)


@_compiling()
def scripts_without_profiles() -> None:
    """Compiling switches off how scripts are specialized."""
    ti.set_script_profiles(False)


@_compiling()
def words_of_graphs() -> None:
    """Compiling changes how torch's graphs are traced."""
    torch.fx.config.do_not_emit_stack_traces = True


@_compiling()
def a_new_name() -> None:
    """Compiling puts a function of its own among torch's."""
    torch.nn.functional.fused_of_a_compiler = lambda x: x


@_compiling()
def chatter_in_errors() -> None:
    """Compiling writes a line to standard errors, past Python."""
    os.write(2, b"pass 7 of 12: fused 3 operators\n")


@faults(_ANY)
def warnings_of_calls(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Calls write a line to standard errors."""
    return calls(gm, lambda: print("no kernel for this size", file=sys.__stderr__, flush=True))


@_compiling()
def a_timer() -> None:
    """Compiling starts a timer that goes on."""
    signal.setitimer(signal.ITIMER_VIRTUAL, 3600)


@_compiling()
def fewer_open_files() -> None:
    """Compiling lowers how many files the process may open."""
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(few, 900), most))


@_compiling()
def a_frozen_collector() -> None:
    """Compiling freezes what the garbage collector looks at."""
    gc.freeze()


@_compiling()
def a_callback_of_the_collector() -> None:
    """Compiling leaves a function that each garbage collection calls."""
    gc.callbacks.append(lambda phase, info: None)


class _Finder:
    def find_spec(self, *args: Any) -> None:
        """It finds nothing."""


@_compiling()
def an_import_hook() -> None:
    """Compiling leaves a hook that sees each import."""
    sys.meta_path.insert(0, _Finder())


@_compiling()
def a_patched_library() -> None:
    """Compiling replaces a function of Python's library."""
    loads = json.loads
    json.loads = lambda *args, **named: loads(*args, **named)


@_compiling()
def a_patched_layer() -> None:
    """Compiling replaces a method of torch's layers."""
    forward = torch.nn.Linear.forward
    torch.nn.Linear.forward = lambda self, x: forward(self, x)


@_compiling()
def no_standard_errors() -> None:
    """Compiling sends standard errors elsewhere."""
    handle = os.open(os.devnull, os.O_WRONLY)
    os.dup2(handle, 2)
    os.close(handle)


@_compiling("life/calls/nothing_is_left_by_compilations")
def an_open_file_for_each_program() -> None:
    """Each compilation leaves a file open."""
    os.open(os.devnull, os.O_RDONLY)


@_compiling("life/calls/nothing_is_left_by_compilations")
def a_thread_for_each_program() -> None:
    """Each compilation leaves a thread that waits, and that the process need not wait for."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()


@_compiling("life/calls/nothing_is_left_by_compilations")
def memory_for_each_program() -> None:
    """Each compilation keeps two megabytes for good."""
    _kept.append(torch.zeros(500_000))


@faults("life/calls/nothing_is_kept")
def kept_examples(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The inputs of the first call are kept with what was compiled for them."""
    seen: list[Any] = []

    def call(*args: Any) -> Sequence[Any]:
        if not seen:
            seen.extend(args)
        return gm.forward(*args)

    return call


def _on_inputs(case: str) -> Callable[[Callable[[torch.Tensor], Any]], Callable[[torch.Tensor], Any]]:
    """A fault in what a call does to each tensor that it gets."""

    def add(change: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
        def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
            def call(*args: Any) -> Sequence[Any]:
                for each in args:
                    if isinstance(each, torch.Tensor):
                        change(each)
                return gm.forward(*args)

            return call

        compile.__name__, compile.__doc__ = change.__name__, change.__doc__
        faults(case)(compile)
        return change

    return add


@_on_inputs(_ANY)
def marks_on_inputs(x: torch.Tensor) -> None:
    """Calls leave an attribute on the tensors that they get."""
    x._of_a_compiler = True


@_on_inputs("semantics/gradients/ties_and_kinks")
def hooks_on_inputs(x: torch.Tensor) -> None:
    """Calls leave a hook on the tensors whose gradients they compute."""
    if x.requires_grad:
        x.register_hook(lambda g: g)
