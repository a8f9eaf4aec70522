"""Where formulas of gradients meet zeros, ties and writes, and what the engine promises around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from ...case import Collection, Trial
from ..arguments.windows import apart, with_gradients

case = Collection("semantics/derivatives")


@case("training", signs=False)
def at_zeros_and_poles(trial: Trial) -> Any:
    """Gradients at zeros, of norms of nothing, of products with zeros, and nan behind a mask that eager keeps."""
    x = trial.given(torch.tensor([[0.0, 2.0, 0.0, -1.0], [0.0, 0.0, 0.0, 0.0], [1.0, 3.0, 0.0, 2.0]]))
    functions: list[Callable[..., torch.Tensor]] = [
        lambda x, y: torch.where(x > 0, x.log(), 0.0), lambda x, y: torch.where(x > 0, x.abs().sqrt(), x),
        lambda x, y: x.prod(1), lambda x, y: x.cumprod(1), lambda x, y: x.norm(dim=1), lambda x, y: x.norm(),
        lambda x, y: x.std(1), lambda x, y: x**0, lambda x, y: x.abs() ** 1.5, lambda x, y: x**2.0,
        lambda x, y: x.abs() ** y, lambda x, y: torch.atan2(x, y), lambda x, y: x / (x + 1e-30),
        lambda x, y: x * (x > 0), lambda x, y: x.sign() * x, lambda x, y: torch.hypot(x, y), lambda x, y: x.clamp(0, 1),
        lambda x, y: x.relu().sqrt() * 0, lambda x, y: x.masked_fill(x == 0, 1).log(), lambda x, y: x.log1p(),
        lambda x, y: torch.xlogy(x, x.abs() + 1), lambda x, y: x.softmax(1).log(), lambda x, y: F.normalize(x, dim=1),
        lambda x, y: F.cosine_similarity(x, y, 1), lambda x, y: x.pow(3),
        lambda x, y: torch.linalg.vector_norm(x, 1, 1), lambda x, y: torch.linalg.vector_norm(x, 3, 1),
        lambda x, y: x.frac(), lambda x, y: x.amax(1), lambda x, y: x.sinc(), lambda x, y: x.prod(),
        lambda x, y: x.sqrt(), lambda x, y: x.rsqrt(), lambda x, y: x.asin(), lambda x, y: x.relu() ** 0.5,
    ]  # fmt: skip
    return apart(trial, functions, x, trial.tensor(3, 4))


@case("training")
def sums_of_what_was_written(trial: Trial) -> Any:
    """What is replaced gets no gradient, also if only a sum of it is used: the gradient is broadcast, and then cut."""

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        z = x * 1
        z[:, 0] = y[:, 0]
        w = x + 0
        w[1:, ::2].mul_(2)
        v = x.clone()
        v.view(-1)[::3] = 0
        u = torch.ones_like(x)
        u[:, 0].copy_(y[:, 1])
        u[:, 1] += x[:, 2].abs()
        return [
            torch.slice_scatter(x, y[:, :2], 1, 0, 2).sum(1), torch.slice_scatter(x, y[:1], 0, 2, 3).sum(), z.sum(1),
            z.sum(),
            torch.diagonal_scatter(x, y[0], 0).sum(), torch.select_scatter(x, y[0], 0, 1).sum(0), w.sum(0), v.sum(),
            u.sum(0),
            x.masked_fill(x > 0, 0).sum(), x.index_fill(1, torch.tensor([0, 2], device=x.device), 1.0).sum(1), u,
            x.scatter(1, torch.tensor([[0], [1], [1], [3]], device=x.device), y[:, :1]).mean(0), x.tril().sum(1),
            x.expand(3, 4, 4).sum(0),
            x.chunk(2)[0].sum(0) + x.chunk(2)[1].mean(0), F.pad(x, (1, -1)).sum(1), x.unfold(1, 2, 1).sum((0, 2)),
        ]  # fmt: skip

    return with_gradients(trial, f, trial.tensor(4, 4), trial.tensor(4, 4))


@case("training")
def writes_to_inputs(trial: Trial) -> Any:
    """Writes to inputs that are part of a graph: what the caller computed before and afterwards gets its gradient."""
    leaf = trial.tensor(4, requires_grad=True)

    def f(x: torch.Tensor, base: torch.Tensor) -> tuple[torch.Tensor, ...]:
        before = x.detach().clone()
        x.mul_(3)
        base[1:].add_(x[:3])
        return x.sin(), before, base * x

    x, base = leaf * 2, leaf * leaf
    view = base[2:]
    results = trial.run(f, x, base)
    (sum(r.sum() for r in results) + x.sum() + view.square().sum()).backward()
    return [r.detach() for r in results], x.detach(), view.detach(), leaf.grad


@case("training")
def around_the_engine(trial: Trial) -> Any:
    """Gradients of results and inputs between, hooks on them, weights that are views, several ends, and none at all."""
    x, y = trial.tensor(3, 4, requires_grad=True), trial.tensor(4, requires_grad=True)
    unused, seen = trial.tensor(2, requires_grad=True), []
    compiled = trial.compile(lambda x, y, z: (x * y, (x + y).sum(0), x.detach() * 2, (x > 0).sum(), y[:2]))
    a, b, c, d, e = compiled(x, y, unused)
    a.retain_grad()

    def thrice(gradient: torch.Tensor) -> torch.Tensor:
        seen.append(gradient.clone())
        return gradient * 3

    b.register_hook(thrice)
    torch.autograd.backward([a, b], [trial.tensor(1, 4).expand(3, 4), trial.tensor(8)[::2]], retain_graph=True)
    ends = [trial.tensor(4), trial.tensor(2)]
    parts = [g if g is None else g.clone(memory_format=torch.contiguous_format)  # its layout is not promised
             for g in torch.autograd.grad([b, e], [x, y, unused], ends, allow_unused=True)]  # fmt: skip
    kept = x.grad
    e.sum().backward()
    compiled(x, y, unused)[1].square().sum().backward()
    same, x.grad = kept is x.grad, None
    compiled(x, y, unused)[0].mean().backward(inputs=[x])
    return a.grad, seen, parts, same, x.grad, y.grad, unused.grad, [r.requires_grad for r in (a, b, c, d, e)]


@case("training")
def layouts_of_given_gradients(trial: Trial) -> Any:
    """Gradients that the caller gives for results are transposed, sliced, expanded, or begin anywhere in memory; they
    stay what they are."""
    x, y = trial.tensor(3, 4, requires_grad=True), trial.tensor(3, 4, requires_grad=True)
    compiled, found = trial.compile(lambda x, y: (x * y, (x + y * 2).t(), (x - y).sum(0), x.exp())), []
    wide = trial.tensor(6, 8)
    given = (
        (wide[:3, :4], wide[:4, :3], wide[0, :4], wide[3:, 4:]), (wide.t()[:3, :4], wide[:3, :4].t(), wide[:4, 1],
        wide[1:4, ::2]),
        (wide[0, :4].expand(3, 4), wide[:4, :1].expand(4, 3), wide[0, 0].expand(4), wide[:3, :1].expand(3, 4)),
        (wide[1::2, ::2], wide[:4, ::3], wide[0, ::2], wide.view(-1)[5:17].view(3, 4)),
    )  # fmt: skip
    for weights in given:
        found += torch.autograd.grad(compiled(x, y), [x, y], weights)
        found += torch.autograd.grad(compiled(x, y)[1], [x, y], weights[1])
    return wide, [g.clone(memory_format=torch.contiguous_format) for g in found]  # the layout is not promised


@case("training")
def gradients_of_gradients(trial: Trial) -> Any:
    """A penalty on a gradient trains a network, a Hessian times a vector, a third derivative, or a refusal."""
    torch.manual_seed(0)
    net = trial.module(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Softplus(), torch.nn.Linear(4, 1)))
    compiled, x = trial.compile(net), trial.tensor(5, 3, requires_grad=True)
    (first,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    (first.norm(dim=1) - 1).square().mean().backward()
    y = trial.tensor(4, requires_grad=True)
    value = trial.run(lambda y: (y.sin() * y**3).sum(), y)
    (one,) = torch.autograd.grad(value, y, create_graph=True)
    (two,) = torch.autograd.grad(one, y, trial.tensor(4), create_graph=True)
    (three,) = torch.autograd.grad(two.sum(), y)
    return first.detach(), [p.grad for p in net.parameters()], one.detach(), two.detach(), three


class _Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, limit: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.limit = limit
        return x.clamp(-limit, limit)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return gradient * (1 + x.abs()) * ctx.limit, None


@case("training")
def own_formulas(trial: Trial) -> Any:
    """Functions with a backward of their own, parts that are computed again, and parts without gradients."""
    weight = trial.tensor(4, 4, requires_grad=True)

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        part = checkpoint(lambda a: (a @ weight).tanh() * a, x, use_reentrant=False)
        with torch.no_grad():
            scale = y.exp()
        straight = y + (y.round() - y).detach()
        return [_Clipped.apply(x, 0.5), part, x * scale, straight * x, _Clipped.apply(y * 2, 2.0).sum(0)]

    return with_gradients(trial, f, trial.tensor(3, 4), trial.tensor(3, 4)), weight.grad


@case("training", "complex64")
def complex_numbers(trial: Trial) -> Any:
    """Gradients of complex numbers are conjugated as in eager, or refused."""
    x = trial.tensor(4, requires_grad=True)
    z = torch.complex(trial.tensor(4), trial.tensor(4)).requires_grad_()
    results = trial.run(lambda x, z: ((z * x).abs(), (z.conj() * z).real, (z * (1 + 2j)).imag, torch.angle(z)), x, z)
    sum(r.sum() for r in results).backward()
    return [r.detach() for r in results], x.grad, z.grad


@case("training")
def second_derivatives_of_each_kind(trial: Trial) -> Any:
    """Second derivatives of what is broadcast, summed, multiplied, normalized, selected, joined or pooled."""
    index = torch.tensor([2, 0, 2], device=trial.device)

    def f(x: torch.Tensor, v: torch.Tensor, image: torch.Tensor) -> list[torch.Tensor]:
        return [
            x * v, x / (v * v + 1), x @ x.t(), F.linear(x, x, x[:, 0]), x.softmax(1), x.log_softmax(0), x.var(0),
            x.prod(1),
            F.layer_norm(x, (3,), v, v), x.norm(dim=1), x.logsumexp(0), x.cumsum(0) ** 2, x[index] ** 2,
            x.sigmoid() * v,
            x.index_select(1, index) ** 3, torch.cat([x, x * v]) ** 2, F.gelu(x), F.silu(x), F.softplus(x),
            x.mean(0) ** 2,
            F.conv2d(image, image[:, :, :2, :2]), F.avg_pool2d(image, 2) ** 2, torch.where(x > 0, x * v, x**3),
        ]  # fmt: skip

    given = [trial.tensor(3, 3), trial.tensor(3), trial.tensor(2, 2, 4, 4)]
    inputs = [t.detach().requires_grad_() for t in given]
    results = trial.run(f, *inputs)
    found = []
    for number, result in enumerate(results):
        weight = torch.linspace(0.5, 1.5, result.numel()).to(result).view(result.shape)
        first = torch.autograd.grad(result, inputs, weight, create_graph=True, retain_graph=True, allow_unused=True)
        ends = [(g * g.detach().cos()).sum() for g in first if g is not None and g.requires_grad]
        found.append(
            (number, torch.autograd.grad(ends, inputs, retain_graph=True, allow_unused=True) if ends else None)
        )
    return found
