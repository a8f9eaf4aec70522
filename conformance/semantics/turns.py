"""What depends on the calls before, on what the caller changes in between, and on exceptions."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import torch
import torch.nn.functional as F

from ..case import Collection, Trial
from ..judging.calls import plain

case = Collection("semantics/turns")


@case()
def inputs_written_in_between(trial: Trial) -> Any:
    """A call reads its inputs anew: also those that were written to in place, through ``.data`` or through NumPy."""
    x, compiled, found = trial.tensor(4), trial.compile(lambda x, y: x * y + x.sum()), []
    y = trial.tensor(4)
    for change in (lambda: None, lambda: x.add_(1), lambda: x.data.mul_(3), lambda: y.cpu().numpy().fill(2.0),
                   lambda: x.set_(trial.tensor(4)), lambda: y.copy_(x)):  # fmt: skip
        with torch.no_grad():
            change()
        found.append(compiled(x, y))
    return found


@case()
def tensors_closed_over(trial: Trial) -> Any:
    """Tensors, numbers and lists that a function closes over are read in each call, whatever happened to them."""
    table, state = trial.tensor(3), {"scale": 2.0, "tensor": trial.tensor(3), "list": [trial.tensor(3)]}
    compiled = trial.compile(lambda x: x * table + state["tensor"] * state["scale"] + state["list"][0])
    x, found = trial.tensor(3), []
    found.append(compiled(x))
    table.add_(5)
    found.append(compiled(x))
    state["scale"] = 3.0
    found.append(compiled(x))
    state["tensor"] = trial.tensor(3)
    found.append(compiled(x))
    state["list"][0] = state["list"][0] * 2
    found.append(compiled(x))
    table.data.zero_()
    found.append(compiled(x))
    return found


@case()
def each_of_several_calls(trial: Trial) -> Any:
    """The first, the second and the third call, with other numbers each, in inference mode and out of it; numbers that
    are not finite end with their call, and what the caller handles is the caller's."""
    compiled, found = trial.compile(lambda x: (x.exp() + 1, x.sum(0), x.t() @ x)), []
    for number in range(7):
        x = trial.tensor(3, 4)
        if number == 4:
            x[1] = float("nan")
        elif number == 5:
            x[0, 2] = float("inf")
        with torch.inference_mode(number in (2, 3)):
            found.append([r.clone() for r in compiled(x)])
    try:
        raise ValueError
    except ValueError:
        return found, compiled(trial.tensor(3, 4))


@case("dynamic_shapes")
def sizes_that_part(trial: Trial) -> Any:
    """Sizes that are equal, even or a whole number of vectors at first, and are not later."""
    square = trial.compile(
        lambda x, y: (x.sum(0) / x.shape[0], x.mean(1), x @ x.t(), torch.cat([x, y], 0)), dynamic=True
    )
    even = trial.compile(lambda x: (x * 2, x.softmax(-1), x.sum(0), x.flip(-1)), dynamic=True)
    sizes = ((6, 6), (6, 6)), ((5, 6), (8, 6)), ((9, 3), (2, 3)), ((7, 7), (2, 7)), ((4, 11), (5, 11))
    widths = (64, 63, 16, 17, 128, 100, 8, 1, 31)
    return [square(trial.tensor(*a), trial.tensor(*b)) for a, b in sizes], [even(trial.tensor(3, n)) for n in widths]


@case("dynamic_shapes", "training")
def layers_of_any_size(trial: Trial) -> Any:
    """Norms, pooling, losses, products and attention over sizes that change, and their gradients."""
    torch.manual_seed(0)
    conv, norm = trial.module(torch.nn.Conv2d(2, 4, 3, padding=1)), trial.module(torch.nn.LayerNorm(4))

    def f(x: torch.Tensor) -> torch.Tensor:
        y = F.avg_pool2d(conv(x).relu(), 2).flatten(2).transpose(1, 2)
        z = F.scaled_dot_product_attention(norm(y), y, y)
        target = torch.zeros(z.shape[0] * z.shape[1], dtype=torch.int64, device=x.device)
        return F.cross_entropy(z.flatten(0, 1), target) + z.var() + (z - z.mean((0, 1))).abs().mean()

    compiled, found = trial.compile(f, dynamic=True), []
    for batch, height, width in ((2, 8, 8), (3, 5, 10), (1, 7, 4)):
        x = trial.tensor(batch, 2, height, width, requires_grad=True)
        loss = compiled(x)
        loss.backward()
        found.append((loss.detach(), x.grad))
    return found, [p.grad for p in (*conv.parameters(), *norm.parameters())]


@case("dynamic_shapes")
def numbers_that_change(trial: Trial) -> Any:
    """Integers that change from call to call may be negative, zero, one, or larger than 32 bits."""
    compiled = trial.compile(lambda x, n: (x * n, x + n, n - x, (x > n).sum(), n * 2), dynamic=True)
    parts = trial.compile(lambda x, n: (x[:n], x.roll(n), x[n:] + n), dynamic=True)
    x = trial.tensor(6)
    numbers = (3, 5, -2, 0, 7, 1, -1, 2**40)
    return [compiled(x, n) for n in numbers], [parts(x, n) for n in (2, 4, -1, 0, 6, 1)]


@case()
def compiled_again(trial: Trial) -> Any:
    """A program that is compiled once more, alone, after ``reset`` or beside its twin, is the same program."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.tanh() * 3).cumsum(0)

    x = trial.tensor(5)
    first = trial.compile(f)
    found = [first(x), trial.compile(f)(x), first(x)]
    trial.reset()
    return [*found, first(x), trial.compile(lambda x: (x.tanh() * 3).cumsum(0))(x)]


@case()
def nothing_is_kept_of_failures(trial: Trial) -> Any:
    """A call that raises an exception keeps nothing of what it got, and the next call is right."""
    trial.stops_devices()
    compiled, alive, found = trial.compile(lambda x, i: x[i] * 2), [], []
    for index in ([0, 1], [9], [2], [-9], [1]):
        x = trial.tensor(4, 3)
        try:
            found.append(compiled(x, torch.tensor(index, device=trial.device)))
        except (IndexError, RuntimeError) as error:
            found.append(type(error).__name__)
            alive.append(weakref.ref(x))
        del x
    gc.collect()
    return found, sum(each() is not None for each in alive)


@case()
def warnings_of_operators(trial: Trial) -> Any:
    """What eager warns of in Python, compiled code warns of as well: in operators, and by the program itself."""
    x, y = trial.tensor(3, 1), trial.tensor(3)

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.mse_loss(x, y), F.softmax(y), F.l1_loss(x, y)

    def g(x: torch.Tensor) -> torch.Tensor:
        warnings.warn("numbers may be small", stacklevel=2)
        return x * 2

    return trial.run(f, x, y), trial.run(g, x)


@case("dynamic_shapes")
def sizes_by_turns(trial: Trial) -> Any:
    """Sizes that come back find what was made for them, not what was made for those in between."""
    table = trial.tensor(12, 6)

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        rows = x.shape[0]
        return [x.sin() * rows, x.sum(0), x @ x.t(), table[:rows] + x, x.flip(0), torch.arange(rows, device=x.device)]

    compiled = trial.compile(f, dynamic=True)
    return [compiled(trial.tensor(n, 6)) for n in (5, 9, 5, 9, 3, 5, 12, 3, 9, 9, 5)]


@case(reference=False)
def writes_after_exceptions(trial: Trial) -> Any:
    """What a program would write after the operator that raises an exception is not written, and later calls write."""
    trial.stops_devices()

    def f(x: torch.Tensor, y: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        z = x.index_select(0, index) * 2
        x.add_(1)
        y.mul_(3).sub_(z)
        return z

    compiled, x, y, found = trial.compile(f), trial.tensor(4), trial.tensor(4), []
    for index in (1, 9, 2, -7, 0):
        try:
            found.append(compiled(x, y, torch.tensor([index], device=trial.device)))
        except (IndexError, RuntimeError) as error:
            found.append(type(error).__name__)
        found += [x.clone(), y.clone()]
    return found


@case("training")
def after_each_backward(trial: Trial) -> Any:
    """Results and gradients of calls that come after a backward pass, with other numbers, or without gradients."""
    weight = trial.tensor(4, 4, requires_grad=True)
    compiled, found = trial.compile(lambda x, w: ((x @ w).tanh() * x.sum(1, keepdim=True), (x * 2).sum(0))), []
    for number in range(4):
        x = trial.tensor(3, 4, requires_grad=number != 2)
        with torch.set_grad_enabled(number != 3):
            results = compiled(x, weight)
        if number != 3:
            torch.autograd.backward(next(r for r in results if r.requires_grad), trial.tensor(3, 4))
        found.append((*(r.detach().clone() for r in results), None if x.grad is None else x.grad.clone()))
        with torch.no_grad():
            found.append(tuple(r.clone() for r in compiled(x.detach() + 1, weight)))
    return found, weight.grad


@case("dynamic_shapes")
def sizes_with_one_product(trial: Trial) -> Any:
    """Code for any size tells sizes apart that have as many elements together."""
    compiled = trial.compile(lambda x: (x * 2, x.sum(0), x.t() + 1, x.softmax(1)), dynamic=True)
    return [compiled(trial.tensor(*size)) for size in ((2, 6), (3, 4), (4, 3), (6, 2), (2, 6))]


@torch.library.custom_op("torchmux_conformance::interrupted", mutates_args=())
def _interrupted(x: torch.Tensor) -> torch.Tensor:
    if _interrupts:
        raise _interrupts.pop()
    return x * 2


_interrupts: list[BaseException] = []


@_interrupted.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class _OfTheProgram(Exception):
    pass


@case(reference=False)
def interrupts(trial: Trial) -> Any:
    """Ctrl-C, an exit and an exception of the program's own end a call, as they are; the next call is right."""
    compiled, x, found = trial.compile(lambda x: _interrupted(x.sin()) + 1), trial.tensor(5), []
    found.append(compiled(x))
    for error in (KeyboardInterrupt(), SystemExit(3), _OfTheProgram("a", 1), StopIteration()):
        _interrupts[:] = [error]
        try:
            found.append(compiled(x))
        except BaseException as raised:
            found.append((type(raised).__name__, [str(each) for each in raised.args], len(_interrupts)))
        _interrupts.clear()
        found.append(compiled(x))
    return found


@case("dynamic_shapes", "training")
def steps_of_several_sizes(trial: Trial) -> Any:
    """Backward passes use the sizes of their own calls, however many calls of other sizes come in between."""
    compiled = trial.compile(
        lambda x, w: (((x @ w).tanh() / x.shape[0]).cumsum(0), x.mean(0) * x.shape[0], F.pad(x, (1, 2)).amax(1)),
        dynamic=True,
    )
    weight, found = trial.tensor(4, 3, requires_grad=True), []
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        given = [trial.tensor(rows, 4, requires_grad=True) for rows in (5, 9, 3)]
        ends = [sum((n + 1) * r.square().sum() for n, r in enumerate(compiled(x, weight))) for x in given]
        for place in order:
            ends[place].backward()
        found += [x.grad for x in given]
    return found, weight.grad


@case("dynamic_shapes", terms=2100)
def sizes_far_apart(trial: Trial) -> Any:
    """Code for any size is right for sizes that are hundreds of times those of its first call, and for these again."""

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows, columns = x.shape
        return (
            x.sum(0), x.softmax(-1), x @ y, torch.cat([x, x * 2]), x.t() + 1, x.amax(1), x.reshape(-1)[::7],
            torch.arange(rows, device=x.device) * columns, x.flip(0), F.pad(x, (1, 1)), x.var(1), x > x.mean(),
        )  # fmt: skip

    compiled = trial.compile(f, dynamic=True)
    sizes = (3, 5), (700, 33), (4, 1300), (2051, 6), (3, 5)
    return [compiled(trial.tensor(*size), trial.tensor(size[1], 4)) for size in sizes]


_within: list[Any] = []


@torch.library.custom_op("torchmux_conformance::within", mutates_args=())
def _calls(x: torch.Tensor) -> torch.Tensor:
    return _within[0](x) + 0


@_calls.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@case("training")
def calls_inside_of_calls(trial: Trial) -> Any:
    """Compiled code may be called by other compiled code, by hooks of gradients, by hooks of modules and by operators
    that run in it."""
    inner = plain(trial.compile(lambda x: x.sin() * 2))  # what records calls is no part of the program
    outer = trial.compile(lambda x, w: (inner(x) @ w).tanh() + inner(x.t()).sum(0, keepdim=True)[:, :1])
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    torch.manual_seed(0)
    net = trial.module(net)
    net[0].register_forward_hook(lambda module, args, result: inner(result))
    hooked, found, around = trial.compile(net), [], trial.compile(lambda x: _calls(x.cos()) + 1)
    _within[:] = [inner]
    for _ in range(3):
        x, w = trial.tensor(4, 4, requires_grad=True), trial.tensor(4, 4, requires_grad=True)
        result = outer(x, w)
        result.register_hook(lambda g: found.append(inner(g.detach())))
        result.square().sum().backward()
        found.extend((result.detach(), x.grad, w.grad, hooked(x.detach()).detach(), around(x.detach())))
    return found
