"""From a graph to an artifact: lowering, fusion, code, shared object.  Only imported where something is compiled."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ..common.adapter.refusal import NodesRefused
from ..common.pipeline.decompose import core_aten
from . import artifact
from .inspect import hints
from .ir import expressions
from .lowering import calls, graph
from .options import NativeOptions
from .schedule.schedule import schedule
from .targets.cpu import build, packing
from .targets.cpu.module import assemble


@functools.cache
def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """torch's table without what is lowered or called directly."""
    return {op: function for op, function in core_aten().items() if not calls.stays_whole(op)}


def generate(gm: GraphModule, options: NativeOptions, *, timed: bool, weights: Collection[int] = ()) -> bytes:
    """The artifact: what the graph was refused for, or the sources and the shared object.

    ``weights`` are the inputs that :mod:`freezing` would take for constants.
    """
    with expressions.lock:
        try:
            own = options.matmul != "library"
            program = graph.lower(gm, padded=options.shape_padding, own_convolutions=own)
            plan = schedule(program, fusion=options.fusion, epilogues=options.epilogue_fusion)
            made = assemble(program, plan, timed=timed, own_products=own)
            fusions, performance = hints.fusions(plan), hints.performance(program, plan, weights)
            traced: dict[str, str] = {}
            if options.traces:
                from .inspect import tracing

                traced = tracing.files(gm, program, plan, made, fusions, options)
        except NodesRefused as refusal:
            reasons = {n: refusal.reasons.get(node.name) for n, node in enumerate(gm.graph.nodes)}
            return artifact.of_refusal({n: reason for n, reason in reasons.items() if reason is not None})
        finally:
            expressions.forget()
    pieces = made.source.pieces(torch.get_num_threads()) if made.source.main else []
    library = build.compile_source(*pieces, optimize=options.optimize) if pieces else b""
    head = {
        "python": made.python,
        "cpp": made.source.whole(),
        "constants": made.constants,
        "names": [b.name for b in program.buffers if b.name in program.constants],
        "packs": packing.as_json(made.packs),
        "products": [dataclasses.astuple(shape) for shape in made.products],
        "notes": _notes(made.calls),
        "timers": made.timers,
        "keep_scratch": options.keep_scratch,
        "fusion": fusions,
        "perf_hints": performance,
        "trace": traced,
        "trace_dir": None if options.trace_debug_dir is None else str(options.trace_debug_dir),
    }
    return artifact.of_code(head, library)


def _notes(calls: Sequence[str]) -> list[str]:
    """What a report says apart: which operators torch's kernels run."""
    if not calls:
        return []
    counts = {name: calls.count(name) for name in dict.fromkeys(calls)}
    told = ", ".join(f"{name} ({count})" if count > 1 else name for name, count in counts.items())
    return [f"native calls torch's kernels for {told}"]
