"""The backend object: which nodes it accepts, and code for a part, from the artifact cache or newly compiled.

The methods that need TVM's compiler import it, so a process does not import it if an earlier one compiled everything.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch.fx import GraphModule, Node

from torchmux.registry.errors import GraphRefused, NodesRefused
from torchmux.registry.spec import CompileRequest
from torchmux.stages import stage

from ..common.adapter.bugs import raise_mistake
from ..common.adapter.graphs import copy_graph, held_names, lift_constants
from ..common.cache import code_or_refusal, turns
from ..common.cache.keys import graph_key, text_key
from ..common.cache.versions import processor
from . import files, fingerprint, machine
from .options import TvmOptions
from .runtime import TvmFunction
from .shapes import PerShape, of_unknown_sizes
from .sizes import is_dynamic

log = logging.getLogger("torchmux.tvm")
cache_log = logging.getLogger("torchmux.cache")


class Tvm:
    """The backend object; see :class:`torchmux.registry.spec.Backend`."""

    def __init__(self) -> None:
        self._fingerprint = fingerprint()

    def decompositions(self) -> dict[Any, Callable[..., Any]]:
        """torch's table without operators that go to TVM unchanged."""
        from . import operators

        return operators.decompositions()

    def keep_whole(self) -> frozenset[Any]:
        """Composite operators that are one kernel."""
        from . import operators

        return operators.whole()

    def differentiate_whole(self) -> frozenset[Any]:
        """Composite operators whose gradients torch's own kernels compute better."""
        from ..common.pipeline.decompose import RESAMPLING

        return RESAMPLING

    def supports(self, node: Node) -> Literal[True] | str:
        """Whether ``node`` may go to TVM, or why not."""
        from . import operators

        return operators.supports(node)

    def compile(self, gm: GraphModule, example_inputs: Sequence[Any], request: CompileRequest) -> Any:
        """Code for ``gm``, from the artifact cache if it was compiled before.

        Raises:
            NodesRefused: TVM does not take some nodes, or computes something else.
        """
        options = request.options if request.options is not None else TvmOptions()
        if not is_dynamic(gm):
            return self._compile_one(gm, example_inputs, options)
        try:
            return self._compile_one(copy_graph(gm), example_inputs, options)
        except Exception as error:  # sizes that must be known, or a refusal that each shape will repeat
            raise_mistake(error)
            reason = _in_a_line(error)
            log.info("no code for all sizes at once: %s", reason)
            if unknown := of_unknown_sizes(gm):
                raise NodesRefused(dict.fromkeys(unknown, f"sizes that follow from data: {reason}")) from error
        each = functools.partial(self._compile_one, options=options)
        return PerShape(gm, example_inputs, each, options.shape_limit, bool(request.strict), reason)

    def _compile_one(self, gm: GraphModule, example_inputs: Sequence[Any], options: TvmOptions) -> TvmFunction:
        from .codegen import build

        device = _device(gm)
        target = str(build.target_of(options, device))
        settings: tuple[object, ...] = (options.library, target, options.opt_level, options.check)
        if options.tuning_trials:
            settings += (options.tuning_trials, options.tuning_seconds, torch.get_num_threads())
        key = graph_key(gm, self._fingerprint, settings)
        with turns.turn(key):
            return _stored_or_made(key, gm, example_inputs, options, device)

    def restore(self, artifact: str, constants: Mapping[str, torch.Tensor]) -> TvmFunction | None:
        """The function that :meth:`compile` made, from its code in the artifact cache.

        None if that is gone, or was made for another processor.
        """
        told = json.loads(artifact)
        if told["processor"] != _processor():
            return None
        kept = code_or_refusal.load_code(told["key"])
        executable = None if kept is None else _opened(kept, torch.device(told["device"]))
        if kept is None or executable is None:
            return None
        held = [constants[n].detach() for n in told["names"]]
        # The report of a graph that is restored was kept with it.
        run = TvmFunction.described(executable, {**kept.head, "library_calls": {}}, held, cache_hit=True)
        run.key = told["key"]
        return run


def _stored_or_made(
    key: str, gm: GraphModule, example_inputs: Sequence[Any], options: TvmOptions, device: torch.device
) -> TvmFunction:
    """The function for ``gm``, from the artifact cache or newly made.

    Raises:
        NodesRefused: TVM does not take some nodes.
    """
    from . import parts

    nodes, names = list(gm.graph.nodes), held_names(gm)
    kept = code_or_refusal.load(key, gm)
    executable = None if kept is None else _opened(kept, device)
    if kept is not None and executable is not None:
        head = {**kept.head, "library_calls": {nodes[at].name: op for at, op in kept.head["library_calls"]}}
        run = TvmFunction.described(executable, head, lift_constants(gm), cache_hit=True)
        run.artifact, run.key = _artifact(key, names, device), key
        return run
    try:
        function, head, code, relax = parts.make(gm, example_inputs, options, device)
    except NodesRefused as refusal:
        at = {at: refusal.reasons[n.name] for at, n in enumerate(nodes) if n.name in refusal.reasons}
        code_or_refusal.keep_refusal(key, nodes, at)
        raise
    # Names differ among equal graphs.
    head["library_calls"] = [
        [at, head["library_calls"][n.name]] for at, n in enumerate(nodes) if n.name in head["library_calls"]
    ]
    if code is not None and code_or_refusal.keep_code(key, head, code):
        function.artifact, function.key = _artifact(key, names, device), key
        files.keep_relax(key, relax)
    return function


def _device(gm: GraphModule) -> torch.device:
    """The device of all tensors of the graph.

    Raises:
        GraphRefused: they are on several.
    """
    values = [n.meta["val"] for n in gm.graph.nodes if n.op != "output"]
    tensors = [v for value in values for v in (value if isinstance(value, (tuple, list)) else (value,))]
    found = {v.device for v in tensors if isinstance(v, torch.Tensor)}
    if len(found) > 1:
        raise GraphRefused(f"TVM's code runs on one device, but the tensors are on {sorted(map(str, found))}")
    return found.pop() if found else torch.device("cpu")


def _artifact(key: str, names: Sequence[str], device: torch.device) -> str:
    """What :meth:`Tvm.restore` needs besides the code: ``names`` are those of the tensors that the graph holds."""
    return json.dumps({"key": key, "names": list(names), "device": str(device), "processor": _processor()})


@functools.cache
def _processor() -> str:
    return text_key(processor())


def _in_a_line(error: Exception) -> str:
    reasons = error.reasons.values() if isinstance(error, NodesRefused) else [str(error)]
    return "; ".join(sorted({" ".join(reason.split())[:200] for reason in reasons}))


def _opened(kept: code_or_refusal.Code, device: torch.device) -> Any:
    """The executable of a kept artifact; None if TVM does not load it here."""
    try:
        with stage("load"):
            return machine.from_bytes(kept.code, device)
    except Exception as error:  # a full disk, a library that was linked elsewhere
        cache_log.warning("TVM does not load a cached library; it compiles again: %s", error)
        return None
