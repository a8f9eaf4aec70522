"""Where a graph is cut, and that its pieces compute what it computes."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchmux
from torchmux.multiplexer.parcel import pack
from torchmux.multiplexer.sharing import segments
from torchmux.multiplexer.trial import Trials


def packed(function, *inputs, training=False):
    """The captured graph of a call as a parcel, the graph that a worker makes of it, and what makes its inputs."""
    found = []

    def keep(gm, example_inputs):
        found.append((gm, example_inputs))
        return gm.forward

    with torch.set_grad_enabled(training):
        torchmux.compile(function, backend=keep, fullgraph=True)(*inputs)
    ((gm, example_inputs),) = found
    parcel = pack(gm, example_inputs, training=training, static_inputs=(), strict=False)
    trials = Trials(parcel)
    return parcel, parcel.graph(trials.real), functools.partial(trials.inputs, "call")


def run_all(parcel, gm, inputs, cuts):
    """The pieces as parcels, with what each returns."""
    with torch.set_grad_enabled(parcel.training):
        made = list(segments.pieces(parcel, gm, inputs(), cuts))
        return [(p, list(p.graph(p.real_inputs()).forward(*p.real_inputs()))) for p in made]


def holds(values, wanted):
    return any(v.shape == wanted.shape and torch.allclose(v, wanted, equal_nan=True) for v in values)


def check(function, *inputs, training=False, most=12):
    """Cut, and check that each piece takes what the ones before it give, and that the last ones give the results."""
    parcel, gm, fresh = packed(function, *inputs, training=training)
    cuts = segments.cut(gm, fresh, most)
    assert cuts[0].first == 0 and cuts[-1].last == len(gm.graph.nodes)
    assert all(a.last == b.first for a, b in itertools.pairwise(cuts))
    assert len(cuts) <= most
    given = list(parcel.inputs)
    for piece, outputs in run_all(parcel, gm, fresh, cuts):
        assert all(holds(given, value) for value in piece.inputs)
        given += [value.detach() for value in outputs]
    for value in gm.forward(*fresh()):
        assert holds(given, value.detach())
    return parcel, gm, cuts


def kinds(cuts):
    return [each.kind for each in cuts]


BIG, WEIGHT = torch.randn(512, 256), torch.randn(256, 256) / 16


def test_it_is_cut_where_the_kind_of_operator_changes() -> None:
    def f(x, weight):
        x = F.linear(F.linear(x, weight), weight)
        x = x.tanh().erfinv().sin().exp().tanh().erfinv().sin()
        return F.linear(F.linear(x, weight), weight)

    _, _, cuts = check(f, BIG, WEIGHT)
    assert kinds(cuts) == ["matrix product", "elementwise", "matrix product"]
    assert [each.passed for each in cuts] == [BIG.numel() * 4, BIG.numel() * 4, 0]
    _, _, cuts = check(f, BIG, WEIGHT, most=2)
    assert len(cuts) == 2


def test_what_is_all_alike_stays_whole() -> None:
    _, gm, fresh = packed(lambda x: x.sin().cos().exp().tanh(), BIG)
    with pytest.raises(segments.Whole, match="all of it is of one kind"):
        segments.cut(gm, fresh, 12)


def test_a_value_that_is_no_tensor_does_not_pass_a_cut() -> None:
    def f(x, weight):
        left, right = torch.split(F.linear(x, weight), 128, dim=1)
        return left.sin() + right.erfinv().cos()

    _, gm, cuts = check(f, BIG, WEIGHT)
    nodes = list(gm.graph.nodes)
    for each in cuts[:-1]:
        assert "split" not in nodes[each.last - 1].name


def test_writes_stay_with_all_that_uses_the_same_memory() -> None:
    def f(x, weight, total):
        y = F.linear(x, weight)
        view = y[:256]
        y = y.sin().cos().erfinv().tanh()
        total.add_(view.sum(0))
        view.mul_(2)
        z = F.linear(view, weight)
        z = F.linear(z, weight)
        return torch.cat([z, z * 2, z * 3], 1).sort(1)[0], y

    _, gm, cuts = check(f, BIG, WEIGHT, torch.zeros(256))
    names = [node.name for node in gm.graph.nodes]
    first, last = (next(i for i, n in enumerate(names) if word in n) for word in ("linear", "mul"))
    assert not any(first < each.last <= last for each in cuts[:-1])


def test_training_with_buffers_and_random_numbers() -> None:
    net = nn.Sequential(nn.Linear(256, 256), nn.BatchNorm1d(256), nn.Tanh(), nn.Dropout(0.5), nn.Linear(256, 64))
    before = {name: value.clone() for name, value in net.state_dict().items()}

    def f(x):
        return net(x).erfinv().clamp(-1, 1).erfinv().sum()

    parcel, gm, fresh = packed(f, BIG, training=True)
    after = {name: value.clone() for name, value in net.state_dict().items()}
    assert not torch.equal(before["1.running_mean"], after["1.running_mean"])
    cuts = segments.cut(gm, fresh, 12)
    assert len(cuts) > 1
    for piece, outputs in run_all(parcel, gm, fresh, cuts):
        assert any(value.requires_grad for value in piece.real_inputs() if isinstance(value, torch.Tensor))
        assert any(value.requires_grad for value in outputs)


def test_a_change_of_settings_along_the_way_keeps_it_whole() -> None:
    def f(x, weight):
        x = F.linear(x, weight)
        with torch.no_grad():
            y = x.sin().erfinv()
        return (x + y).exp()

    _, gm, fresh = packed(f, BIG, WEIGHT.clone().requires_grad_(), training=True)
    with torch.enable_grad(), pytest.raises(segments.Whole, match="it changes settings of torch along the way"):
        segments.cut(gm, fresh, 12)
