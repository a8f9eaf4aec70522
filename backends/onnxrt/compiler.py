"""Compiling one part of a graph with onnxruntime."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch.fx import GraphModule, Node

from torchmux.registry.spec import CompileRequest

from ..common import check
from ..common.cache import default_cache, graph_key
from ..common.graphs import alone, copy_graph, lift_constants, outputs
from ..common.partition import takes_element
from ..common.refusal import NodesRefused
from ..common.results import Result
from . import fingerprint, operators as onnx_operators
from .options import OnnxrtOptions
from .session import OnnxFunction, check_types, make_session
from .translate import to_onnx

_MODEL, _REFUSED = b"M", b"R"


class OnnxRuntime:
    """The backend object; see :class:`torchmux.registry.spec.Backend`."""

    def __init__(self) -> None:
        self._fingerprint = fingerprint()

    def decompositions(self) -> dict[Any, Any]:
        """torch's table without what the exporter translates itself."""
        return onnx_operators.decompositions(self._fingerprint)

    def keep_whole(self) -> frozenset[Any]:
        """Composite operators that ONNX has in one piece."""
        return onnx_operators.whole(self._fingerprint)

    def supports(self, node: Node) -> Literal[True] | str:
        return onnx_operators.supports(node, self._fingerprint)

    def compile(self, gm: GraphModule, example_inputs: Sequence[Any], request: CompileRequest) -> OnnxFunction:
        """A session for ``gm``.  The exported model is kept in the artifact cache; it holds no weights.

        Raises:
            NodesRefused: the exporter or the runtime does not take some nodes.
        """
        options = request.options if request.options is not None else OnnxrtOptions()
        count = len(gm.graph.find_nodes(op="placeholder"))
        results = [Result.of(n.meta["val"]) for n in outputs(gm)]
        constants = _frozen(example_inputs, request) if options.freeze else {}
        held = sorted(constants)
        key = graph_key(gm, request.fingerprint or self._fingerprint, held, list(options.providers), options.check)
        constants.update(lift_constants(gm, count))
        stored = self._load(key, gm)
        if stored is None:
            session = self._export(gm, example_inputs, constants, options, key)
        else:
            session = _open(stored, constants, options, results)
        return OnnxFunction(session, count, results, constants, cache_hit=stored is not None)

    def _load(self, key: str, gm: GraphModule) -> bytes | None:
        cache = default_cache()
        stored = cache.load(key) if cache is not None else None
        if stored is None:
            return None
        if stored[:1] == _MODEL:
            return stored[1:]
        nodes = list(gm.graph.nodes)
        raise NodesRefused({nodes[int(at)].name: reason for at, reason in json.loads(stored[1:]).items()})

    def _export(
        self,
        gm: GraphModule,
        example_inputs: Sequence[Any],
        constants: dict[int, torch.Tensor],
        options: OnnxrtOptions,
        key: str,
    ) -> Any:
        """Export ``gm`` and make a session of the model; find the nodes to blame if that fails or computes nonsense."""
        nodes = list(gm.graph.nodes)
        results = [Result.of(n.meta["val"]) for n in outputs(gm)]
        # Exporting inserts the casts of type promotion; the search for a culprit needs the graph as it was.
        untouched = copy_graph(gm)
        try:
            model = to_onnx(gm, list(constants))
            session = _open(model, constants, options, results)
        except Exception as error:
            self._refuse(key, nodes, _culprits(untouched, options))
            raise error
        if options.check:
            count = len(example_inputs)
            run = OnnxFunction(session, count, results, constants, cache_hit=False)
            lifted = [constants[p] for p in sorted(constants) if p >= count]
            inputs = [*(constants.get(p, v) for p, v in enumerate(example_inputs)), *lifted]
            alone = functools.partial(_compile_alone, options=options)
            wrong = check.culprits(untouched, lambda *args: run(*args[:count]), inputs, alone, "onnxruntime")
            positions = {n.name: at for at, n in enumerate(untouched.graph.nodes)}
            self._refuse(key, nodes, {positions[name]: reason for name, reason in wrong.items()})
        self._store(key, _MODEL + model)
        return session

    def _refuse(self, key: str, nodes: Sequence[Node], culprits: dict[int, str]) -> None:
        if culprits:
            self._store(key, _REFUSED + json.dumps(culprits).encode())
            raise NodesRefused({nodes[at].name: reason for at, reason in culprits.items()})

    def _store(self, key: str, payload: bytes) -> None:
        cache = default_cache()
        if cache is not None:
            cache.store(key, payload)


def _open(model: bytes, constants: dict[int, torch.Tensor], options: OnnxrtOptions, results: Sequence[Result]) -> Any:
    session = make_session(model, options, constants)
    check_types(session, results)
    return session


def _frozen(example_inputs: Sequence[Any], request: CompileRequest) -> dict[int, torch.Tensor]:
    """Parameters and buffers as the session takes them: detached, contiguous."""
    return {p: example_inputs[p].detach().contiguous() for p in request.static_inputs}


# By the key of the graph that consists of one node: why it is refused, or None.  Filled only when something failed.
_tried: dict[str, str | None] = {}


def _culprits(gm: GraphModule, options: OnnxrtOptions) -> dict[int, str]:
    """Try every node of ``gm`` in a model of its own: positions in the graph of those that fail, and why."""
    found: dict[int, str] = {}
    for position, node in enumerate(gm.graph.nodes):
        if node.op != "call_function" or takes_element(node) is not None:
            continue
        single = alone(node)
        key = graph_key(single, "", list(options.providers))
        if key not in _tried:
            _tried[key] = _why_not(single, options)
        reason = _tried[key]
        if reason is not None:
            found[position] = reason
    return found


def _compile_alone(gm: GraphModule, options: OnnxrtOptions) -> OnnxFunction:
    results = [Result.of(n.meta["val"]) for n in outputs(gm)]
    count = len(gm.graph.find_nodes(op="placeholder"))
    return OnnxFunction(_open(to_onnx(gm, ()), {}, options, results), count, results, {}, cache_hit=False)


def _why_not(gm: GraphModule, options: OnnxrtOptions) -> str | None:
    try:
        _compile_alone(gm, options)
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        text = " ".join(str(cause).split())
        return f"{type(cause).__name__}: {text[:200]}"
    return None
