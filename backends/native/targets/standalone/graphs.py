"""From a graph to C++ that runs it without torch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from torchmux import torch_internals as internals
from torchmux.compile_lock import shared
from torchmux.registry.errors import NodesRefused

from ....common.pipeline import aot
from ....common.pipeline.decompose import core_aten
from ....common.pipeline.lines import line_of
from ...generate import decompositions
from ...ir import expressions
from ...ir.expressions import Buffer
from ...ir.operations import Unsupported
from ...ir.products import Attention
from ...ir.program import Call, TensorRef
from ...ir.values import Value
from ...lowering import calls, graph
from ...options import NativeOptions
from ...rewrites.attention_operator import ATTENTION
from ...schedule import host
from ...schedule.reinplace import reinplace
from ...schedule.schedule import schedule
from ..cpu.target import Cpu
from .assembler import Assembler, Taken
from .host import MOST_DIMENSIONS, print_host

_aten = torch.ops.aten


@dataclass(frozen=True)
class Refused(Exception):
    """A graph that cannot run without torch; ``reasons`` has a line for each operator."""

    reasons: list[str]


def print_graph(gm: GraphModule, name: str, inputs: Sequence[str], held: Callable[[Tensor], str]) -> str:
    """The C++ namespace ``name``, whose function ``run`` computes what ``gm`` does.

    Args:
        gm: a captured graph; its tensors must not require gradients.
        inputs: a C++ expression for each placeholder: an address, or a number.
        held: the C++ expression for the address of a tensor that the graph holds.

    Raises:
        Refused: some of it is left to torch's kernels, or changes its inputs.
    """
    try:
        with shared.lock, torch.no_grad():
            traced = _traced(gm)
        with expressions.lock:
            try:
                return _printed(traced, name, inputs, held)
            finally:
                expressions.forget()
    except NodesRefused as refusal:
        raise Refused(list(refusal.reasons.values())) from refusal
    except (Unsupported, aot.NeedsAutograd, aot.StaysInTorch) as why:
        raise Refused([str(why)]) from why


def _traced(gm: GraphModule) -> GraphModule:
    placeholders = gm.graph.find_nodes(op="placeholder")
    mode, fakes = aot.fake_inputs(gm, [None] * len(placeholders))
    known = _guards(mode)
    with internals.tracing_with(mode):
        traced = aot.trace_inference(gm, mode, fakes, fakes, _table(), frozenset())
    if traced.mutates:
        raise Refused(["a write to an input, or to a weight"])
    with mode:
        _without_gaps(traced.gm)
    if added := _guards(mode)[len(known) :]:
        raise Refused([f"a condition on sizes that the capture does not check: {added[0]}"])
    return traced.gm


def _without_gaps(gm: GraphModule) -> None:
    """Copy results that are views with gaps, or in another order: the C interface has no strides."""
    output = next(n for n in reversed(gm.graph.nodes) if n.op == "output")
    results = []
    for result in output.args[0]:
        value = result.meta.get("val") if isinstance(result, Node) else None
        if isinstance(value, Tensor) and not value.is_contiguous():
            with gm.graph.inserting_before(output):
                dense = {"memory_format": torch.contiguous_format}
                copy = gm.graph.call_function(_aten.clone.default, (result,), dense)
            copy.meta = {**result.meta, "val": value.contiguous()}
            result = copy
        results.append(result)
    output.args = (tuple(results),)


def _guards(mode: Any) -> list[str]:
    return [] if mode.shape_env is None else [str(guard.expr) for guard in mode.shape_env.guards]


class _Standalone(Cpu):
    def order_of_images(
        self, images: Value, weight: Value, stride: Sequence[int], transposed: bool, groups: int
    ) -> Literal["usual"] | None:
        """Products in tiles want channels apart."""
        return None if transposed or groups != 1 or images.rank != 4 else "usual"


def _printed(gm: GraphModule, name: str, inputs: Sequence[str], held: Callable[[Tensor], str]) -> str:
    operators = [n for n in gm.graph.nodes if n.op == "call_function"]
    unknown = [_named(str(n.target), [n]) for n in operators if graph.why_not(n) is not None]
    if unknown:
        raise Refused(list(dict.fromkeys(unknown)))
    target, options = _Standalone(), NativeOptions(matmul="library")
    program = graph.lower(gm, target, padded=False, own_products=True)
    program.items = [Taken.of(item) for item in program.items]
    reasons = [_why(item) for item in program.items if isinstance(item, (Call, Attention))]
    reasons += ["complex numbers, which the interface does not know" for b in program.buffers if b.pairs][:1]
    reasons += [
        f"a result of {len(ref.sizes)} dimensions, of which the interface takes {MOST_DIMENSIONS}"
        for ref in program.outputs
        if isinstance(ref, TensorRef) and len(ref.sizes) > MOST_DIMENSIONS
    ]
    if reasons:
        raise Refused(list(dict.fromkeys(reasons)))
    reinplace(program)
    plan = host.plan(program, schedule(program, fusion=True, epilogues=True), target.plan_loops)
    assembler = Assembler(program, plan, options, timed=False)
    body = assembler.body()
    places = {b: inputs[at] for at, b in enumerate(program.inputs) if isinstance(b, Buffer)}
    for buffer in program.buffers:
        if buffer.name in program.constants:
            places[buffer] = held(getattr(gm, program.constants[buffer.name]))
    function = print_host(plan, assembler, places, inputs)
    return f"namespace {name} {{\n{body}\n{function}}}\n"


def _why(item: Any) -> str:
    return _named(str(item.op) if isinstance(item, Call) else "attention", item.origins)


def _named(name: str, nodes: Sequence[Any]) -> str:
    lines = {line for node in nodes if node is not None and (line := line_of(node))}
    return name + (f" at {min(lines)}" if lines else "")


@functools.cache
def _table() -> dict[Any, Callable[..., Any]]:
    """Decompositions: those of native, and of what it calls torch's kernels for although loops can compute it."""
    more = {op: f for op, f in core_aten().items() if calls.stays_whole(op)}
    attention: dict[Any, Callable[..., Any]] = {
        ATTENTION: _attention,
        _aten._scaled_dot_product_flash_attention_for_cpu.default: _flash,
    }
    return {**decompositions(), **more, **attention}


def _attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    exact = query.dtype if query.dtype is torch.float64 else torch.float32
    scores = torch.matmul(query, key.transpose(-2, -1)).to(exact) * scale
    if mask is not None:
        scores = scores + mask
    result = torch.matmul(torch.softmax(scores, -1).to(query.dtype), value)
    return result.transpose(1, 2).contiguous().transpose(1, 2), torch.logsumexp(scores, -1)


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    if dropout_p:
        return NotImplemented
    rows, columns = query.shape[-2], key.shape[-2]
    if is_causal:
        later = torch.arange(columns, device=query.device) > torch.arange(rows, device=query.device).unsqueeze(-1)
        bias = torch.zeros((rows, columns), dtype=query.dtype, device=query.device).masked_fill(later, -float("inf"))
        attn_mask = bias if attn_mask is None else attn_mask + bias
    result, sums = _attention(query, key, value, attn_mask, query.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is not None:  # torch's kernel has zeros where every score is masked
        lost = (sums == -float("inf")).unsqueeze(-1)
        result = torch.where(lost, torch.zeros((), dtype=result.dtype, device=result.device), result)
    return result, sums
