"""Gradients."""

from __future__ import annotations

from typing import Any

import torch

from ..case import Collection, Trial

case = Collection("semantics/training")


def _network(trial: Trial) -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 3)
    return trial.module(torch.nn.Sequential(*layers))


def _gradients(module: torch.nn.Module) -> dict[str, Any]:
    return {name: p.grad for name, p in module.named_parameters()}


@case("training")
def one_step(trial: Trial) -> Any:
    """Results and gradients of parameters and input."""
    net, x = _network(trial), trial.tensor(4, 6, requires_grad=True)
    y = trial.run(net, x)
    y.square().mean().backward()
    return y, x.grad, _gradients(net)


@case("training")
def steps_of_an_optimizer(trial: Trial) -> Any:
    """Five steps of SGD with momentum."""
    net = _network(trial)
    compiled = trial.compile(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = compiled(trial.tensor(4, 6)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, list(net.parameters())


@case("training")
def accumulated_gradients(trial: Trial) -> Any:
    """Several forward passes before their backward passes, with gradients that accumulate."""
    net = _network(trial)
    compiled = trial.compile(net)
    losses = [compiled(trial.tensor(4, 6)).square().mean() for _ in range(3)]
    for loss in losses:
        loss.backward()
    return _gradients(net)


@case("training")
def frozen_parameters(trial: Trial) -> Any:
    """Parameters that require no gradient get none."""
    net = _network(trial)
    net[0].requires_grad_(False)
    trial.run(net, trial.tensor(4, 6)).sum().backward()
    return _gradients(net)


@case("training")
def some_results_need_none(trial: Trial) -> Any:
    """Results that do not depend on parameters, detached results and integers require no gradient."""
    x = trial.tensor(4, requires_grad=True)
    plain = trial.tensor(4)
    results = trial.run(lambda x, y: (x * y, y + 1, (x * 2).detach(), x.argmax(), x > 0), x, plain)
    results[0].sum().backward()
    return results, x.grad


@case("training")
def a_backward_twice(trial: Trial) -> Any:
    """``retain_graph`` lets backward run twice."""
    x = trial.tensor(4, requires_grad=True)
    y = trial.run(lambda x: (x.sin() * x).sum(), x)
    y.backward(retain_graph=True)
    y.backward()
    return x.grad


@case("training")
def a_part_of_the_results(trial: Trial) -> Any:
    """Backward from one of several results."""
    x, y = trial.tensor(4, requires_grad=True), trial.tensor(4, requires_grad=True)
    a, b = trial.run(lambda x, y: (x.exp(), y * 3), x, y)
    b.sum().backward()
    return a, x.grad, y.grad


@case("training")
def beside_an_infinite_derivative(trial: Trial) -> Any:
    """A result that is not differentiated adds nothing to gradients, even where its derivative is infinite."""
    x, y = torch.zeros(3, device=trial.device), trial.tensor(3, requires_grad=True)
    x = (x.double() if trial.wide else x).requires_grad_()
    root, product = trial.run(lambda x, y: (x.sqrt(), x * y), x, y)
    product.sum().backward()
    return root, product, x.grad, y.grad


@case("training")
def gradients_by_function(trial: Trial) -> Any:
    """``torch.autograd.grad`` with an input that is used several times, and shared weights."""
    x = trial.tensor(3, 3, requires_grad=True)
    y = trial.run(lambda x: (x @ x.t() + x).relu(), x)
    return torch.autograd.grad(y, x, torch.ones_like(y))


@case("training")
def convolutions(trial: Trial) -> Any:
    """A convolution with stride and groups, batch norm and pooling, in training."""
    torch.manual_seed(0)
    layers = (
        torch.nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
        torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(8, 3),
    )  # fmt: skip
    net = trial.module(torch.nn.Sequential(*layers))
    y = trial.run(net, trial.tensor(3, 4, 4, 4))
    y.square().sum().backward()
    return y, _gradients(net), dict(net.named_buffers())


@case("training")
def attention(trial: Trial) -> Any:
    """Attention with a mask, and a cross entropy."""
    torch.manual_seed(0)
    layer = trial.module(torch.nn.MultiheadAttention(8, 2, batch_first=True))
    mask = trial.given(torch.eye(5).bool().flip(0))
    mask[:, 0] = False
    target = trial.tensor(2, 5, dtype=torch.int64, low=0, high=8)

    def f(x: torch.Tensor) -> torch.Tensor:
        y, _ = layer(x, x, x, attn_mask=mask, need_weights=False)
        return torch.nn.functional.cross_entropy(y.flatten(0, 1), target.flatten())

    loss = trial.run(f, trial.tensor(2, 5, 8))
    loss.backward()
    return loss, _gradients(layer)


@case("training")
def embeddings(trial: Trial) -> Any:
    """The gradient of an embedding accumulates rows that were looked up twice."""
    torch.manual_seed(0)
    table = trial.module(torch.nn.Embedding(10, 4, padding_idx=0))
    words = torch.tensor([[1, 2, 2], [0, 9, 1]], device=trial.device)
    y = trial.run(lambda w: table(w).square().sum(), words)
    y.backward()
    return y, table.weight.grad


@case("training")
def tied_weights(trial: Trial) -> Any:
    """The gradient of a parameter that two layers share is the sum of both, and both see each step of an optimizer."""
    torch.manual_seed(0)
    model = trial.module(torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Tanh(), torch.nn.Linear(4, 10)))
    model[2].weight = model[0].weight
    words, optimizer = (
        torch.tensor([[1, 2, 2], [0, 9, 1]], device=trial.device),
        torch.optim.SGD(model.parameters(), 0.1),
    )
    compiled, results = trial.compile(model), []
    for _ in range(3):
        results.append(compiled(words))
        optimizer.zero_grad()
        results[-1].square().mean().backward()
        optimizer.step()
    return results, model[2].weight is model[0].weight, _gradients(model), list(model.parameters())


@case("training")
def tensors_in_the_program(trial: Trial) -> Any:
    """Tensors that the function creates from numbers are constants, also in training."""
    x, weight = trial.tensor(2, 3, requires_grad=True), trial.tensor(3, 2, requires_grad=True)

    def f(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        scaled = x * torch.tensor([1.0, 2.0, 3.0], dtype=x.dtype, device=x.device)
        return torch.where(x > 0, scaled, torch.tensor(-0.5, dtype=x.dtype)) @ weight

    result = trial.run(f, x, weight)
    result.square().sum().backward()
    return result, x.grad, weight.grad


@case("training")
def large_layers(trial: Trial) -> Any:
    """Results and gradients of layers whose products are large enough for specialized code."""
    layers = trial.module(torch.nn.Sequential(torch.nn.Linear(160, 130), torch.nn.GELU(), torch.nn.Linear(130, 90)))
    x = trial.tensor(100, 160)
    result = trial.run(layers, x)
    result.square().mean().backward()
    return result, _gradients(layers)
