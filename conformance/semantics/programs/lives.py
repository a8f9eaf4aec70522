"""How long inputs, results and gradients live, and which thread may ask for them."""

from __future__ import annotations

import gc
import math
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

from ...case import Collection, Trial

case = Collection("semantics/lives")


@case()
def results_outlive_their_code(trial: Trial) -> Any:
    """Results stay right after the function that made them is dropped, and after ``reset``."""
    x = trial.tensor(6, 5)
    kept = [trial.once(lambda x, n=number: ((x * n).sin(), x.sum(0) + n), x) for number in range(3)]
    trial.collect()
    before = [[r.clone() for r in results] for results in kept]
    trial.reset()
    trial.collect()
    again = trial.run(lambda x: (x.cos(), x.sum(0) - 1), x)
    return kept, before, again


@case("training")
def gradients_outlive_their_code(trial: Trial) -> Any:
    """A backward pass is right after the function whose results it begins at is dropped, and after ``reset``."""
    given = [trial.tensor(4, 3, requires_grad=True) for _ in range(3)]
    ends = [trial.run(lambda x: (x / 3).exp(), given[0])]
    ends += [trial.once(lambda x, n=number: (x * n / 3).exp(), x) for number, x in enumerate(given[1:], 1)]
    trial.collect()
    ends[0].sum().backward()
    trial.reset()
    trial.collect()
    ends[1].sum().backward()
    ends[2].backward(trial.tensor(4, 3))
    return [x.grad for x in given]


@case("training")
def gradients_outlive_the_next(trial: Trial) -> Any:
    """Gradients that a program keeps are not those of later backward passes, whoever asked for them."""
    compiled, weight, found = trial.compile(lambda x, w: (x @ w).sin()), trial.tensor(4, 3, requires_grad=True), []
    for _ in range(4):
        x = trial.tensor(5, 4, requires_grad=True)
        found.append(torch.autograd.grad(compiled(x, weight).square().sum(), (x, weight)))
    for _ in range(3):
        x = trial.tensor(5, 4, requires_grad=True)
        inner = x * 2
        inner.register_hook(found.append)
        compiled(inner, weight).sum().backward()
    return found


@case("training")
def backward_in_another_thread(trial: Trial) -> Any:
    """A thread may compute the gradients of what another one called."""
    compiled = trial.compile(lambda x, w: (x @ w).sin() * x.sum(1, keepdim=True))
    x, weight = trial.tensor(5, 4, requires_grad=True), trial.tensor(4, 3, requires_grad=True)
    for _ in range(2):
        result = compiled(x, weight)
        _in_threads([result.square().sum().backward])
    return x.grad, weight.grad


@case("training")
def first_calls_at_once(trial: Trial) -> Any:
    """Threads that call a function at the same time, before anybody has called it, each get their own results."""
    compiled = trial.compile(lambda x, w: ((x @ w).softmax(-1), x.cumsum(0) * 2))
    weight, given = trial.tensor(8, 6), [trial.tensor(7, 8, requires_grad=place == 0) for place in range(4)]
    found: list[Any] = [None] * len(given)

    def work(place: int) -> Callable[[], None]:
        def run() -> None:
            results = compiled(given[place], weight)
            if given[place].requires_grad:
                (results[0].square().sum() + results[1].sum()).backward()
            found[place] = [r.detach() for r in results]

        return run

    _in_threads([work(place) for place in range(len(given))])
    return found, given[0].grad


@case("training")
def results_outlive_their_thread(trial: Trial) -> Any:
    """What a thread computed is right after the thread has ended, and while others compute the same; so are gradients
    of what it called."""
    compiled = trial.compile(lambda x, w: ((x @ w).sin(), x.sum(0), x * 2))
    weight, given = trial.tensor(6, 5, requires_grad=True), [trial.tensor(7, 6) for _ in range(6)]
    found: list[Any] = [None] * len(given)

    def work(place: int) -> Callable[[], None]:
        def run() -> None:
            found[place] = compiled(given[place], weight)

        return run

    for place in range(len(given)):  # one after another: the next one may get the memory of the one before it
        _in_threads([work(place)])
    trial.collect()
    sum(results[0].square().sum() for results in found).backward()
    return [[r.detach() for r in results] for results in found], weight.grad


def _in_threads(works: list[Callable[[], None]]) -> None:
    """Run these at the same time; an exception in one is raised here."""
    start, errors = threading.Barrier(len(works)), []

    def run(work: Callable[[], None]) -> None:
        start.wait()
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@case()
def nothing_waits_for_the_collector(trial: Trial) -> Any:
    """What a call gets and returns is released when the program drops it, not by the next call or collection."""
    compiled, alive = trial.compile(lambda x, y: ((x * y).sum(0), x.softmax(1))), []
    gc.disable()
    try:
        for _ in range(4):
            arrays = [trial.tensor(6, 8).cpu().numpy() for _ in range(2)]  # a tensor holds the array that it is made of
            x, y = (torch.from_numpy(array).to(trial.device) for array in arrays)
            results = compiled(x, y)
            kept = [weakref.ref(each) for each in (x, y, *results, *arrays)]
            del x, y, results, arrays
            alive.append([each() is not None for each in kept])
    finally:
        gc.enable()
    return alive[1:]


@case("dynamic_shapes")
def floats_that_change(trial: Trial) -> Any:
    """Floats that change from call to call keep all their digits, their sign, and what is no number."""
    compiled = trial.compile(lambda x, y, f: (x * f, x + f, y * f, y - f, x / f if f else x, x > f), dynamic=True)
    x, y = trial.tensor(5), trial.tensor(5, dtype=torch.float64)
    numbers = (0.1, 1 / 3, 2.5, -0.0, 0.0, 16777217.0, 1e300, -1e-300, math.inf, -math.inf, math.nan, 1.0, 3.0)
    return [compiled(x, y, number) for number in numbers]


@case()
def views_as_arguments(trial: Trial) -> Any:
    """What a program writes to an argument that is a view is in the tensor that it is a view of."""

    def f(part: torch.Tensor, turned: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
        part.mul_(2)
        turned.add_(part.sum())
        wide[0, 0] = 7.0
        return part.sum() + turned.sum() + wide.sum()

    compiled, found = trial.compile(f), []
    for begin in (0, 1, 2):
        x, y, z = trial.tensor(6, 4), trial.tensor(3, 5), trial.tensor(24)
        result = compiled(x[begin : begin + 3, ::2], y.t()[1:4], z.view(2, 3, 4)[begin % 2])
        found.append((result, x, y, z))
    return found
