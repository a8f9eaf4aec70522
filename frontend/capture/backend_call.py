"""Calls the backend, handles its failures, and checks its result."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch.fx

from torchmux import torch_internals as ti
from torchmux.config import config
from torchmux.registry.errors import BackendUnavailable, CompilationFailed
from torchmux.registry.plain import PlainGraph
from torchmux.registry.report import GraphReport, place_all
from torchmux.registry.resolve import ResolvedBackend

from ..default_backend import DefaultBackend
from . import buckets, pieces, reproducer
from .verify import Verified

log = logging.getLogger("torchmux")

CompileGraph = Callable[[Any, list, bool, tuple[int, ...]], Callable[..., Sequence[Any]]]


def compile_graph_with(given: ResolvedBackend | DefaultBackend) -> CompileGraph:
    """The function ``(graph, example_inputs, training, static_inputs)`` that compiles for a backend.

    ``config.suppress_errors`` and ``config.verify_correctness`` act here.
    """

    def compile_graph(gm: Any, inputs: list, training: bool, static: tuple[int, ...]) -> Callable[..., Sequence[Any]]:
        resolved = given.for_inputs(inputs) if isinstance(given, DefaultBackend) else given
        # a backend may change the given graph and then fail
        original = _copy(gm) if config.suppress_errors or config.verify_correctness else gm
        text = str(gm.code)
        try:
            compiled: Any = _compiled(resolved, gm, inputs, training, static)
        except (CompilationFailed, BackendUnavailable) as error:
            if config.suppress_errors and not resolved.strict:
                log.warning("torch runs a graph that %s failed to compile: %s", resolved.name, error)
                return _eager(resolved, original, training, error)
            if isinstance(error, CompilationFailed):
                raise _with_reproducer(error, resolved.name, gm, text, inputs) from error.__cause__
            raise
        compiled.report.chosen = resolved.why
        return Verified(compiled, original, resolved.name) if config.verify_correctness else compiled

    compile_graph.backend = given  # type: ignore[attr-defined]  # for torchmux.save
    return compile_graph


def _compiled(resolved: ResolvedBackend, gm: Any, inputs: list, training: bool, static: tuple[int, ...]) -> Any:
    """What the backend makes of a graph; of a training graph inside ``DistributedDataParallel``, piece by piece."""
    told = ti.buckets_of_running_ddp() if training and config.split_at_ddp_buckets else None
    # eager hands out each gradient as soon as it has it
    at = buckets.cuts(gm, inputs, told) if told is not None and resolved.name != "eager" else []
    if told is None or not at:
        return resolved.compile(gm, inputs, training=training, static_inputs=static)
    parts = pieces.split(gm, at)
    given = {position: index for index, position in enumerate(_placeholders(gm))}
    # Each rank begins elsewhere, and finds in the artifact cache what another has compiled.
    begin = len(parts) * told.rank // told.ranks
    for part in (*parts[begin:], *parts[:begin]):
        values = [
            inputs[given[position]] if position in given else pieces.example(node.meta["example_value"])
            for position, node in zip(part.takes, part.gm.graph.find_nodes(op="placeholder"), strict=True)
        ]
        fixed = tuple(index for index, position in enumerate(part.takes) if given.get(position) in static)
        part.compiled = resolved.compile(part.gm, values, training=True, static_inputs=fixed)
    return pieces.Pieces(gm, parts)


def _placeholders(gm: torch.fx.GraphModule) -> list[int]:
    return [position for position, node in enumerate(gm.graph.nodes) if node.op == "placeholder"]


def _copy(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    output = graph.graph_copy(gm.graph, {})
    graph.output(output)
    return torch.fx.GraphModule(gm, graph)


def _eager(resolved: ResolvedBackend, gm: Any, training: bool, error: Exception) -> PlainGraph:
    report = GraphReport(resolved.name, phase="training" if training else "inference")
    placements = place_all(gm.graph, "eager", f"compiler error: {type(error).__name__}: {error}", "torch")
    report.placements = [dataclasses.replace(p, compiler_error=True) for p in placements]
    return PlainGraph(gm, report)


def _with_reproducer(error: CompilationFailed, backend: str, gm: Any, text: str, inputs: list) -> CompilationFailed:
    written = reproducer.write(backend, gm, text, inputs)
    kept = ""
    if written is not None:
        kept = f" The graph is in {written[0]}" + (": run it to reproduce only this error." if written[1] else ".")
    failed = CompilationFailed(f"{error}{kept}")
    failed.graph = text
    failed.reproducer = written[0] if written is not None else None
    return failed
