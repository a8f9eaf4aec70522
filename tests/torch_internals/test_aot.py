"""AOTAutograd."""

from __future__ import annotations

import contextlib
import logging

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import torchmux
from torchmux import torch_internals as ti

from .walk import checks


@checks("aot_autograd", "min_cut_partition", "functorch_config")
def test_aot() -> None:
    gm = torch.fx.symbolic_trace(lambda x: (x.sin(),))
    compiled = ti.aot_autograd()(gm, [torch.ones(2)], fw_compiler=lambda g, inputs: g.forward)
    assert torch.equal(compiled(torch.ones(2))[0], torch.ones(2).sin())
    assert callable(ti.min_cut_partition())
    assert hasattr(ti.functorch_config(), "patch")


@checks("draws_have_effects")
def test_unused_draws_stay() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch.rand, ((3,),))
    graph.output((graph.call_function(torch.sin, (x,)),))
    gm = torch.fx.GraphModule({}, graph)
    counts = []

    def count(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        counts.append(sum("rand" in str(node.target) for node in gm.graph.nodes))
        return gm.forward

    with ti.tracing_context(ti.new_fake_mode()), ti.draws_have_effects():
        ti.aot_autograd()(gm, [torch.ones(2)], fw_compiler=count)
    assert counts == [1]


@checks("modules_without_code")
def test_code_is_written_when_it_is_called() -> None:
    def traced() -> torch.fx.GraphModule:
        return make_fx(torch.sin)(torch.ones(2))

    with ti.modules_without_code():
        gm = traced()
    sine = next(node for node in gm.graph.nodes if node.op == "call_function")
    sine.target = torch.ops.aten.cos.default
    gm.recompile()
    assert "cos" not in vars(gm).get("_code", "")
    assert torch.equal(gm(torch.ones(2)), torch.ones(2).cos()) and "cos" in gm._code
    assert "sin" in vars(traced())["_code"]  # what it changes is as it was


@checks("checks_without_tokens")
def test_checks_are_plain_calls() -> None:
    seen = []

    def look(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        seen.append([node for node in gm.graph.nodes if "effects" in str(node.target)])
        return gm.forward

    def traced() -> None:
        gm = torch.fx.symbolic_trace(lambda x: (torch.linalg.inv(x),))
        with ti.tracing_context(ti.new_fake_mode()):
            ti.aot_autograd()(gm, [torch.eye(2)], fw_compiler=look)

    with ti.checks_without_tokens():
        traced()
    assert not seen[0]
    traced()
    with ti.checks_without_tokens():  # what it changes is as it was
        traced()
    assert not seen[2]


@checks("bases_among_results")
def test_a_view_of_a_result_shows_that_result() -> None:
    def f(other: torch.Tensor, w: torch.Tensor, x: torch.Tensor, shown: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.add_(1)
        results = other * w, x * w, shown * w
        return *results, results[2].detach()

    def given() -> list[torch.Tensor]:
        x = torch.ones(3)
        return [torch.ones(3), torch.ones(3, requires_grad=True), x, x.view(3)]

    with ti.bases_among_results():
        compiled = ti.aot_autograd()(torch.fx.symbolic_trace(f), given(), fw_compiler=lambda gm, inputs: gm.forward)
        results = compiled(*given())
    assert results[3].data_ptr() == results[2].data_ptr()


@checks("floats_stay")
def test_no_pass_makes_tensors_of_floats() -> None:
    seen = []

    def look(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        seen.append([type(node.meta.get("val")) for node in gm.graph.nodes])
        return gm.forward

    def backend(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        with ti.floats_stay() if stays else contextlib.nullcontext():
            return ti.aot_autograd()(gm, inputs, fw_compiler=look)

    for stays in (True, False):
        torch._dynamo.reset()
        compiled = torch.compile(lambda x, f: torch.mul(x, f), backend=backend, fullgraph=True)
        for number in (2.0, 3.0):
            compiled(torch.ones(2), number)
        assert (torch.SymFloat in seen[-1]) is stays


@checks("written_inputs", "count_of_results")
def test_what_a_forward_graph_writes() -> None:
    def program(x: torch.Tensor, buffer: torch.Tensor) -> tuple[torch.Tensor, ...]:
        buffer.add_(1)
        return (x.sin(),)

    told = []

    def look(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        told.append((ti.written_inputs(), ti.count_of_results()))
        return gm.forward

    gm, mode = torch.fx.symbolic_trace(program), ti.new_fake_mode()
    fakes = [mode.from_tensor(torch.ones(2, requires_grad=needs)) for needs in (True, False)]
    with ti.tracing_context(mode):
        ti.aot_autograd()(gm, fakes, fw_compiler=look, bw_compiler=lambda gm, inputs: gm.forward)
    assert told == [({1: False}, 2)]  # the graph returns the new contents first


@checks("ExpectedGradients", "has_subclasses")
def test_gradients_of_tensors_that_consist_of_others() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    mode = ti.new_fake_mode()
    fake, other = (mode.from_tensor(torch.ones(2)) for _ in range(2))
    pair = TwoTensor(torch.ones(2), torch.ones(2))
    for wraps in (False, True):
        given = TwoTensor(fake, other).requires_grad_() if wraps else mode.from_tensor(torch.ones(2)).requires_grad_()
        graph = torch.fx.Graph()
        graph.output((graph.call_function(torch.sin, (graph.placeholder("x"),)),))
        with ti.tracing_context(mode):
            forward = lambda gm, inputs: gm.forward  # noqa: E731
            ti.aot_autograd()(torch.fx.GraphModule({}, graph), [given], fw_compiler=forward, bw_compiler=forward)
            function = ti.compiled_function()
        assert ti.has_subclasses(function) == wraps
        if wraps:
            expected = ti.ExpectedGradients(function)
            assert expected.accepts([pair]) and not expected.accepts([torch.ones(2)])
            assert expected.without_made_up([pair]) == [pair]
            assert expected.without_made_up([torch.zeros(2)]) == [None]


@checks("keep_saved_buffers")
def test_kept_buffers() -> None:
    with ti.tracing_context(ti.new_fake_mode()):
        ti.keep_saved_buffers()  # nothing was compiled yet
    from torch._guards import TracingContext

    class Metadata:
        bw_donated_idxs = None

    with ti.tracing_context(ti.new_fake_mode()):
        TracingContext.get().fw_metadata = Metadata()
        ti.keep_saved_buffers()
        assert TracingContext.get().fw_metadata.bw_donated_idxs == []


@checks("ask_torch_for_constants")
def test_asking_for_constants() -> None:
    ti.ask_torch_for_constants(frozenset({"zf7"}))  # nothing is being captured
    from torch._dynamo.exc import TensorifyScalarRestartAnalysis
    from torch._guards import CompileContext, CompileId

    with torch._guards.compile_context(CompileContext(CompileId(frame_id=0, frame_compile_id=0))):
        with pytest.raises(TensorifyScalarRestartAnalysis):
            ti.ask_torch_for_constants(frozenset({"zf7"}))
        ti.ask_torch_for_constants(frozenset({"zf7"}))  # asked before
    assert ti.floats_needed(TensorifyScalarRestartAnalysis()) == {"zf7"}


@checks("compiled_function", "Returns", "keeps_graph")
def test_the_function_that_records_gradients() -> None:
    gm = torch.fx.symbolic_trace(lambda x, y: (y.add_(1), x.sin().t()[1:], x.t()))
    mode = ti.new_fake_mode()
    kept = []
    with ti.tracing_context(mode):
        assert ti.compiled_function() is None
        x = torch.ones(3, 2, requires_grad=True)
        fakes = [mode.from_tensor(x), mode.from_tensor(torch.ones(2))]
        compiled = ti.aot_autograd()(gm, fakes, fw_compiler=lambda g, inputs: g.forward)
        function = ti.compiled_function()
        backward = function.backward
        function.backward = staticmethod(lambda *args: (kept.append(ti.keeps_graph()), backward(*args))[1])
        returns = ti.Returns.of(function)
    assert returns.inputs_changed == {1}
    assert returns.first_base - returns.first_result == 3
    result = compiled(x, torch.ones(2))[1]
    result.sum().backward(retain_graph=True)
    result.sum().backward()
    assert kept == [True, False]


@checks("ShortPasses")
def test_usual_graphs_have_short_passes(monkeypatch) -> None:
    made = []
    of = ti.ShortPasses.of
    monkeypatch.setattr(ti.ShortPasses, "of", lambda *args: made.append(of(*args)) or made[-1])
    torchmux.compile(lambda x: x.sin(), backend="aot_eager")(torch.ones(2, requires_grad=True)).sum().backward()
    assert len(made) == 1 and made[0] is not None


@checks("PlainPasses", "plain_function")
def test_passes_that_are_made_without_aot_autograd() -> None:
    mode, x = ti.new_fake_mode(), torch.tensor([1.0, 2.0], requires_grad=True)
    with ti.tracing_context(mode):
        gm = torch.fx.symbolic_trace(lambda x: (x.sin(), x.sign()))
        ti.aot_autograd()(gm, [mode.from_tensor(x)], fw_compiler=lambda g, inputs: g.forward)
        known = ti.PlainPasses.of(ti.compiled_function(), [torch.ones(2), torch.ones(2)])
    assert known is not None
    plain = ti.PlainPasses.again(known.told())
    assert vars(plain) == vars(known)
    asked = []

    def backward(args, missing):
        saved, first, _ = args
        return [saved.cos() * first * 10]

    function = ti.plain_function(
        lambda x: (x.sin(), x.sign(), x), backward, lambda m: asked.append(m) or len(asked) < 2
    )
    short = ti.ShortPasses.of(function, [x], plain)
    function.forward = staticmethod(lambda ctx, *args: short.forward(ctx, args))
    function.backward = staticmethod(lambda ctx, *g: short.backward(ctx, g[0] if short.is_boxed else list(g)) or None)
    short.called_by_engine(function.backward)
    for _ in range(2):
        x.grad = None
        short.apply(x)[0].sum().backward()
        torch.testing.assert_close(x.grad, None if len(asked) > 1 else x.detach().cos() * 10)
    assert asked == [(1,), (1,)]


@checks("module_without_code")
def test_a_module_has_no_code_before_it_is_called() -> None:
    traced = make_fx(torch.sin)(torch.ones(2))
    gm = ti.module_without_code(traced, traced.graph)
    assert "_code" not in vars(gm)
    assert torch.equal(gm(torch.ones(2)), torch.ones(2).sin()) and "sin" in gm._code


@checks("graphs_are_not_printed")
def test_graphs_are_printed_for_a_log_only(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = []
    monkeypatch.setattr(torch.fx.GraphModule, "print_readable", lambda gm, **settings: printed.append(gm) or "")

    def compiled() -> int:
        gm = torch.fx.symbolic_trace(lambda x: (x.sin(),))
        x = torch.ones(2, requires_grad=True)
        with ti.tracing_context(ti.new_fake_mode()), ti.graphs_are_not_printed():
            ti.aot_autograd()(gm, [x], fw_compiler=lambda gm, inputs: gm.forward)
        return len(printed)

    assert compiled() == 0
    log = logging.getLogger("torch._functorch._aot_autograd.graph_compile.__aot_graphs")
    level = log.level
    log.setLevel(logging.INFO)
    try:
        count = compiled()
    finally:
        log.setLevel(level)
    assert count
    assert compiled() == count  # what it changes is as it was
