"""``TORCHMUX_LOGS=fusion,perf_hints``: what was fused and what was not, and what keeps a graph from running faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchmux.quoting import quoted

from ...common.pipeline.lines import line_of
from ..ir.expressions import Buffer
from ..ir.program import Call
from ..schedule.kernel import Kernel
from ..schedule.schedule import Schedule

_MOST = 3
"""How many operators of a kernel, or places of the program, are named."""


def fusions(plan: Schedule) -> list[str]:
    """What was fused, and why neighbours were not, in a sentence each."""
    fused = [
        f"{_named(step)} are one kernel." for step in plan.steps if isinstance(step, Kernel) and len(step.members) > 1
    ]
    return fused + [f"{_named(a)} and {_named(b)} are not fused: {why}." for a, b, why in plan.apart]


def kernels(plan: Schedule, gm: Any) -> list[tuple[int, str]]:
    """The step that computes each node of ``gm``, by position, as :func:`fusions` calls it: by the buffers it makes."""
    position = {node: at for at, node in enumerate(gm.graph.nodes)}
    found: dict[int, str] = {}
    for step in plan.steps:
        if isinstance(step, Call):
            continue
        made = step.name if isinstance(step, Kernel) else str(step.target)
        nodes = [n for m in step.members for n in m.statement.origins] if isinstance(step, Kernel) else step.origins
        found.update((position[node], made) for node in nodes if node in position)
    return sorted(found.items())


def _named(kernel: Any) -> str:
    """The buffers that a kernel computes, and which operators those are."""
    operators: dict[str, str | None] = {}
    for member in kernel.members:
        for node in member.statement.origins:
            operators.setdefault(quoted(node.target), _line(node))
    words = list(operators)[:_MOST]
    more = f" and {len(operators) - _MOST} more" if len(operators) > _MOST else ""
    line = next((line for line in operators.values() if line), None)
    return f"{kernel.name} ({', '.join(words)}{more}{f' at {line}' if line else ''})"


def _line(node: Any) -> str | None:
    line = line_of(node)
    return None if line is None else quoted(line)


def performance(plan: Schedule, of_target: Sequence[str]) -> list[str]:
    """What keeps the code from being faster, what costs most first; ``of_target`` is what the target says itself."""
    return [*_calls(plan), *of_target, *_through_memory(plan)]


def _calls(plan: Schedule) -> list[str]:
    places: dict[str, list[str | None]] = {}
    for step in plan.steps:
        if isinstance(step, Call):
            places.setdefault(quoted(step.op), []).append(next(map(_line, step.origins), None))
    found = []
    for op, lines in places.items():
        known = list(dict.fromkeys(line for line in lines if line))
        where = f" at {', '.join(known[:_MOST])}" if known else ""
        times = f" {len(lines)} times" if len(lines) > 1 else ""
        found.append(f"torch's kernel runs {op}{times}{where}: nothing is fused with it.")
    return found


def _through_memory(plan: Schedule) -> list[str]:
    """The largest buffers that one kernel writes for another."""
    writer: dict[Buffer, Kernel] = {}
    found: dict[Buffer, int] = {}
    for step in plan.steps:
        for buffer in step.reads:
            if buffer in writer and writer[buffer] is not step and isinstance(step, Kernel):
                size = buffer.numel
                if type(size) is int:
                    found[buffer] = size * buffer.dtype.itemsize
        if isinstance(step, Kernel):
            writer.update(dict.fromkeys(step.writes, step))
    largest = sorted(found.items(), key=lambda item: -item[1])[:_MOST]
    return [
        f"{buffer} ({size / 2**20:.2f} MiB) goes through memory from {_named(writer[buffer])} to another kernel; "
        f"TORCHMUX_LOGS=fusion says why these are two kernels."
        for buffer, size in largest
    ]
