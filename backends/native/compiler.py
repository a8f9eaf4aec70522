"""Compiling one part of a graph: lowering, fusion, code, shared object, cache."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from torch.fx import GraphModule, Node

from torchmux import logs
from torchmux.registry.spec import CompileRequest

from ..common.cache import default_cache, graph_key
from ..common.decompose import core_aten
from ..common.refusal import NodesRefused
from . import build, fingerprint, graph, ir
from .kernel import Kernel
from .lowering import table
from .module import assemble
from .options import NativeOptions
from .runtime import NativeFunction
from .schedule import Schedule, schedule

_CODE, _REFUSED = b"C", b"R"


class Native:
    """The backend object; see :class:`torchmux.registry.spec.Backend`."""

    def __init__(self) -> None:
        self._fingerprint = fingerprint()

    def decompositions(self) -> Mapping[Any, Callable[..., Any]]:
        """torch's table without what is lowered directly."""
        return _decompositions()

    def supports(self, node: Node) -> Literal[True] | str:
        return graph.why_not(node) or True

    def compile(self, gm: GraphModule, example_inputs: Sequence[Any], request: CompileRequest) -> NativeFunction:
        """Code for ``gm``, from the artifact cache if it was compiled before.

        Raises:
            NodesRefused: some nodes cannot be lowered after all.
        """
        options = request.options if request.options is not None else NativeOptions()
        key = graph_key(gm, self._fingerprint, options, _is_timed())
        cache = default_cache()
        stored = cache.load(key) if cache is not None else None
        if stored is not None:
            return _from_cache(gm, stored)
        payload = _compile(gm, options)
        if cache is not None:
            cache.store(key, payload)
        return _from_cache(gm, payload, cache_hit=False)


@functools.cache
def _decompositions() -> Mapping[Any, Callable[..., Any]]:
    return {op: function for op, function in core_aten().items() if op not in table}


def _is_timed() -> bool:
    return "kernel_times" in logs.enabled()


def _compile(gm: GraphModule, options: NativeOptions) -> bytes:
    """The artifact: what the graph was refused for, or the sources and the shared object."""
    with ir.lock:
        try:
            program = graph.lower(gm)
            plan = schedule(program, fusion=options.fusion)
            made = assemble(program, plan, timed=_is_timed())
        except NodesRefused as refusal:
            nodes = list(gm.graph.nodes)
            at = {str(n): refusal.reasons[node.name] for n, node in enumerate(nodes) if node.name in refusal.reasons}
            return _REFUSED + json.dumps(at).encode()
        finally:
            ir.forget()
    logs.emit("fusion", "native", "\n".join(_fusions(plan)))
    library = build.compile_source(made.cpp, options.optimize) if "run0" in made.cpp else b""
    head = {
        "python": made.python,
        "cpp": made.cpp,
        "constants": made.constants,
        "names": [b.name for b in program.buffers if b.name in program.constants],
        "notes": _notes(made.calls),
        "timers": made.timers,
    }
    return _CODE + json.dumps(head).encode() + b"\n" + library


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


def _from_cache(gm: GraphModule, payload: bytes, *, cache_hit: bool = True) -> NativeFunction:
    if payload[:1] == _REFUSED:
        nodes = list(gm.graph.nodes)
        raise NodesRefused({nodes[int(at)].name: reason for at, reason in json.loads(payload[1:]).items()})
    text, _, library = payload[1:].partition(b"\n")
    head = json.loads(text)
    constants = [getattr(gm, name).detach() for name in head["constants"]]
    return NativeFunction(
        head["python"],
        library,
        constants,
        head["names"],
        notes=head["notes"],
        output_code=[head["cpp"], head["python"]],
        timers=head["timers"],
        cache_hit=cache_hit,
    )
