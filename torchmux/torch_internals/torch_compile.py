"""torch's own compiler: what a program has told it, what it makes, and the parts that the peer adapter runs."""

from __future__ import annotations

import sys
from typing import Any


def optimized_module_class() -> tuple[type, ...]:
    """The class of what ``torch.compile`` makes of modules; none where it has not been imported."""
    frontend = sys.modules.get("torch._dynamo.eval_frame")
    found = getattr(frontend, "OptimizedModule", None)
    return () if found is None else (found,)


def under_dynamo_config(function: Any) -> Any:
    """The function that torch's own tracer runs under another configuration of its own, if ``function`` is that."""
    if function.__module__ != "torch._dynamo.external_utils" or "wrap_dunder_call_ctx" not in function.__qualname__:
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


def inductor_compile_fx() -> Any:
    """The module ``torch._inductor.compile_fx``."""
    from torch._inductor import compile_fx

    return compile_fx


def inductor_config() -> Any:
    """The settings of torch's Inductor."""
    from torch._inductor import config

    return config
