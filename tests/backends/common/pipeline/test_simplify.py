"""Nodes that do nothing are dropped, and the result stays what torch gives."""

import collections

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import torchmux
from torchmux.backends.common.pipeline import simplify

_exp = torch.ops.aten.exp.default


def _traced(fn, *args):
    gm = make_fx(fn, tracing_mode="fake")(*args)
    simplify.drop_detach_in_place(gm.graph)
    simplify.drop_empty_concatenands(gm.graph)
    simplify.spare_overwritten(gm.graph)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm, [n.target for n in gm.graph.nodes if n.op == "call_function"]


def test_an_empty_concatenand_leaves_a_copy():
    x = torch.randn(2, 3)
    gm, targets = _traced(lambda x: torch.cat([x.new_empty(0), x], dim=-1), x)
    assert targets == [torch.ops.aten.clone.default]
    assert torch.equal(gm(x), x) and gm(x).data_ptr() != x.data_ptr()


def test_two_that_are_left_are_concatenated():
    x = torch.randn(2, 3)
    gm, targets = _traced(lambda x: torch.cat([x, x.new_empty(0), x], dim=0), x)
    assert targets == [torch.ops.aten.cat.default]
    assert torch.equal(gm(x), torch.cat([x, x]))


def test_type_promotion_by_an_empty_operand_stays():
    x = torch.ones(2, dtype=torch.int64)
    gm, targets = _traced(lambda x: torch.cat([torch.empty(0, dtype=torch.float64), x]), x)
    assert torch.ops.aten.cat.default in targets
    assert gm(x).dtype == torch.float64


def test_a_constant_in_the_program_is_no_mutation():
    def fn(x):
        return torch.cat([torch.tensor([]), x]).relu() + torch.tensor([1.0, 2.0])

    pytest.importorskip("onnxruntime")
    compiled = torchmux.compile(fn, backend="onnxrt", strict=True)
    x = torch.randn(2)
    torch.testing.assert_close(compiled(x), fn(x))
    assert not torchmux.report(compiled).fallbacks


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (torch.randn(2, 3), "clone"),
        (torch.randn(3), "clone"),
        (torch.randn(3, 2).t(), "clone"),
        (torch.arange(6).view(2, 3), "_to_copy"),
    ],
    ids=["as it is", "repeated", "laid out otherwise", "of another dtype"],
)
def test_what_is_written_over_is_not_made(source, wanted):
    def f(x):
        return torch.ops.aten.copy(torch.ops.aten.empty([2, 3]), x)

    gm, targets = _traced(f, source)
    assert targets[-1] is getattr(torch.ops.aten, wanted).default
    assert torch.ops.aten.empty.memory_format not in targets and torch.ops.aten.copy.default not in targets
    found = gm(source)
    assert torch.equal(found, f(source)) and found.stride() == (3, 1) and found.data_ptr() != source.data_ptr()


def test_a_copy_with_strides_of_its_own_stays():
    x = torch.randn(2, 3)
    gm, targets = _traced(lambda x: torch.ops.aten.copy(torch.ops.aten.empty_strided([2, 3], [1, 2]), x), x)
    assert targets[-1] is torch.ops.aten.copy.default
    assert gm(x).stride() == (1, 2)


def _in_place(x):
    a, b, c = x.sin().chunk(3, 1)
    a.sigmoid_()
    b.add_(a)
    c[:, 0] = b[:, 1]
    c[0].mul_(2)
    return a * b + c, c[:, 0], x.sin()[:, 2:3]


def test_parts_are_read_where_they_come_from():
    x = torch.randn(4, 6)
    gm = make_fx(torch.func.functionalize(_in_place, remove="mutations"), tracing_mode="fake")(x)
    simplify.see_past_writes(gm.graph)
    gm.graph.lint()
    gm.recompile()
    for got, expected in zip(gm(x), _in_place(x.clone()), strict=True):
        assert torch.equal(got, expected)


def test_gates_of_a_cell_need_no_scatter():
    def cell(gates, c):
        i, f = gates.sin().chunk(2, -1)
        i.sigmoid_()
        f.tanh_()
        return i * c + f

    gates, c = torch.randn(3, 8), torch.randn(3, 4)
    gm = make_fx(torch.func.functionalize(cell, remove="mutations"), tracing_mode="fake")(gates, c)
    simplify.see_past_writes(gm.graph)
    gm.recompile()
    assert not any("scatter" in str(n.target) for n in gm.graph.nodes)
    assert torch.equal(gm(gates, c), cell(gates, c))


def test_what_a_program_writes_later_is_not_read_instead():
    def f(x, y, z):
        whole = x.sin()
        whole[:2] = y
        y.add_(1)
        z.copy_(whole[:2])
        return whole[:2] * 2

    ours, eager = ([torch.ones(3, 4), torch.full((2, 4), 5.0), torch.zeros(2, 4)] for _ in range(2))
    assert torch.equal(torchmux.compile(f, backend="native")(*ours), f(*eager))
    for one, other in zip(ours, eager, strict=True):
        assert torch.equal(one, other)


def test_a_part_that_was_written_is_none_of_its_own_where_a_view_of_it_is_a_result():
    def f(x):
        whole = x * 2
        whole[1:] = -1
        return whole, whole[1:].t()

    whole, part = torchmux.compile(f, backend="aot_eager")(torch.randn(4, 3))
    whole.fill_(5)
    assert (part == 5).all() and part.stride() == (1, 3)


def test_what_is_repeated_is_computed_once():
    def repeats(x):
        sizes = [torch.exp(x * 2).sum(-1), torch.exp(x * 2).sum(-1)]
        numbers = [x * 0.0, x * -0.0, x + 1, x + 1.0, x + True]
        draws = [torch.rand_like(x), torch.rand_like(x)]
        pairs = [torch.max(x, 0)[0].sin(), torch.max(x, 0)[1].cos()]
        return [sum(sizes), *(n.neg() for n in numbers), *(d + x for d in draws), *pairs]

    x = torch.randn(3, 4)
    gm = make_fx(repeats)(x)
    before = [node.target.overloadpacket for node in gm.graph.find_nodes(op="call_function", target=_exp)]
    simplify.merge_repeated(gm.graph)
    gm.recompile()
    counts = collections.Counter(str(getattr(n.target, "overloadpacket", "")) for n in gm.graph.nodes)
    assert len(before) == 2
    assert (counts["aten.exp"], counts["aten.max"], counts["aten.rand_like"]) == (1, 1, 2)
    assert (counts["aten.mul"], counts["aten.add"]) == (3, 3 + 4)  # those of numbers, and what adds up the results
    results = []
    for run in (gm, repeats):
        torch.manual_seed(0)
        results.append([(r, r.signbit()) if r.is_floating_point() else r for r in run(x)])
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


def test_results_and_what_is_read_before_a_write_stay_apart():
    """Eager returns a tensor for each, and reads what was there."""

    def written(x):
        first, second = x.sin(), x.sin()
        before = (x + 1).cos()
        x.add_(1)
        return first, second.view(-1), before + (x + 1).cos()

    x = torch.randn(3)
    gm = make_fx(written)(x.clone())
    simplify.merge_repeated(gm.graph)
    gm.recompile()
    a, b, c = gm(x.clone())
    expected = written(x.clone())
    assert a.data_ptr() != b.data_ptr()
    torch.testing.assert_close((a, b, c), expected, rtol=0, atol=0)


def test_what_follows_from_numbers_is_computed_once():
    """In inference and training; a number that is returned is a new tensor in each call."""

    def scaled(x):
        scale = torch.sqrt(torch.tensor(48, dtype=torch.float64) * 3).to(torch.float16)
        return (x / scale).sin(), torch.tensor(2.0) * 4

    x = torch.randn(5, 3, dtype=torch.float16)
    gm = make_fx(scaled, tracing_mode="fake")(x)
    simplify.fold_numbers(gm)
    assert [n.target.__name__ for n in gm.graph.nodes if n.op == "call_function"][:2] == ["div.Tensor", "sin.default"]
    assert all(torch.equal(a, b) and a.dtype is b.dtype for a, b in zip(gm(x), scaled(x), strict=True))

    for leaf in (x, x.clone().requires_grad_()):
        compiled = torchmux.compile(scaled, backend="aot_eager")
        first, again = compiled(leaf), compiled(leaf)
        assert torch.equal(first[0], scaled(leaf)[0]) and first[1] == again[1] == 8
        first[1].zero_()
        assert again[1] == compiled(leaf)[1] == 8
        if leaf.requires_grad:
            (got,), (wanted,) = (torch.autograd.grad(f(leaf)[0].sum(), leaf) for f in (compiled, scaled))
            assert torch.equal(got, wanted)
