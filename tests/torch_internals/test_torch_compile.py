"""torch's own compiler, and what a program has told it."""

from __future__ import annotations

import torch

from torchmux import torch_internals as ti

from .walk import checks


@checks("optimized_module_class")
def test_compiled_module() -> None:
    assert isinstance(torch.compile(torch.nn.Linear(2, 2), backend="eager"), ti.optimized_module_class())


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


@checks("inductor_compile_fx", "inductor_config")
def test_inductor() -> None:
    assert callable(ti.inductor_compile_fx().compile_fx)
    assert hasattr(ti.inductor_config(), "patch")
