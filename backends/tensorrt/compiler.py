"""Compiles one part of a graph with TensorRT."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch.fx import GraphModule, Node

from torchmux.registry.errors import NodesRefused
from torchmux.registry.spec import CompileRequest, ToolFile

from ..common.adapter.constants import Watched, watched
from ..common.adapter.graphs import copy_graph, freeze, outputs
from ..common.adapter.results import Result
from ..common.cache.cache import ArtifactCache, default_cache
from ..common.cache.keys import graph_key
from ..common.pipeline.runtime import in_torch
from . import engine, fingerprint, operators
from .options import TensorrtOptions
from .settings import Profile, input_for, profile_of, settings_for

log = logging.getLogger("torchmux.cache")

_NOT_TAKEN = "a dynamic dimension is outside the engine's profile (mark_dynamic's max, or largest_size)"


class TensorRT:
    """The backend object; see :class:`torchmux.registry.spec.Backend`."""

    def __init__(self) -> None:
        self._fingerprint = fingerprint()

    def decompositions(self) -> dict[Any, Any]:
        """torch_tensorrt's table."""
        return operators.decompositions()

    def keep_whole(self) -> frozenset[Any]:
        """Composite operators with their own converter."""
        return operators.whole()

    def supports(self, node: Node) -> Literal[True] | str:
        with operators.LOCK:
            operators.use_settings(settings_for(TensorrtOptions(), torch.cuda.current_device()))
            return operators.supports(node)

    def compile(
        self, gm: GraphModule, example_inputs: Sequence[Any], request: CompileRequest
    ) -> TensorrtFunction | Watched:
        """An engine for ``gm``, from the artifact cache if it is there.

        Raises:
            NodesRefused: the part is smaller than ``min_block_size``, or a converter does not take a node with the
                options asked for.
            RuntimeError: TensorRT refuses the graph as a whole.
        """
        options = request.options if request.options is not None else TensorrtOptions()
        make = functools.partial(self._compile, request=request, options=options)
        return watched(options.freeze, gm, example_inputs, request, make)

    def _compile(
        self,
        gm: GraphModule,
        constants: Mapping[int, torch.Tensor],
        request: CompileRequest,
        options: TensorrtOptions,
    ) -> TensorrtFunction:
        calls = _calls(gm)
        if len(calls) < options.min_block_size:
            why = f"its part of the graph has {len(calls)} operators, fewer than min_block_size"
            raise NodesRefused({n.name: why for n in calls})
        placeholders = gm.graph.find_nodes(op="placeholder")
        results = [Result.of(n.meta["val"]) for n in outputs(gm)]
        untouched = copy_graph(gm)
        frozen = {p: value.detach() for p, value in constants.items()}
        kept = [p for p in range(len(placeholders)) if p not in frozen]
        profiles = {p: profile_of(placeholders[p], options.largest_size) for p in kept}
        freeze(gm, frozen)
        settings = settings_for(options, torch.cuda.current_device())
        with operators.LOCK:
            operators.use_settings(settings)
            refused = {n.name: answer for n in _calls(gm) if (answer := operators.supports(n)) is not True}
            if refused:
                raise NodesRefused(refused)
            cache = default_cache()
            key = graph_key(gm, request.fingerprint or self._fingerprint, engine.gpu(), options, profiles)
            name = f"torchmux_{key[:12]}"
            found = _kept(cache, key, lambda built: (built, engine.load(built, gm, name, settings)))
            hit = found is not None
            if found is None:
                inputs = [input_for(placeholders[p], profiles[p]) for p in kept]
                built = engine.build(copy_graph(gm), inputs, settings)
                if cache is not None:
                    cache.store(key, built.to_bytes())
                found = built, engine.load(built, gm, name, settings)
        otherwise = in_torch(untouched, _NOT_TAKEN, strict=bool(request.strict))
        compiled, module = found
        return TensorrtFunction(
            compiled, module, kept, results, {p: f for p, f in profiles.items() if f is not None}, otherwise, hit
        )


def _kept(cache: ArtifactCache | None, key: str, load: Callable[[engine.Engine], Any]) -> Any:
    """The result of ``load`` for the cached engine; None if there is none, or if it does not load and was dropped."""
    stored = cache.load(key) if cache is not None else None
    if cache is None or stored is None:
        return None
    try:
        return load(engine.Engine.from_bytes(stored))
    except (ValueError, RuntimeError) as error:
        log.warning("the cached engine %s does not load and will be rebuilt: %s", key, error)
        cache.drop(key)
        return None


class TensorrtFunction:
    """Calls an engine; sizes outside its profiles run in torch."""

    library_calls: Mapping[str, str] = MappingProxyType({})  # the engine computes all itself

    def __init__(
        self,
        built: engine.Engine,
        module: Any,
        kept: Sequence[int],
        results: Sequence[Result],
        profiles: dict[int, Profile],
        otherwise: Callable[..., Sequence[torch.Tensor]],
        cache_hit: bool,
    ) -> None:
        self.cache_hit = cache_hit
        self._built = built
        self._module = module
        self._kept = tuple(kept)
        self._results = tuple(results)
        self._profiles = profiles
        self._otherwise = otherwise

    def files(self) -> list[ToolFile]:
        """The engine as TensorRT's runtime reads it, with the names that its inputs have there."""

        def write(path: Path, names: Sequence[str], weights: Mapping[int, torch.Tensor]) -> list[Path]:
            path.write_bytes(self._built.serialized)
            return [path]

        return [ToolFile("tensorrt-engine", ".engine", write)]

    def __call__(self, *args: Any) -> Sequence[torch.Tensor]:
        for position, profile in self._profiles.items():
            value = args[position]
            if not profile.takes(tuple(value.shape) if isinstance(value, torch.Tensor) else (value,)):
                return self._otherwise(*args)
        found = self._module(*(args[p] for p in self._kept))
        tensors = (found,) if isinstance(found, torch.Tensor) else found
        return tuple(r.arrange(t) for r, t in zip(self._results, tensors, strict=True))


def _calls(gm: GraphModule) -> list[Node]:
    return [n for n in gm.graph.nodes if n.op == "call_function"]
