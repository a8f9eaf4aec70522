"""The files of ``trace.enabled`` and ``trace.graph_diagram``: a graph at each step of its compilation."""

from __future__ import annotations

from torch.fx import GraphModule

from ..ir.expressions import Statement
from ..ir.program import Call, Program
from ..options import NativeOptions
from ..schedule.schedule import Schedule
from ..targets.target import Module
from .diagram import draw

_LONGEST = 2000
"""Expressions that are longer, written out as trees, are cut off."""


def files(
    gm: GraphModule, program: Program, plan: Schedule, made: Module, fusions: list[str], options: NativeOptions
) -> dict[str, str]:
    """The texts by file name."""
    found = {}
    if options.trace_enabled:
        found = {
            "graph.py": str(gm.print_readable(print_output=False)),
            "program.txt": "\n".join(_item(item) for item in program.items) + "\n",
            "fusion.txt": "\n".join(fusions) + "\n",
            f"code.{made.suffix}": made.code,
            "call.py": made.python,
        }
    if options.trace_graph_diagram:
        found["graph.svg"] = draw(program, plan)
    return found


def _item(item: Statement | Call | object) -> str:
    if not isinstance(item, Statement):
        return str(item)
    loops = ", ".join(f"{v} < {v.size}" for v in (*item.kept, *item.reduced))
    value = repr(item.value)
    if len(value) > _LONGEST:
        value = value[:_LONGEST] + " ..."
    reduced = f"{item.reduction} over {', '.join(map(str, item.reduced))} of " if item.reduction else ""
    return f"{item.target}[{item.position}] = {reduced}{value}  for {loops or 'one element'}"
