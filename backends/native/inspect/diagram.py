"""A drawing of a fused graph: kernels, matrix products, calls to torch, and the buffers that pass between them.

Boxes are in layers, each below everything that it reads from.  Within a layer they are ordered by the position of their
inputs, which prevents most lines from crossing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any

from torchmux.quoting import quoted

from ...common.pipeline.lines import line_of
from ...common.pipeline.symbols import is_symbolic
from ..ir.expressions import Buffer
from ..ir.ordered_loops import Scan, Scatter
from ..ir.products import Attention, ComputedProduct, Convolution, FinishedProduct, Product
from ..ir.program import Call, Program, TensorRef
from ..schedule.kernel import Kernel
from ..schedule.schedule import Schedule

_LINE, _CHARACTER, _MARGIN = 15, 6.7, 10
_BETWEEN, _LAYER = 24, 56
_MOST_LINES = 10
_COLORS = {"input": "#e8e8e8", "output": "#e8e8e8", "kernel": "#d7ebd0", "product": "#d5e3f5", "call": "#f7dfc8"}


@dataclass(eq=False)
class _Box:
    kind: str
    lines: list[str]
    reads: set[Buffer]
    writes: set[Buffer]
    hints: list[str] = field(default_factory=list)  # shown when pointed at
    layer: int = 0
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return max(map(len, self.lines)) * _CHARACTER + 2 * _MARGIN

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE + _MARGIN


def draw(program: Program, plan: Schedule) -> str:
    """The schedule as SVG."""
    boxes = [_input(b) for b in program.inputs if isinstance(b, Buffer)]
    boxes += [_step(step) for step in plan.steps]
    results = {ref.buffer for ref in program.outputs if isinstance(ref, TensorRef)}
    boxes += [
        _Box("output", [f"output {b.name}", _shape(b)], {b}, set()) for b in sorted(results, key=lambda b: b.name)
    ]
    edges = _edges(boxes)
    used = {box for a, b, _ in edges for box in (a, b)}
    boxes = [box for box in boxes if box in used or box.kind not in ("input", "output")]
    _place(boxes, edges)
    return _svg(boxes, edges)


def _input(buffer: Buffer) -> _Box:
    return _Box("input", [f"input {buffer.name}", _shape(buffer)], set(), {buffer})


def _shape(buffer: Buffer) -> str:
    return f"{str(buffer.dtype).removeprefix('torch.')}[{', '.join(map(str, buffer.sizes))}]"


_PRODUCTS = (Product, FinishedProduct, ComputedProduct, Convolution, Attention)


def _step(step: Any) -> _Box:
    if isinstance(step, Kernel):
        origins = [node for member in step.members for node in member.statement.origins]
        title = "kernel, reduces" if step.inner else "kernel"
        kind = "kernel"
    else:
        origins = step.origins
        kind = "product" if isinstance(step, _PRODUCTS) else "call"
        title = f"torch: {quoted(step.op)}" if isinstance(step, Call) else _title(step)
    names: dict[str, None] = {}
    hints: dict[str, None] = {}
    for node in origins:
        if node is None or is_symbolic(node):
            continue
        names[quoted(str(node.target).removeprefix("aten."))] = None
        line = line_of(node)
        hints[f"{quoted(node.target)} at {quoted(line)}" if line else quoted(node.target)] = None
    shown = list(names)
    if len(shown) > _MOST_LINES:
        shown = [*shown[:_MOST_LINES], f"and {len(names) - _MOST_LINES} more"]
    return _Box(kind, [title, *(shown if kind == "kernel" else [])], set(step.reads), set(step.writes), list(hints))


_TITLES = {
    Product: "matrix product",
    ComputedProduct: "matrix product",
    FinishedProduct: "matrix product, finished",
    Convolution: "convolution",
    Attention: "attention",
    Scan: "scan",
    Scatter: "scatter",
}


def _title(step: Any) -> str:
    """What a step is, whatever a target has made of it."""
    return next((title for kind, title in _TITLES.items() if isinstance(step, kind)), "")


_Edge = tuple[_Box, _Box, list[Buffer]]


def _edges(boxes: list[_Box]) -> list[_Edge]:
    """Who reads what of whom; boxes are in the order in which they run."""
    writer: dict[Buffer, list[_Box]] = {}
    found: list[_Edge] = []
    for box in boxes:
        sources: dict[_Box, list[Buffer]] = {}
        for buffer in sorted(box.reads, key=lambda b: b.name):
            for source in writer.get(buffer, ()):
                sources.setdefault(source, []).append(buffer)
        found += [(source, box, buffers) for source, buffers in sources.items() if source is not box]
        for buffer in box.writes:
            writer.setdefault(buffer, []).append(box)
    return found


def _place(boxes: list[_Box], edges: list[_Edge]) -> None:
    for a, b, _ in edges:  # they come in the order in which the boxes run
        b.layer = max(b.layer, a.layer + 1)
    for box in boxes:
        if box.kind == "input":  # just above the first that reads it
            box.layer = min((b.layer for a, b, _ in edges if a is box), default=1) - 1
    layers: dict[int, list[_Box]] = {}
    for box in boxes:
        layers.setdefault(box.layer, []).append(box)
    y = float(_MARGIN)
    for number in sorted(layers):
        layer = layers[number]
        above = {b: [a.x + a.width / 2 for a, other, _ in edges if other is b] for b in layer}
        layer.sort(key=lambda b: sum(above[b]) / len(above[b]) if above[b] else 0.0)
        x = float(_MARGIN)
        for box in layer:
            wanted = sum(above[box]) / len(above[box]) - box.width / 2 if above[box] else x
            box.x, box.y = max(x, wanted), y
            x = box.x + box.width + _BETWEEN
        y += max(box.height for box in layer) + _LAYER


def _svg(boxes: list[_Box], edges: list[_Edge]) -> str:
    width = max((b.x + b.width for b in boxes), default=0) + _MARGIN
    height = max((b.y + b.height for b in boxes), default=0) + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="11">',
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>',
    ]
    for a, b, buffers in edges:
        x1, y1, x2, y2 = a.x + a.width / 2, a.y + a.height, b.x + b.width / 2, b.y
        bend = (y2 - y1) / 2
        told = escape(", ".join(f"{buffer.name}: {_shape(buffer)}" for buffer in buffers))
        parts.append(
            f'<path d="M{x1:.1f} {y1:.1f} C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2:.1f}" '
            f'fill="none" stroke="#555" marker-end="url(#end)"><title>{told}</title></path>'
        )
    for box in boxes:
        parts.append(f'<g class="{box.kind}"><title>{escape(chr(10).join(box.hints or box.lines))}</title>')
        parts.append(
            f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="4" '
            f'fill="{_COLORS[box.kind]}" stroke="#333"/>'
        )
        for at, line in enumerate(box.lines):
            y = box.y + _MARGIN / 2 + (at + 0.8) * _LINE
            weight = ' font-weight="bold"' if at == 0 else ""
            parts.append(f'<text x="{box.x + _MARGIN:.1f}" y="{y:.1f}"{weight}>{escape(line)}</text>')
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"
