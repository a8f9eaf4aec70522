"""What an implementation may leave out, what it may refuse, and what it may not answer."""

from __future__ import annotations

import pytest
import torch

from torchmux.backends.common.pipeline.decompose import core_aten
from torchmux.backends.common.pipeline.implementation import Told, as_backend
from torchmux.registry import BackendSpec, FallbackRefused, GraphRefused, InvalidSpec, NodesRefused, resolve


class Bare:
    def supports(self, node):
        return True

    def compile(self, gm, example_inputs, request):
        return gm.forward


def spec(implementation, **fields) -> BackendSpec:
    return BackendSpec("bare", "for tests", implementation, **{"graph": "aten", "training": True, **fields})


def f(x):
    return x.relu().exp()


def test_the_defaults() -> None:
    found = as_backend(Bare(), spec(Bare))
    assert found.decompositions() == core_aten()
    assert found.decompositions() is not core_aten()
    assert found.keep_whole() == frozenset()
    assert found.restore is None
    gm = torch.fx.symbolic_trace(f)
    assert found.rewrite(gm, None) is gm
    told = Told(lambda x: x)
    assert (told.artifact, told.cache_hit, tuple(told.notes), told.output_code) == (None, False, (), [])
    told.follow(None, [])


def test_values_serve_for_methods_and_none_for_nothing() -> None:
    class Values(Bare):
        decompositions: dict = {}
        keep_whole = (torch.ops.aten.linear.default,)
        restore = None

    found = as_backend(Values(), spec(Values))
    assert found.decompositions() == {}
    assert found.keep_whole() == {torch.ops.aten.linear.default}
    assert found.restore is None


@pytest.mark.parametrize("answer", [False, None, "", 1, ["no"]])
def test_an_answer_without_a_reason_is_an_error(capture, answer) -> None:
    class Silent(Bare):
        def supports(self, node):
            return answer

    with pytest.raises(InvalidSpec, match=r"supports\(\) of bare answered .* aten.relu.default"):
        capture(f, torch.randn(3)).compile(spec(Silent))


class RefusesGraphs(Bare):
    def compile(self, gm, example_inputs, request):
        raise GraphRefused("too small to be worth it")


@pytest.mark.parametrize("graph", ["torch", "aten"])
@pytest.mark.parametrize(
    "implementation", [RefusesGraphs, lambda gm, inputs: RefusesGraphs().compile(gm, inputs, None)]
)
def test_a_graph_may_be_refused_as_a_whole(capture, implementation, graph: str, caplog) -> None:
    x = torch.randn(3)
    captured = capture(f, x)
    compiled = captured.compile(spec(implementation, graph=graph))
    assert torch.equal(captured.run(compiled, x), f(x))
    assert compiled.report.share == 0.0
    assert {p.reason for p in compiled.report.fallbacks} == {"too small to be worth it"}
    assert "too small" in caplog.text
    with pytest.raises(FallbackRefused, match="too small"):
        capture(f, x).compile(spec(implementation, graph=graph), strict=True)


def test_nodes_of_a_captured_graph_refuse_all_of_it(capture) -> None:
    class Refuses(Bare):
        def compile(self, gm, example_inputs, request):
            raise NodesRefused({next(iter(gm.graph.find_nodes(op="call_method"))).name: "no such thing"})

    x = torch.randn(3)
    captured = capture(f, x)
    compiled = captured.compile(spec(Refuses, graph="torch"))
    assert torch.equal(captured.run(compiled, x), f(x))
    assert [p.reason for p in compiled.report.fallbacks] == ["relu: no such thing"] * 2


@pytest.mark.parametrize("reasons", [{}, {"nobody": "is not there"}])
def test_nodes_that_are_not_in_the_graph_cannot_be_refused(capture, reasons) -> None:
    class Refuses(Bare):
        def compile(self, gm, example_inputs, request):
            raise NodesRefused(reasons)

    with pytest.raises(InvalidSpec, match="must name nodes of the graph"):
        capture(f, torch.randn(3)).compile(spec(Refuses))


def test_a_function_may_have_decompositions_too(capture) -> None:
    seen = []

    class Function:
        decompositions: dict = {}

        def __call__(self, gm, example_inputs):
            seen.extend(n.target for n in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.silu.default))
            return gm.forward

    x = torch.randn(3)
    captured = capture(lambda x: torch.nn.functional.silu(x), x)
    assert torch.equal(captured.run(captured.compile(spec(Function())), x), torch.nn.functional.silu(x))
    assert seen == [torch.ops.aten.silu.default]


def test_code_may_correct_the_report_and_tell_of_itself(capture) -> None:
    class Code:
        notes = ("one", "two")
        output_code = "x + 1"
        cache_hit = True

        def __init__(self, run):
            self.run = run

        def follow(self, report, placements):
            report.notes.append(f"follows {[p.op for p in placements]}")

        def __call__(self, *args):
            return self.run(*args)

    class Tells(Bare):
        def compile(self, gm, example_inputs, request):
            return Code(gm.forward)

    report = capture(f, torch.randn(3)).compile(spec(Tells)).report
    assert report.notes == ["follows ['aten.relu.default', 'aten.exp.default']", "one", "two"]
    assert report.output_code == ["x + 1"]
    assert report.cache_hits == 1


def test_resolve_takes_an_object_as_it_is() -> None:
    assert resolve(Bare()).spec.graph == "aten"
