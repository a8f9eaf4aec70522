"""Optimizers: compiled steps and whole training steps give eager's parameters and state over five steps."""

import pytest
import torch
from torch import nn

from .worlds import BACKENDS, check_graphs, check_same, feature, features_of

STEPS = 5
# A compiler computes with the count of steps in a tensor, where eager and its backend compute with Python's numbers.
COMPILED = {"close": 1e-5, "exact": ("eager",)}


def model():
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))


def steps_compiled(make, change=lambda optimizer, step: None):
    """Only ``optimizer.step`` is compiled."""
    module = model()
    optimizer = make(module.parameters())

    def step():
        optimizer.step()

    for number in range(STEPS):
        optimizer.zero_grad()
        module(torch.randn(2, 4)).square().sum().backward()
        yield step, ()
        change(optimizer, number)
    yield list(module.parameters())


def bound_step_compiled(make):
    """``optimizer.step`` itself is what is compiled."""
    module = model()
    optimizer = make(module.parameters())
    step = optimizer.step
    for _ in range(STEPS):
        optimizer.zero_grad()
        module(torch.randn(2, 4)).square().sum().backward()
        yield step, ()
    yield list(module.parameters())


def training_compiled(make, more=lambda module: None):
    """The whole training step is compiled, with ``backward``."""
    module = model()
    optimizer = make(module.parameters())

    def train(x):
        optimizer.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        more(module)
        optimizer.step()
        return loss.detach()

    for _ in range(STEPS):
        yield train, (torch.randn(2, 4),)
    yield list(module.parameters())


@feature()
def sgd():
    yield from steps_compiled(lambda p: torch.optim.SGD(p, lr=0.1))


@feature()
def sgd_with_momentum():
    yield from steps_compiled(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01))


@feature()
def sgd_with_nesterov():
    yield from steps_compiled(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, foreach=True))


@feature(**COMPILED)
def adam():
    yield from steps_compiled(lambda p: torch.optim.Adam(p, lr=0.01))


@feature(**COMPILED)
def adam_one_by_one():
    yield from steps_compiled(lambda p: torch.optim.Adam(p, lr=0.01, foreach=False, weight_decay=0.1, amsgrad=True))


@feature(**COMPILED)
def adam_capturable():
    yield from steps_compiled(lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01), foreach=False, capturable=False))


@feature(**COMPILED)
def adamw():
    yield from steps_compiled(lambda p: torch.optim.AdamW(p, lr=0.01))


@feature(**COMPILED)
def adamw_foreach():
    yield from steps_compiled(lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True))


@feature()
def bound_step():
    yield from bound_step_compiled(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))


@feature(**COMPILED)
def bound_step_of_adam():
    yield from bound_step_compiled(lambda p: torch.optim.Adam(p, lr=0.1))


@feature(**COMPILED)
def other_optimizers():
    yield from steps_compiled(lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5))


@feature(**COMPILED)
def adagrad():
    yield from steps_compiled(lambda p: torch.optim.Adagrad(p, lr=0.01))


@feature(**COMPILED)
def parameter_groups():
    def make(parameters):
        first, second, *others = parameters
        return torch.optim.AdamW(
            [{"params": [first], "lr": 0.1}, {"params": [second, *others], "weight_decay": 0.0}], lr=0.01
        )

    yield from steps_compiled(make)


@feature()
def learning_rate_is_changed():
    def change(optimizer, step):
        optimizer.param_groups[0]["lr"] = 0.1 / (step + 2)

    yield from steps_compiled(lambda p: torch.optim.SGD(p, lr=0.1), change)


@feature(**COMPILED)
def learning_rate_is_a_tensor():
    def change(optimizer, step):
        optimizer.param_groups[0]["lr"].mul_(0.5)

    yield from steps_compiled(lambda p: torch.optim.SGD(p, lr=torch.tensor(0.1)), change)


@feature(**COMPILED)
def scheduler():
    module = model()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

    def step():
        optimizer.step()

    for _ in range(STEPS):
        optimizer.zero_grad()
        module(torch.randn(2, 4)).square().sum().backward()
        yield step, ()
        scheduler.step()
    yield list(module.parameters())
    yield optimizer.param_groups[0]["lr"]


@feature()
def training_step_with_sgd():
    yield from training_compiled(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))


@feature(**COMPILED)
def training_step_with_adam():
    yield from training_compiled(lambda p: torch.optim.Adam(p, lr=0.01))


@feature(**COMPILED)
def training_step_with_clipping():
    def clip(module):
        torch.nn.utils.clip_grad_norm_(module.parameters(), 0.1)

    yield from training_compiled(lambda p: torch.optim.AdamW(p, lr=0.01), clip)


@feature()
def gradients_clipped():
    module = model()

    def run():
        return torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)

    for _ in range(2):
        module.zero_grad()
        module(torch.randn(2, 4)).square().sum().backward()
        yield run, ()
        yield [p.grad for p in module.parameters()]


@feature()
def gradients_clipped_by_value():
    module = model()

    def run():
        torch.nn.utils.clip_grad_value_(module.parameters(), 0.1)

    module(torch.randn(2, 4)).square().sum().backward()
    yield run, ()
    yield [p.grad for p in module.parameters()]


@feature()
def gradients_set_to_none():
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    def run():
        optimizer.zero_grad(set_to_none=True)

    for _ in range(2):
        module(torch.randn(2, 4)).square().sum().backward()
        yield run, ()
        yield [p.grad for p in module.parameters()]


@feature()
def gradients_set_to_zero():
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    def run():
        optimizer.zero_grad(set_to_none=False)

    for _ in range(2):
        module(torch.randn(2, 4)).square().sum().backward()
        yield run, ()
        yield [p.grad for p in module.parameters()]


@feature(**COMPILED)
def step_with_a_missing_gradient():
    module = model()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)

    def step():
        optimizer.step()

    module(torch.randn(2, 4)).sum().backward()
    module[0].weight.grad = None
    yield step, ()
    module(torch.randn(2, 4)).sum().backward()
    yield step, ()
    yield list(module.parameters())


@feature()
def parameters_averaged():
    module, average = model(), model()

    def update():
        with torch.no_grad():
            for mine, theirs in zip(average.parameters(), module.parameters(), strict=True):
                mine.lerp_(theirs, 0.1)

    yield update, ()
    yield update, ()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", features_of(__name__))
def test_optimizers_are_as_in_eager(name, backend):
    check_same(__name__, name, backend)


@pytest.mark.slow
@pytest.mark.parametrize("name", features_of(__name__))
def test_optimizers_take_no_more_graphs(name):
    check_graphs(__name__, name)
