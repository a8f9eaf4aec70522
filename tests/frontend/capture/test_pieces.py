"""Graphs that are compiled in pieces: where they are split, and that results and gradients stay those of eager."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import torchmux
from torchmux import torch_internals as ti

SIZE = 16
LAYER = SIZE * SIZE * 4  # bytes of its weight


class Layers(nn.Module):
    """Four layers, between which ``between`` does something."""

    def __init__(self, between=lambda x, at: x):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(SIZE, SIZE) for _ in range(4))
        self.between = between

    def forward(self, x):
        for at, layer in enumerate(self.layers):
            x = self.between(layer(x), at)
        return x


@pytest.fixture
def split(monkeypatch):
    """As within a ``DistributedDataParallel`` of a module, whose buckets take a layer each."""

    def within(module, limit=LAYER):
        told = ti.Buckets(frozenset(map(id, module.parameters())), limit, limit, 0, 2)
        monkeypatch.setattr(ti, "buckets_of_running_ddp", lambda: told)

    return within


def pieces(compiled):
    notes = [note for entry in torchmux.report(compiled).graphs for note in entry.report.notes]
    return [int(note.split()[2]) for note in notes if note.startswith("split into")]


def step(run, module, x):
    module.zero_grad(set_to_none=True)
    x = x.clone().requires_grad_()
    torch.manual_seed(1)
    results = run(x)
    results = results if isinstance(results, tuple) else (results,)
    results[0].float().square().mean().backward()
    left = [*results, x.grad, *(p.grad for p in module.parameters()), *module.buffers()]
    return [None if each is None else each.detach().clone() for each in left]


def agree(module, split, *, number, backend="aot_eager", sizes=(3, 3), limit=LAYER, **options):
    """The module trains as in eager; ``number`` is how many pieces its graph has, 1 if it stays whole."""
    twin = copy.deepcopy(module)
    split(module, limit)
    compiled = torchmux.compile(module, backend=backend, fullgraph=True, **options)
    for size in sizes:
        x = torch.randn(size, SIZE)
        torch.testing.assert_close(step(compiled, module, x), step(twin, twin, x), equal_nan=True)
    found = pieces(compiled)
    assert set(found) == ({number} if number > 1 else set()), found
    return compiled


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_a_piece_for_each_bucket(split, backend):
    compiled = agree(Layers(lambda x, at: x.relu()), split, number=4, backend=backend)
    report = torchmux.report(compiled).graphs[0].report
    nodes = list(torchmux.report(compiled).graphs[0].graph.graph.nodes)
    for placement in report.placements:
        if placement.origin is not None and "relu" in placement.op:
            assert "relu" in str(nodes[placement.origin].target)
    assert report.partitions == 8
    assert report.seconds["AOT"] > 0
    assert report.output_code


def test_eager_and_inference_stay_whole(split):
    agree(Layers(), split, number=1, backend="eager")
    module = Layers()
    split(module)
    compiled = torchmux.compile(module, backend="aot_eager")
    with torch.no_grad():
        compiled(torch.ones(2, SIZE))
    assert pieces(compiled) == []
    with torchmux.config.patch(split_at_ddp_buckets=False):
        agree(Layers(), split, number=1)


def test_sizes_that_change(split):
    agree(Layers(lambda x, at: x.reshape(x.shape[0], -1).relu() * x.shape[0]), split, number=4, sizes=(2, 3, 5, 7))


def test_random_numbers(split):
    agree(Layers(lambda x, at: nn.functional.dropout(x, 0.5)), split, number=4)


def test_equal_layers_are_one_artifact(split):
    """The search for a place prefers that between two layers, where all pieces are equal."""
    report = torchmux.report(agree(Layers(lambda x, at: x.tanh().sin().cos()), split, number=4, backend="native"))
    assert report.graphs[0].report.cache_hits == 6  # three of four equal pieces, forward and backward


class Writes(Layers):
    """Adds in place to what an earlier layer has made."""

    def forward(self, x):
        first = self.layers[0](x)
        part = first[:, :4]
        second = self.layers[1](first.detach().clone())
        part += 1
        return self.layers[3](self.layers[2](second) + first)


class Dead(Layers):
    """The last layers lead to no loss, so their parameters get no gradients."""

    def forward(self, x):
        first = self.layers[1](self.layers[0](x)).relu()
        second = self.layers[2](first).relu()
        third = self.layers[3](second).relu()
        third.sin()
        return first.sum(), second


class Shared(Layers):
    """The first layer is used again at the end."""

    def forward(self, x):
        for layer in (*self.layers, self.layers[0]):
            x = layer(x).relu()
        return x


class Halves(Layers):
    """What one layer has made is passed on in two parts, which are views."""

    def forward(self, x):
        left, right = self.layers[0](x).chunk(2, -1)
        x = self.layers[1](torch.cat([right, left], -1))
        return self.layers[3](self.layers[2](x) + torch.cat([left, right], -1))


class Switches(Layers):
    """Sets grad mode and autocast in the middle."""

    def forward(self, x):
        x = self.layers[0](x)
        with torch.no_grad():
            scale = self.layers[1](x).mean()
        with torch.autocast("cpu", torch.bfloat16):
            x = self.layers[2](x)
        return self.layers[3](x.float() * scale)


class Statistics(nn.Module):
    """Running statistics are written in each piece."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(SIZE, SIZE) for _ in range(4))
        self.norms = nn.ModuleList(nn.BatchNorm1d(SIZE) for _ in range(4))

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(layer(x)).relu_()
        return x


@pytest.mark.parametrize(
    ("program", "number"),
    [(Writes, 3), (Dead, 4), (Shared, 4), (Halves, 3), (Switches, 4), (Statistics, 4)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_programs(program, number, split):
    agree(program(), split, number=number)


def test_verified(split):
    with torchmux.config.patch(verify_correctness=True):
        agree(Layers(lambda x, at: x.relu()), split, number=4)
