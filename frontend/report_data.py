"""A report as plain data: what JSON, a page or another program can read."""

from __future__ import annotations

import dataclasses
import math
import platform
from typing import TYPE_CHECKING, Any

import torch

from torchmux.registry.report import operator_name
from torchmux.version import __version__

from .breaks import CATALOGUE, BreakRecord
from .trace.recorder import MODULES, USER_STACK

if TYPE_CHECKING:
    from .explain import GraphEntry, Report

FORMAT = 1
"""Raised when a field changes its meaning or goes; new fields may come at any time."""


def data(report: Report) -> dict[str, Any]:
    """All of a report; a share of nothing is None."""
    return {
        "format": FORMAT,
        "environment": {
            "torchmux": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
        },
        "name": report.name,
        "runs": report.runs,
        "share": None if math.isnan(report.share) else report.share,
        "kinds": dict(report.kinds),
        "shares": dict(report.shares),
        "seconds": dict(report.seconds),
        "graphs": [_graph(entry) for entry in report.graphs],
        "breaks": [_break(record) for record in report.breaks],
        "recompiles": list(report.recompiles),
        "calls": [
            {
                "name": each.name,
                "function": each.function,
                "resume": each.resume,
                "compiled": each.compiled,
                "eager": dict(each.eager),
                "or_more": sorted(each.more),
                "left": each.left,
            }
            for each in report.calls
        ],
        "left_to_eager": list(report.left_to_eager),
    }


def _graph(entry: GraphEntry) -> dict[str, Any]:
    report = entry.report
    return {
        "name": entry.name,
        "function": entry.function,
        "place": entry.place,
        "id": entry.id,
        "number": entry.number,
        "resume": entry.resume,
        "calls": entry.calls,
        "reason": entry.reason,
        "backend": report.backend,
        "chosen": report.chosen,
        "phase": report.phase,
        "members": list(report.members),
        "partitions": report.partitions,
        "cache_hits": report.cache_hits,
        "replaced": report.replaced,
        "kinds": dict(report.kinds),
        "share": report.share,
        "seconds": dict(entry.seconds),
        "spans": [span._asdict() for span in entry.spans],
        "guards": entry.guards,
        "notes": list(report.notes),
        "calls_in_torch": {each.why: each.count for each in report.calls_in_torch if each.count},
        "crossings": [str(crossing) for crossing in report.crossings],
        "placements": [{**dataclasses.asdict(p), "kind": report.kind_of(p)} for p in report.placements],
        "nodes": _nodes(entry.graph, entry.parameters),
        "code": str(entry.graph.code).strip(),
        "output_code": list(report.output_code),
        "kernel_seconds": [[[step, seconds] for step, seconds in part] for part in report.kernel_seconds],
    }


def _nodes(gm: torch.fx.GraphModule, parameters: frozenset[str]) -> list[dict[str, Any]]:
    """The captured graph; nodes name one another by position, as ``Placement.origin`` does."""
    position = {node: at for at, node in enumerate(gm.graph.nodes)}
    return [
        {
            "name": node.name,
            "op": node.op,
            "calls": operator_name(node) if node.op.startswith("call_") else str(node.target),
            "inputs": [position[each] for each in node.all_input_nodes],
            "modules": list(node.meta.get(MODULES, ())),
            "where": node.meta.get("source_line"),
            "stack": [list(place) for place in node.meta.get(USER_STACK, ())],
            "parameter": node.op == "placeholder" and node.name in parameters,
            "value": _value(node.meta.get("example_value")),
        }
        for node in gm.graph.nodes
    ]


def _value(value: Any) -> str:
    """``float32[2, 8]``; nothing for what is no tensor, or unknown."""
    if not isinstance(value, torch.Tensor):
        return ""
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"


def _break(record: BreakRecord) -> dict[str, Any]:
    kind = CATALOGUE[record.kind]
    return {
        "kind": record.kind,
        "what": kind.what,
        "reason": record.reason,
        "fix": kind.fix,
        "where": record.where,
        "frames": [list(place) for place in record.frames],
        "whole_frame": record.whole_frame,
    }
