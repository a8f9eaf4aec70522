"""What a call of a graph does besides returning results, and how it is undone, so that the call can be made again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter
from torch.multiprocessing.reductions import StorageWeakRef

from torchmux import torch_internals as internals
from torchmux.backends.common.cache.listing import Unknown
from torchmux.backends.common.cache.recipes import name_of_function, name_of_method

MOST_COPIED = 1 << 20
"""Bytes of inputs that a graph changes, of which each call keeps copies; with more, a failed call is not made again."""


@dataclass(frozen=True)
class Effects:
    """What a graph does to the world.

    Args:
        together: positions of the inputs that it writes to; those of one kind are copied together, since the statistics
            of a network are many small tensors.
        devices: those whose random numbers it draws, if it draws any.
        once: why a call cannot be made again after it failed; empty if it can.
    """

    together: tuple[tuple[int, ...], ...] = ()
    devices: tuple[torch.device, ...] = ()
    once: str = ""

    @property
    def changed(self) -> set[int]:
        """The positions of the inputs that it writes to."""
        return {position for alike in self.together for position in alike}

    @property
    def are_kept(self) -> bool:
        """Whether there is something to remember before a call."""
        return not self.once and bool(self.together or self.devices)

    def remember(self, args: Sequence[Any]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Copies of what a call with these inputs may change."""
        with torch.no_grad():
            copies = [_flat([args[p] for p in alike]) for alike in self.together]
        return copies, [_random_state(d) for d in self.devices]

    def undo(self, args: Sequence[Any], before: tuple[list[torch.Tensor], list[torch.Tensor]] | None) -> None:
        """Make the inputs and the random state what they were."""
        if before is None:
            return
        copies, states = before
        with torch.no_grad():
            for alike, copy in zip(self.together, copies, strict=True):
                inputs = [args[p] for p in alike]
                for tensor, value in zip(inputs, _apart(copy, inputs), strict=True):
                    tensor.copy_(value)
        for device, state in zip(self.devices, states, strict=True):
            if device.type == "cpu":
                torch.set_rng_state(state)
            else:
                torch.cuda.set_rng_state(state, device)


def together(args: Sequence[Any], positions: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """These positions, grouped by what can be one tensor; guards see to it that it is so in each call."""
    groups: dict[Any, list[int]] = {}
    for position in positions:
        tensor = args[position]
        groups.setdefault((tensor.dtype, tensor.device) if _is_plain(tensor) else position, []).append(position)
    return tuple(map(tuple, groups.values()))


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_conj() and not tensor.is_neg()


def _flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    """A copy of tensors of one kind, one behind the other."""
    if len(tensors) == 1:
        return tensors[0].detach().clone()
    return internals.copied_together(tensors)


def _apart(flat: torch.Tensor, like: list[torch.Tensor]) -> Sequence[torch.Tensor]:
    """What :func:`_flat` has copied."""
    return [flat] if len(like) == 1 else internals.taken_apart(flat, like)


def effects_of(gm: GraphModule, inputs: Sequence[Any]) -> Effects:
    """The effects of a captured graph, from a run on fake tensors."""
    try:
        for node in gm.graph.nodes:
            if node.op == "call_function":
                name_of_function(node.target)
            elif node.op == "call_method":
                name_of_method(node.target)
    except Unknown as why:
        return Effects(once=f"{why}, which may do anything")
    placeholders = gm.graph.find_nodes(op="placeholder")
    fakes = [node.meta.get("example_value") for node in placeholders]
    mode = next((value.fake_mode for value in fakes if internals.is_fake(value)), None)
    if mode is None:
        return Effects() if not any(isinstance(v, torch.Tensor) for v in inputs) else Effects(once="nothing is known")
    with torch.no_grad(), mode:
        aliases = [value.detach() if isinstance(value, torch.Tensor) else value for value in fakes]
    shapes = [_geometry(value) for value in aliases]
    try:
        with _quiet(), internals.ignoring_new_symbols(mode), torch.no_grad(), mode, _Watch(aliases) as seen:
            Interpreter(gm).run(*aliases)
    except Exception as error:  # what torch does not know of its operators
        return Effects(once=f"its effects are not known ({type(error).__name__})")
    if [_geometry(value) for value in aliases] != shapes:
        return Effects(once="it changes the sizes or strides of an input")
    changed = tuple(sorted(seen.changed))
    if sum(inputs[p].untyped_storage().nbytes() for p in changed) > MOST_COPIED:
        return Effects(once="it changes inputs that are too large to be copied before each call")
    used = {value.device for value in inputs if isinstance(value, torch.Tensor)} if seen.random else set()
    devices = {torch.device("cpu")} | used if seen.random else set()
    return Effects(together(inputs, changed), tuple(sorted((d for d in devices if d.type in ("cpu", "cuda")), key=str)))


class _Watch(internals.TorchDispatchMode):
    """Sees which of some tensors are written to, and whether random numbers are drawn."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        super().__init__()
        self.positions: dict[Any, list[int]] = {}
        self.changed: set[int] = set()
        self.random = False
        for position, value in enumerate(inputs):
            if isinstance(value, torch.Tensor):
                self.positions.setdefault(StorageWeakRef(value.untyped_storage()), []).append(position)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.random |= torch.Tag.nondeterministic_seeded in function.tags
        for value in internals.pytree.tree_leaves(list(_written(function, args, kwargs))):
            if isinstance(value, torch.Tensor):
                self.changed.update(self.positions.get(StorageWeakRef(value.untyped_storage()), ()))
        return function(*args, **kwargs)


def _written(function: Any, args: Sequence[Any], kwargs: Any) -> Iterator[Any]:
    """The arguments that an operator writes to."""
    arguments = internals.operator_schema(function).arguments
    for position, argument in enumerate(arguments):
        # The schemas of batch norms do not say that they write to their statistics.
        statistics = argument.name in ("running_mean", "running_var") and "batch_norm" in str(function)
        if statistics or (argument.alias_info is not None and argument.alias_info.is_write):
            yield args[position] if position < len(args) else kwargs.get(argument.name)


def _geometry(value: Any) -> Any:
    return (value.shape, value.stride(), value.storage_offset()) if isinstance(value, torch.Tensor) else None


def _random_state(device: torch.device) -> torch.Tensor:
    return torch.get_rng_state() if device.type == "cpu" else torch.cuda.get_rng_state(device)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The run changes nothing that the program sees: grad mode, autocast regions."""
    grad = torch.is_grad_enabled()
    try:
        yield
    finally:
        internals.set_grad_enabled(grad)
