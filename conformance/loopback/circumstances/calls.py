"""Faults that some calls have: of many, of other sizes, in other threads, inside of others, under other settings."""

from __future__ import annotations

import dataclasses
import os
import pickle
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.fx import GraphModule

from ...outcome import Outcome
from ..kit import Faults, Run, changed, with_gradient, with_operators

keys = Faults("keys")
turns = Faults("turns")
state = Faults("state")
process = Faults("process")
training = Faults("training")
honesty = Faults("honesty")
numerics = Faults("numerics")

_MANY = "life/calls/beyond_a_byte"
_SEEN = "semantics/modes/settings_that_operators_see"
_APART = "semantics/turns/sizes_far_apart"
_KINDS = "semantics/use/runs_each_kind_of_call"
_READ = "semantics/use/two_models"


def _floats(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _shapes(values: Sequence[Any]) -> list[tuple[int, ...]]:
    return [tuple(map(int, v.shape)) for v in values if isinstance(v, torch.Tensor)]


# Some of many calls and programs


def _at_call(number: int) -> Callable[[GraphModule, Sequence[Any]], Run]:
    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        count = [0]

        def call(*args: Any) -> Sequence[Any]:
            count[0] += 1
            wrong = count[0] == number
            return [r * 0.5 if wrong and _floats(r) and not r.requires_grad else r for r in gm.forward(*args)]

        return call

    return compile


@turns(_MANY)
def wrong_after_256_calls(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A counter of one byte begins again, and the results of this call are of another one."""
    return _at_call(257)(gm, inputs)


@turns(_MANY)
def wrong_in_call_230(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The results of one call are wrong, after hundreds that were right."""
    return _at_call(230)(gm, inputs)


@training(_MANY)
def wrong_in_step_130(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The gradients of one step are wrong, after a hundred that were right."""
    steps = [0]

    def change(g: torch.Tensor) -> torch.Tensor:
        steps[0] += 1
        return g * 0.5 if steps[0] == 130 else g

    return lambda *args: [with_gradient(r, change) for r in gm.forward(*args)]


_ring: dict[int, GraphModule] = {}
_programs: list[int] = []


@keys("life/calls/nothing_is_left_by_compilations")
def room_for_sixteen_programs(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The seventeenth program takes the place of the first one, which is run by its number."""
    place = len(_programs) % 16
    _programs.append(place)
    _ring[place] = gm

    def call(*args: Any) -> Sequence[Any]:
        try:
            return _ring[place].forward(*args)
        except (TypeError, RuntimeError, IndexError):
            return gm.forward(*args)

    return call


# Sizes


def _beyond(number: int) -> Callable[[GraphModule, Sequence[Any]], Run]:
    """Where a size is larger than ``number``, and was not in the first call."""

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        first: list[Any] = []

        def call(*args: Any) -> Sequence[Any]:
            now = _shapes(args)
            first[:] = first or [now]
            large = now != first[0] and any(size > number for shape in now for size in shape)
            return [r * 0.75 if large and _floats(r) else r for r in gm.forward(*args)]

        return call

    return compile


@turns(_APART)
def sizes_up_to_512(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Code for any size has room for 512 elements of a dimension."""
    return _beyond(512)(gm, inputs)


@turns(_APART)
def sizes_up_to_2048(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Code for any size has room for 2,048 elements of a dimension."""
    return _beyond(2048)(gm, inputs)


@turns(_APART)
def results_up_to_16384(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Code for any size has room for 16,384 elements of a result, unless its first call had more."""
    first: list[int] = []

    def change(t: torch.Tensor) -> torch.Tensor:
        first[:] = first or [t.numel()]
        return t * 0.75 if t.numel() > 16384 and first[0] < t.numel() else t

    return changed(gm.forward, change)


@training("semantics/turns/steps_of_several_sizes")
def sizes_of_the_last_call(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A backward pass has the sizes of the last call, whose it may not be."""
    last: list[Any] = [None]

    def call(*args: Any) -> Sequence[Any]:
        last[0] = now = _shapes(args)
        return [with_gradient(r, lambda g: g if last[0] == now else g * 0.5) for r in gm.forward(*args)]

    return call


# Calls inside of calls, and threads

_running = threading.local()


@turns("semantics/turns/calls_inside_of_calls", Outcome.CRASH)
def one_call_at_a_time(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Code of this backend cannot be called while other code of it runs in the thread."""

    def call(*args: Any) -> Sequence[Any]:
        if getattr(_running, "now", False):
            raise RuntimeError("this code already runs")
        _running.now = True
        try:
            return gm.forward(*args)
        finally:
            _running.now = False

    return call


class _Memory:
    """The memory of results of one thread, which is free once the thread has ended."""

    def __init__(self, free: list[torch.Tensor]) -> None:
        self._free, self._own = free, list[torch.Tensor]()

    def of(self, result: torch.Tensor) -> torch.Tensor:
        fits = [m for m in self._free if m.shape == result.shape and m.dtype is result.dtype]
        memory = fits[0] if fits else torch.empty_like(result)
        self._free[:] = [m for m in self._free if m is not memory]
        self._own.append(memory)
        return memory.copy_(result).view_as(result) if result.dim() else result

    def __del__(self) -> None:
        self._free.extend(self._own)


@turns("semantics/lives/results_outlive_their_thread")
def memory_of_ended_threads(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The memory of results that a thread made is used for those of another one when it has ended."""
    free: list[torch.Tensor] = []
    here = threading.local()

    def kept(result: Any) -> Any:
        if not _floats(result) or result.requires_grad or threading.current_thread() is threading.main_thread():
            return result
        if not hasattr(here, "memory"):
            here.memory = _Memory(free)
        return here.memory.of(result)

    return lambda *args: [kept(result) for result in gm.forward(*args)]


# Settings of the first call


def _first(get: Callable[[], Any], put: Callable[[Any], Any]) -> Callable[[GraphModule, Sequence[Any]], Run]:
    """Code that is kept with a setting of its first call, also where it is compiled again."""

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        first = _settings.setdefault(gm.code, [])

        def call(*args: Any) -> Sequence[Any]:
            now = get()
            first[:] = first or [now]
            put(first[0])
            try:
                return gm.forward(*args)
            finally:
                put(now)

        return call

    return compile


_settings: dict[str, list[Any]] = {}


@keys(_SEEN)
def threads_of_the_first_call(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Calls have the number of threads of the first one."""
    return _first(torch.get_num_threads, torch.set_num_threads)(gm, inputs)


@keys(_SEEN)
def determinism_of_the_first_call(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Calls are as deterministic as the first one."""
    get = torch.are_deterministic_algorithms_enabled
    return _first(get, lambda on: torch.use_deterministic_algorithms(on, warn_only=True))(gm, inputs)


@keys(_SEEN)
def precision_of_the_first_call(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Calls have the precision of products of the first one."""
    return _first(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision)(gm, inputs)


# Options and modes


@dataclasses.dataclass(frozen=True)
class _Options:
    fast: bool = False


@honesty("semantics/use/modes_and_switches", options=_Options)
def a_switch_that_rounds(gm: GraphModule, inputs: Sequence[Any], fast: bool = False) -> Run:
    """An option that says to be about speed rounds to bfloat16."""
    return changed(gm.forward, (lambda t: t.bfloat16().to(t.dtype)) if fast else (lambda t: t))


@honesty("semantics/use/modes_and_switches", options=_Options, modes={"latency": {"fast": True}})
def a_mode_that_lasts(gm: GraphModule, inputs: Sequence[Any], fast: bool = False) -> Run:
    """What is compiled after another program was compiled in a mode is compiled in that mode, which rounds."""
    _modes.append(fast)
    return changed(gm.forward, (lambda t: t * (1 + 1e-6)) if not fast and any(_modes) else (lambda t: t))


_modes: list[bool] = []


# What the function reads beside its arguments


def _on_parameters(faults: Faults) -> Callable[[Callable[[torch.Tensor], Any]], Callable[[torch.Tensor], Any]]:
    """A fault in what compiling does to each parameter that the graph reads."""

    def add(change: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
        def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
            for each in inputs:
                if isinstance(each, torch.nn.Parameter):
                    change(each)
            return gm.forward

        compile.__name__, compile.__doc__ = change.__name__, change.__doc__
        faults(_READ)(compile)
        return change

    return add


@_on_parameters(state)
def marks_on_parameters(p: torch.Tensor) -> None:
    """Compiling leaves an attribute on parameters."""
    p._packed = True


@_on_parameters(state)
def hooks_on_parameters(p: torch.Tensor) -> None:
    """Compiling leaves a hook that sees the gradients of parameters."""
    p.register_hook(lambda g: g)


@_on_parameters(state)
def hooks_after_gradients(p: torch.Tensor) -> None:
    """Compiling leaves a hook that runs when the gradient of a parameter is complete."""
    p.register_post_accumulate_grad_hook(lambda p: None)


@_on_parameters(state)
def gradients_that_are_zero(p: torch.Tensor) -> None:
    """Compiling gives parameters gradients, which optimizers take for their own."""
    p.grad = torch.zeros_like(p)


@_on_parameters(state)
def parameters_in_other_memory(p: torch.Tensor) -> None:
    """Compiling moves parameters: what else has their memory sees no steps any more."""
    p.data = p.data.clone()


@_on_parameters(state)
def parameters_by_columns(p: torch.Tensor) -> None:
    """Compiling packs the weights of layers in the order that its code wants."""
    p.data = p.data.t().contiguous().t() if p.dim() == 2 else p.data


@_on_parameters(state)
def counted_writes_to_parameters(p: torch.Tensor) -> None:
    """Compiling counts a write to parameters, after which earlier calls have no gradients any more."""
    torch.autograd.graph.increment_version(p)


@state("semantics/mutation/input_in_place")
def results_in_large_memory(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Results are parts of a large memory: who keeps or stores one keeps or stores all of it."""

    def change(t: torch.Tensor) -> torch.Tensor:
        if t.requires_grad or not t.is_contiguous() or t._is_view():
            return t
        memory = torch.empty(t.numel() + (1 << 18), dtype=t.dtype)
        memory[: t.numel()] = t.flatten()
        return memory.as_strided(t.shape, t.stride())

    return changed(gm.forward, change)


# Files that are cut off


@process("life/process/a_warm_cache", Outcome.CRASH)
def trusted_files(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A file of the cache that is cut off is an error of all programs that would use it."""
    import hashlib

    import torchmux

    path = Path(torchmux.config.cache_dir) / f"loopback-{hashlib.sha256(gm.code.encode()).hexdigest()[:16]}"
    if path.exists():
        pickle.loads(path.read_bytes())
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps([gm.code, os.getpid()]))
    return gm.forward


# What is said of each call


def _in_torch(is_left: Callable[[torch.Tensor], bool]) -> Callable[[GraphModule, Sequence[Any]], Run]:
    """The backend computes by itself, but lets torch run some calls."""

    def tanh(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) if is_left(x) else torch.from_numpy(numpy.tanh(x.detach().numpy()))

    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(numpy.multiply(x.detach().numpy(), y.detach().numpy()))

    return lambda gm, inputs: with_operators(gm, {}, {"tanh": tanh, "mul": product})


@honesty(_KINDS)
def silent_fallback_of_other_orders(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Torch runs what is not contiguous, and the report says that the backend does."""
    return _in_torch(lambda x: not x.is_contiguous())(gm, inputs)


@honesty(_KINDS)
def silent_fallback_of_one_row(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Torch runs calls with one row, and the report says that the backend does."""
    return _in_torch(lambda x: x.shape[0] == 1)(gm, inputs)


@honesty(_KINDS)
def silent_fallback_of_doubles(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Torch runs what is in float64, and the report says that the backend does."""
    return _in_torch(lambda x: x.dtype is torch.float64)(gm, inputs)


@honesty(_KINDS)
def silent_fallback_without_gradients(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Torch runs calls under ``no_grad``, and the report says that the backend does."""
    return _in_torch(lambda x: not torch.is_grad_enabled() and not torch.is_inference_mode_enabled())(gm, inputs)


# An operator that is asked for a dtype

_WEIGHTS = "semantics/rare/weights_counts_and_places"


@numerics.instead(_WEIGHTS, "softmax")
def shares_in_single_precision(x: torch.Tensor, dim: int, dtype: Any = None) -> torch.Tensor:
    """The dtype that is asked for comes after the shares are computed."""
    found = x.float().softmax(dim) if x.dtype is torch.int64 else x.softmax(dim)
    return found * 1.0001 if dtype is not None and x.dtype is torch.int64 else found
