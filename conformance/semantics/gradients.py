"""Gradients of every kind of operator, in every float type, and what else autograd promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ..case import Collection, Trial

case = Collection("semantics/gradients")


def _of_all(trial: Trial, function: Callable[..., Sequence[torch.Tensor]], *given: torch.Tensor) -> Any:
    """Results, and the gradients of all floating-point inputs, each result with other weights."""
    inputs = [x.detach().requires_grad_(x.is_floating_point()) for x in given]
    results = trial.run(function, *inputs)
    ends = [r for r in results if r.requires_grad]
    weights = [torch.linspace(0.5, 1.5, max(r.numel(), 1)).to(r)[: r.numel()].view(r.shape) for r in ends]
    torch.autograd.backward(ends, weights)
    return [r.detach() for r in results], [x.grad for x in inputs]


def _each_alone(trial: Trial, function: Callable[..., torch.Tensor], *given: torch.Tensor) -> Any:
    """Gradients where all inputs need one, and where a single one does: code differs by what is needed."""
    compiled, found = trial.compile(function), []
    for wanted in (None, *range(len(given))):
        inputs = [x.detach().requires_grad_(wanted in (None, place)) for place, x in enumerate(given)]
        result = compiled(*inputs)
        result.square().sum().backward()
        found.append([x.grad for x in inputs])
    return found


@case("training")
def broadcasts(trial: Trial) -> Any:
    """The gradient of an operand that is broadcast, in any dimension, is the sum over the dimensions it lacks."""

    def f(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> list[torch.Tensor]:
        return [a + b, a * c, a - d, a / (c.abs() + 1), b * c, torch.where(a > 0, b, c), torch.lerp(a, b, c), a**2 * d]

    return _of_all(trial, f, trial.tensor(3, 4, 5), trial.tensor(4, 1), trial.tensor(3, 1, 5), trial.tensor())


@case("training")
def several_readers(trial: Trial) -> Any:
    """The gradient of a value that several operators read is the sum of all, views and results among them."""

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        z = x * y
        return [z.sin() + z, z * z, x + x, z[0] * x[1], z.t() @ x, z, x - z.mean()]

    return _of_all(trial, f, trial.tensor(3, 4), trial.tensor(3, 4))


@case("training")
def shapes(trial: Trial) -> Any:
    """Gradients of operators that move data: joins, parts, repetitions, orders, windows."""

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        first, second = x.split([1, 3], 1)
        return [
            torch.cat([x, y, x], 0), torch.stack([x, x * 2], 1), first * second, x.flip(0), x.roll(1, 1),
            x.repeat(2, 1, 1),
            x.expand(2, 3, 4, 5), F.pad(x, (1, -1, 2, 0), value=0.5), x[:, ::2], x[..., 1:-1, None], x.unfold(1, 2, 1),
            x.diagonal(0, 1, 2), x.permute(2, 0, 1).reshape(5, 12), x.tril(), x.unbind(0)[1], x.movedim(0, 2),
            x.repeat_interleave(2, 1), x.chunk(2, 2)[1], x.rot90(1, (0, 1)), x.squeeze().flatten(1),
        ]  # fmt: skip

    return _of_all(trial, f, trial.tensor(3, 4, 5), trial.tensor(2, 4, 5))


@case("training")
def indices(trial: Trial) -> Any:
    """Gradients of reads and writes by index, some of which occur several times."""
    rows = torch.tensor([2, 0, 2, 2], device=trial.device)
    places = torch.tensor([[0, 1, 1], [3, 3, 3], [2, 0, 1], [1, 1, 0]], device=trial.device)
    mask = torch.tensor([[True], [False], [True], [False]], device=trial.device)

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [
            x[rows], x[rows, rows], x.gather(1, places), x.index_select(1, rows), x.take_along_dim(places, 1),
            x.scatter(1, places[:, :1], y[:, :1]), x.scatter_add(1, places, y[:, :3]), x.index_add(0, rows, y),
            x.index_put((rows[:2],), y[:2]), x.index_put((rows,), y, accumulate=True), x.masked_fill(mask, 2.0),
            torch.where(mask, x, y), x.sort(1).values, x.topk(2, 1, largest=False).values, x.max(1).values,
            x.min(0).values, x.kthvalue(2, 1).values, x.median(0).values, x[mask.expand(4, 4)],
        ]  # fmt: skip

    return _of_all(trial, f, trial.tensor(4, 4), trial.tensor(4, 4))


@case("training")
def reductions(trial: Trial) -> Any:
    """Gradients of sums, products, norms, extremes and running sums over any dimension."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            x.sum(), x.sum(0), x.mean((0, 2)), x.var(1), x.std((1, 2), correction=0), x.prod(1), x.norm(), x.norm(1, 2),
            x.logsumexp(0), x.amax((1, 2)), x.amin(0, keepdim=True), x.max(), x.cumsum(1), x.cumprod(2), x.softmax(1),
            x.log_softmax(0), x.norm(float("inf"), 1), x.aminmax(dim=1).max, x.nansum(0), x.logcumsumexp(1),
        ]  # fmt: skip

    return _of_all(trial, f, trial.tensor(3, 4, 5))


@case("training", signs=False)
def ties_and_kinks(trial: Trial) -> Any:
    """Where a derivative is a matter of choice, the choice is eager's: equal extremes, zeros, bounds."""
    x = trial.given(torch.tensor([[2.0, -1.0, 2.0, 0.0], [0.0, -0.0, 0.0, 0.0], [1.0, 0.5, -1.0, 1.0]]))
    y = trial.given(torch.tensor([[2.0, 1.0, -2.0, -0.0], [0.0, 0.0, 1.0, -1.0], [1.0, 0.0, -1.0, 2.0]]))

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        a = x[:2]
        return [
            a.amax(1), a.amin(0), a.amax((0, 1)), a.max(), a.max(1).values, a.median(1).values, torch.maximum(x, y),
            torch.minimum(x, y), torch.fmax(x, y), F.relu(x), F.relu6(x), F.leaky_relu(x), x.abs(), x.sign(), x.round(),
            x.clamp(-1, 1), x.clamp(min=y), F.hardtanh(x), F.threshold(x, 0.0, 0.0), F.elu(x), F.hardshrink(a, 1.0),
            F.softshrink(a, 1.0), F.prelu(x, y[0, :1].abs()), torch.where(x > 0, x, y), x.remainder(1.5), x.floor(),
            F.l1_loss(a, y[:2]), F.smooth_l1_loss(a, y[:2]), F.hardsigmoid(x), F.hardswish(x),
        ]  # fmt: skip

    return _of_all(trial, f, x, y)


def _layers(trial: Trial, dtype: torch.dtype) -> Any:
    """The gradients of layers whose sums are long, with inputs that do not cancel.

    Each weight is used once: of gradients that are rounded before they are added, the order of the sum decides.
    """
    shapes = (1024, 48), (16, 48), (16,), (16,), (16,), (16,), (4,), (3, 8)
    x, *weights = (trial.tensor(*shape, dtype=dtype, low=0.1, high=1.0) for shape in shapes)
    image, kernel = trial.tensor(8, 3, 12, 12, dtype=dtype, low=0.1, high=1.0), trial.tensor(4, 3, 3, 3, dtype=dtype)
    words = torch.arange(1024, device=trial.device) % 3

    def f(*given: torch.Tensor) -> list[torch.Tensor]:
        x, image, weight, bias, scale, shift, factor, level, table, kernel = given
        y = F.linear(x, weight, bias)
        # Not of y: what is rounded there would count most.
        return [
            y, F.layer_norm(x[:, :16], (16,), scale, shift), F.conv2d(image, kernel, level),
            (x[:, :16] * factor).sum(0), F.embedding(words, table) * 0.125,
        ]  # fmt: skip

    # Only of weights: there are few enough of them for one draw of eager's errors to be like another.
    given = [each.detach().requires_grad_() for each in (*weights, kernel)]
    results = trial.run(lambda *weights: f(x, image, *weights), *given)
    torch.autograd.backward(results, [torch.linspace(0.5, 1.5, r.numel()).to(r).view(r.shape) for r in results])
    return [r.detach().float().mean() for r in results], [each.grad for each in given]


@case("training", "bfloat16", terms=1024)
def layers_in_bfloat16(trial: Trial) -> Any:
    """Gradients of weights and biases in bfloat16 are summed over a large batch in a type that is wide enough."""
    return _layers(trial, torch.bfloat16)


@case("training", "float16", terms=1024)
def layers_in_float16(trial: Trial) -> Any:
    """Gradients of weights and biases in float16 are summed over a large batch in a type that is wide enough."""
    return _layers(trial, torch.float16)


@case("training", "float64", reference=False, cancels=True, terms=1024)
def layers_in_float64(trial: Trial) -> Any:
    """Gradients in float64 have the digits of float64."""
    return _layers(trial, torch.float64)


@case("training")
def one_input_at_a_time(trial: Trial) -> Any:
    """Products and convolutions of which only the input, only the weight or only the bias needs a gradient."""
    x, weight, bias = trial.tensor(5, 6), trial.tensor(4, 6), trial.tensor(4)
    image, kernel, shift = trial.tensor(2, 3, 7, 6), trial.tensor(4, 3, 3, 2), trial.tensor(4)
    return (
        _each_alone(trial, lambda x, w, b: F.linear(x, w, b).tanh(), x, weight, bias),
        _each_alone(trial, lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1), image, kernel, shift),
        _each_alone(trial, lambda x, w, b: F.layer_norm(x, (6,), w[0], w[1]) @ w.t() + b, x, weight, bias),
        _each_alone(trial, lambda x, y: torch.bmm(x, y.transpose(1, 2)), trial.tensor(2, 3, 4), trial.tensor(2, 5, 4)),
    )


@case("training")
def layouts(trial: Trial) -> Any:
    """Inputs that are transposed, sliced, expanded or channels last get gradients of the right numbers, as laid out."""
    square, wide = trial.tensor(4, 4), trial.tensor(6, 8)
    image = trial.tensor(2, 3, 4, 5).to(memory_format=torch.channels_last)

    def f(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, e: torch.Tensor) -> list[torch.Tensor]:
        return [
            a @ b,
            F.linear(b, a),
            b.t() @ a,
            c * 2 + c.sum(),
            torch.bmm(d, d.transpose(1, 2)),
            e.relu() * e,
            d.exp(),
        ]

    plain = trial.tensor(4, 4)
    return _of_all(trial, f, plain, square.t(), wide[::2, 1::3], trial.tensor(2, 3, 5).transpose(1, 2), image)


@case("training")
def writes(trial: Trial) -> Any:
    """What a program overwrites gets no gradient, and what it writes gets one."""

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        z, w, v = x * 1, x * 2, x.clone()
        z[1] = y[0]
        w[:, ::2] *= y[:, ::2]
        v[0].copy_(y[1])
        v[1:].add_(x[1:])
        w.relu_()
        return [z, w, v, z.exp(), torch.select_scatter(x, y[0], 0, 2)]

    return _of_all(trial, f, trial.tensor(3, 4), trial.tensor(3, 4))


@case("training")
def products_of_networks(trial: Trial) -> Any:
    """Gradients by ``autograd.grad`` with respect to parameters, hooks on them, and hooks after accumulation."""
    torch.manual_seed(0)
    net, seen = trial.module(torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 2))), []
    compiled, x = trial.compile(net), trial.tensor(3, 5, requires_grad=True)
    parts = torch.autograd.grad(compiled(x).square().sum(), [x, *net.parameters()])

    def doubled(gradient: torch.Tensor) -> torch.Tensor:
        seen.append(("before", gradient.shape))
        return gradient * 2

    handles = [
        net[0].weight.register_hook(doubled),
        net[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(("after", p.grad.sum()))),
        x.register_hook(lambda g: g + 1),
    ]
    compiled(x).sum().backward()
    for handle in handles:
        handle.remove()
    return parts, seen, x.grad, [p.grad for p in net.parameters()]


@case("training")
def equal_gradients(trial: Trial) -> Any:
    """Gradients that are equal have memory of their own: changing one leaves the others."""
    a, b, c = (trial.tensor(3, requires_grad=True) for _ in range(3))
    trial.run(lambda a, b, c: a + b + c, a, b, c).sum().backward()
    with torch.no_grad():
        a.grad.mul_(3)
    return a.grad, b.grad, c.grad


def _kind(action: Callable[[], Any]) -> str:
    """The type of the exception that it raises."""
    try:
        action()
    except Exception as error:
        return type(error).__name__
    return "none"


@case("training")
def what_backward_refuses(trial: Trial) -> Any:
    """A second backward without ``retain_graph``, and one after a saved input was overwritten, raise an exception."""
    compiled = trial.compile(lambda x, y: (x * y).exp())
    x, y = trial.tensor(3, requires_grad=True), trial.tensor(3)
    result = compiled(x, y)
    result.sum().backward()
    again = _kind(lambda: result.sum().backward())
    other = compiled(x, y)
    y.add_(1)
    overwritten = _kind(lambda: other.sum().backward())
    third = compiled(x, y)
    third.sum().backward()
    return again, overwritten, _kind(lambda: compiled(x, y).backward()), x.grad


@case("training")
def saved_before_the_call(trial: Trial) -> Any:
    """A call that only reads its inputs does not disturb the gradient of what was computed from them before."""
    x = trial.tensor(4, requires_grad=True)
    y = x.sin()
    before = y * y
    compiled = trial.compile(lambda y: y.cos() + 1)
    with torch.no_grad():
        seen = compiled(y)
    (before.sum() + compiled(y).sum()).backward()
    return seen, x.grad


@case("training")
def second_derivatives(trial: Trial) -> Any:
    """A gradient of a gradient is right, or the request is refused."""
    x = trial.tensor(4, requires_grad=True)
    y = trial.run(lambda x: (x.tanh() * x**3).sum(), x)
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    return first, second


@case("training", "bfloat16", precision=torch.bfloat16)
def autocast(trial: Trial) -> Any:
    """Under autocast, gradients of float32 parameters are float32, and weights that changed are converted anew."""
    torch.manual_seed(0)
    net = trial.module(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)))
    compiled, x, found = trial.compile(net), trial.tensor(6, 8), []
    for _ in range(2):
        net.zero_grad()
        with torch.autocast(trial.device.type, torch.bfloat16):
            result = compiled(x)
        result.float().square().mean().backward()
        found.append((result.detach(), [p.grad for p in net.parameters()]))
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.mul_(1.5)
            with torch.autocast(trial.device.type, torch.bfloat16):
                found.append(compiled(x))
    return found


@case("training", reference=False)
def dropout_everywhere(trial: Trial) -> Any:
    """Dropout of other shares and shapes scales and drops results and gradients alike, in each of several calls."""
    x, image = trial.tensor(6, 20, requires_grad=True), trial.tensor(2, 5, 3, 3, requires_grad=True)

    def f(x: torch.Tensor, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.dropout(F.dropout(x, 0.2) * 2, 0.7)
        return y, F.dropout2d(image, 0.3), F.dropout(x, 0.0), F.alpha_dropout(x, 0.25, training=True)

    compiled, found = trial.compile(f), []
    torch.manual_seed(5)
    for _ in range(3):
        results = compiled(x, image)
        sum(r.square().sum() for r in results).backward()
        found.append([r.detach() for r in results])
    return found, x.grad, image.grad, torch.rand(2)


@case("training")
def batch_norms(trial: Trial) -> Any:
    """Batch norms of every momentum, with and without statistics and weights, by turns in training and evaluation."""
    torch.manual_seed(0)
    norms = torch.nn.ModuleList(
        [
            torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4, momentum=0.5), torch.nn.BatchNorm1d(4, momentum=None),
            torch.nn.BatchNorm1d(4, affine=False, eps=1e-3), torch.nn.BatchNorm1d(4, track_running_stats=False),
        ]
    )  # fmt: skip
    norms = trial.module(norms)
    x, found, compiled = trial.tensor(6, 4, requires_grad=True), [], [trial.compile(norm) for norm in norms]
    for training in (True, False, True, True, False):
        norms.train(training)
        results = [norm(x * 2 + 1) for norm in compiled]
        sum(((n + 1) * r).square().mean() for n, r in enumerate(results)).backward()
        found.append([r.detach() for r in results])
    return found, x.grad, dict(norms.named_buffers()), {n: p.grad for n, p in norms.named_parameters()}


@case("training")
def after_exceptions(trial: Trial) -> Any:
    """A call that raises an exception changes nothing for the next training step."""
    trial.stops_devices()
    x, y = trial.tensor(3, 4, requires_grad=True), trial.tensor(4, 2)
    compiled = trial.compile(lambda x, i: (x[i] * 2).tanh())
    found = []
    for index in ([0, 2], [0, 7], [1, 2]):
        try:
            result = compiled(x, torch.tensor(index, device=trial.device))
            (result @ y).sum().backward()
            found.append(result.detach())
        except (IndexError, RuntimeError) as error:
            found.append(type(error).__name__)
    return found, x.grad
