"""Chains: who gets which part, what the report says, what strict refuses, and members that cannot run."""

from __future__ import annotations

import dataclasses
import logging

import pytest
import torch
from torch import nn

import torchmux
from torchmux.registry import Availability


@dataclasses.dataclass(frozen=True)
class Choices:
    level: int = 1


def steps(x):
    return x.sin().cos().exp().cos().tanh()


def graph_report(compiled):
    return torchmux.report(compiled).graphs[-1].report


def test_each_part_goes_to_the_first_member_that_takes_it(picky) -> None:
    one, two = picky("one", no="cos"), picky("two", no="exp")
    compiled, x = torchmux.compile(steps, backend=["one", "two"]), torch.randn(4)
    assert torch.equal(compiled(x), steps(x))
    assert one.operators == [["sin"], ["exp"], ["tanh"]]
    assert two.operators == [["cos"], ["cos"]]
    report = graph_report(compiled)
    assert (report.backend, report.members) == ("one+two", ("one", "two"))
    assert [(p.op.split(".")[1], p.placed_on) for p in sorted(report.placements, key=lambda p: p.node)] == [
        ("cos", "two"), ("cos", "two"), ("exp", "one"), ("sin", "one"), ("tanh", "one"),
    ]  # fmt: skip
    assert {p.reason for p in report.placements if p.placed_on == "two"} == {"one: no cos"}
    assert {p.reason for p in report.placements if p.placed_on == "one"} == {None}
    assert (report.share, report.partitions, report.fallbacks) == (1.0, 5, [])
    assert [(c.made_by, c.read_by, c.values, c.bytes) for c in report.crossings] == [
        ("one", "two", 2, 32), ("two", "one", 2, 32),
    ]  # fmt: skip


def test_what_no_member_takes_is_left_to_torch_with_all_reasons(picky, caplog) -> None:
    picky("one", no="cos exp"), picky("two", no="exp")
    compiled, x = torchmux.compile(steps, backend=("one", "two")), torch.randn(4)
    assert torch.equal(compiled(x), steps(x))
    report = graph_report(compiled)
    (left,) = report.fallbacks
    assert (left.placed_on, left.reason) == ("eager", "one: no exp; two: no exp")
    assert report.kinds == {"own": 4, "torch": 1} or report.kinds == {"untold": 4, "torch": 1}
    assert report.shares == {"one": 0.4, "two": 0.4, "eager": 0.2}
    assert "one+two: torch runs 1 of 5" in caplog.text
    with pytest.raises(torchmux.FallbackRefused, match=r"one\+two would leave 1 of 5.*one: no exp; two: no exp"):
        torchmux.compile(steps, backend=["one", "two"], strict=True)(x)


def test_strict_is_content_when_the_members_take_everything(picky) -> None:
    picky("one", no="cos"), picky("two")
    x = torch.randn(4)
    assert torch.equal(torchmux.compile(steps, backend=["one", "two"], strict=True)(x), steps(x))


def test_a_member_that_refuses_late_passes_on_to_the_next(picky) -> None:
    one, two = picky("one", late="cos"), picky("two")
    compiled, x = torchmux.compile(steps, backend=["one", "two"]), torch.randn(4)
    assert torch.equal(compiled(x), steps(x))
    assert two.operators == [["cos"], ["cos"]]
    assert {p.reason for p in graph_report(compiled).placements} == {None, "one: no cos after all"}
    assert one.operators[-3:] == [["sin"], ["exp"], ["tanh"]]


def test_a_member_that_fails_passes_on_to_the_next(picky, compiler_errors_fall_back) -> None:
    picky("one", no="cos", fails="exp"), picky("two")
    compiled, x = torchmux.compile(steps, backend=["one", "two"]), torch.randn(4)
    assert torch.equal(compiled(x), steps(x))
    report = graph_report(compiled)
    assert report.share == 1.0
    assert "one: compiler error: ValueError: cannot do exp" in {p.reason for p in report.placements}
    with pytest.raises(torchmux.CompilationFailed, match="one, of the chain one"):
        torchmux.compile(steps, backend=["one", "two"], strict=True)(x)


def test_what_all_members_fail_at_is_a_compiler_error(picky, compiler_errors_fall_back) -> None:
    picky("one", fails="exp"), picky("two", fails="exp")
    compiled, x = torchmux.compile(steps, backend=["one", "two"]), torch.randn(4)
    assert torch.equal(compiled(x), steps(x))
    assert graph_report(compiled).compiler_errors


def test_an_unavailable_member_is_skipped_with_a_note(picky, caplog) -> None:
    picky("gone", probe=lambda: Availability(False, "no such chip")), picky("here")
    x = torch.randn(4)
    with caplog.at_level(logging.INFO, "torchmux"):
        compiled = torchmux.compile(steps, backend=["gone", "here"])
    assert torch.equal(compiled(x), steps(x))
    report = graph_report(compiled)
    assert report.members == ("here",)
    assert report.notes == ["the chain goes without gone: gone cannot run here: no such chip."]
    assert "goes without gone" in caplog.text


def test_a_chain_of_unavailable_members_says_why_for_each(picky) -> None:
    picky("gone", probe=lambda: Availability(False, "no such chip"))
    with pytest.raises(torchmux.BackendUnavailable, match="'gone' and 'ipex' can run here.*no such chip.*retired"):
        torchmux.compile(steps, backend=["gone", "ipex"])


@pytest.mark.parametrize(
    ("backend", "error", "words"),
    [
        ([], torchmux.InvalidSpec, "names no backend"),
        (["native", "native"], torchmux.InvalidSpec, "names 'native' twice"),
        (["native", "opnvino"], torchmux.UnknownBackend, "Did you mean 'openvino'"),
        (["native", None], torchmux.InvalidSpec, "A member of a chain is a backend"),
        (["native", ["eager"]], torchmux.InvalidSpec, "A member of a chain is a backend"),
        (["native", "auto"], torchmux.InvalidSpec, "auto is no member of a chain"),
        ("native,eager", torchmux.UnknownBackend, "There is no backend"),
    ],
)
def test_chains_that_mean_nothing_are_errors_at_once(backend, error, words) -> None:
    with pytest.raises(error, match=words):
        torchmux.compile(steps, backend=backend)


def test_options_are_by_member(picky) -> None:
    one = picky("one", no="cos", options=Choices)
    picky("two")
    x = torch.randn(4)
    torchmux.compile(steps, backend=["one", "two"], options={"one": {"level": 3}})(x)
    assert {request.options.level for request in one.requests} == {3}
    for options, words in (
        ({"level": 3}, "'level' is no member of the chain 'one' and 'two'"),
        ({"too": {}}, "Did you mean 'two'"),
        ({"one": {"levle": 3}}, "Did you mean 'level'"),
        ([], "options of a chain are a dict of its members"),
    ):
        with pytest.raises(torchmux.InvalidOption, match=words):
            torchmux.compile(steps, backend=["one", "two"], options=options)


def test_a_mode_is_for_the_members_that_have_it(picky) -> None:
    picky("one", modes={"swift": {}}), picky("two")
    x = torch.randn(4)
    compiled = torchmux.compile(steps, backend=["one", "two"], mode="swift")
    compiled(x)
    assert graph_report(compiled).notes == ["two has no mode 'swift'"]
    with pytest.raises(torchmux.InvalidOption, match="No member of the chain 'one' and 'two' has the mode 'swfit'"):
        torchmux.compile(steps, backend=["one", "two"], mode="swfit")


def test_gradients_go_through_the_chain(picky) -> None:
    picky("one", no="cos"), picky("two", no="exp")
    x = torch.randn(4, requires_grad=True)
    compiled = torchmux.compile(steps, backend=["one", "two"])
    compiled(x).sum().backward()
    expected = torch.autograd.grad(steps(x).sum(), x)[0]
    torch.testing.assert_close(x.grad, expected)
    report = graph_report(compiled)
    assert report.phase == "training"
    assert {p.placed_on for p in report.placements} == {"one", "two"}


def test_a_member_without_training_or_sizes_is_passed_over(picky) -> None:
    picky("one", training=False, dynamic_shapes=False), picky("two")
    x = torch.randn(4, requires_grad=True)
    compiled = torchmux.compile(steps, backend=["one", "two"])
    compiled(x).sum().backward()
    assert {p.reason for p in graph_report(compiled).placements} == {"one: one does not support training"}
    compiled = torchmux.compile(steps, backend=["one", "two"], dynamic=True)
    compiled(torch.randn(5))
    assert {p.reason for p in graph_report(compiled).placements} == {"one: one does not support symbolic sizes"}


def test_dynamic_sizes_cross_between_members(picky) -> None:
    picky("one", no="cos"), picky("two")

    def f(x):
        return (x.sin().cos() * x.shape[0]).exp().reshape(-1, x.shape[0]).cos()

    compiled = torchmux.compile(f, backend=["one", "two"], dynamic=True)
    for n in (3, 5, 8):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), f(x))
    assert graph_report(compiled).share == 1.0


def test_a_backend_for_captured_graphs_takes_the_rest_of_the_parts(picky) -> None:
    picky("one", no="cos")
    parts = []

    @torchmux.register_backend(name="rest")
    def rest(gm, inputs):
        parts.append([n.target for n in gm.graph.nodes if n.op == "call_function"])
        return gm.forward

    x = torch.randn(4)
    compiled = torchmux.compile(steps, backend=["one", "rest"])
    assert torch.equal(compiled(x), steps(x))
    assert parts == [[torch.ops.aten.cos.default]] * 2


def test_a_backend_for_captured_graphs_takes_all_or_nothing_where_it_comes_first(picky) -> None:
    picky("two")
    refuses = []

    @torchmux.register_backend(name="whole")
    def whole(gm, inputs):
        if refuses:
            raise torchmux.GraphRefused("not today")
        return gm.forward

    x = torch.randn(4)
    compiled = torchmux.compile(steps, backend=["whole", "two"])
    assert torch.equal(compiled(x), steps(x))
    assert graph_report(compiled).backend == "whole"
    torchmux.reset()
    refuses.append(True)
    compiled = torchmux.compile(steps, backend=["whole", "two"])
    assert torch.equal(compiled(x), steps(x))
    report = graph_report(compiled)
    assert report.notes == ["whole does not take the graph: not today"]
    assert {p.placed_on for p in report.placements} == {"two"}


def test_members_get_operators_at_their_own_level(picky) -> None:
    """One takes layer norms whole, the other takes them apart; what the first refuses arrives in pieces."""

    class TakesApart:
        library_calls: dict = {}
        seen: list = []

        def supports(self, node):
            return True

        def compile(self, gm, example_inputs, request):
            self.seen += [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]
            return gm.forward

    whole = picky("whole", no="tanh")
    torchmux.register_backend(TakesApart(), name="apart", training=True, graph="aten")
    norm = nn.LayerNorm(6)

    def f(x):
        return norm(nn.functional.hardswish(torch.tanh(norm(x))))

    x = torch.randn(3, 6)
    compiled = torchmux.compile(f, backend=["whole", "apart"])
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), f(x))
    assert whole.operators == [["native_layer_norm"], ["hardswish", "native_layer_norm"]]
    assert TakesApart.seen == ["aten.tanh.default"]


def test_equal_chains_share_code(picky) -> None:
    one = picky("one")
    x = torch.randn(4)
    torchmux.compile(steps, backend=["one", "eager"])(x)
    torchmux.compile(steps, backend=["one", "eager"])(x)
    assert len(one.parts) == 1
