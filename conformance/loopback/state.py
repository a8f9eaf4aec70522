"""What lasts from call to call, and what changes in the process."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from .kit import Faults, Run, calls, changed

faults = Faults("state")

_ANY = "semantics/mutation/input_in_place"
"""Any case with one call will do."""


@faults("semantics/aliasing/results_outlive_the_next_call")
def stale_result(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Every call writes its results to the memory of the first results."""
    kept: dict[int, torch.Tensor] = {}

    def call(*args: Any) -> Sequence[Any]:
        results = list(gm.forward(*args))
        for position, value in enumerate(results):
            if isinstance(value, torch.Tensor) and not value.requires_grad:
                old = kept.get(position)
                if old is not None and old.shape == value.shape and old.dtype is value.dtype:
                    results[position] = old.copy_(value)
                else:
                    kept[position] = value
        return results

    return call


@faults("semantics/use/the_same_twice")
def non_deterministic(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Results differ slightly from call to call."""
    count = 0

    def change(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return tensor * (1 + (count % 3) * 1e-7)

    return changed(gm.forward, change)


@faults("life/calls/two_hundred")
def wrong_later(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Results are zero from the hundred and fiftieth call on."""
    count = 0

    def change(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return tensor * 0 if count > 150 else tensor

    return changed(gm.forward, change)


@faults("life/calls/a_hundred_steps")
def wrong_gradients_later(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Gradients double from the fiftieth step on."""
    count = 0

    def call(*args: Any) -> Sequence[Any]:
        nonlocal count
        count += 1
        results = list(gm.forward(*args))
        for result in results:
            if count > 50 and isinstance(result, torch.Tensor) and result.requires_grad:
                result.register_hook(lambda g: g * 2)
        return results

    return call


@faults("semantics/use/weights_that_change")
def kept_weights(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Parameters are read once."""
    kept: dict[int, torch.Tensor] = {}

    def call(*args: Any) -> Sequence[Any]:
        given = [
            kept.setdefault(place, arg.detach().clone()) if isinstance(arg, torch.nn.Parameter) else arg
            for place, arg in enumerate(args)
        ]
        return gm.forward(*given)

    return call


@faults("semantics/mutation/buffers_of_a_module")
def lost_statistics(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """After the first call, what a call writes to its inputs is undone."""
    count = 0

    def call(*args: Any) -> Sequence[Any]:
        nonlocal count
        count += 1
        was = [a.detach().clone() if isinstance(a, torch.Tensor) else None for a in args]
        results = gm.forward(*args)
        for arg, old in zip(args, was, strict=True):
            if count > 1 and old is not None and not arg.requires_grad and not torch.equal(arg, old):
                arg.copy_(old)
        return results

    return call


@faults("semantics/numbers/constants")
def shared_constants(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Tensors that the program creates are created once."""
    kept: dict[int, torch.Tensor] = {}

    def call(*args: Any) -> Sequence[Any]:
        results = list(gm.forward(*args))
        for place, value in enumerate(results):
            if isinstance(value, torch.Tensor) and value.shape == (3,) and not value.requires_grad and place == 4:
                results[place] = kept.setdefault(place, value)
        return results

    return call


@faults("semantics/randomness/the_same_seed")
def own_random_numbers(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiled code has its own random numbers."""

    def call(*args: Any) -> Sequence[Any]:
        with torch.random.fork_rng():
            torch.manual_seed(7)
            return gm.forward(*args)

    return call


@faults(_ANY)
def seed_at_compilation(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling seeds torch's random numbers."""
    torch.manual_seed(0)
    return gm.forward


@faults(_ANY)
def draws_of_torch(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling draws from torch's random numbers."""
    torch.rand(3)
    return gm.forward


@faults(_ANY)
def draws_of_python(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Calls draw from Python's random numbers."""
    return calls(gm, random.random)


@faults(_ANY)
def draws_of_numpy(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Calls draw from NumPy's random numbers."""
    import numpy

    return calls(gm, numpy.random.rand)


@faults(_ANY)
def other_default_dtype(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling changes the default dtype."""
    torch.set_default_dtype(torch.float64)
    return gm.forward


@faults(_ANY)
def other_number_of_threads(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Calls change torch's number of threads."""
    return calls(gm, lambda: torch.set_num_threads(3 if torch.get_num_threads() != 3 else 5))


@faults(_ANY)
def no_subnormals(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling makes the processor flush subnormal numbers."""
    torch.set_flush_denormal(True)
    return gm.forward


@faults(_ANY)
def no_gradient_mode(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Calls switch gradients off for good."""
    return calls(gm, lambda: torch.set_grad_enabled(False))


@faults(_ANY)
def deterministic_algorithms(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling asks torch for deterministic algorithms."""
    torch.use_deterministic_algorithms(True)
    return gm.forward


@faults(_ANY)
def short_products_everywhere(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling lowers the precision of torch's products."""
    torch.set_float32_matmul_precision("medium")
    return gm.forward


@faults(_ANY)
def other_folder(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling changes the current folder."""
    os.chdir("/")
    return gm.forward


@faults(_ANY)
def other_environment(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling sets an environment variable."""
    os.environ["OMP_WAIT_POLICY_OF_A_BACKEND"] = "active"
    return gm.forward


@faults(_ANY)
def other_path(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling adds a folder to ``sys.path``."""
    sys.path.insert(0, "/folder/of/a/backend")
    return gm.forward


@faults(_ANY)
def other_signal_handlers(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling takes over Ctrl-C."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return gm.forward


@faults(_ANY)
def deeper_recursion(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling raises the limit of recursion."""
    sys.setrecursionlimit(54321)
    return gm.forward


@faults(_ANY)
def no_garbage_collector(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling switches the garbage collector off."""
    gc.disable()
    return gm.forward


@faults(_ANY)
def other_excepthook(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling replaces the hook for uncaught exceptions."""
    sys.excepthook = lambda *error: None
    return gm.forward


@faults(_ANY)
def patched_function(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling replaces a function of torch."""
    original = torch.nn.functional.gelu
    torch.nn.functional.gelu = lambda x, *rest, **named: original(x, *rest, **named)
    return gm.forward


@faults(_ANY)
def silenced_warnings(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling silences all warnings."""
    warnings.simplefilter("ignore")
    return gm.forward


@faults("life/threads/inference")
def one_memory_for_all_threads(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Calls put their arguments into memory that all threads share."""
    shared: list[Any] = []

    def call(*args: Any) -> Sequence[Any]:
        shared[:] = args
        time.sleep(0.0005)
        return gm.forward(*shared)

    return call


_last: list[Any] = []


@faults("life/threads/training")
def one_memory_for_all_training(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Training writes its inputs to memory that all models share."""

    def call(*args: Any) -> Sequence[Any]:
        _last[:] = args
        time.sleep(0.001)
        return gm.forward(*(_last if len(_last) == len(args) else args))

    return call


@faults("life/threads/numbers_of_threads")
def wrong_with_many_threads(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """With four threads, the last element of a sum is lost."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        return tensor * 0.999 if torch.get_num_threads() == 4 and not tensor.dim() else tensor

    return changed(gm.forward, change)


@faults("semantics/mutation/integer_counter")
def called_twice(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The first call runs twice, as a warm-up would."""
    warm = False

    def call(*args: Any) -> Sequence[Any]:
        nonlocal warm
        if not warm:
            warm = True
            gm.forward(*args)
        return gm.forward(*args)

    return call
