"""From supports() to the report: parts, fallbacks, reasons, strictness, failures."""

from __future__ import annotations

import logging
import operator
import re

import pytest
import torch

from torchmux.registry import BackendSpec, CompilationFailed, FallbackRefused, NodesRefused


class Fake:
    """A backend that runs its parts in torch and remembers them."""

    def __init__(self, *, refused: str = "", late: str = "", failing: str = "") -> None:
        self.refused, self.late, self.failing = refused, late, failing
        self.parts: list[tuple[torch.fx.GraphModule, list, object]] = []

    decompositions: dict = {}

    def supports(self, node):
        return f"no {self.refused}" if self.refused and self.refused in str(node.target) else True

    def compile(self, gm, example_inputs, request):
        for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.exp.default):
            if self.late and self.late in str(node.target):
                raise NodesRefused({node.name: f"no {self.late} after all"})
            if self.failing and self.failing in str(node.target):
                raise ValueError(f"cannot do {self.failing}")
        self.parts.append((gm, example_inputs, request))
        return gm.forward


def spec(implementation: object, **fields: object) -> BackendSpec:
    told = {"training": True, "dynamic_shapes": True, **fields}
    return BackendSpec("fake", "for tests", implementation, graph="aten", **told)


def chain(x):
    return x.sin().cos().exp().cos().tanh()


def test_refused_nodes_run_in_torch_with_reason_and_line(capture, caplog) -> None:
    fake, x = Fake(refused="cos"), torch.randn(4)
    captured = capture(chain, x)
    compiled = captured.compile(spec(fake))
    assert torch.equal(captured.run(compiled, x), chain(x))
    report = compiled.report
    assert report.partitions == len(fake.parts) == 3
    assert report.share == 3 / 5
    assert {p.reason for p in report.fallbacks} == {"no cos"}
    line = chain.__code__.co_firstlineno + 1
    assert all(p.where == f"{__file__}:{line}" for p in report.placements)
    warnings = [r for r in caplog.records if r.name == "torchmux.fallback"]
    assert len(warnings) == 1
    assert "2 of 5" in warnings[0].message
    assert "no cos" in warnings[0].message


def test_nothing_is_logged_when_nothing_falls_back(capture, caplog) -> None:
    x = torch.randn(4)
    with caplog.at_level(logging.WARNING):
        assert capture(chain, x).compile(spec(Fake())).report.share == 1.0
    assert not caplog.records


def test_strict_names_the_nodes_and_the_reasons(capture) -> None:
    with pytest.raises(FallbackRefused, match=r"aten.cos.default \(2 times\) at .*test_pipeline.py:\d+: no cos"):
        capture(chain, torch.randn(4)).compile(spec(Fake(refused="cos")), strict=True)


def test_nodes_refused_while_compiling_are_split_off(capture) -> None:
    fake, x = Fake(late="exp"), torch.randn(4)
    captured = capture(chain, x)
    compiled = captured.compile(spec(fake))
    assert torch.equal(captured.run(compiled, x), chain(x))
    assert [(p.op, p.reason) for p in compiled.report.fallbacks] == [("aten.exp.default", "no exp after all")]
    assert compiled.report.partitions == 2
    with pytest.raises(FallbackRefused, match="no exp after all"):
        capture(chain, x).compile(spec(Fake(late="exp")), strict=True)


def test_an_element_that_is_refused_takes_its_tuple_along(capture) -> None:
    class RefusesElements(Fake):
        def compile(self, gm, example_inputs, request):
            refused = {n.name: "no pairs" for n in gm.graph.nodes if n.target is operator.getitem}
            if refused:
                raise NodesRefused(refused)
            return gm.forward

    def f(x):
        values, places = torch.max(x.sin(), 0)
        return values + 1, places + 1

    x = torch.randn(3, 4)
    captured = capture(f, x)
    compiled = captured.compile(spec(RefusesElements()))
    for got, wanted in zip(captured.run(compiled, x), f(x), strict=True):
        assert torch.equal(got, wanted)
    assert [(p.op, p.reason) for p in compiled.report.fallbacks] == [("aten.max.dim", "no pairs")]


@pytest.mark.usefixtures("compiler_errors_fall_back")
def test_a_part_that_fails_to_compile_runs_in_torch(capture, caplog) -> None:
    fake, x = Fake(refused="cos", failing="exp"), torch.randn(4)
    captured = capture(chain, x)
    compiled = captured.compile(spec(fake))
    assert torch.equal(captured.run(compiled, x), chain(x))
    assert "compiler error: ValueError: cannot do exp" in {p.reason for p in compiled.report.fallbacks}
    assert [p.op for p in compiled.report.compiler_errors] == ["aten.exp.default"]
    assert compiled.report.partitions == 2
    assert "cannot do exp" in caplog.text
    with pytest.raises(CompilationFailed, match="cannot do exp") as raised:
        capture(chain, x).compile(spec(Fake(failing="exp")), strict=True)
    assert isinstance(raised.value.__cause__, ValueError)


def test_random_operators_left_to_torch_draw_in_their_turn(capture) -> None:
    def f(x):
        late = torch.bernoulli(x.sin().cos().sigmoid())  # deep in the graph, drawn first
        return late, torch.bernoulli(x.sigmoid())

    x = torch.randn(50)
    captured = capture(f, x)
    compiled = captured.compile(spec(Fake(refused="bernoulli")))
    torch.manual_seed(3)
    got = captured.run(compiled, x)
    torch.manual_seed(3)
    assert all(torch.equal(a, b) for a, b in zip(got, f(x), strict=True))


def test_written_inputs_are_written_last(capture) -> None:
    def f(x, y):
        x.add_(y.cos())
        return (x * y).cos() + x

    x, y = torch.randn(4), torch.randn(4)
    captured = capture(f, x.clone(), y)
    compiled = captured.compile(spec(Fake(refused="cos")))
    mine, theirs = x.clone(), x.clone()
    assert torch.equal(captured.run(compiled, mine, y), f(theirs, y))
    assert torch.equal(mine, theirs)


def test_forward_and_backward_are_split_alike(capture) -> None:
    fake = Fake(refused="cos")
    x = torch.randn(4, requires_grad=True)
    captured = capture(chain, x)
    compiled = captured.compile(spec(fake), training=True)
    got = torch.autograd.grad(captured.run(compiled, x).sum(), x)
    assert torch.equal(got[0], torch.autograd.grad(chain(x).sum(), x)[0])
    assert {request.phase for _, _, request in fake.parts} == {"forward", "backward"}
    assert compiled.report.phase == "training"


def test_what_torch_runs_of_the_backward_pass_is_told_when_that_is_compiled(capture, caplog) -> None:
    x = torch.randn(4, requires_grad=True)
    captured = capture(lambda x: x.tanh(), x)
    compiled = captured.compile(spec(Fake(refused="tanh_backward")), training=True)

    def told():
        return [r.getMessage() for r in caplog.records if r.name == "torchmux.fallback"]

    loss = captured.run(compiled, x).sum()
    assert not told()
    loss.backward()
    (line,) = told()
    assert re.match(r"fake: torch runs 1 of \d+ operators of the backward pass: aten.tanh_backward", line)


def test_a_backend_that_does_not_train_says_so(capture) -> None:
    x = torch.randn(4, requires_grad=True)
    captured = capture(chain, x)
    compiled = captured.compile(spec(Fake(), training=False), training=True)
    captured.run(compiled, x).sum().backward()
    assert {p.reason for p in compiled.report.fallbacks} == {"fake does not support training"}
    with pytest.raises(FallbackRefused, match="does not support training"):
        capture(chain, x).compile(spec(Fake(), training=False), training=True, strict=True)


def test_sizes_do_not_cut_a_graph(capture) -> None:
    def f(x):
        y = torch.cat([x, x]).relu()
        return y.view(y.size(0) // 2, -1).softmax(-1)

    fake, x = Fake(), torch.randn(4, 6)
    captured = capture(f, x, dynamic={0: [0]})
    compiled = captured.compile(spec(fake))
    assert len(fake.parts) == 1
    for rows in (4, 9):
        x = torch.randn(rows, 6)
        assert torch.equal(captured.run(compiled, x), f(x))


def test_parameters_are_handed_over_in_inference(capture) -> None:
    fake, x = Fake(), torch.randn(2, 3)
    net = torch.nn.Linear(3, 3)
    captured = capture(net, x)
    captured.compile(spec(fake))
    gm, inputs, request = fake.parts[0]
    given = [inputs[p] for p in request.static_inputs]
    assert len(given) == 2
    assert all(any(g is p for p in net.parameters()) for g in given)
    assert all("val" in n.meta for n in gm.graph.nodes if n.op != "output")


def test_a_buffer_that_the_graph_writes_is_no_constant(capture) -> None:
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x):
            self.seen.add_(x)
            return x * self.seen

    fake, x, module = Fake(), torch.ones(3), Counter()
    captured = capture(module, x)
    module.seen.zero_()
    compiled = captured.compile(spec(fake))
    assert all(request.static_inputs == () for _, _, request in fake.parts)
    for wanted in (1.0, 2.0):
        assert torch.equal(captured.run(compiled, x), torch.full((3,), wanted))
