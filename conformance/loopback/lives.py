"""How long inputs, results and gradients live; what threads and exceptions make of calls; and layouts of results."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from .kit import Faults, Run, changed, with_gradient

process = Faults("process")
turns = Faults("turns")
layout = Faults("layout")
training = Faults("training")


def _floats(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _inner(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.grad_fn is not None


# What is kept


@process("life/calls/nothing_is_kept")
def kept_results(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Calls keep the memory of their results."""
    kept: list[Any] = []

    def call(*args: Any) -> Sequence[Any]:
        results = gm.forward(*args)
        kept.append([r.detach() for r in results if isinstance(r, torch.Tensor)])
        return results

    return call


@process("semantics/lives/nothing_waits_for_the_collector")
def inputs_in_cycles(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Inputs are part of a cycle, and stay until the next collection."""

    def call(*args: Any) -> Sequence[Any]:
        cycle: list[Any] = [args]
        cycle.append(cycle)
        return gm.forward(*args)

    return call


@process("semantics/lives/nothing_waits_for_the_collector")
def the_last_inputs(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The memory of a call's inputs is kept until the next call."""
    last: list[Any] = []

    def call(*args: Any) -> Sequence[Any]:
        last[:] = [a.detach() if isinstance(a, torch.Tensor) else a for a in args]
        return gm.forward(*args)

    return call


@process("semantics/lives/nothing_waits_for_the_collector")
def the_last_results(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The results of a call are kept until the next call."""
    last: list[Any] = []

    def call(*args: Any) -> Sequence[Any]:
        last[:] = gm.forward(*args)
        return list(last)

    return call


@process("life/calls/nothing_is_kept_in_training")
def graphs_in_cycles(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Results are held by what computes their gradients."""

    def call(*args: Any) -> Sequence[Any]:
        results = gm.forward(*args)
        for result in filter(_inner, results):
            result.grad_fn.metadata["result"] = result
        return results

    return call


# What ends too early


@training("semantics/lives/gradients_outlive_their_code")
def gradients_end_with_code(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A backward pass finds nothing after its code is dropped."""

    def call(*args: Any) -> Sequence[Any]:
        change = lambda g: g if here() is not None else torch.zeros_like(g)  # noqa: E731
        return [with_gradient(r, change) if _inner(r) else r for r in gm.forward(*args)]

    here = weakref.ref(call)
    return call


@training("semantics/lives/gradients_outlive_the_next")
def gradients_in_one_memory(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Each backward pass writes gradients to the memory of those before it."""
    memory: dict[Any, torch.Tensor] = {}

    def written(place: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def change(g: torch.Tensor) -> torch.Tensor:
            if g.requires_grad:
                return g
            return memory.setdefault((place, g.shape, g.dtype), torch.empty_like(g)).copy_(g)

        return change

    return lambda *args: gm.forward(*(with_gradient(a, written(place)) for place, a in enumerate(args)))


_free: dict[tuple[Any, ...], list[torch.Tensor]] = {}


@turns("semantics/lives/results_outlive_their_code")
def memory_of_dropped_code(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Once code is dropped, the memory of its results is used for those of other code."""
    own: list[torch.Tensor] = []

    def call(*args: Any) -> Sequence[Any]:
        results = list(gm.forward(*args))
        for at, result in enumerate(results):
            if not _floats(result) or result.requires_grad or result.layout is not torch.strided:
                continue
            key = result.dtype, result.shape, result.stride()
            if free := _free.get(key):
                results[at] = free.pop().copy_(result)
            own.append(results[at].detach())
        return results

    def give_back(own: list[torch.Tensor]) -> None:
        for each in own:
            _free.setdefault((each.dtype, each.shape, each.stride()), []).append(each)

    weakref.finalize(call, give_back, own)
    return call


@turns("semantics/aliasing/results_outlive_the_next_call")
def two_memories_by_turns(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Every second call writes its results to the same memory."""
    memory: dict[Any, torch.Tensor] = {}
    number = [0]

    def change(t: torch.Tensor) -> torch.Tensor:
        if t.requires_grad or not t.is_contiguous() or t._is_view():
            return t
        return memory.setdefault((number[0] % 2, t.shape, t.dtype), torch.empty_like(t)).copy_(t)

    def call(*args: Any) -> Sequence[Any]:
        number[0] += 1
        return changed(gm.forward, change)(*args)

    return call


@turns("life/calls/two_hundred")
def freed_by_the_collector(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """What the code needs is only part of a cycle, which the next collection frees."""

    class Cycle:
        pass

    cycle = Cycle()
    cycle.itself = cycle  # type: ignore[attr-defined]
    here = weakref.ref(cycle)
    return changed(gm.forward, lambda t: t if here() is not None else t * 0)


# Threads and exceptions


@turns("semantics/lives/first_calls_at_once")
def a_race_of_first_calls(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A call that comes while the first one prepares what all use finds it half ready."""
    begun: list[float] = []

    def call(*args: Any) -> Sequence[Any]:
        if not begun:
            begun.append(time.monotonic())
            time.sleep(0.2)
            begun.append(0.0)
        elif len(begun) == 1:
            return [torch.zeros_like(r) if _floats(r) else r for r in gm.forward(*args)]
        return gm.forward(*args)

    return call


@training("semantics/lives/backward_in_another_thread")
def backward_of_one_thread(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """What was saved for gradients is only there in the thread that saved it."""

    def call(*args: Any) -> Sequence[Any]:
        thread = threading.get_ident()
        change = lambda g: g if threading.get_ident() == thread else g * 0  # noqa: E731
        return [with_gradient(r, change) if _inner(r) else r for r in gm.forward(*args)]

    return call


def _failing(gm: GraphModule, then: Callable[[Sequence[Any]], Any]) -> Run:
    def call(*args: Any) -> Sequence[Any]:
        try:
            return gm.forward(*args)
        except Exception:
            then(args)
            raise

    return call


@turns("semantics/gradients/after_exceptions")
def no_gradients_after_exceptions(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """An exception leaves gradients switched off."""
    return _failing(gm, lambda args: torch.set_grad_enabled(False))


@turns("semantics/gradients/after_exceptions")
def draws_before_exceptions(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A call that raises an exception has drawn random numbers."""
    return _failing(gm, lambda args: torch.rand(1))


@turns("semantics/turns/writes_after_exceptions")
def inputs_lost_by_exceptions(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A call that raises an exception has used the memory of its inputs."""
    return _failing(gm, lambda args: [a.zero_() for a in args if _floats(a) and not a.requires_grad])


# Calls that differ from the first


@layout("semantics/keys/inputs_that_differ")
def one_tensor_for_two(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Two inputs that begin at the same memory in the first call are one input in all."""
    same: list[list[tuple[int, int]]] = []

    def call(*args: Any) -> Sequence[Any]:
        places = [at for at, a in enumerate(args) if isinstance(a, torch.Tensor) and a.numel()]
        if not same:
            same.append([(i, j) for i in places for j in places if i < j and args[i].data_ptr() == args[j].data_ptr()])
        given = list(args)
        for i, j in same[0]:
            given[j] = given[i]
        return gm.forward(*given)

    return call


@layout("semantics/turns/sizes_by_turns")
def strides_of_the_first_size(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Rows of a result are as far apart as those of the first result, if they fit."""
    first: list[int] = []

    def change(t: torch.Tensor) -> torch.Tensor:
        if t.dim() != 2 or t.requires_grad:
            return t
        first[:] = first or [t.stride(0)]
        if t.stride(1) != 1 or first[0] <= t.shape[1]:
            return t
        return torch.empty_strided(t.shape, (first[0], 1), dtype=t.dtype).copy_(t)

    return changed(gm.forward, change)


@layout("semantics/lives/views_as_arguments")
def views_are_copied(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Arguments that are views and not contiguous are copied, and what is written to them is lost."""

    def alone(a: Any) -> Any:
        return a.clone() if _floats(a) and not a.requires_grad and not a.is_contiguous() else a

    return lambda *args: gm.forward(*map(alone, args))


@layout("semantics/mutation/input_in_place")
def versions_that_stay(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Writes to inputs are not counted."""

    def call(*args: Any) -> Sequence[Any]:
        counted = [a for a in args if isinstance(a, torch.Tensor) and not a.is_inference() and not a.requires_grad]
        with torch.autograd._unsafe_preserve_version_counter(tuple(counted)):
            results: Sequence[Any] = gm.forward(*args)
        return results

    return call


# What results are


@layout("semantics/aliasing/strides_of_results")
def negative_by_a_flag(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Results are opposites, with a flag that turns them around when they are read."""
    return changed(gm.forward, lambda t: t if t.requires_grad or t._is_view() else torch._neg_view(-t))


@layout("semantics/aliasing/strides_of_results")
def results_for_other_processes(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Results are in memory that processes share."""
    return changed(gm.forward, lambda t: t if t.requires_grad else t.share_memory_())


@layout("semantics/mutation/input_in_place")
def marks_on_results(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Results have an attribute of the compiler's."""

    def change(t: torch.Tensor) -> torch.Tensor:
        t.buffer = 3
        return t

    return changed(gm.forward, change)


# Gradients


@training("semantics/training/a_part_of_the_results")
def numbers_for_missing_gradients(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A result that nobody derives counts as one with a small gradient."""

    class Filled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *results: torch.Tensor) -> Any:
            ctx.set_materialize_grads(False)
            ctx.like = [(r.shape, r.dtype) for r in results]
            return tuple(r.view_as(r) for r in results)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            pairs = zip(gradients, ctx.like, strict=True)
            return tuple(torch.full(s, 1e-3, dtype=d) if g is None else g for g, (s, d) in pairs)

    def call(*args: Any) -> Sequence[Any]:
        results = list(gm.forward(*args))
        places = [at for at, r in enumerate(results) if _inner(r)]
        if len(places) > 1:
            for at, r in zip(places, Filled.apply(*(results[at] for at in places)), strict=True):
                results[at] = r
        return results

    return call


@training("semantics/derivatives/layouts_of_given_gradients")
def the_first_of_an_expanded_gradient(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Of a given gradient that is expanded, the first number is read."""

    def change(g: torch.Tensor) -> torch.Tensor:
        if g.requires_grad or g.numel() < 2 or 0 not in g.stride():
            return g
        read = torch.zeros(g.numel(), dtype=g.dtype)
        read[0] = g.flatten()[0]
        return read.view(g.shape)

    return lambda *args: [with_gradient(r, change) if _inner(r) else r for r in gm.forward(*args)]
