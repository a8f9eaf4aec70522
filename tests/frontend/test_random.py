"""Random numbers: what eager gives under the same seed, and the same state of the generators afterwards."""

import random

import numpy as np
import pytest
import torch

import torchmux

from .snippets.corpus import tensor
from .worlds import BACKENDS, check_graphs, check_same, feature, features_of


@feature()
def factories(x):
    return (
        torch.rand(3),
        torch.randn(2, 2),
        torch.randint(0, 10, (4,)),
        torch.randperm(5),
        torch.rand_like(x),
        torch.randn_like(x),
        torch.randint_like(x, 5),
    )


@feature()
def distributions_of_tensors(x):
    p = x.sigmoid()
    return (
        torch.bernoulli(p),
        torch.multinomial(p, 2),
        torch.normal(x, 1.0),
        torch.poisson(p),
        torch.normal(0.0, 1.0, (2,)),
        p.bernoulli(),
    )


@feature()
def in_place_methods(x):
    y = torch.empty(3)
    return (
        y.uniform_(),
        torch.empty(3).normal_(),
        torch.empty(3).exponential_(),
        torch.empty(3).bernoulli_(0.5),
        torch.empty(2).random_(3),
        torch.empty(2).cauchy_(),
        torch.empty(2).geometric_(0.5),
        torch.empty(2).log_normal_(),
    )


@feature()
def dropout(x):
    f = torch.nn.functional
    return (
        f.dropout(x, 0.5),
        f.dropout(x, 0.5, training=False),
        f.alpha_dropout(x, 0.5, True),
        f.dropout1d(x, 0.5),
        f.rrelu(x, training=True),
        f.gumbel_softmax(x),
    )


@feature()
def dropout_is_trained():
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))

    def run(x):
        return module(x)

    yield run, (tensor(),)
    yield run, (tensor(),)


@feature()
def random_numbers_in_control_flow(x):
    for i in range(3):
        x = x + torch.rand(4) * i
    return x, torch.rand(1)


@feature()
def seeded_inside(x):
    torch.manual_seed(3)
    return torch.rand(3) + x[0, 0], torch.initial_seed()


@feature()
def state_forked(x):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        y = torch.rand(3)
    return y, torch.rand(3), x + 1


@feature()
def state_saved_and_restored(x):
    state = torch.get_rng_state()
    y = torch.rand(3)
    torch.set_rng_state(state)
    return y, torch.rand(3), x + 1


@feature()
def generators_from_outside():
    generator = torch.Generator().manual_seed(2)

    def run(x):
        return torch.rand(3, generator=generator) + x[0, 0], torch.randperm(4, generator=generator)

    yield run, (tensor(),)
    yield run, (tensor(),)
    generator.manual_seed(9)
    yield run, (tensor(),)


@feature()
def generators_as_arguments():
    def run(x, generator):
        return torch.bernoulli(x.sigmoid(), generator=generator), x.clone().uniform_(generator=generator)

    yield run, (tensor(), torch.Generator().manual_seed(2))
    yield run, (tensor(), torch.Generator().manual_seed(3))
    yield run, (tensor(), None)


@feature()
def generators_made_inside(x):
    generator = torch.Generator()
    generator.manual_seed(4)
    return torch.rand(3, generator=generator) + x[0, 0]


@feature()
def numbers_of_python(x):
    return x * random.random(), random.randint(0, 9), random.choice([1, 2, 3]), random.uniform(0, 1) * x


@feature()
def seeded_in_python(x):
    random.seed(3)
    return x * random.random()


@feature()
def floats_of_python():
    """Drawn ahead of the graph in the program's order, also those that nothing uses."""
    dice = random.Random(5)

    def run(x):
        first, _, last = random.uniform(2, 3), dice.gauss(0.0, 1.0), random.random()
        y = x * first + dice.random() - dice.expovariate(1.5) / 2
        torch._dynamo.graph_break()
        if x.sum() > 1e9:
            raise ValueError("too much")
        return y * last, first, torch.tensor(last), random.random(), dice.random()

    yield run, (tensor(),)
    yield run, (tensor(),)


@feature()
def generator_of_python():
    generator = random.Random(3)

    def run(x):
        return x * generator.random()

    yield run, (tensor(),)
    yield run, (tensor(),)


@feature()
def integers_of_python():
    """Drawn ahead of the graph as well, within their bounds; sizes, places in tensors and factors follow from them."""
    dice = random.Random(5)

    def run(x):
        number, step, bits = random.randint(2, 5), random.randrange(-8, 8, 3), dice.getrandbits(4)
        begin = dice.randint(0, 1)
        y = x * number + step - bits
        return y[begin : begin + 2], torch.zeros(number) + x[0, 0], number, step, dice.random(), torch.tensor([bits])

    yield run, (tensor(),)
    yield run, (tensor(),)


@feature()
def chosen_by_python(x):
    """The branch ends the graph, but what was drawn ahead of it is drawn once."""
    if random.random() < 0.5:
        x = x + random.randint(1, 3)
    if random.randint(0, 1):
        x = x * 2
    return x, random.random(), torch.tensor([random.random(), 2.0, random.uniform(1, 2)])


@feature()
def refused_by_python(x):
    """What the generator refuses is refused where the program asks, and nothing is drawn for it."""
    for ask in (lambda: random.randint(3, 1), lambda: random.expovariate(0.0), lambda: random.randrange(0)):
        try:
            x = x * ask()
        except (ValueError, ZeroDivisionError) as error:
            x = x + len(str(error))
    return x, random.random()


@feature(more="NumPy's generator is asked between graphs")
def numbers_of_numpy():
    np.random.seed(0)

    def run(x):
        return x * np.random.rand(), torch.from_numpy(np.random.rand(3)) * 2

    yield run, (tensor(),)
    yield run, (tensor(),)


@feature()
def distributions(x):
    normal = torch.distributions.Normal(x, 1.0)
    return normal.sample(), normal.log_prob(x), normal.rsample((2,))


@feature()
def categorical_distribution(x):
    chosen = torch.distributions.Categorical(logits=x)
    return chosen.sample(), chosen.entropy()


@feature()
def initialized(x):
    w = torch.empty(4, 4)
    torch.nn.init.kaiming_uniform_(w)
    return (
        x @ w,
        torch.nn.init.normal_(torch.empty(3)),
        torch.nn.init.orthogonal_(torch.empty(3, 3)),
        torch.nn.init.trunc_normal_(torch.empty(3)),
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", features_of(__name__))
def test_random_numbers_are_as_in_eager(name, backend):
    check_same(__name__, name, backend)


@pytest.mark.slow
@pytest.mark.parametrize("name", features_of(__name__))
def test_random_numbers_take_no_more_graphs(name):
    check_graphs(__name__, name)


def test_what_python_draws_is_in_the_graph():
    def augment(x):
        begin = random.randint(0, 2)
        return x[begin : begin + 2] * random.uniform(0, 1) + random.randrange(5)

    compiled = torchmux.compile(augment, backend="eager", fullgraph=True)
    for seed in range(12):
        random.seed(seed)
        expected = augment(torch.arange(4.0))
        random.seed(seed)
        assert torch.equal(compiled(torch.arange(4.0)), expected)
    assert torchmux.report(compiled).graph_count == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
def test_dropout_of_everything_draws_nothing(backend):
    def everything(x):
        return torch.nn.functional.dropout(x, 1.0, True), torch.rand(2)

    compiled = torchmux.compile(everything, backend=backend)
    torch.manual_seed(3)
    expected = (*everything(torch.ones(4)), torch.rand(1))
    torch.manual_seed(3)
    found = (*compiled(torch.ones(4)), torch.rand(1))
    assert all(map(torch.equal, found, expected))
