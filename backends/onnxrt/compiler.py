"""Compiles one part of a graph with onnxruntime."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.fx import GraphModule, Node

from torchmux.registry.errors import GraphRefused
from torchmux.registry.spec import CompileRequest
from torchmux.stages import stage

from ..common.adapter import check, indices
from ..common.adapter.binding import Input
from ..common.adapter.bugs import raise_mistake
from ..common.adapter.constants import watched
from ..common.adapter.graphs import alone, copy_graph, held_names, lift_constants, outputs
from ..common.adapter.results import Result
from ..common.cache import code_or_refusal, listing, turns
from ..common.cache.keys import graph_key
from ..common.pipeline.partition import takes_element
from ..common.pipeline.runtime import in_torch
from . import devices, fingerprint, operators as onnx_operators
from .options import OnnxrtOptions
from .session import OnnxFunction, check_types, make_session
from .translate import to_onnx

_NOT_TAKEN = "onnxruntime refuses it, or an index is out of range"

cache_log = logging.getLogger("torchmux.cache")


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

    def compile(self, gm: GraphModule, example_inputs: Sequence[Any], request: CompileRequest) -> Any:
        """A session for ``gm``.  The exported model is kept in the artifact cache; it holds no weights.

        Raises:
            NodesRefused: the exporter or the runtime does not take some nodes.
            GraphRefused: it does not take them together.
        """
        options = request.options if request.options is not None else OnnxrtOptions()
        place = devices.place_for(_values(gm), options)

        def make(gm: GraphModule, constants: Mapping[int, torch.Tensor]) -> OnnxFunction:
            inputs = [constants.get(p, v) for p, v in enumerate(example_inputs)]
            contiguous = {p: t.detach().contiguous() for p, t in constants.items()}
            return self._compile(gm, inputs, contiguous, place, request, options)

        return watched(options.freeze and place.takes_constants, gm, example_inputs, request, make)

    def _compile(
        self,
        gm: GraphModule,
        example_inputs: Sequence[Any],
        constants: dict[int, torch.Tensor],
        place: devices.Place,
        request: CompileRequest,
        options: OnnxrtOptions,
    ) -> OnnxFunction:
        fingerprint = request.fingerprint or self._fingerprint
        key = graph_key(gm, fingerprint, sorted(constants), list(place.providers), options.check)
        captured = copy_graph(gm)
        otherwise = in_torch(captured, _NOT_TAKEN, strict=bool(request.strict))
        made = _Parts.of(gm, constants, place, options)
        with turns.turn(key):
            kept = code_or_refusal.load(key, gm)
            with stage("load"):
                session = None if kept is None else made.opened(kept.code)
            if session is not None:
                assert kept is not None
                run = made.function(session, otherwise, cache_hit=True)
                run.model = kept.code
            else:
                session, model = self._export(gm, example_inputs, made, key)
                run = made.function(session, otherwise)
                run.model = model
        if not constants and place.takes_constants:
            run.artifact = _artifact(key, options, made, bool(request.strict), captured)
        return run

    def restore(self, artifact: str, constants: Mapping[str, torch.Tensor]) -> OnnxFunction | None:
        """The function that :meth:`compile` made, from its model in the artifact cache; None if that is gone."""
        key, settings, parts, strict, graph = json.loads(artifact)
        kept = code_or_refusal.load_code(key)
        if kept is None:
            return None
        if settings["providers"] is not None:
            settings["providers"] = tuple(p if isinstance(p, str) else tuple(p) for p in settings["providers"])
        options = OnnxrtOptions(**settings)
        made = _Parts.from_json(parts, constants, devices.place_for((), options), options)
        session = made.opened(kept.code)
        otherwise = in_torch(listing.from_json(graph, constants), _NOT_TAKEN, strict=strict)
        if session is None:
            return None
        run = made.function(session, otherwise, cache_hit=True)
        run.model = kept.code
        return run

    def _export(self, gm: GraphModule, example_inputs: Sequence[Any], made: _Parts, key: str) -> tuple[Any, bytes]:
        """Export ``gm``, and make a session of the model, which is returned too.

        The nodes to blame are looked for if that fails or computes nonsense.
        """
        nodes = list(gm.graph.nodes)
        # Exporting inserts the casts of type promotion; the search for a wrong operator needs the original graph.
        untouched = copy_graph(gm)
        try:
            with stage("lowering"):
                model = to_onnx(gm, list(made.constants))
            session = made.session(model)
        except Exception as error:
            raise_mistake(error)
            if found := _culprits(untouched, made.options):
                raise code_or_refusal.keep_refusal(key, nodes, found) from error
            raise GraphRefused(f"onnxruntime takes no model of it: {_cause_of(error)}") from error
        if made.options.check:
            run, count = made.function(session), made.count
            inputs = [*(made.constants.get(p, v) for p, v in enumerate(example_inputs)), *made.held]
            alone = functools.partial(_compile_alone, options=made.options)
            wrong = check.culprits(untouched, lambda *args: run(*args[:count]), inputs, alone, "onnxruntime")
            if wrong:
                positions = {n.name: at for at, n in enumerate(untouched.graph.nodes)}
                at = {positions[name]: reason for name, reason in wrong.items()}
                raise code_or_refusal.keep_refusal(key, nodes, at)
        code_or_refusal.keep_code(key, None, model)
        return session, model


def _artifact(key: str, options: OnnxrtOptions, made: _Parts, strict: bool, graph: GraphModule) -> str | None:
    """What :meth:`OnnxRuntime.restore` needs besides the model; None if the graph cannot be written."""
    try:
        return json.dumps([key, dataclasses.asdict(options), made.to_json(), strict, listing.to_json(graph)])
    except listing.Unknown:
        return None


@dataclass
class _Parts:
    """What becomes a session and its function; the tensors that the graph holds are inputs after the ``count`` others.

    ``names`` are what the graph called these tensors, ``held``; ``constants`` are initializers, by position.
    """

    count: int
    inputs: list[Input]
    results: list[Result]
    names: list[str]
    held: list[torch.Tensor]
    constants: dict[int, torch.Tensor]
    place: devices.Place
    options: OnnxrtOptions
    checked: dict[int, indices.Limits]

    @classmethod
    def of(
        cls, gm: GraphModule, frozen: Mapping[int, torch.Tensor], place: devices.Place, options: OnnxrtOptions
    ) -> _Parts:
        """Make placeholders of the tensors that ``gm`` holds."""
        results = [Result.of(n.meta["val"]) for n in outputs(gm)]
        count = len(gm.graph.find_nodes(op="placeholder"))
        names = held_names(gm)
        held = [tensor.contiguous() for tensor in lift_constants(gm)]
        lifted = {count + at: tensor for at, tensor in enumerate(held)}
        constants = {**frozen, **lifted} if place.takes_constants else {}
        placeholders = gm.graph.find_nodes(op="placeholder")
        inputs = [Input.of(p, node.meta["val"]) for p, node in enumerate(placeholders) if p not in constants]
        checked = {p: found for p, node in enumerate(placeholders[:count]) if (found := indices.of_input(node))}
        if not place.takes_constants:  # looking at numbers on a GPU would wait for it
            checked = {}
        return cls(count, inputs, results, names, held, constants, place, options, checked)

    def to_json(self) -> list[Any]:
        """All but constants, place and options."""
        checked = [[position, *dataclasses.astuple(limits)] for position, limits in self.checked.items()]
        inputs, results = [i.to_json() for i in self.inputs], [r.to_json() for r in self.results]
        return [self.count, inputs, results, self.names, checked]

    @classmethod
    def from_json(
        cls, told: list[Any], constants: Mapping[str, torch.Tensor], place: devices.Place, options: OnnxrtOptions
    ) -> _Parts:
        count, inputs, results, names, checked = told
        held = [constants[name].detach().contiguous() for name in names]
        return cls(
            count,
            [Input.from_json(i) for i in inputs],
            [Result.from_json(r) for r in results],
            names,
            held,
            {count + n: tensor for n, tensor in enumerate(held)},
            place,
            options,
            {position: indices.Limits(*limits) for position, *limits in checked},
        )

    def session(self, model: bytes) -> Any:
        session = make_session(model, self.options, self.constants, self.place)
        check_types(session, self.results)
        return session

    def opened(self, model: bytes) -> Any:
        """The session of a kept model; None if onnxruntime does not take it any more."""
        try:
            return self.session(model)
        except Exception as error:
            cache_log.warning("onnxruntime does not load a cached model; it is built again: %s", error)
            return None

    def function(
        self, session: Any, otherwise: Callable[..., Sequence[torch.Tensor]] | None = None, *, cache_hit: bool = False
    ) -> OnnxFunction:
        """What runs the session; ``otherwise`` runs calls that onnxruntime refuses."""
        return OnnxFunction(
            session, self.inputs, self.results, self.constants, self.place,
            lifted=() if self.place.takes_constants else self.held,
            checked=self.checked, otherwise=otherwise, cache_hit=cache_hit,
        )  # fmt: skip


def _values(gm: GraphModule) -> list[Any]:
    """What is known of the tensors that come in and go out."""
    held = gm.graph.find_nodes(op="get_attr")
    return [n.meta.get("val") for n in (*gm.graph.find_nodes(op="placeholder"), *held, *outputs(gm))]


# By the key of the graph that consists of one node: why it is refused, or None.  Filled only when something failed.
_tried: dict[str, str | None] = {}


def _culprits(gm: GraphModule, options: OnnxrtOptions) -> dict[int, str]:
    """Try every node of ``gm`` in a separate model: the graph positions of those that fail, and why."""
    found: dict[int, str] = {}
    for position, node in enumerate(gm.graph.nodes):
        if node.op != "call_function" or takes_element(node) is not None:
            continue
        single = alone(node)
        key = graph_key(single, "", options.provider_names)
        if key not in _tried:
            _tried[key] = _why_not(single, options)
        reason = _tried[key]
        if reason is not None:
            found[position] = reason
    return found


def _compile_alone(gm: GraphModule, options: OnnxrtOptions) -> OnnxFunction:
    made = _Parts.of(gm, {}, devices.place_for(_values(gm), options), options)
    return made.function(made.session(to_onnx(gm, list(made.constants))))


def _why_not(gm: GraphModule, options: OnnxrtOptions) -> str | None:
    try:
        _compile_alone(gm, options)
    except Exception as error:
        raise_mistake(error)
        return _cause_of(error)
    return None


def _cause_of(error: BaseException) -> str:
    """The first exception of a chain, in a line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
