"""Regions and modules that a program pins to a backend."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchmux
from torchmux.registry import Availability


def placed(compiled):
    return {p.op.split(".")[1]: p.placed_on for p in torchmux.report(compiled).placements}


def test_a_region_goes_to_its_backend(picky) -> None:
    picky("one"), picky("two")

    def f(x):
        y = x.sin()
        with torchmux.use_backend("two"):
            y = y.cos().exp()
            with torchmux.use_backend("one"):
                y = y.sinh()
        return y.tanh()

    x = torch.randn(4)
    for backend in (["one"], "one"):
        compiled = torchmux.compile(f, backend=backend, strict=True)
        assert torch.equal(compiled(x), f(x))
        assert placed(compiled) == {"sin": "one", "cos": "two", "exp": "two", "sinh": "one", "tanh": "one"}
        torchmux.reset()


def test_as_a_decorator_of_a_method_and_of_a_function(picky) -> None:
    picky("one"), picky("two")

    @torchmux.use_backend("two")
    def helper(x):
        return x.exp()

    class Block(nn.Module):
        @torchmux.use_backend("two")
        def forward(self, x):
            return x.cos()

    block = Block()

    def f(x):
        return helper(block(x.sin())).tanh()

    compiled, x = torchmux.compile(f, backend="one", fullgraph=True), torch.randn(4)
    assert torch.equal(compiled(x), f(x))
    assert placed(compiled) == {"sin": "one", "cos": "two", "exp": "two", "tanh": "one"}
    compiled = torchmux.compile(block, backend="one")
    assert torch.equal(compiled(x), block(x))
    assert placed(compiled) == {"cos": "two"}


def test_the_backward_pass_goes_with_its_region(picky) -> None:
    picky("one"), picky("two")

    def f(x):
        with torchmux.use_backend("two"):
            y = x.cos()
        return y.sin()

    x = torch.randn(4, requires_grad=True)
    compiled = torchmux.compile(f, backend="one")
    compiled(x).sum().backward()
    report = torchmux.report(compiled).graphs[0].report
    assert {p.placed_on for p in report.placements} == {"one", "two"}
    assert {p.pin for p in report.placements if p.placed_on == "two"} == {"two"}
    torch.testing.assert_close(x.grad, torch.autograd.grad(f(x).sum(), x)[0])


def test_a_region_around_a_graph_break_holds_on_both_sides(picky) -> None:
    picky("one"), picky("two")

    def f(x):
        y = x.sin()
        with torchmux.use_backend("two"):
            y = y.cos()
            torchmux.graph_break()
            y = y.exp()
        return y.tanh()

    compiled, x = torchmux.compile(f, backend="one"), torch.randn(4)
    for _ in range(2):
        assert torch.equal(compiled(x), f(x))
    assert placed(compiled) == {"sin": "one", "cos": "two", "exp": "two", "tanh": "one"}


def test_a_function_is_compiled_for_each_region_that_calls_it(picky) -> None:
    picky("one"), picky("two")

    @torchmux.disable(recursive=False)
    def outer(inner, x):
        y = inner(x)
        with torchmux.use_backend("two"):
            return inner(y)

    def inner(x):
        return x.cos() + x.sin()

    compiled, x = torchmux.compile(outer, backend="one"), torch.randn(4)
    for _ in range(2):
        assert torch.equal(compiled(inner, x), outer(inner, x))
    entries = torchmux.report(compiled).graphs
    assert [({p.placed_on for p in e.report.placements}, e.calls) for e in entries] == [({"one"}, 2), ({"two"}, 2)]


def test_what_the_pinned_backend_does_not_take_falls_to_the_chain(picky) -> None:
    picky("one"), picky("two", no="cos")
    picky("gone", probe=lambda: Availability(False, "no such chip"))

    def f(x):
        with torchmux.use_backend("two"):
            y = x.cos().sin()
        with torchmux.use_backend("gone"):
            return y.exp()

    x = torch.randn(4)
    compiled = torchmux.compile(f, backend="one")
    assert torch.equal(compiled(x), f(x))
    found = {p.op: (p.placed_on, p.reason) for p in torchmux.report(compiled).placements}
    assert found == {
        "aten.cos.default": ("one", "two: no cos"),
        "aten.sin.default": ("two", None),
        "aten.exp.default": ("one", "gone cannot run here: no such chip."),
    }
    with pytest.raises(torchmux.FallbackRefused, match=r"pinned to \(gone, two\).*two: no cos"):
        torchmux.compile(f, backend="one", strict=True)(x)


def test_a_region_for_eager_stays_out_of_compilers(picky) -> None:
    one = picky("one")

    def f(x):
        with torchmux.use_backend("eager"):
            y = x.cos()
        return y.sin()

    compiled, x = torchmux.compile(f, backend="one", strict=True), torch.randn(4)
    assert torch.equal(compiled(x), f(x))
    assert one.operators == [["sin"]]


def test_unknown_names_are_errors_in_eager_and_in_traced_code() -> None:
    def f(x):
        with torchmux.use_backend("natve"):
            return x.cos()

    with pytest.raises(torchmux.UnknownBackend, match="Did you mean 'native'"):
        f(torch.randn(2))
    with pytest.raises(torchmux.UnknownBackend, match="Did you mean 'native'"):
        torchmux.compile(f, backend="eager")(torch.randn(2))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Sequential(nn.Tanh(), nn.Sigmoid()), nn.ReLU())
        self.head = nn.Softplus()

    def forward(self, x):
        return self.head(self.encoder(x)) * 2


def test_modules_are_placed_by_their_paths(picky) -> None:
    picky("one"), picky("two"), picky("three")
    model, x = Model(), torch.randn(4)
    compiled = torchmux.compile(model, backend="one", placement={"encoder.0.1": "three", "encoder*": "two"})
    assert torch.equal(compiled(x), model(x))
    assert placed(compiled) == {"tanh": "two", "sigmoid": "three", "relu": "two", "softplus": "one", "mul": "one"}
    compiled = torchmux.compile(model, backend="one", placement={"": "two", "head": "one"})
    assert torch.equal(compiled(x), model(x))
    assert placed(compiled) == {"tanh": "two", "sigmoid": "two", "relu": "two", "softplus": "one", "mul": "two"}


def test_a_placed_module_that_breaks_the_graph_stays_placed(picky) -> None:
    picky("one"), picky("two")

    class Breaking(nn.Module):
        def forward(self, x):
            y = x.sin()
            torchmux.graph_break()
            return y.cos() + self.training

    model = nn.Sequential(nn.Tanh(), Breaking(), nn.ReLU())
    compiled, x = torchmux.compile(model, backend="one", placement={"1": "two"}), torch.randn(4)
    assert torch.equal(compiled(x), model(x))
    found = placed(compiled)
    assert (found["sin"], found["cos"]) == ("two", "two")


@pytest.mark.parametrize(
    ("placement", "error", "words"),
    [
        ({"encodr": "native"}, torchmux.InvalidOption, "no module has the path 'encodr'. Did you mean 'encoder'"),
        ({"encoder": "natve"}, torchmux.UnknownBackend, "Did you mean 'native'"),
        (["encoder"], torchmux.InvalidOption, "placement must be a dict"),
        ({"encoder": None}, torchmux.InvalidOption, "placement maps paths to names"),
    ],
)
def test_placements_that_mean_nothing_are_errors_at_once(placement, error, words) -> None:
    with pytest.raises(error, match=words):
        torchmux.compile(Model(), backend="eager", placement=placement)


def test_a_placement_needs_a_module() -> None:
    with pytest.raises(torchmux.InvalidOption, match="use_backend"):
        torchmux.compile(torch.relu, backend="eager", placement={"a": "native"})


def test_a_part_for_auto_tells_in_the_report_how_it_was_chosen() -> None:
    def f(x):
        y = x.sin()
        with torchmux.use_backend("auto"):
            y = y.cos()
        return y.exp()

    compiled, x = torchmux.compile(f, backend="eager"), torch.randn(4)
    torch.testing.assert_close(compiled(x), f(x))
    notes = [n for n in torchmux.report(compiled).graphs[0].report.notes if "auto chose" in n]
    assert len(notes) == 1 and "it is a part of a larger graph" in notes[0] and "verdict" in notes[0]
