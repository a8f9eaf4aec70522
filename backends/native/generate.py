"""From a graph to an artifact: lowering, fusion, code, shared object.  Only imported where something is compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule

from ..common.decompose import core_aten
from ..common.refusal import NodesRefused
from . import artifact, build, graph, ir, packing
from .kernel import Kernel
from .lowering import table
from .module import assemble
from .options import NativeOptions
from .schedule import Schedule, schedule


@functools.cache
def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """torch's table without what is lowered directly."""
    return {op: function for op, function in core_aten().items() if op not in table}


def generate(gm: GraphModule, options: NativeOptions, *, timed: bool) -> bytes:
    """The artifact: what the graph was refused for, or the sources and the shared object."""
    with ir.lock:
        try:
            program = graph.lower(gm)
            plan = schedule(program, fusion=options.fusion)
            made = assemble(program, plan, timed=timed)
        except NodesRefused as refusal:
            reasons = {n: refusal.reasons.get(node.name) for n, node in enumerate(gm.graph.nodes)}
            return artifact.of_refusal({n: reason for n, reason in reasons.items() if reason is not None})
        finally:
            ir.forget()
    library = build.compile_source(made.cpp, options.optimize) if "run0" in made.cpp else b""
    head = {
        "python": made.python,
        "cpp": made.cpp,
        "constants": made.constants,
        "names": [b.name for b in program.buffers if b.name in program.constants],
        "packs": packing.as_json(made.packs),
        "notes": _notes(made.calls),
        "timers": made.timers,
        "fusion": _fusions(plan),
    }
    return artifact.of_code(head, library)


def _fusions(plan: Schedule) -> list[str]:
    """What was fused, and why the rest was not, in sentences."""
    fused = [
        f"{step.name} are one kernel." for step in plan.steps if isinstance(step, Kernel) and len(step.members) > 1
    ]
    return fused + plan.apart


def _notes(calls: Sequence[str]) -> list[str]:
    """What a report says apart: which operators torch's kernels run."""
    if not calls:
        return []
    counts = {name: calls.count(name) for name in dict.fromkeys(calls)}
    told = ", ".join(f"{name} ({count})" if count > 1 else name for name, count in counts.items())
    return [f"native calls torch's kernels for {told}"]
