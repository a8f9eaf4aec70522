"""torch's own compiler: what a program has told it, what it makes, and the parts that the peer adapter runs."""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Collection, Mapping
from typing import Any

questions_to_tracer = [0]  # how often the hook asked torch's own tracer about a frame, as far as we listened
_asked: dict[int, tuple[weakref.ref[Any], int]] = {}  # id of code -> it, the number of the latest question


def optimized_module_class() -> tuple[type, ...]:
    """The class of what ``torch.compile`` makes of modules; none where it has not been imported."""
    frontend = sys.modules.get("torch._dynamo.eval_frame")
    found = getattr(frontend, "OptimizedModule", None)
    return () if found is None else (found,)


def enters_a_context(function: Any) -> bool:
    """Whether a function is what a decorator of torch's own tracer makes: a call within a context manager."""
    return function.__module__ == "torch._dynamo.external_utils" and "wrap_dunder_call_ctx" in function.__qualname__


def breaks_are_errors() -> bool:
    """Whether the program is inside of ``torch._dynamo.error_on_graph_break(True)``."""
    utils = sys.modules.get("torch._dynamo.utils")
    return utils is not None and utils._get_error_on_graph_break() is True


def under_dynamo_config(function: Any) -> Any:
    """The function that torch's own tracer runs under another configuration of its own, if ``function`` is that."""
    if not enters_a_context(function):
        return None
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    context = cells["self"].cell_contents
    return cells["func"].cell_contents if type(context).__name__ == "DynamoConfigPatchProxy" else None


def marked_for_torch(function_id: int) -> str | None:
    """What the program told torch's own tracer to do with a function: "allowed" or "disallowed" in graphs, or None."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    if rules is None:
        return None
    if function_id in rules._allowed_callable_ids:
        return "allowed"
    return "disallowed" if function_id in rules._disallowed_callable_ids else None


def tracer_lock() -> Any:
    """The lock under which torch's own tracer captures and compiles; None where the tracer has not been imported."""
    return getattr(sys.modules.get("torch._dynamo.convert_frame"), "compile_lock", None)


def listen_to_tracer() -> bool:
    """Count what torch's own tracer is asked from now on, and was before; False where it has not been imported.

    It keeps what it was asked about, for its ``reset``; nothing tells what it answered.
    """
    tracker = getattr(sys.modules.get("torch._dynamo.convert_frame"), "input_codes", None)
    if tracker is None:
        return False
    if "add" not in vars(tracker):
        add = tracker.add

        def noting(code: types.CodeType) -> None:
            _note(code)
            add(code)

        tracker.add = noting
        for reference in list(tracker.seen):
            if (code := reference()) is not None:
                _note(code)
    return True


def _note(code: types.CodeType) -> None:
    questions_to_tracer[0] += 1
    key = id(code)
    reference = _asked[key][0] if key in _asked else weakref.ref(code, lambda _: _asked.pop(key, None))
    _asked[key] = (reference, questions_to_tracer[0])


def asked_of_tracer(since: int) -> list[types.CodeType]:
    """The code that torch's own tracer was asked about after so many questions."""
    found = [reference() for reference, latest in list(_asked.values()) if latest > since]
    return [code for code in found if code is not None]


def inductor_compile_fx() -> Any:
    """The module ``torch._inductor.compile_fx``."""
    from torch._inductor import compile_fx

    return compile_fx


def inductor_config() -> Any:
    """The settings of torch's Inductor."""
    from torch._inductor import config

    return config


def tell_static_inputs(gm: Any, static: Collection[int]) -> None:
    """Note in ``gm`` that the inputs at ``static`` keep their addresses, as torch's own frontend does in its graphs.

    AOTAutograd then recomputes views of them instead of keeping them for backward, and Inductor neither copies them
    for CUDA graphs nor checks their alignment in each call.  Of a graph with these notes AOTAutograd also takes for
    granted that somebody checks which inputs overlap, where sizes are symbolic.
    """
    from torch._dynamo.source import LocalSource

    gm.meta["dynamo_compile_id"] = None  # that it is there says where the graph is from
    gm._param_name_to_source = {}
    for position, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        node._dynamo_source = LocalSource(node.name)
        if position in static:
            node.meta["tensor_dict"] = {"_dynamo_static_input_type": "unguarded"}


def make_attributes(gm: Any, tensors: Mapping[int, Any]) -> None:
    """Replace the inputs of ``gm`` at these positions by parameters and buffers of it: they are what Inductor freezes.

    Call :func:`tell_static_inputs` first.
    """
    import torch

    for position, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        if position not in tensors:
            continue
        name, tensor = f"frozen_{position}", tensors[position]
        if isinstance(tensor, torch.nn.Parameter):
            gm.register_parameter(name, tensor)
        else:
            gm.register_buffer(name, tensor)
        gm._param_name_to_source[name] = node._dynamo_source
        with gm.graph.inserting_before(node):
            attribute = gm.graph.get_attr(name)
        attribute.meta.update(node.meta)
        node.replace_all_uses_with(attribute)
        gm.graph.erase_node(node)
    gm.recompile()


def is_marked_static(tensor: Any) -> bool:
    """Whether ``torch._dynamo.mark_static_address`` has been called with ``tensor``."""
    return getattr(tensor, "_dynamo_static_input_type", None) is not None


def begin_cudagraph_step() -> None:
    """Tell Inductor's CUDA graphs that the program calls compiled code anew, as torch's frontend does in each call.

    Their memory of the call before is used again from here on.
    """
    from torch._dynamo.mutation_guard import GenerationTracker

    GenerationTracker.generation += 1
