"""New code is compared with torch before it is used: what is wrong is found, and nothing else is blamed."""

from __future__ import annotations

import pytest
import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from torchmux.backends.common.adapter import check

ATEN = torch.ops.aten


def _traced(function, *inputs):
    mode = torch._subclasses.FakeTensorMode()  # torch's own, which is not corrected
    return make_fx(lambda *args: (function(*args),))(*(mode.from_tensor(x) for x in inputs))


def _with_fault(op, fault):
    """A compiler that gets one operator wrong; strides are nothing to it."""

    def compile_graph(gm: GraphModule):
        copy = GraphModule(gm, torch.fx.Graph())
        copy.graph.output(copy.graph.graph_copy(gm.graph, {}))
        for node in copy.graph.nodes:
            if node.target is op:
                node.target = fault
            if node.target is ATEN.view.default:
                node.target = ATEN.reshape.default
        copy.recompile()
        return copy.forward

    return compile_graph


def _raise(*args):
    raise ValueError("no such kernel")


X = torch.randn(3, 4)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda x: x.cos() * 1.01, "does not match torch"),
        (lambda x: x.cos().double(), "does not match torch"),
        (lambda x: x.cos()[:2], "does not match torch"),
        (lambda x: torch.full_like(x, torch.nan), "does not match torch"),
        (_raise, "ValueError: no such kernel"),
    ],
)
def test_the_operator_that_is_wrong_is_blamed(fault, words):
    gm = _traced(lambda x: x.sin().cos().exp(), X)
    compile_graph = _with_fault(ATEN.cos.default, fault)
    fakes = [n.meta["val"] for n in gm.graph.find_nodes(op="placeholder")]
    found = check.culprits(gm, compile_graph(gm), fakes, compile_graph, "Theirs")
    assert list(found) == ["cos"]
    assert found["cos"].startswith("Theirs")
    assert words in found["cos"]


def test_right_code_is_taken():
    gm = _traced(lambda x: x.sin().cos(), X)
    assert check.culprits(gm, gm.forward, [X], lambda g: g.forward, "Theirs") == {}


def test_wrong_code_of_right_operators():
    gm = _traced(lambda x: x.sin().cos(), X)
    with pytest.raises(check.Differs, match="each operator alone does"):
        check.culprits(gm, lambda x: (x,), [X], lambda g: g.forward, "Theirs")


def test_code_that_raises_though_no_operator_does():
    gm = _traced(lambda x: x.sin().cos(), X)
    with pytest.raises(ValueError, match="no such kernel"):
        check.culprits(gm, _raise, [X], lambda g: g.forward, "Theirs")


def test_what_cannot_be_compiled_is_found():
    gm = _traced(lambda x: x.sin().cos().exp(), X)

    def compile_graph(gm):
        if any(n.target is ATEN.exp.default for n in gm.graph.nodes):
            raise NotImplementedError("exp")
        return gm.forward

    assert list(check.uncompilable(gm, compile_graph, "Theirs")) == ["exp"]


def test_what_cannot_be_compiled_is_looked_for_among_many_at_once():
    def chain(x):
        for _ in range(20):
            x = x.sin().cos().neg().abs().sqrt()
        return x.exp()

    gm, compiled = _traced(chain, X), []

    def compile_graph(gm):
        compiled.append(gm)
        if any(n.target is ATEN.exp.default for n in gm.graph.nodes):
            raise NotImplementedError("exp")
        return gm.forward

    assert list(check.uncompilable(gm, compile_graph, "Theirs")) == ["exp"]
    assert len(compiled) < 8  # of 101 operators six are different


def test_integers_that_torch_does_not_take_as_indices_are_not_the_last_word():
    gm = _traced(lambda t, i, j: ATEN.embedding(t, i - j - 1 + 1).cos(), X, torch.tensor([2, 1]), torch.tensor([0, 1]))
    compile_graph = _with_fault(ATEN.cos.default, lambda x: x.cos() * 1.01)
    fakes = [n.meta["val"] for n in gm.graph.find_nodes(op="placeholder")]
    assert list(check.culprits(gm, compile_graph(gm), fakes, compile_graph, "Theirs")) == ["cos"]


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        # an index that no made-up number fits
        (lambda t, i: ATEN.embedding(t, i + 7).cos(), (torch.randn(9, 2), torch.tensor([1, 0]))),
        # a logarithm of negative numbers
        (lambda t: (t.abs() * -1 - 1).log().cos(), (X,)),
        # strides that torch's kernel chooses otherwise than its fake tensors tell
        (lambda t: ATEN.view(torch.batch_norm(t.mT, None, None, None, None, True, 0.1, 1e-5, False).mT, [6, 4]).cos(),
         (torch.randn(2, 3, 4),)),
    ],
    ids=["index", "nan", "strides"],
)  # fmt: skip
def test_wrong_operators_are_found_where_made_up_inputs_lead_nowhere(function, inputs):
    gm = _traced(function, *inputs)
    fakes = [n.meta["val"] for n in gm.graph.find_nodes(op="placeholder")]
    for fault, found in ((torch.cos, []), (lambda x: x.cos() * 1.01, ["cos"])):
        compile_graph = _with_fault(ATEN.cos.default, fault)
        assert list(check.culprits(gm, compile_graph(gm), fakes, compile_graph, "Theirs")) == found


def test_code_that_errs_no_more_than_torch_where_digits_are_lost():
    """As far from torch as torch is from itself where its inputs are rounded otherwise."""
    x = torch.randn(64, 64)
    inputs = [x, x * 1.000002]
    gm = _traced(lambda x, y: (x.sin() - y.sin()) * 1e6, *inputs)
    compile_graph = _with_fault(ATEN.sin.default, lambda x: x.sin() * (1 + 2e-7 * (x * 1e7).sin()))
    assert check.culprits(gm, compile_graph(gm), inputs, compile_graph, "Theirs") == {}
    with pytest.raises(check.Differs):
        check.culprits(gm, lambda x, y: (gm(x, y)[0] * 99,), inputs, lambda g: g.forward, "Theirs")


def test_gradients_that_grow_with_each_layer_are_compared_where_they_do_not():
    """What overflows in between, if things are added in another order, is right where numbers are of some use."""
    x, y = torch.randn(64, 64), torch.randn(64, 64)

    def layers(x, y):
        for _ in range(90):
            x = x @ y + x
        return x

    gm = _traced(layers, x, y)
    fakes = [n.meta["val"] for n in gm.graph.find_nodes(op="placeholder")]
    assert check.culprits(gm, lambda x, y: (gm(x, y)[0] * 2**20 / 2**20,), fakes, lambda g: g.forward, "Theirs") == {}
    with pytest.raises(check.Differs):
        check.culprits(gm, lambda x, y: (gm(x, y)[0] * 1.01,), fakes, lambda g: g.forward, "Theirs")


def test_operators_are_compiled_beside_each_other_and_only_a_wrong_one_alone():
    gm = _traced(lambda x: x.sin().cos().exp().tanh().neg().abs(), X)
    compile_graph = _with_fault(ATEN.cos.default, lambda x: x.cos() * 1.01)
    fakes = [n.meta["val"] for n in gm.graph.find_nodes(op="placeholder")]
    sizes = []

    def compile_alone(single: GraphModule):
        sizes.append(len(single.graph.find_nodes(op="placeholder")))
        return compile_graph(single)

    assert list(check.culprits(gm, compile_graph(gm), fakes, compile_alone, "Theirs")) == ["cos"]
    assert sizes == [6, 1]


def test_one_operator_without_code_leaves_the_others_beside_each_other():
    gm = _traced(lambda x: x.sin().cos().exp().tanh().neg().abs().log().sqrt(), X)
    compile_graph = _with_fault(ATEN.cos.default, _raise)
    fakes = [n.meta["val"] for n in gm.graph.find_nodes(op="placeholder")]
    sizes = []

    def compile_alone(single: GraphModule):
        sizes.append(len(single.graph.find_nodes(op="placeholder")))
        return compile_graph(single)

    assert list(check.culprits(gm, compile_graph(gm), fakes, compile_alone, "Theirs")) == ["cos"]
    assert sizes == [8, 4, 2, 2, 4, 1, 1], "halves of what does not run, and what is left alone"
