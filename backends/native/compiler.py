"""Compiles one part of a graph, or loads its code from the artifact cache."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import torch
from torch.fx import GraphModule, Node

from torchmux import logs
from torchmux.config import config
from torchmux.registry.contract import SmallCalls, pins_of
from torchmux.registry.errors import LeftToTorch, NodesRefused
from torchmux.registry.spec import CompileRequest

from ..common.adapter.constants import Watched
from ..common.cache import code_or_refusal, turns
from ..common.cache.cache import default_cache
from ..common.cache.keys import graph_key
from . import artifact, faults, fingerprint, targets
from .devices import device_of, device_of_graph, elsewhere, tensors_in
from .options import NativeOptions
from .runtime import Made, MissingConstant, loaded

log = logging.getLogger("torchmux.cache")


class Native:
    """The backend object; see :class:`torchmux.registry.spec.Backend`.

    What compiles is imported when there is something to compile: a process that finds all artifacts needs none of it.
    """

    def __init__(self) -> None:
        self._fingerprint = fingerprint()

    def decompositions(self) -> Mapping[Any, Callable[..., Any]]:
        """torch's table without what is lowered directly."""
        from .generate import decompositions

        return decompositions()

    def keep_whole(self) -> frozenset[Any]:
        """What is composed of others even without a table, and better called."""
        from .lowering import calls

        return calls.composite()

    def differentiate_whole(self) -> frozenset[Any]:
        """Composite operators whose gradients torch's own kernels compute better, or loops here."""
        from ..common.pipeline.decompose import RESIZING

        return RESIZING

    def rewrite(self, gm: GraphModule, request: CompileRequest) -> GraphModule:
        """The captured graph, before it is traced, with attention fused, and images laid out for training.

        Raises:
            LeftToTorch: torch runs and records it sooner.
        """
        from .rewrites.attention import fused
        from .rewrites.images import in_channels_last
        from .rewrites.masks import simplified

        if _may_leave(gm, request):
            from .small_graphs import why_torch

            if (reason := why_torch(gm)) is not None:
                raise LeftToTorch(reason)
        if request.options is not None and not request.options.fusion:
            return gm
        gm = fused(gm, _attends)
        if _is_on_gpu(gm):
            gm = simplified(gm)
        return gm if request.phase == "inference" else in_channels_last(gm, _trains_in_channels_last)

    def small_calls(self, gm: GraphModule, request: CompileRequest) -> SmallCalls | None:
        """Of a graph whose sizes may be any, those in which torch records the operators sooner."""
        from .small_graphs import small_calls

        return small_calls(gm) if _may_leave(gm, request) else None

    def supports(self, node: Node) -> Literal[True] | str:
        from .lowering import graph

        return _why_not_here(node) or graph.why_not(node) or True

    def writes_back(self, node: Node) -> bool:
        """Writes to inputs are made by the code where the target can make them."""
        from .lowering import writes

        device = node.args[0].meta["val"].device.type
        name = targets.of_device(device)
        return name is not None and targets.named(name).writes_inputs() and writes.is_lowered(node)

    def makes_views(self, node: Node) -> bool:
        """Results are allocated in the sizes and strides that they have in the end."""
        value = node.meta["val"]
        return isinstance(value, torch.Tensor) and value.device.type == "cpu"

    def casting(self) -> Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], None] | None:
        return targets.named("cpu").casting(self._fingerprint)

    def compile(self, gm: GraphModule, example_inputs: Sequence[Any], request: CompileRequest) -> Made | Watched:
        """Code for ``gm``, from the artifact cache if it was compiled before.

        Raises:
            NodesRefused: some nodes cannot be lowered after all.
        """
        options = request.options if request.options is not None else NativeOptions()
        weights = request.static_inputs if request.phase == "inference" else ()
        if not (options.freeze and weights):
            return self._compile(gm, {}, options, weights)
        return Watched(
            lambda constants: self._compile(gm, constants, options, ()), {at: example_inputs[at] for at in weights}
        )

    def _compile(
        self,
        gm: GraphModule,
        constants: Mapping[int, torch.Tensor],
        options: NativeOptions,
        weights: Collection[int],
    ) -> Made:
        target = _target_of(gm)
        # The values of frozen tensors are not part of the key: the code does not depend on them.
        # The code depends on measurements, and these on the number of threads.
        machine = targets.machine_of(device_of(gm)), torch.get_num_threads()
        told = target, options, _is_timed(), tuple(constants), machine, faults.of_graph(gm)
        key = graph_key(gm, self._fingerprint, *told)
        gm = _prepared(gm, target, options, {at: value.detach() for at, value in constants.items()})
        with turns.turn(key):
            return _accepted(_stored_or_made(key, gm, target, options, weights), gm)

    def restore(self, key: str, constants: Mapping[str, torch.Tensor]) -> Made | None:
        """The code that :meth:`compile` filed under ``key``, if it is still there; ``constants`` are the graph's."""
        cache = default_cache()
        payload = cache.load(key) if cache is not None else None
        if payload is None:
            return None
        run = _usable(key, payload, lambda name: constants.get(name))
        return None if isinstance(run, dict) else run


_Refused = dict[int, str]
_Constant = Callable[[str], torch.Tensor | None]


def _usable(key: str, payload: bytes, constant: _Constant) -> Made | _Refused | None:
    """The function or the refusal in a cache entry; None if it does not load, and then the entry is dropped."""
    try:
        return _run_or_refusal(key, payload, constant, cache_hit=True)
    except (MissingConstant, MemoryError):
        return None
    except Exception as error:  # the content may be anything
        log.warning("the cached artifact %s does not load and will be rebuilt: %s", key, error)
        if (cache := default_cache()) is not None:
            cache.drop(key)
        return None


def _stored_or_made(
    key: str, gm: GraphModule, target: str, options: NativeOptions, weights: Collection[int]
) -> Made | _Refused:
    """The function for ``gm``, or the refusal of it, from the artifact cache or newly made."""

    def constant(name: str) -> torch.Tensor:
        found: torch.Tensor = getattr(gm, name)
        return found

    cache = default_cache()
    stored = cache.load(key) if cache is not None else None
    if stored is not None and (found := _usable(key, stored, constant)) is not None:
        return found
    payload = _make(gm, target, options, weights)
    if cache is not None:
        cache.store(key, payload)
    return _run_or_refusal(key, payload, constant, cache_hit=False)


def _accepted(found: Made | _Refused, gm: GraphModule) -> Made:
    """``found``, if it is code.

    Raises:
        NodesRefused: it is a refusal.
    """
    if not isinstance(found, dict):
        found.library_calls = _by_name(found.library_positions, gm)
        found.kernels = _by_name(found.kernel_positions, gm)
        return found
    raise NodesRefused(_by_name(list(found.items()), gm))


def _run_or_refusal(key: str, payload: bytes, constant: _Constant, *, cache_hit: bool) -> Made | _Refused:
    """The function in an artifact, after writing the trace that it asks for; or the reasons why nodes are refused, by
    position."""
    code = code_or_refusal.code_in(payload)
    if code is None:
        return code_or_refusal.refusal_in(payload) or {}
    run = loaded(code, constant, cache_hit=cache_hit)
    run.artifact = key
    if (folder := artifact.write_trace(code.head, key)) is not None:
        run.notes.append(f"native wrote a trace to {folder}")
    return run


def _by_name(told: Sequence[tuple[int, str]], gm: GraphModule) -> dict[str, str]:
    """What is told of positions, by the names that their nodes had in the graph before it was prepared."""
    from .rewrites.freezing import STANDS_FOR

    nodes = list(gm.graph.nodes)
    return {name: called for at, called in told for name in nodes[at].meta.get(STANDS_FOR, (nodes[at].name,))}


def _target_of(gm: GraphModule) -> str:
    """The name of the target; it is not imported before there is something to compile."""
    device = device_of(gm)
    name = targets.of_device(device.type)
    assert name is not None, f"the pipeline hands on no graphs on {device}"
    return name


def _why_not_here(node: Node) -> str | None:
    """Why a node is not for this machine, or not for the device of its graph."""
    device = device_of_graph(node.graph)
    if device.type not in targets.BY_DEVICE:
        return f"native does not run on {device.type}"
    if targets.of_device(device.type) not in targets.WITH_COMPLEX and (found := _complex_in(node)):
        return f"tensors of {found}"
    return targets.why_not(device) or (elsewhere(node) if device.type != "cpu" else None)


def _complex_in(node: Node) -> torch.dtype | None:
    """The dtype of complex numbers that a node takes or makes, if there are any."""
    values = tensors_in([n.meta.get("val") for n in (node, *node.all_input_nodes)])
    return next((v.dtype for v in values if v.dtype.is_complex), None)


def _may_leave(gm: GraphModule, request: CompileRequest) -> bool:
    """Whether torch may run a graph that records gradients, or calls of it, because it does so sooner."""
    return request.phase != "inference" and not request.strict and config.leave_small_graphs and not pins_of(gm)


def _attends(query: torch.Tensor, scores: int) -> bool:
    """Whether a target wants attention like this to be fused."""
    name = targets.of_device(query.device.type)
    return name is not None and targets.named(name).attends(query, scores)


def _is_on_gpu(gm: GraphModule) -> bool:
    values = (node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder"))
    return any(isinstance(value, torch.Tensor) and value.device.type == "cuda" for value in values)


def _trains_in_channels_last(images: torch.Tensor) -> bool:
    """Whether a target wants the convolution that makes these images in channels last, in training."""
    name = targets.of_device(images.device.type)
    return name is not None and targets.named(name).trains_in_channels_last(images)


def _is_timed() -> bool:
    return "kernel_times" in logs.enabled()


def _prepared(gm: GraphModule, target: str, options: NativeOptions, frozen: Mapping[int, torch.Tensor]) -> GraphModule:
    """``gm`` in the requested precision, with its frozen inputs."""
    if options.precision == "bf16":
        from .rewrites.precision import in_bfloat16

        gm = in_bfloat16(gm)
    if targets.named(target).lacks_float16():
        from .rewrites.precision import convolutions_in_float32

        gm = convolutions_in_float32(gm, torch.float16)
    if any(gm.graph.find_nodes(op="call_function", target=torch.ops.aten._fft_c2c.default)):
        from .rewrites.fourier import real_transforms

        gm = real_transforms(gm)
    if frozen:
        from .rewrites.freezing import freeze

        gm = freeze(gm, frozen, finishes_convolutions=targets.named(target).finishes_convolutions())
    return gm


def _make(gm: GraphModule, target: str, options: NativeOptions, weights: Collection[int]) -> bytes:
    targets.named(target).prepare(device_of(gm))
    if options.max_autotune:
        from .tuning import tune

        return tune(gm, targets.named(target), options, timed=_is_timed())
    from .generate import generate

    return generate(gm, targets.named(target), options, timed=_is_timed(), weights=weights)
