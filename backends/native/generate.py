"""From a graph to an artifact: lowering, fusion, code, what a target builds of it.  Only imported where something is
compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any

from torch.fx import GraphModule

from torchmux.config import config
from torchmux.registry.errors import GraphRefused, NodesRefused
from torchmux.stages import stage

from ..common.cache import code_or_refusal
from ..common.pipeline.decompose import core_aten
from .inspect import hints
from .ir import expressions
from .ir.expressions import Buffer
from .ir.operations import Unsupported
from .ir.program import Program
from .ir.verify import verify_program
from .lowering import calls, graph
from .options import NativeOptions
from .rewrites import embeddings, norms
from .schedule.reinplace import reinplace
from .schedule.schedule import schedule
from .schedule.verify import verify_schedule
from .targets.target import Target


@functools.cache
def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """torch's table without what is lowered or called directly, and with formulas of our own."""
    table = core_aten()
    own = embeddings.of_few_rows(table[embeddings.OP])
    wanted = {op: function for op, function in {**table, **own}.items() if not calls.stays_whole(op)}
    return {**wanted, norms.NORM: norms.by_formula}


def generate(
    gm: GraphModule, target: Target, options: NativeOptions, *, timed: bool, weights: Collection[int] = ()
) -> bytes:
    """The artifact: what the graph was refused for, or its code.

    ``weights`` are the inputs that :mod:`.rewrites.freezing` would take for constants.

    Raises:
        GraphRefused: inputs or results are nothing that code can be made for.
    """
    with expressions.lock, stage("code"):
        try:
            with stage("lowering"):
                program = graph.lower(
                    gm, target, padded=options.shape_padding, own_products=options.matmul != "library"
                )
            if config.debug:
                verify_program(program, "lowering")
            target.select(program, options)
            libraries = _library_calls(program, target, gm)
            reinplace(program)
            if config.debug:
                verify_program(program, "selection")
            plan = schedule(program, fusion=options.fusion, epilogues=options.epilogue_fusion)
            if config.debug:
                verify_schedule(plan, program, "fusion")
            made = target.assemble(program, plan, options, timed=timed)
            fusions = hints.fusions(plan)
            performance = hints.performance(plan, target.hints(program, plan, weights))
            traced: dict[str, str] = {}
            if options.traces:
                from .inspect import tracing

                traced = tracing.files(gm, program, plan, made, fusions, options)
        except NodesRefused as refusal:
            reasons = {n: refusal.reasons.get(node.name) for n, node in enumerate(gm.graph.nodes)}
            return code_or_refusal.of_refusal({n: reason for n, reason in reasons.items() if reason is not None})
        except Unsupported as why:  # of what comes in or goes out, which is no node's
            raise GraphRefused(f"native: {why}") from why
        finally:
            expressions.forget()
    head = {
        "target": target.name,
        "python": made.python,
        "code": made.code,
        "constants": made.constants,
        "names": made.names,
        "own": made.own,
        "notes": [],
        "library_calls": libraries,
        "kernels": hints.kernels(plan, gm),
        "timers": made.timers,
        "keep_scratch": options.keep_scratch,
        "replay": _replay(program) if options.cudagraphs else None,
        "fusion": fusions,
        "perf_hints": performance,
        "trace": traced,
        "trace_dir": None if options.trace_debug_dir is None else str(options.trace_debug_dir),
    }
    with stage("compiler"):
        built = target.build(made, options)
    return code_or_refusal.of_code(head, built)


def _replay(program: Program) -> dict[str, Any] | None:
    """How :mod:`.replaying` records the code of ``program``; None where there is nothing to record."""
    if program.device.type != "cuda":
        return None
    inputs = {b: at for at, b in enumerate(program.inputs) if isinstance(b, Buffer)}
    return {
        "device": str(program.device),
        "symbolic": bool(program.symbols) or len(inputs) < len(program.inputs),
        "writes": sorted(inputs[b.over] for b in program.buffers if b.over is not None),
    }


def _library_calls(program: Program, target: Target, gm: GraphModule) -> list[tuple[int, str]]:
    """Which nodes of ``gm``, by position, library kernels compute, and their names."""
    position = {node: at for at, node in enumerate(gm.graph.nodes)}
    found: dict[int, str] = {}
    for item in program.items:
        name = target.library_of(item)
        if name is not None:
            found.update((position[node], name) for node in item.origins if node in position)
    return sorted(found.items())
