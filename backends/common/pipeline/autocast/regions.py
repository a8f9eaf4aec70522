"""Weights that autocast casts once for a region: a graph takes the casts as inputs, and shares them with eager.

Inside a region of autocast, eager casts a leaf that requires a gradient at its first use, and keeps the cast until the
outermost region is left.  Later uses get this cast, even if the leaf has been changed since.  A graph that is compiled
inside a region and casts its weights itself would see the change.  It therefore takes the casts as inputs, from torch's
own cache.

torch has no function that reads this cache.  A product with no elements does: autograd keeps what it was given for the
backward pass (:class:`_Probe`).  Where autograd records nothing, or hooks replace what it keeps, a product of matrices
of which only the arguments are computed does (:func:`_from_cache`).  That takes ten microseconds for each weight, so
the casts of a region are kept until it is left: they hang on the cast of a tensor of our own, which torch keeps and
drops with the others.  Casts of large weights on a CPU are made ahead of that, in memory of our own (``buffers``).
Those on a GPU are made together, and eager does not get them (``together``).

A gradient goes past the cast to the weight itself (:func:`cast_of`), so that the graph converts it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from torchmux import torch_internals as internals

from ..aot import StaysInTorch
from ..runtime import in_torch
from ..symbols import has_symbols
from .buffers import Buffers, Copies, weak_references_tell
from .gradient import cast_of
from .together import Together

Run = Callable[..., Sequence[Any]]

_enter, _exit = torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast
_product = torch.ops.aten.mm.default
_cast = torch.ops.aten._to_copy.default

_CHANGED = "autocast keeps the cast of a weight that the graph changes in place"
_TWO_DTYPES = "autocast casts a weight to two dtypes in one region"
_BOTH = "an operator reads a weight with and without the cast of autocast"
_SWITCHED_OFF = "a region of autocast is active around it, but switched off, and the graph switches it on"


class RegionCasts:
    """A captured graph whose autocast weights are inputs, and the code that gives it these inputs.

    ``gm`` and ``example_inputs`` are those of the graph; the casts follow the captured graph's own inputs.
    """

    def __init__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> None:
        self.gm, self.example_inputs = gm, list(example_inputs)
        self.wanted: list[tuple[int, torch.dtype]] = []
        self.enters = False  # whether the graph enters a region, while none is active around it

    def around(self, run: Run, casting: Callable[[], Copies | None], *, strict: bool) -> Run:
        """``run`` as a function of the captured graph's own inputs; ``casting`` is the backend's.

        Raises:
            FallbackRefused: in a call that torch must run, if ``strict``.
        """
        if self.enters:
            otherwise = in_torch(self.gm, _SWITCHED_OFF, strict=strict)
            return lambda *args: otherwise(*args) if _is_in_region() else run(*args)
        if not self.wanted:
            return run
        wanted = tuple(self.wanted)
        weights = [self.example_inputs[at] for at, _ in wanted]
        probes = [_Probe(weight, at, dtype) for weight, (at, dtype) in zip(weights, wanted, strict=True)]
        together, is_on_cpu = None, False
        if _are_on_one_gpu(weights) and weak_references_tell():
            placeholders = self.gm.graph.find_nodes(op="placeholder")
            together = Together(wanted, is_symbolic=any(has_symbols(placeholders[at]) for at, _ in wanted))
        else:
            is_on_cpu = all(weight.device.type == "cpu" for weight in weights)
        can_probe = is_on_cpu and all(weight.dim() > 0 for weight in weights) and _can_probe()
        can_probe_anywhere = can_probe and _are_alike_without_gradients()
        buffers = Buffers(wanted if is_on_cpu else (), casting)

        def casts_of(args: Sequence[Any], others: Sequence[int]) -> list[torch.Tensor]:
            if can_probe and internals.saves_for_backward():
                return [probes[n].cast(args) for n in others]
            if can_probe_anywhere and not torch.is_inference_mode_enabled():
                with torch.enable_grad():
                    if internals.saves_for_backward():
                        return [probes[n].cast(args) for n in others]
            asked = [(args[wanted[n][0]], wanted[n][1]) for n in others]
            return _casts_of(asked, lambda missing: {} if together is None else together.casts(args, missing))

        def call(*args: Any) -> Sequence[Any]:
            casts = buffers.fill(args)
            others = [n for n in range(len(wanted)) if n not in casts]
            casts.update(zip(others, casts_of(args, others), strict=True))
            return run(*args, *[casts[n].detach() for n in range(len(wanted))])

        return internals.not_captured(call)


def of_graph(gm: GraphModule, example_inputs: Sequence[Any]) -> RegionCasts:
    """The graph with the casts of weights as inputs, if autocast is active around it; otherwise as it is.

    Raises:
        StaysInTorch: the graph changes such a weight, or casts it to two dtypes: only eager knows which cast is used.
            Or an operator also reads it without a cast.
    """
    answer = RegionCasts(gm, example_inputs)
    is_inside = torch.is_autocast_cache_enabled() and internals.is_any_autocast_enabled()
    enters = any(node.target is _enter for node in gm.graph.nodes)
    if not is_inside and not enters:
        return answer
    weights = {
        node: at for at, node in enumerate(gm.graph.find_nodes(op="placeholder")) if _is_kept(example_inputs[at])
    }
    answer.enters = enters and not is_inside and bool(weights)
    if not is_inside:
        weights = {node: at for node, at in weights.items() if _is_changed(node, gm)}
    found = _casting_nodes(gm, set(weights))
    for weight, uses in found.items():
        if _is_changed(weight, gm):
            raise StaysInTorch(_CHANGED)
        if len(set(uses.values())) > 1:
            raise StaysInTorch(_TWO_DTYPES)
    if found:
        _lift(answer, found, weights)
    return answer


def _is_kept(value: Any) -> bool:
    """Whether eager keeps the cast of a tensor; compare ``cached_cast`` in torch's ``autocast_mode.cpp``."""
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and value.dtype is torch.float32
        and value.requires_grad
        and value.is_leaf
        and not value._is_view()
    )


def _is_changed(weight: Node, gm: GraphModule) -> bool:
    """Whether the graph writes to an input."""
    fake = weight.meta.get("example_value")
    if not isinstance(fake, torch.Tensor):
        return False
    if not fake.is_inference():
        return fake._version > 0  # the capture has run the graph on this tensor
    written = (value for node in gm.graph.nodes for value in _written(node))
    return any(internals.share_storage(fake, value) for value in written)


def _written(node: Node) -> Sequence[torch.Tensor]:
    """The tensors that a node of a captured graph may write to."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    arguments = [node.kwargs["out"]] if "out" in node.kwargs else []
    if (name.endswith("_") and not name.endswith("__")) or getattr(operator, name, None) is node.target:
        arguments.append(node.args[:1])
    values = torch.fx.node.map_arg(arguments, lambda n: n.meta.get("example_value"))
    return [value for value in internals.pytree.tree_leaves(values) if isinstance(value, torch.Tensor)]


class _Casts(internals.TorchDispatchMode):
    """Which of some tensors an operator casts, and to what; ``as_is`` has those that it also reads otherwise."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        super().__init__()
        self.tensors = tensors
        self.found: dict[int, torch.dtype] = {}
        self.as_is: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        answer = function(*args, **kwargs)
        if function is _cast and any(args[0] is tensor for tensor in self.tensors):
            self.found[id(args[0])] = kwargs.get("dtype")
        elif any(isinstance(leaf, torch.Tensor) for leaf in internals.pytree.tree_leaves(answer)):  # no question
            leaves = internals.pytree.tree_leaves((args, kwargs))
            self.as_is.update(id(tensor) for tensor in self.tensors if any(leaf is tensor for leaf in leaves))
        return answer


def _casting_nodes(gm: GraphModule, weights: set[Node]) -> dict[Node, dict[Node, torch.dtype]]:
    """The weights that autocast casts: for each, the nodes that use the cast, and its dtype."""
    found: dict[Node, dict[Node, torch.dtype]] = {}
    regions: dict[Node, Any] = {}
    try:
        for node in gm.graph.nodes:
            if node.target is _enter:
                regions[node] = _enter(*node.args)
            elif node.target is _exit:
                _exit(regions.pop(node.args[0]))
            for weight, dtype in _casts_at(node, weights).items():
                found.setdefault(weight, {})[node] = dtype
    finally:
        for mode in reversed(list(regions.values())):
            _exit(mode)
    return found


def _casts_at(node: Node, weights: set[Node]) -> dict[Node, torch.dtype]:
    """Which weights autocast casts for one node: those that are cast with autocast, and not without."""
    used = [argument for argument in node.all_input_nodes if argument in weights]
    is_kept = torch.is_autocast_cache_enabled() and internals.is_any_autocast_enabled()
    if not used or node.op not in ("call_function", "call_method") or not is_kept:
        return {}
    with_autocast, as_is = _casts_when_run(node, used)
    if not with_autocast:
        return {}
    with internals.disable_autocast():
        without, _ = _casts_when_run(node, used)
    found = {weight: dtype for weight, dtype in with_autocast.items() if without.get(weight) is not dtype}
    if not as_is.isdisjoint(found):
        raise StaysInTorch(_BOTH)
    return found


def _casts_when_run(node: Node, used: Sequence[Node]) -> tuple[dict[Node, torch.dtype], set[Node]]:
    """The weights that are cast, with their dtypes, and those that are also read as they are."""
    values = {weight: weight.meta["example_value"] for weight in used}
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta.get("example_value"))
    target = node.target if callable(node.target) else getattr(torch.Tensor, node.target)
    mode = next(v.fake_mode for v in values.values())
    was_cached = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        with mode, _Casts(list(values.values())) as casts, torch.no_grad():
            target(*args, **kwargs)
    except Exception:  # what fails here fails or not in the trace of the graph, which tells of it
        pass
    finally:
        torch.set_autocast_cache_enabled(was_cached)
    found = {weight: casts.found[id(value)] for weight, value in values.items() if id(value) in casts.found}
    return found, {weight for weight, value in values.items() if id(value) in casts.as_is}


def _lift(answer: RegionCasts, found: dict[Node, dict[Node, torch.dtype]], weights: dict[Node, int]) -> None:
    """Make the casts inputs of a copy of the graph, which has the gradients go to the weights."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in answer.gm.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    last = [n for n in graph.nodes if n.op == "placeholder"][-1]
    lifted: dict[Node, Node] = {}
    for weight, uses in found.items():
        dtype = next(iter(uses.values()))
        with graph.inserting_after(last):
            last = lifted[weight] = graph.placeholder(f"{weight.name}_cast")
        fake = weight.meta["example_value"]
        with fake.fake_mode, torch.no_grad(), internals.disable_autocast():
            last.meta["example_value"] = fake.to(dtype)
        real = answer.example_inputs[weights[weight]]
        answer.example_inputs.append(torch.zeros_like(real, dtype=dtype, requires_grad=False))
        answer.wanted.append((weights[weight], dtype))
    for weight, uses in found.items():
        with graph.inserting_after(last):
            last = graph.call_function(cast_of, (copies[weight], lifted[weight]))
        fake = weight.meta["example_value"]
        with fake.fake_mode, internals.disable_autocast():
            last.meta["example_value"] = cast_of(fake, lifted[weight].meta["example_value"])
        for node in uses:
            copies[node].replace_input_with(copies[weight], last)
    answer.gm = GraphModule(answer.gm, graph)


# --- in a call -------------------------------------------------------------------------------------------------------


class _Probe:
    """Takes the cast of the weight at one position of a graph's inputs, made now if there is none yet."""

    def __init__(self, weight: torch.Tensor, at: int, dtype: torch.dtype) -> None:
        self._at, self._dtype, self._is_matrix = at, dtype, weight.dim() == 2
        self._factor = self._factor_of(weight)

    def _factor_of(self, weight: torch.Tensor) -> torch.Tensor:
        """No rows that can be multiplied by ``weight``."""
        sizes = (0, weight.shape[0]) if self._is_matrix else (0, *[1] * (weight.dim() - 1), weight.shape[-1])
        return torch.empty(sizes, dtype=self._dtype, requires_grad=True)

    def cast(self, args: Sequence[Any]) -> torch.Tensor:
        weight: torch.Tensor = args[self._at]
        factor = self._factor
        if factor.shape[-1] != weight.shape[0 if self._is_matrix else -1]:  # an input whose sizes change
            factor = self._factor = self._factor_of(weight)
        if self._is_matrix:
            found: torch.Tensor = torch.mm(factor, weight).grad_fn._saved_mat2
        else:
            total = torch.linalg.vecdot(factor, weight).grad_fn
            found = total.next_functions[0][0]._saved_other
        return found if found.dtype is self._dtype else weight.to(self._dtype)


@functools.cache
def _can_probe() -> bool:
    """Whether this version of torch keeps for the backward pass what probes look for."""
    dtype = torch.get_autocast_dtype("cpu")
    weights = [torch.ones([2] * dim, requires_grad=True) for dim in range(1, 5)]
    probes = [_Probe(weight, at, dtype) for at, weight in enumerate(weights)]
    try:
        with torch.enable_grad(), torch.autocast("cpu", dtype), internals.without_modes():
            found = [(probe.cast(weights), probe.cast(weights)) for probe in probes]
    except (AttributeError, IndexError, RuntimeError):
        return False
    return all(
        first is second or (first.dtype is dtype and first.data_ptr() == second.data_ptr()) for first, second in found
    )


@functools.cache
def _are_alike_without_gradients() -> bool:
    """Whether torch makes casts with gradients where none are recorded: then it does not show where they were made."""
    dtype, weight = torch.get_autocast_dtype("cpu"), torch.ones(2, 2, requires_grad=True)
    probe = _Probe(weight, 0, dtype)
    with torch.inference_mode(False), torch.autocast("cpu", dtype), internals.without_modes():
        with torch.no_grad():
            torch.mm(weight, weight)
            weight.mul_(2)
        with torch.enable_grad():
            found = probe.cast([weight])
        return found.requires_grad and found.detach()[0, 0].item() == 1.0


class _Product(internals.TorchDispatchMode):
    """Takes the first argument of a product; computes the casts before it, but not the product."""

    taken: Any = None

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is not _product:
            return function(*args, **(kwargs or {}))
        self.taken = args[0]
        return args[0].new_empty(())


def _is_in_region() -> bool:
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return depth > 0


def _are_on_one_gpu(weights: Sequence[torch.Tensor]) -> bool:
    return len({weight.device for weight in weights}) == 1 and weights[0].device.type == "cuda"


_anchors: dict[torch.device, torch.Tensor] = {}  # leaves of our own, on the casts of which the others hang


def _from_cache(product: _Product, weight: torch.Tensor) -> torch.Tensor:
    """The cast of a leaf that autocast uses, made now if there is none yet."""
    torch.mm(weight, weight)
    taken, product.taken = product.taken, None
    return taken


def _casts_of(
    wanted: Sequence[tuple[torch.Tensor, torch.dtype]], together: Callable[[Sequence[int]], dict[int, torch.Tensor]]
) -> list[torch.Tensor]:
    """The casts that autocast uses; ``together`` may make some of those that a region does not have yet."""
    kept: dict[torch.device, dict[int, tuple[torch.Tensor, torch.Tensor]]] = {}
    with _Product() as product:
        for device in {weight.device for weight, _ in wanted}:
            kept[device] = _from_cache(product, _anchor(device)).__dict__.setdefault("torchmux_casts", {})
    casts = {}
    for n, (weight, _) in enumerate(wanted):
        found = kept[weight.device].get(id(weight))
        if found is not None and found[0] is weight:
            casts[n] = found[1]
    missing = [n for n in range(len(wanted)) if n not in casts]
    made = together(missing) if missing else {}
    if len(made) < len(missing):
        with _Product() as product:
            made.update((n, _from_cache(product, wanted[n][0])) for n in missing if n not in made)
    for n, cast in made.items():
        weight, casts[n] = wanted[n][0], cast
        if _is_kept(weight):
            kept[weight.device][id(weight)] = weight, cast
    return [casts[n] if casts[n].dtype is dtype else w.to(dtype) for n, (w, dtype) in enumerate(wanted)]


def _anchor(device: torch.device) -> torch.Tensor:
    found = _anchors.get(device)
    if found is None:
        with internals.without_modes(), torch.inference_mode(False):
            found = _anchors[device] = torch.zeros(1, 1, device=device, requires_grad=True)
    return found
