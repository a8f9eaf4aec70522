"""One captured frame in a file: which calls it takes, its graph, and what its function loads and rebuilds.

Guards on arguments are kept as they are.  What else a program reads, its module and its globals, is as it was when the
file was written: what it read there is in the file, and a file for which it no longer holds is not written.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from torchmux import torch_internals as ti
from torchmux.backends.common.cache.cache import CarriedCache
from torchmux.frontend.guards.check import CompiledGuards, evaluate, read
from torchmux.frontend.guards.guards import GuardSet, ShapeCondition, ShapePart, TensorFacts
from torchmux.frontend.guards.kinds.guard import Guard
from torchmux.frontend.guards.kinds.objects import Is, SameObject
from torchmux.frontend.guards.sources import Item, Local, RawItem, Source
from torchmux.registry.errors import LoadRefused

from .frames import check, frame_again, frame_told
from .graphs import graph_again, graph_told
from .operators import is_missing
from .paths import Reader, Writer, paths_in, sources_in
from .state import State
from .values import NotTold, again, is_found_again, told

if TYPE_CHECKING:
    from torchmux.frontend.capture.captured import Captured


class Outdated(Exception):
    """An entry that no call of the program would use any more; the message says why."""


@dataclass
class World:
    """What a program reads when a file is written: its arguments by name, and all else as it is now."""

    arguments: frozenset[str]
    locals: dict[str, Any]  # what is no argument of each call: the module, the contents of cells
    bundle: str | None = None  # the ``*args`` whose first item is the module, and no argument of each call
    own_cells: frozenset[str] = frozenset()  # variables of the call itself that functions inside of it read

    def is_given(self, source: Source) -> bool:
        """Whether a path begins, or leads through, an argument of the call."""
        return any(self._is_argument(path) for path in paths_in(source))

    def is_only_given(self, source: Source) -> bool:
        return all(self._is_argument(path) for path in paths_in(source))

    def is_loaded(self, source: Source) -> bool:
        """Whether a frame loads this from the arguments of the call.

        Raises:
            NotTold: there is the module in it.
        """
        if self.bundle is not None and source == Local(self.bundle):
            raise NotTold(f"*{self.bundle} in a result or a change, with its own object in it")
        return self.is_given(source)

    def _is_argument(self, path: Source) -> bool:
        root = path.root()
        if not isinstance(root, Local) or root.name not in self.arguments:
            return False
        if root.name != self.bundle:
            return True
        while path.parent is not root and path.parent is not None:
            path = path.parent
        return not (isinstance(path, (Item, RawItem)) and path.key == 0)

    def read(self, source: Source) -> Any:
        return read([source], self.locals)[0]


# --- written ----------------------------------------------------------------------------------------------------------


def entry_told(captured: Captured, world: World, state: State, artifacts: dict[str, bytes]) -> dict[str, Any]:
    """What is written of a captured frame.

    Raises:
        NotTold: a file cannot do what it does.
        Outdated: what it took for granted of the module or of globals no longer holds.
    """
    assert captured.guards is not None
    paths = Writer()
    guards = guards_told(captured.guards, world, paths)
    if captured.is_training:
        raise NotTold("gradients: it was called with tensors that require them. Call it under torch.no_grad() first")
    if captured.sets_switches:
        raise NotTold("a change of torch's global settings")
    graph = None if captured.compiled is None else graph_told(captured.compiled, state, artifacts)
    parts = captured.parts
    frame = None if parts is None else frame_told(parts, world, state, paths.source)
    report = None if captured.compiled is None else captured.compiled.report
    decisions = getattr(captured.compiled, "decisions", {})
    return {
        "name": captured.qualname,
        "guards": guards,
        "frame": frame,
        "graph": graph,
        "grad_modes": captured.grad_modes,
        "placements": [] if report is None else [[p.node, p.op, p.placed_on, p.reason] for p in report.placements],
        "decisions": {sizes: decision.to_data() for sizes, decision in decisions.items()},
        "notes": [] if report is None else list(report.notes),
        "paths": paths.table,
    }


def guards_told(guards: CompiledGuards, world: World, paths: Writer) -> dict[str, Any]:
    conditions = []
    for guard in guards.conditions:
        sources = sources_in(guard)
        given = [source for source in sources if world.is_given(source)]
        if not given:
            value, holds = evaluate(guard, world.locals)
            if not holds:
                raise Outdated(f"{guard.source.words()} {guard.words()} no longer holds (now {value!r:.60})")
        elif not all(map(world.is_only_given, sources)):
            conditions.append(paths.guard(_named(guard, world)))
        else:
            conditions.append(paths.guard(guard))
    tensors = []
    for facts in guards.facts:
        if not world.is_given(facts.source):
            _compare(facts, world.read(facts.source))
        else:
            tensors.append(_facts_told(facts, paths))
    distinct = [[s for s in group if world.is_given(s)] for group in guards.distinct]
    shape_roots = {}
    for variable, source in guards.shape_roots.items():
        if not world.is_given(source):
            raise NotTold(f"a symbolic size of {source.words()}, which is no argument")
        shape_roots[variable] = paths.source(source)
    return {
        "conditions": conditions,
        "tensors": tensors,
        "distinct": [[paths.source(s) for s in group] for group in distinct if len(group) > 1],
        "shape_roots": shape_roots,
        "shapes": [_shape_told(condition, paths) for condition in guards.shape_conditions],
        "global": _state_of(guards.state) if guards.global_state else None,
        "devices": [told(device) for device in guards.devices],
    }


def _named(guard: Guard, world: World) -> Guard:
    """A comparison of an argument with an object of the program's, if this can be found by its name.

    Raises:
        NotTold: it cannot.
    """
    if isinstance(guard, SameObject):
        for source, other in ((guard.source, guard.other), (guard.other, guard.source)):
            if world.is_only_given(source) and not world.is_given(other):
                own = world.read(other)
                if is_found_again(own):
                    return Is(source, own)
    raise NotTold(f"a comparison of an argument with the program's own objects: {guard!r}")


def _compare(facts: TensorFacts, tensor: Any) -> None:
    """Raises:
    Outdated: a tensor of the program is another than the one that was compiled for.
    """
    same = (
        type(tensor) is facts.cls
        and isinstance(tensor, torch.Tensor)
        and (tensor.dtype, tensor.device, tensor.layout) == (facts.dtype, facts.device, facts.layout)
        and _fits(tensor.shape, facts.sizes)
        and (facts.is_special or _fits(tensor.stride(), facts.strides))
    )
    if not same:
        raise Outdated(f"{facts.source.words()} is another kind of tensor than it was")


def _fits(found: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(found) == len(wanted) and all(b is None or a == b for a, b in zip(found, wanted, strict=True))


def _facts_told(facts: TensorFacts, paths: Writer) -> Any:
    if facts.is_special or facts.cls not in (torch.Tensor, torch.nn.Parameter):
        raise NotTold(f"an argument that is a {facts.cls.__name__} of {facts.layout}: {facts.source.words()}")
    return {
        "source": paths.source(facts.source),
        "parameter": facts.cls is torch.nn.Parameter,
        "dtype": told(facts.dtype),
        "device": told(facts.device),
        "sizes": facts.sizes,
        "strides": facts.strides,
        "shape": facts.shape,
        "requires_grad": facts.requires_grad,
        "is_inference": facts.is_inference,
    }


def _shape_told(condition: ShapeCondition, paths: Writer) -> Any:
    pieces = [
        [p.variable, paths.source(p.source), p.method, p.index] if isinstance(p, ShapePart) else p
        for p in condition.pieces
    ]
    return [pieces, condition.where, condition.is_lower_bound]


# --- and read ---------------------------------------------------------------------------------------------------------


class Entry:
    """A captured frame of a file: ``check`` says whether it takes a call, whose arguments ``run`` takes by name.

    ``decisions`` are those of ``auto``, as ``torchmux decisions show --json`` has them, if it chose the ``backend``: by
    the sizes that each is about, in words, which are empty if no size is symbolic.

    Raises:
        LoadRefused: this machine or version cannot run it, or it has what torchmux does not write.
    """

    def __init__(self, told: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], carried: CarriedCache) -> None:
        self.name: str = told["name"]
        self.backend: str = told["graph"]["backend"] if told["graph"] is not None else "none"
        self.placements: list[list[Any]] = told["placements"]
        missing = sorted({op for _, op, *_ in self.placements if is_missing(op)})
        if missing:
            raise LoadRefused(
                f"A saved file calls {', '.join(missing)}, which no package has registered in this process. Import "
                "the package that registers it, as the program did that saved the file, then load the file."
            )
        self.decisions: Mapping[str, Any] = told["decisions"]
        reader = Reader(told["paths"])
        self.guards = _guards_again(told["guards"], reader)
        self.check: Callable[[dict[str, Any]], Any] = self.guards.check
        self.calls = 0
        graph = None if told["graph"] is None else graph_again(told["graph"], tensors, carried)
        if graph is not None:
            graph = self._guarded(graph, told["grad_modes"])
        # A loop that runs in eager may be all of a frame.
        frame = told["frame"]
        self.run = _no_frame if frame is None else frame_again(frame, reader.sources, tensors, graph)

    def _guarded(self, graph: Callable[..., Any], modes: Sequence[bool] | None) -> Callable[..., Any]:
        is_active = ti.is_forward_ad_active

        def run_graph(*inputs: Any) -> Any:
            if is_active():
                raise LoadRefused(
                    "A loaded program has no forward-mode derivatives. For them, compile the model with "
                    "torchmux.compile()."
                )
            self.calls += 1
            return graph(*inputs)

        if modes is None:
            return run_graph
        begin, after = modes

        def run_in_mode(*inputs: Any) -> Any:
            torch.set_grad_enabled(begin)
            try:
                return run_graph(*inputs)
            finally:
                torch.set_grad_enabled(after)

        return run_in_mode

    def why_not(self, arguments: dict[str, Any]) -> str:
        return self.guards.why_not(arguments).words


def _no_frame(arguments: dict[str, Any]) -> Any:
    raise LoadRefused("A saved file calls a part that it does not have.")


class _State:
    """The global state of torch in which an entry was captured, for any number of threads."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        if not _is_alike(told, _state_of(ti.GlobalStateGuard())):  # torch ends the process then
            raise LoadRefused("A saved file describes torch's global state otherwise than this torch does.")
        self._told, self._threads = dict(told), -1
        self._renew()

    def _renew(self) -> None:
        self._threads = torch.get_num_threads()
        guard: Any = ti.GlobalStateGuard()
        guard.__setstate__(json.dumps({**self._told, "num_threads": self._threads}))
        self._guard = guard

    def check(self) -> bool:
        if torch.get_num_threads() != self._threads:
            self._renew()
        return bool(self._guard.check())

    def reason(self) -> str:
        """What does not hold, in torch's names."""
        return str(self._guard.reason())


def _state_of(guard: Any) -> Any:
    return json.loads(guard.__getstate__())


def _is_alike(value: Any, example: Any) -> bool:
    """Whether two values from JSON have the same structure, with values of the same types."""
    if type(value) is not type(example):
        return False
    if isinstance(value, dict):
        return value.keys() == example.keys() and all(_is_alike(value[k], example[k]) for k in value)
    if isinstance(value, list):
        return len(value) == len(example) and all(map(_is_alike, value, example))
    return not isinstance(value, int) or -(1 << 31) <= value < 1 << 31


@dataclass
class _Tensor:
    """Stands for a tensor of the capture, as :class:`TensorGuard` does."""

    source: Source
    tensor: torch.Tensor
    sizes: list[int | None]
    strides: list[int | None]

    @property
    def fake(self) -> torch.Tensor:
        return self.tensor


def _guards_again(description: Mapping[str, Any], reader: Reader) -> CompiledGuards:
    sources = reader.sources
    guards = GuardSet(global_state=description["global"] is not None)
    guards.devices = tuple(map(again, description["devices"]))
    for entry in description["conditions"]:
        guards.add(reader.guard(entry))
    for facts in description["tensors"]:
        tensor: Any = _Tensor(sources[facts["source"]], _example(facts), facts["sizes"], facts["strides"])
        guards.tensors[tensor.source] = tensor
    guards.distinct = [[sources[at] for at in group] for group in description["distinct"]]
    for variable, at in description["shape_roots"].items():
        if not variable.isidentifier():
            raise LoadRefused(f"A saved file names a variable {variable!r}. torchmux.save() does not write that.")
        guards.shape_roots[variable] = sources[at]
    for pieces, where, is_lower_bound in description["shapes"]:
        parts = tuple(p if isinstance(p, str) else ShapePart(p[0], sources[p[1]], p[2], p[3]) for p in pieces)
        condition = ShapeCondition(parts, where, is_lower_bound)
        try:
            check(ast.parse(condition.text, mode="eval"), conditions=True)
        except (NotTold, SyntaxError) as error:
            raise LoadRefused(f"A saved file has {error} among its sizes.") from None
        guards.shape_conditions.append(condition)
    if guards.shape_conditions:
        guards.shape_namespace.update(ti.shape_guard_namespace())
    return CompiledGuards(guards, _State(description["global"]) if guards.global_state else None)


def _example(facts: Mapping[str, Any]) -> torch.Tensor:
    """A tensor that looks like one of the capture; its numbers are any."""
    strides = [s if s is not None else n for s, n in zip(facts["strides"], _contiguous(facts["shape"]), strict=True)]
    with torch.inference_mode(facts["is_inference"]):
        made = torch.empty_strided(facts["shape"], strides, dtype=again(facts["dtype"]), device=again(facts["device"]))
        if facts["parameter"]:
            return torch.nn.Parameter(made, requires_grad=facts["requires_grad"])
        return made.requires_grad_(facts["requires_grad"])


def _contiguous(shape: Sequence[int]) -> list[int]:
    strides = [1] * len(shape)
    for at in range(len(shape) - 2, -1, -1):
        strides[at] = strides[at + 1] * max(shape[at + 1], 1)
    return strides
