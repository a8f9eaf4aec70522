"""A captured graph and the inputs of a call as a file, from which another process makes them again.

Graphs inside of graphs, symbolic sizes, pins and the settings of the process go along.  A symbolic size stands for its
value in this call, so that a dynamic graph can be measured at the sizes of any call.  What cannot be described exactly
is not measured: operators and functions of the program itself, tensor subclasses, sizes that depend on data before the
graph begins.
"""

from __future__ import annotations

import contextlib
import importlib
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node

from torchmux import torch_internals as internals
from torchmux.backends.common.cache.listing import ATOMS, Unknown, operator_named, operator_of_torch
from torchmux.backends.common.cache.recipes import name_of_method
from torchmux.registry.contract import PIN
from torchmux.torch_internals.tracer_stand_in import tracer_stand_in

from . import surroundings

__all__ = ["PARCEL", "Parcel", "Unknown", "pack"]

PARCEL = "parcel"
"""The usual name of the file of a parcel, in a folder of its own."""

_META = ("source_line", PIN)
_HIGHER_ORDER = "torch.ops.higher_order"
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass
class _Ref:
    """Stands for a node among arguments."""

    position: int


@dataclass
class _Named:
    """Stands for a function or an operator, by its name."""

    kind: str  # operator, higher_order, function
    name: str


@dataclass
class _Number:
    """Stands for a symbolic number, by its expression."""

    expr: Any


@dataclass
class _Sizes:
    """Stands for a tensor with symbolic sizes, or one that holds a symbolic number."""

    shape: Any
    stride: Any
    offset: Any
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    item: _Number | None = None


@dataclass
class _Code:
    """A graph: its nodes as (kind, name, target, arguments, keywords, notes), and what it holds by name."""

    nodes: list[tuple[str, str, Any, Any, Any, dict[str, Any]]]
    held: dict[str, Any]


@dataclass
class Parcel:
    """What a worker needs to compile and run a captured graph."""

    code: _Code
    inputs: list[Any]
    kinds: list[tuple[type, bool, bool]]  # of each input: its class, whether it needs a gradient, or is for inference
    examples: dict[int, Any]  # what stands for inputs of symbolic sizes, by position
    symbols: list[tuple[dict[str, Any], int | float]]  # with their values in the call
    is_symbolic: bool
    static_inputs: tuple[int, ...]
    training: bool
    dynamic: bool | None
    strict: Any
    state: Mapping[str, Any]

    def save(self, path: Path) -> None:
        torch.save(vars(self), path, pickle_protocol=4)  # older ones cannot name torch.channels_last

    @classmethod
    def load(cls, path: Path) -> Parcel:
        """The parcel in a file of our own; tensors are mapped, so that several processes share the memory."""
        return cls(**torch.load(path, mmap=True, weights_only=False))

    def real_inputs(self) -> list[Any]:
        """Fresh leaves on the tensors of the file."""
        found: list[Any] = []
        for value, (kind, needs, inference) in zip(self.inputs, self.kinds, strict=True):
            if isinstance(value, torch.Tensor):
                with torch.inference_mode(inference):
                    value = value.clone() if inference else value.detach()
                    if kind is torch.nn.Parameter:
                        value = torch.nn.Parameter(value, requires_grad=needs)
                    elif needs:
                        value.requires_grad_()
            found.append(value)
        return found

    def graph(self, inputs: Sequence[Any]) -> GraphModule:
        """The captured graph again, with fake values like those that the capture had."""
        gm = _made(self.code)
        with tracer_stand_in():
            self._fill(gm, inputs)
        return gm

    def _fill(self, gm: GraphModule, inputs: Sequence[Any]) -> None:
        """Note on each node what it makes."""
        mode = internals.fake_tensor_mode(symbolic=self.is_symbolic, scalars=True, dynamic_outputs=True)
        replaced = {told["symbol"]: internals.made_symbol(mode.shape_env, told, value) for told, value in self.symbols}
        fakes: list[Any] = []
        for position, value in enumerate(inputs):
            if position in self.examples:
                fakes.append(_example(self.examples[position], mode, replaced))
            elif isinstance(value, torch.Tensor):
                fakes.append(mode.from_tensor(value, static_shapes=True))
            else:
                fakes.append(value)
        with mode:
            _Noting(gm, mode).run(*fakes)

    @contextlib.contextmanager
    def compiling(self, gm: GraphModule) -> Iterator[None]:
        """The context in which the frontend has graphs compiled."""
        values = (node.meta.get("example_value") for node in gm.graph.nodes)
        mode = next((value.fake_mode for value in values if internals.is_fake(value)), None)
        with tracer_stand_in(), internals.tracing_context(mode):
            yield


class _Noting(Interpreter):
    """Runs a graph on fake tensors, and notes on each node what it makes."""

    def __init__(self, gm: GraphModule, mode: Any) -> None:
        super().__init__(gm)
        self.mode = mode

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        return self.mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if not isinstance(result, GraphModule):
            n.meta["example_value"] = result
        env = self.mode.shape_env
        if env is not None and n.op.startswith("call_") and env.pending_fresh_unbacked_symbols:
            n.meta["unbacked_bindings"] = internals.new_unbacked_symbols(env, result)
        return result


def pack(
    gm: GraphModule,
    inputs: Sequence[Any],
    *,
    training: bool,
    static_inputs: tuple[int, ...],
    strict: Any,
    dynamic: bool | None = None,
) -> Parcel:
    """A parcel with copies of nothing: inputs are written when it is saved.

    Args:
        inputs: the tensors and numbers of one call, in the order of the placeholders; symbolic sizes stand for their
            sizes in this call, which need not be the one that the graph was captured in.

    Raises:
        Unknown: the graph cannot be described; the message says why.
    """
    for value in inputs:
        if isinstance(value, torch.Tensor) and type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise Unknown(f"an input is a {type(value).__name__}")
    fakes = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
    examples = {position: told for position, fake in enumerate(fakes) if (told := _told_example(fake)) is not None}
    state = surroundings.told()
    if internals.is_functorch_active() or internals.count_dispatch_modes():
        raise Unknown("a transform or a mode of the program is active around it")
    if internals.count_function_modes() and internals.default_devices() is None:
        raise Unknown("a mode of the program is active around it")
    state["torch's grad mode"] = training or torch.is_grad_enabled()
    return Parcel(
        code=_told(gm),
        inputs=[v.detach() if isinstance(v, torch.Tensor) else v for v in inputs],
        kinds=[_kind(value) for value in inputs],
        examples=examples,
        symbols=_symbols(fakes, inputs),
        is_symbolic=any(getattr(getattr(fake, "fake_mode", None), "shape_env", None) is not None for fake in fakes)
        or bool(examples),
        static_inputs=tuple(static_inputs),
        training=training,
        dynamic=dynamic,
        strict=strict,
        state=state,
    )


def _kind(value: Any) -> tuple[type, bool, bool]:
    is_tensor = isinstance(value, torch.Tensor)
    return type(value), is_tensor and value.requires_grad, is_tensor and value.is_inference()


# --- graphs -----------------------------------------------------------------------------------------------------------


def _told(gm: GraphModule) -> _Code:
    number: dict[Node, int] = {}
    nodes = []
    held: dict[str, Any] = {}
    for node in gm.graph.nodes:
        number[node] = len(number)
        target: Any = str(node.target)
        if node.op == "call_function":
            target = _named(node.target)
        elif node.op == "call_method":
            target = name_of_method(target)
        elif node.op == "get_attr":
            value = operator.attrgetter(target)(gm)
            if isinstance(value, GraphModule):
                held[target] = _told(value)
            elif type(value) in (torch.Tensor, torch.nn.Parameter):
                held[target] = value
            else:
                raise Unknown(f"it holds a {type(value).__name__}")
        elif node.op not in ("placeholder", "output"):
            raise Unknown(f"a node of kind {node.op}")
        notes = {name: node.meta[name] for name in _META if name in node.meta}
        args, kwargs = _packed(node.args, number), _packed(dict(node.kwargs), number)
        nodes.append((node.op, node.name, target, args, kwargs, notes))
    return _Code(nodes, held)


def _made(code: _Code) -> GraphModule:
    graph, made = Graph(), list[Node]()
    for op, name, target, args, kwargs, notes in code.nodes:
        taken, named = (_unpacked(value, made) for value in (args, kwargs))
        called = _found(target) if isinstance(target, _Named) else target
        node = graph.output(taken[0]) if op == "output" else graph.create_node(op, called, taken, named, name=name)
        node.meta.update(notes)
        made.append(node)
    held = {name: _made(value) if isinstance(value, _Code) else value for name, value in code.held.items()}
    return GraphModule(held, graph)


def _named(target: Any) -> _Named:
    """A function by its name, if a process that imports the same modules finds it."""
    if isinstance(target, internals.OpOverload):
        return _Named("operator", operator_of_torch(target))
    module, name = getattr(target, "__module__", None) or "", getattr(target, "__name__", "")
    if module == _HIGHER_ORDER and getattr(torch.ops.higher_order, name, None) is target:
        return _Named("higher_order", name)
    if module == "__main__" or getattr(sys.modules.get(module), name, None) is not target:
        raise Unknown(f"the graph calls {target}")
    return _Named("function", f"{module}.{name}")


def _found(named: _Named) -> Callable[..., Any]:
    found: Callable[..., Any]
    if named.kind == "operator":
        found = operator_named(named.name)
    elif named.kind == "higher_order":
        found = getattr(torch.ops.higher_order, named.name)
    else:
        module, _, attribute = named.name.rpartition(".")
        found = getattr(importlib.import_module(module), attribute)
    return found


def _packed(value: Any, number: Mapping[Node, int]) -> Any:
    """An argument as plain data."""
    if isinstance(value, Node):
        return _Ref(number[value])
    if isinstance(value, _SYMBOLIC):
        return _told_number(value)
    if isinstance(value, torch.Size):
        return value
    if isinstance(value, dict):
        return {key: _packed(each, number) for key, each in value.items()}
    if isinstance(value, slice):
        return slice(*(_packed(each, number) for each in (value.start, value.stop, value.step)))
    if isinstance(value, (tuple, list)):
        return (tuple if isinstance(value, tuple) else list)(_packed(each, number) for each in value)
    plain = value is None or value is Ellipsis or type(value) in (bool, int, float, complex, str, bytes, range)
    if plain or isinstance(value, ATOMS):
        return value
    if callable(value):
        return _named(value)
    raise Unknown(f"an argument is a {type(value).__name__}")


def _unpacked(value: Any, made: Sequence[Node]) -> Any:
    if isinstance(value, _Ref):
        return made[value.position]
    if isinstance(value, _Named):
        return _found(value)
    if isinstance(value, dict):
        return {key: _unpacked(each, made) for key, each in value.items()}
    if isinstance(value, slice):
        return slice(*(_unpacked(each, made) for each in (value.start, value.stop, value.step)))
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return (tuple if isinstance(value, tuple) else list)(_unpacked(each, made) for each in value)
    return value


# --- symbolic sizes ---------------------------------------------------------------------------------------------------


def _told_number(value: Any) -> Any:
    return _Number(value.node.expr) if isinstance(value, _SYMBOLIC) else value


def _told_example(fake: Any) -> _Number | _Sizes | None:
    """What stands for an input if it is symbolic."""
    if isinstance(fake, _SYMBOLIC):
        return _Number(fake.node.expr)
    if not isinstance(fake, torch.Tensor):
        return None
    item = getattr(fake, "item_memo", None)
    if fake.layout is not torch.strided:
        raise Unknown("an input is not dense")
    numbers = (*fake.shape, *fake.stride(), fake.storage_offset())
    if item is None and not any(isinstance(n, _SYMBOLIC) for n in numbers):
        return None
    return _Sizes(
        [_told_number(n) for n in fake.shape],
        [_told_number(n) for n in fake.stride()],
        _told_number(fake.storage_offset()),
        fake.dtype,
        fake.device,
        fake.requires_grad,
        _told_number(item) if isinstance(item, _SYMBOLIC) else None,
    )


def _symbols(fakes: Sequence[Any], inputs: Sequence[Any]) -> list[tuple[dict[str, Any], int | float]]:
    """The symbols of the inputs, each with its value in a call."""
    values: dict[Any, int | float] = {}
    envs: dict[Any, Any] = {}
    for fake, real in zip(fakes, inputs, strict=True):
        pairs: list[tuple[Any, Any]] = []
        if isinstance(fake, _SYMBOLIC):
            pairs.append((fake, real))
        elif isinstance(fake, torch.Tensor):
            pairs += zip((*fake.shape, *fake.stride()), (*real.shape, *real.stride()), strict=True)
            pairs.append((fake.storage_offset(), real.storage_offset()))
            if isinstance(item := getattr(fake, "item_memo", None), _SYMBOLIC):
                pairs.append((item, real.item()))
        for number, value in pairs:
            if isinstance(number, _SYMBOLIC):
                envs.update(dict.fromkeys(number.node.expr.free_symbols, number.node.shape_env))
                if number.node.expr.is_symbol:
                    values.setdefault(number.node.expr, value)
    found = []
    for symbol, env in envs.items():
        if symbol not in values:
            raise Unknown(f"no input tells the size {symbol}")
        try:
            found.append((internals.told_symbol(env, symbol), values[symbol]))
        except ValueError as why:
            raise Unknown(f"the size {why}") from None
    return found


def _example(told: _Number | _Sizes, mode: Any, replaced: dict[Any, Any]) -> Any:
    """A fake input again."""

    def number(value: Any) -> Any:
        return internals.made_number(mode.shape_env, value.expr, replaced) if isinstance(value, _Number) else value

    if isinstance(told, _Number):
        return number(told)
    if told.item is not None:
        fake = mode.from_tensor(torch.zeros((), dtype=told.dtype), static_shapes=True)
        fake.item_memo = number(told.item)
        return fake
    shape, stride, offset = [number(n) for n in told.shape], [number(n) for n in told.stride], number(told.offset)
    with mode, torch.no_grad():
        made = torch.empty_strided(shape, stride, dtype=told.dtype, device=told.device)
        if not isinstance(offset, int) or offset:
            extent = 1 + offset + sum(step * (n - 1) for n, step in zip(shape, stride, strict=True))
            made = torch.empty(extent, dtype=told.dtype, device=told.device).as_strided(shape, stride, offset)
    return made.detach().requires_grad_(told.requires_grad)
