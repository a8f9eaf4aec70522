"""Compiles one part of a graph with OpenVINO."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch.fx import GraphModule, Node

from torchmux.registry.errors import GraphRefused, NodesRefused
from torchmux.registry.spec import CompileRequest
from torchmux.stages import stage

from ..common.adapter import check, indices
from ..common.adapter.binding import Input
from ..common.adapter.bugs import raise_mistake
from ..common.adapter.constants import watched
from ..common.adapter.graphs import copy_graph, freeze, outputs
from ..common.adapter.results import Result
from ..common.cache import listing, turns
from ..common.cache.cache import ArtifactCache, default_cache
from ..common.cache.keys import graph_key
from ..common.pipeline.runtime import in_torch
from . import files, fingerprint, integers, operators, runtime
from .options import PRECISIONS, OpenvinoOptions
from .translate import blamed, reason_of, to_openvino

_NOT_TAKEN = "an integer input may not fit into OpenVINO's 32 bits, or is the index of a missing row"
_WRONG = "OpenVINO's model does not match torch, although each operator alone does"
check_log = logging.getLogger("torchmux.check")
cache_log = logging.getLogger("torchmux.cache")

LARGEST_KEPT = 64 * 1024**2
"""Bytes of frozen weights up to which compiled models are kept: beyond, reading them takes longer than compiling."""


class OpenVino:
    """The backend object; see :class:`torchmux.registry.spec.Backend`."""

    def __init__(self) -> None:
        self._fingerprint = fingerprint()

    def decompositions(self) -> dict[Any, Any]:
        """torch's table without what OpenVINO's frontend converts itself."""
        return operators.decompositions(self._fingerprint)

    def keep_whole(self) -> frozenset[Any]:
        """Composite operators that the frontend converts in one piece."""
        return operators.whole(self._fingerprint)

    def supports(self, node: Node) -> Literal[True] | str:
        if runtime.in_a_copy():
            return "OpenVINO does not compile in a copy of a process that used it: it would wait for ever"
        return operators.supports(node, self._fingerprint)

    def compile(self, gm: GraphModule, example_inputs: Sequence[Any], request: CompileRequest) -> Any:
        """A compiled model for ``gm``, from the artifact cache if it is there.

        Raises:
            NodesRefused: the frontend does not convert some nodes in this place, though it took them alone.
            GraphRefused: OpenVINO refuses the graph as a whole.
        """
        options = request.options if request.options is not None else OpenvinoOptions()
        make = functools.partial(self._compile, request=request, options=options)
        return watched(options.freeze, gm, example_inputs, request, make)

    def _compile(
        self,
        gm: GraphModule,
        constants: Mapping[int, torch.Tensor],
        request: CompileRequest,
        options: OpenvinoOptions,
    ) -> runtime.OpenvinoFunction:
        device = runtime.choose_device(options.device)
        config = runtime.configuration(options, device)
        placeholders = gm.graph.find_nodes(op="placeholder")
        results = [Result.of(n.meta["val"]) for n in outputs(gm)]
        untouched = copy_graph(gm)
        frozen = _frozen(placeholders, constants)
        taken = [(p, node) for p, node in enumerate(placeholders) if p not in frozen]
        inputs = [Input.of(p, node.meta["val"]) for p, node in taken]
        ranges = {p: integers.assume(node) for p, node in taken if _is_long(node) or indices.of_input(node)}
        freeze(gm, frozen)
        size = sum(t.numel() * t.element_size() for t in frozen.values())
        cache = default_cache() if size <= LARGEST_KEPT and runtime.can_export(device) else None
        key = ""
        if cache is not None:
            fingerprint = request.fingerprint or self._fingerprint
            key = graph_key(gm, fingerprint, device, sorted(config.items()), options.check)
        otherwise = in_torch(untouched, _NOT_TAKEN, strict=bool(request.strict))

        counts = runtime.counts_layers(config)

        def function(model: Any, compiled: Any, holds: GraphModule, hit: bool) -> runtime.OpenvinoFunction:
            run = runtime.OpenvinoFunction(
                compiled, inputs, results, ranges, otherwise, holds=holds, cache_hit=hit, counts=counts
            )
            if cache is not None:
                run.source = functools.partial(files.kept, key)
            elif model is not None:
                run.source = functools.partial(files.Source.of, model)
            return run

        with turns.turn(key) if cache is not None else contextlib.nullcontext():
            compiled = _load(cache, key, device, config)
            if compiled is not None:
                runtime.check_precision(compiled, config)
                run = function(None, compiled, gm, True)
            else:
                make = functools.partial(_compiled, gm, outputs(untouched), device, config)
                model, compiled, holds = make()
                run = function(model, compiled, holds, False)
                if options.check:
                    values = [constants.get(p) for p in range(len(placeholders))]
                    _, _, computes_in = PRECISIONS[options.precision]
                    dtype = getattr(torch, computes_in)
                    if _differs(untouched, run, values, dtype):
                        check_log.warning("%s; it compiles again", _WRONG)
                        model, compiled, holds = make()
                        run = function(model, compiled, holds, False)
                        if _differs(untouched, run, values, dtype):
                            raise GraphRefused(f"{_WRONG}, twice")
                if cache is not None:
                    cache.store(key, runtime.to_bytes(run.compiled))
                    files.keep(key, model)
        # A graph that is restored has no report that the counts could go to.
        if cache is not None and not frozen and not counts:
            run.artifact = _artifact(key, device, config, bool(request.strict), inputs, results, ranges, untouched)
        return run

    def restore(self, artifact: str, constants: Mapping[str, torch.Tensor]) -> runtime.OpenvinoFunction | None:
        """The function that :meth:`compile` made, from its model in the artifact cache; None if that is gone."""
        told = json.loads(artifact)
        compiled = _load(default_cache(), told["key"], told["device"], told["config"])
        if compiled is None:
            return None
        inputs = [Input.from_json(i) for i in told["inputs"]]
        results = [Result.from_json(r) for r in told["results"]]
        ranges = {p: indices.Limits(*limits) for p, *limits in told["ranges"]}
        captured = listing.from_json(told["graph"], constants)
        otherwise = in_torch(captured, _NOT_TAKEN, strict=told["strict"])
        run = runtime.OpenvinoFunction(compiled, inputs, results, ranges, otherwise, holds=None, cache_hit=True)
        run.source = functools.partial(files.kept, told["key"])
        return run


def _compiled(
    gm: GraphModule, results: Sequence[Node], device: str, config: dict[str, Any]
) -> tuple[Any, Any, GraphModule]:
    """A new model for ``gm``, whose results are ``results`` in torch, it compiled, and what holds its constants.

    Raises:
        NodesRefused: the frontend does not convert some nodes in this place.
        GraphRefused: OpenVINO refuses the graph as a whole.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    converted = copy_graph(gm)
    model = _convert(converted)
    _refuse_lost_inputs(model, placeholders)
    _refuse_identities(model, [n.name for n in results])
    _give_shapes(model, results)
    try:
        compiled = runtime.compile_model(model, device, config)
    except RuntimeError as error:
        named = {name for name in re.findall(r" name: (\w+)/", str(error)) if name in {n.name for n in gm.graph.nodes}}
        if named:
            raise NodesRefused(dict.fromkeys(named, reason_of(error))) from error
        raise
    _refuse_lost_inputs(compiled, placeholders)
    runtime.check_precision(compiled, config)
    return model, compiled, converted


def _differs(gm: GraphModule, run: runtime.OpenvinoFunction, values: Sequence[Any], computes_in: torch.dtype) -> bool:
    try:
        return check.differs(gm, run, values, computes_in)
    except RuntimeError as error:
        raise GraphRefused(f"OpenVINO does not run its model: {reason_of(error)}") from error


def _artifact(
    key: str,
    device: str,
    config: dict[str, Any],
    strict: bool,
    inputs: Sequence[Input],
    results: Sequence[Result],
    ranges: Mapping[int, indices.Limits],
    graph: GraphModule,
) -> str | None:
    """What :meth:`OpenVino.restore` needs besides the compiled model; None if this is unknown."""
    try:
        told = {
            "key": key,
            "device": device,
            "config": config,
            "strict": strict,
            "inputs": [i.to_json() for i in inputs],
            "results": [r.to_json() for r in results],
            "ranges": [[p, *dataclasses.astuple(limits)] for p, limits in ranges.items()],
            "graph": listing.to_json(graph),
        }
        return json.dumps(told)
    except (listing.Unknown, TypeError):  # a value in the configuration may be of OpenVINO's own
        return None


def _refuse_identities(model: Any, names: Sequence[str]) -> None:
    """OpenVINO leaves the memory for a result that is an input unwritten.

    Raises:
        NodesRefused: there is such a result.
    """
    sources = (result.input_value(0).get_node().get_type_name() for result in model.results)
    same = {name for name, source in zip(names, sources, strict=True) if source == "Parameter"}
    if same:
        raise NodesRefused(dict.fromkeys(same, "it changes nothing, and OpenVINO would leave its result unwritten"))


def _refuse_lost_inputs(model: Any, placeholders: Sequence[Node]) -> None:
    """The frontend may drop what it takes for unused, wrongly as a rule.

    Raises:
        GraphRefused: inputs are missing.
    """
    if len(model.inputs) != len(placeholders):
        raise GraphRefused(f"OpenVINO's model has {len(model.inputs)} of the graph's {len(placeholders)} inputs")


def _give_shapes(model: Any, results: Sequence[Node]) -> None:
    """Give results the shapes that they have in torch: OpenVINO draws a reshape through a softmax, for one.

    Raises:
        NodesRefused: a result has another shape, and its own is symbolic.
    """
    import openvino

    refused = {}
    for result, node in zip(model.results, results, strict=True):
        source, value = result.input_value(0), node.meta["val"]
        found, wanted = source.get_partial_shape(), tuple(value.shape)
        if found.rank.is_dynamic or found.compatible(openvino.PartialShape([_dimension(s) for s in wanted])):
            continue
        if found.is_static and all(type(s) is int for s in wanted) and math.prod(found.to_shape()) == value.numel():
            shape = openvino.opset13.constant(np.array(wanted, np.int64))
            result.input(0).replace_source_output(openvino.opset13.reshape(source, shape, False).output(0))
        else:
            refused[node.name] = f"OpenVINO gives its result the shape {found}"
    if refused:
        raise NodesRefused(refused)
    model.validate_nodes_and_infer_types()


def _dimension(size: Any) -> int:
    return size if type(size) is int else -1


def _convert(gm: GraphModule) -> Any:
    try:
        with stage("lowering"):
            return to_openvino(gm)
    except Exception as error:
        raise_mistake(error)
        reasons = blamed(gm, error)
        if not reasons:
            raise GraphRefused(reason_of(error)) from error
        raise NodesRefused(reasons) from error


def _load(cache: ArtifactCache | None, key: str, device: str, config: dict[str, Any]) -> Any:
    stored = cache.load(key) if cache is not None else None
    if stored is None:
        return None
    try:
        with stage("load"):
            return runtime.from_bytes(stored, device, config)
    except RuntimeError as error:
        cache_log.warning("OpenVINO does not load a cached model; it compiles again: %s", reason_of(error))
        return None


def _frozen(placeholders: Sequence[Node], constants: Mapping[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """Parameters and buffers in the form that the model expects: detached, contiguous, integers within their bounds."""
    found = {}
    for position, constant in constants.items():
        tensor = constant.detach().contiguous()
        if tensor.is_floating_point() or integers.assume(placeholders[position]).hold(tensor):
            found[position] = tensor
    return found


def _is_long(placeholder: Node) -> bool:
    value = placeholder.meta["val"]
    return integers.is_long(value) or not isinstance(value, torch.Tensor)
