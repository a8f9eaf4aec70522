"""torch's own compiler, and what a program has told it."""

from __future__ import annotations

import torch

from torchmux import torch_internals as ti

from .walk import checks


@checks("optimized_module_class")
def test_compiled_module() -> None:
    assert isinstance(torch.compile(torch.nn.Linear(2, 2), backend="eager"), ti.optimized_module_class())


@checks("enters_a_context", "breaks_are_errors")
def test_error_on_graph_break() -> None:
    strictness = torch._dynamo.error_on_graph_break(True)
    assert ti.enters_a_context(strictness(torch.sin))
    assert not ti.enters_a_context(test_dynamo_config)
    assert not ti.breaks_are_errors()
    with strictness:
        assert ti.breaks_are_errors()


@checks("under_dynamo_config")
def test_dynamo_config() -> None:
    def function(x):
        return x

    assert ti.under_dynamo_config(torch._dynamo.dont_skip_tracing(function)) is function
    assert ti.under_dynamo_config(torch._dynamo.error_on_graph_break(True)(function)) is None
    assert ti.under_dynamo_config(function) is None


@checks("marked_for_torch")
def test_markers() -> None:
    def kept(x):
        return x

    assert ti.marked_for_torch(id(kept)) is None
    torch.compiler.allow_in_graph(kept)
    assert ti.marked_for_torch(id(kept)) == "allowed"
    torch._dynamo.disallow_in_graph(kept)
    assert ti.marked_for_torch(id(kept)) == "disallowed"


@checks("tracer_lock")
def test_tracer_lock() -> None:
    from torch._dynamo import convert_frame

    assert ti.tracer_lock() is convert_frame.compile_lock
    assert ti.tracer_lock().acquire(blocking=False)
    ti.tracer_lock().release()


@checks("listen_to_tracer", "questions_to_tracer", "asked_of_tracer")
def test_questions_to_the_tracer() -> None:
    def plain(x):
        return x + 1

    def asked_again(x):
        return x + 2

    torch.compile(plain, backend="eager")(torch.ones(2))
    assert ti.listen_to_tracer()
    assert plain.__code__ in ti.asked_of_tracer(-1)
    before = ti.questions_to_tracer[0]
    assert not ti.asked_of_tracer(before)
    compiled = torch.compile(asked_again, backend="eager", dynamic=False)
    for size in (2, 3, 3):
        compiled(torch.ones(size))
    assert ti.listen_to_tracer()
    assert ti.questions_to_tracer[0] > before
    assert [code for code in ti.asked_of_tracer(before) if code is asked_again.__code__]
    assert not [code for code in ti.asked_of_tracer(before) if code is plain.__code__]


@checks("inductor_compile_fx", "inductor_config")
def test_inductor() -> None:
    assert callable(ti.inductor_compile_fx().compile_fx)
    assert hasattr(ti.inductor_config(), "patch")


@checks("tell_static_inputs", "make_attributes", "is_marked_static")
def test_what_aot_autograd_is_told_of_inputs() -> None:
    from torch._functorch._aot_autograd.frontend_utils import _try_get_metadata_from_dynamo

    def capture() -> torch.fx.GraphModule:
        return torch.fx.symbolic_trace(lambda x, weight, count: x * weight + count)

    told = capture()
    ti.tell_static_inputs(told, {1, 2})
    sources, static = _try_get_metadata_from_dynamo(told, {}.keys(), 3, [])
    assert (len(set(sources)), static) == (3, [1, 2])

    weight, count = torch.nn.Parameter(torch.randn(2)), torch.ones(2)
    ti.make_attributes(told, {1: weight, 2: count})
    assert [p is weight for p in told.parameters()] == [b is count for b in told.buffers()] == [True]
    assert torch.equal(told(torch.ones(2)), weight + 1)
    names = {**dict(told.named_parameters()), **dict(told.named_buffers())}
    sources, static = _try_get_metadata_from_dynamo(told, names.keys(), 3, [])
    assert (len(set(sources)), static) == (3, [0, 1])

    assert not ti.is_marked_static(count)
    torch._dynamo.mark_static_address(count)
    assert ti.is_marked_static(count)


@checks("begin_cudagraph_step")
def test_step_of_cuda_graphs() -> None:
    from torch._inductor.cudagraph_trees import CUDAGraphTreeManager

    before = CUDAGraphTreeManager.get_curr_generation()
    ti.begin_cudagraph_step()
    assert CUDAGraphTreeManager.get_curr_generation() == before + 1
