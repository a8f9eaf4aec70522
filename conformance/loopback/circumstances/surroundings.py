"""Faults around calls: what looks on, what stays, what others registered, and what is not refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ...outcome import Outcome
from ..kit import Faults, Run

process = Faults("process")
turns = Faults("turns")
checks = Faults("numerics")

_BY_TURNS = "life/calls/nothing_is_kept_by_turns"
_REFUSED = "semantics/indices/numbers_that_are_refused"
_OF_OTHERS = "semantics/use/operators_of_others"
_LOOKING_ON = "semantics/modes/contexts_that_look_on"


# What stays


@process(_BY_TURNS)
def memory_for_each_size(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Each new size of an input has a plan of two megabytes, which is never released."""
    plans: dict[Any, torch.Tensor] = {}

    def call(*args: Any) -> Sequence[Any]:
        sizes = tuple(a.shape for a in args if isinstance(a, torch.Tensor))
        plans.setdefault(sizes, torch.ones(1 << 19))
        return gm.forward(*args)

    return call


@process(_BY_TURNS)
def memory_for_each_thread(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Each thread that calls has two megabytes, also after it has ended."""
    memories: dict[Any, torch.Tensor] = {}

    def call(*args: Any) -> Sequence[Any]:
        memories.setdefault(threading.current_thread(), torch.ones(1 << 19))
        return gm.forward(*args)

    return call


@process(_BY_TURNS)
def saved_until_a_backward_pass(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """What is saved for gradients is released by a backward pass only."""
    saved: list[Any] = []

    def call(*args: Any) -> Sequence[Any]:
        results = gm.forward(*args)
        for result in results:
            if isinstance(result, torch.Tensor) and result.requires_grad:
                saved.append(result.detach().clone())
                result.register_hook(lambda g: saved.clear())
        return results

    return call


_models: list[Any] = []


@process("life/calls/nothing_is_kept_of_models")
def models_that_stay(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """What was compiled is listed for good, with the weights that it reads."""
    _models.append([i for i in inputs if isinstance(i, torch.Tensor)])
    return gm.forward


@process("life/calls/nothing_runs_between_calls")
def threads_that_look_for_work(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A thread looks for work all the time."""
    ends = time.monotonic() + 5

    def look() -> None:
        while time.monotonic() < ends:
            pass

    threading.Thread(target=look, daemon=True).start()
    return gm.forward


@turns("semantics/aliasing/results_outlive_the_next_call")
def one_memory_for_large_results(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Large results of all calls are written to one memory."""
    memory: dict[Any, torch.Tensor] = {}

    def kept(at: int, result: Any) -> Any:
        if not isinstance(result, torch.Tensor) or result.requires_grad or result.numel() < 50_000:
            return result
        return memory.setdefault((at, result.shape), torch.empty_like(result)).copy_(result).view_as(result)

    return lambda *args: [kept(at, result) for at, result in enumerate(gm.forward(*args))]


# What looks on


@turns(_LOOKING_ON, Outcome.CRASH)
def no_profiles(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Code does not run under a profiler."""

    def call(*args: Any) -> Sequence[Any]:
        if torch.autograd._profiler_enabled():
            raise RuntimeError("this code is not profiled")
        return gm.forward(*args)

    return call


# Operators of others


def _noted(change: Callable[..., Any]) -> Callable[[GraphModule, Sequence[Any]], Run]:
    """A fault in operators that a library registered: the function gets the operator, and their arguments."""

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        class Others(torch.fx.Interpreter):
            def run_node(self, node: torch.fx.Node) -> Any:
                if "torchmux_conformance" not in str(node.target):
                    return super().run_node(node)
                args, keywords = self.fetch_args_kwargs_from_env(node)
                return change(node.target, *args, **keywords)

        return lambda *args: Others(gm).run(*args)

    compile.__name__, compile.__doc__ = change.__name__, change.__doc__
    turns(_OF_OTHERS)(compile)
    return compile


@_noted
def others_run_twice(operator: Any, *args: Any, **keywords: Any) -> Any:
    """An operator of a library runs once more to find the shape of its result."""
    operator(*args, **keywords)
    return operator(*args, **keywords)


_results: dict[Any, Any] = {}


@_noted
def others_run_once(operator: Any, x: torch.Tensor, *args: Any) -> Any:
    """An operator of a library runs in the first call, and its result is kept."""
    key = (x.shape, args)
    if key not in _results:
        _results[key] = operator(x, *args)
    return _results[key].detach() + (x - x.detach()) * 3


@_noted
def others_do_not_learn(operator: Any, x: torch.Tensor, *args: Any) -> Any:
    """The gradient of an operator of a library is that of the identity."""
    return operator(x.detach(), *args) + (x - x.detach())


# What is not refused


@checks.instead(_REFUSED, "binary_cross_entropy")
def any_number_is_a_probability(x: torch.Tensor, target: torch.Tensor, **named: Any) -> torch.Tensor:
    """The loss of probabilities takes any number for one."""
    return torch.nn.functional.binary_cross_entropy(x.clamp(0, 1), target.clamp(0, 1), **named)


@checks.instead(_REFUSED, "bernoulli")
def draws_by_any_share(x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Draws by a share that is negative or above one are draws by the nearest one."""
    return torch.bernoulli(x.clamp(0, 1), *rest, **named)


@checks.instead(_REFUSED, "one_hot")
def classes_beyond_the_last(classes: torch.Tensor, number: int = -1) -> torch.Tensor:
    """A class that is out of range has no place."""
    number = number if number > 0 else int(classes.max()) + 1
    return (classes[..., None] == torch.arange(number)).long()


@checks.instead(_REFUSED, "masked_scatter")
def places_without_a_source(x: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """What is written where a mask is True begins again if there is too little of it."""
    enough = source.reshape(-1).repeat(int(mask.sum()) // max(source.numel(), 1) + 1)
    return x.masked_scatter(mask, enough)


@checks.instead(_REFUSED, "linalg_inv")
def inverses_of_anything(x: torch.Tensor) -> torch.Tensor:
    """The inverse of a matrix that has none is infinite."""
    return torch.linalg.inv_ex(x).inverse


@checks.instead(_REFUSED, "take")
def places_that_wrap_around(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Places in a whole tensor wrap around at its end."""
    return x.take(index % x.numel())


@checks.instead(_REFUSED, "repeat_interleave")
def negative_repetitions(x: torch.Tensor, times: Any, *rest: Any) -> torch.Tensor:
    """A negative number of repetitions is none."""
    return x.repeat_interleave(times.clamp(min=0) if isinstance(times, torch.Tensor) else times, *rest)


@checks.instead(_REFUSED, "pow")
def negative_powers_of_integers(a: Any, b: Any) -> Any:
    """Negative powers of integers are zero."""
    whole = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and not a.is_floating_point()
    return torch.where(b < 0, 0, a ** b.clamp(min=0)) if whole else a**b
