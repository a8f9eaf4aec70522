"""``torch.func``: ``vmap``, ``grad``, ``vjp``, ``jvp``, the Jacobians.

The transformed function becomes a graph, traced with the tensors that it sees inside the transform: one example of a
batch, or a new tensor that requires gradients.  The outer graph applies torch's own transform to that graph, with flat
tensors as inputs and results.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule, Node

from torchmux import torch_internals as ti

from .. import breaks
from ..breaks import GraphBreak
from ..handlers.table import CODES, handles
from ..values.base import GraphValue, Raised, Value
from ..values.constants import ConstValue
from ..values.containers.sequences import TupleValue
from ..values.functions import FunctionValue
from ..values.tensors import TensorValue
from .region import Region, examples, node_of, run_operator
from .trees import flatten, unflatten

if TYPE_CHECKING:
    from ..trace.tracer import FrameWriter, Tracer

FALSE, ZERO = ConstValue(False), ConstValue(0)


# --- what the graph calls -----------------------------------------------------------------------------------------
# ``operands`` are the transformed tensors and then what the graph captures.


def vectorized(
    graph: Any, in_dims: tuple, out_dims: tuple, randomness: str, chunk_size: int | None, *operands: Any
) -> tuple:
    return torch.vmap(graph, in_dims, out_dims, randomness, chunk_size=chunk_size)(*operands)


def gradients(graph: Any, argnums: tuple[int, ...], *operands: Any) -> tuple:
    """The gradients of the first result, that result, and the rest."""

    def run(*args: Any) -> tuple:
        value, *rest = graph(*args)
        return value, rest

    grads, (value, rest) = torch.func.grad_and_value(run, argnums, has_aux=True)(*operands)
    return (*grads, value, *rest)


def jacobian_reverse(graph: Any, argnums: tuple[int, ...], count: int, chunk_size: int | None, *operands: Any) -> tuple:
    """The Jacobians of the first ``count`` results, and the rest."""
    rows, rest = torch.func.jacrev(_with_rest(graph, count), argnums, has_aux=True, chunk_size=chunk_size)(*operands)
    return (*(entry for row in rows for entry in row), *rest)


def jacobian_forward(graph: Any, argnums: tuple[int, ...], count: int, randomness: str, *operands: Any) -> tuple:
    """The Jacobians of the first ``count`` results, and the rest."""
    rows, rest = torch.func.jacfwd(_with_rest(graph, count), argnums, has_aux=True, randomness=randomness)(*operands)
    return (*(entry for row in rows for entry in row), *rest)


def tangents(graph: Any, primals: int, count: int, strict: bool, *operands: Any) -> tuple:
    """The first ``count`` results, their tangents, and the rest."""
    given, moved, captured = operands[:primals], operands[primals : 2 * primals], operands[2 * primals :]

    def run(*args: Any) -> tuple:
        return _with_rest(graph, count)(*args, *captured)

    results, moves, rest = torch.func.jvp(run, given, moved, strict=strict, has_aux=True)
    return (*results, *moves, *rest)


def pullback(graph: Any, primals: int, count: int, *operands: Any) -> tuple:
    """The first ``count`` results, the rest, and the function that pulls gradients of the results back."""

    def run(*args: Any) -> tuple:
        return _with_rest(graph, count)(*args, *operands[primals:])

    results, function, rest = torch.func.vjp(run, *operands[:primals], has_aux=True)
    return (*results, *rest, function)


def pull_back(function: Any, *cotangents: Any) -> tuple:
    return function(cotangents)


def _with_rest(graph: Any, count: int) -> Callable[..., Any]:
    """The graph with its results in two groups."""

    def run(*operands: Any) -> Any:
        results = graph(*operands)
        return results[:count], results[count:]

    return run


# --- the functions that torch.func returns ------------------------------------------------------------------------


class TransformedValue(Value):
    """What ``vmap(f)`` and the like return."""

    __slots__ = ("function", "kind", "options")

    def __init__(self, kind: str, function: Value, options: dict[str, Value]) -> None:
        self.kind = kind
        self.function = function
        self.options = options
        self.source = None

    def pytype(self) -> type:
        return FunctionType

    def describe(self) -> str:
        return f"{self.kind} of {self.function.describe()}"

    def truth(self, tr: Tracer) -> bool:
        return True

    def hash_key(self, tr: Tracer) -> Any:
        return self

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return _APPLY[self.kind](tr, self, args, kwargs)

    def getattr(self, tr: Tracer, name: str) -> Value:
        return self.function.getattr(tr, name)

    def plain(self, tr: Tracer, name: str, default: Any) -> Any:
        """An option as a Python object."""
        return self.options[name].const(tr) if name in self.options else default

    def rebuild(self, out: FrameWriter) -> str:
        parts = [out.value(self.function), *(f"{name}={out.value(value)}" for name, value in self.options.items())]
        return f"{out.names.const(getattr(torch.func, self.kind))}({', '.join(parts)})"


def _makes(kind: str) -> None:
    """Register the function ``torch.func.<kind>``, and the code of what it has returned before the trace."""
    maker = getattr(torch.func, kind)
    signature = inspect.signature(maker)

    def make(tr: Tracer, *args: Value, **kwargs: Value) -> Value:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise Raised(tr.exception(error)) from None
        return TransformedValue(kind, given.pop("func"), given)

    def made_before(tr: Tracer, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
        cells = dict(zip(function.code.co_freevars, function.closure, strict=True))
        given = {name: cells[name].read(tr) for name in signature.parameters if name in cells}
        return TransformedValue(kind, given.pop("func"), given).call(tr, args, kwargs)  # type: ignore[arg-type]

    handles(maker)(make)
    wrapper = next(c for c in maker.__code__.co_consts if isinstance(c, CodeType) and "func" in c.co_freevars)
    CODES[id(wrapper)] = made_before


for _kind in ("vmap", "grad", "grad_and_value", "jacrev", "jacfwd"):
    _makes(_kind)


@handles(torch.func.hessian)
def hessian(tr: Tracer, func: Value, argnums: Value = ZERO) -> Value:
    inner = TransformedValue("jacrev", func, {"argnums": argnums})
    return TransformedValue("jacfwd", inner, {"argnums": argnums})


# --- tracing ------------------------------------------------------------------------------------------------------


class _Inside:
    """The graph of a transformed function, under construction."""

    def __init__(
        self, tr: Tracer, what: str, function: Value, *, pure: bool = False, roots: list[Value], kind: str = "gradient"
    ) -> None:
        self.tr = tr
        self.function = function
        self.region = Region(tr, what, pure=pure, roots=[function, *roots], transform=kind)
        self.replaced: list[Node] = []  # the tensors that parameters of the graph represent

    def parameter(self, leaf: Value, make: Callable[[Any], Any]) -> Value:
        """What the function sees in place of the tensor ``leaf``: an alias of it, made by ``make``."""
        if not isinstance(leaf, TensorValue):
            raise GraphBreak(breaks.REGION, f"{self.region.what} with respect to {leaf.describe()}")
        try:
            with self.tr.fake_mode:
                example = make(leaf.example)
        except Exception as error:
            raise GraphBreak(breaks.OPERATOR_FAILED, f"{self.region.what}: {error}", error) from None
        self.replaced.append(leaf.node)
        return self.region.parameter(example, "given", unchanged=True)

    def tracked(self, leaf: Value) -> Value:
        """What it sees of a tensor that it is differentiated by."""

        def make(example: Any) -> Any:
            with torch.enable_grad():
                return example.detach().requires_grad_()

        return self.parameter(leaf, make)

    def call(self, args: list[Value], kwargs: dict[str, Value], *, records: bool) -> Value:
        with self.region:
            if records:
                self.region.assume_grad(True)
            return self.function.call(self.tr, args, kwargs)

    def run(self, target: Callable, first: list[Value], rest: list[Value], options: tuple, more: list[Node]) -> Any:
        """Apply the transform: the values of its results, and those of ``rest``, for which constants stay.

        ``more`` are operands between the parameters and the captures.
        """
        results, graph = self.close(first, rest)
        fresh = run_operator(self.tr, target, *self.arguments(graph, options, more))
        return fresh[: len(fresh) - results], _refilled(rest, fresh[len(fresh) - results :])

    def close(self, first: list[Value], rest: list[Value]) -> tuple[int, GraphModule]:
        """The graph, which returns ``first`` and what it computes of ``rest``, and how many values the latter are."""
        for value in first:
            if not isinstance(value, TensorValue):
                raise GraphBreak(breaks.REGION, f"{self.region.what} returns {value.describe()}")
        computed = [value.arg(self.tr) for value in rest if isinstance(value, GraphValue)]
        return len(computed), self.region.close([*(value.arg(self.tr) for value in first), *computed])

    def arguments(self, graph: GraphModule, options: tuple, more: list[Node]) -> tuple[tuple, tuple]:
        """The arguments of the operator that runs the graph, as nodes and as examples."""
        operands = [*self.replaced, *more, *self.region.captures]
        return (node_of(self.tr, graph, "inside"), *options, *operands), (graph, *options, *examples(operands))


def _refilled(values: list[Value], fresh: list[Value]) -> list[Value]:
    """``values`` with the results of an operator in place of what the graph computes."""
    results = iter(fresh)
    return [next(results) if isinstance(value, GraphValue) else value for value in values]


def _with_aux(tr: Tracer, result: Value, has_aux: bool) -> tuple[Value, list[Value], Any]:
    """What is differentiated, and the leaves and structure of what a function returns beside it.

    Raises:
        Raised: some of that is no tensor, which functorch refuses.
    """
    if not has_aux:
        return result, [], None
    if not isinstance(result, TupleValue) or len(result.items(tr)) != 2:
        raise GraphBreak(breaks.REGION, "has_aux=True, but the function does not return a pair")
    main, aux = result.items(tr)
    leaves, structure = flatten(tr, aux)
    for leaf in leaves:
        if not isinstance(leaf, TensorValue):
            words = f"Expected tensors, got unsupported type {leaf.pytype()}"
            raise Raised(tr.make_exception(RuntimeError, words))
    return main, leaves, structure


def _apply_vmap(tr: Tracer, made: TransformedValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    chunk_size, randomness = made.plain(tr, "chunk_size", None), made.plain(tr, "randomness", "error")
    if chunk_size is not None and randomness == "same":  # torch puts the random state back for each chunk
        raise GraphBreak(breaks.REGION, "vmap in chunks that draw the same random numbers")
    leaves, structure = flatten(tr, tuple(args))
    in_dims = _in_dims(tr, made.plain(tr, "in_dims", 0), leaves, structure)
    roots = [*args, *kwargs.values()]
    inside = _Inside(tr, made.describe(), made.function, pure=chunk_size is not None, roots=roots, kind="vmap")
    given = [
        leaf if dim is None else inside.parameter(leaf, functools.partial(_first, dim))
        for leaf, dim in zip(leaves, in_dims, strict=True)
    ]
    result = inside.call(unflatten(given, structure).unpack(tr), kwargs, records=False)
    outputs, structure = flatten(tr, result)
    out_dims = _out_dims(made.plain(tr, "out_dims", 0), result, structure, len(outputs))
    graph = inside.close(outputs, [])[1]
    dims = (*(dim for dim in in_dims if dim is not None), *(None for _ in inside.region.captures))
    options = (dims, out_dims, randomness, chunk_size)
    return unflatten(run_operator(tr, vectorized, *inside.arguments(graph, options, [])), structure)


def _first(dim: int, example: Any) -> Any:
    if not example.shape[dim]:  # what is done to none of them is done to something of that shape
        return example.new_empty([size for axis, size in enumerate(example.shape) if axis != dim % example.dim()])
    return example.select(dim, 0)


def _in_dims(tr: Tracer, in_dims: Any, leaves: list[Value], structure: Any) -> list[int | None]:
    """For each leaf the dimension that is mapped over; what torch refuses, eager is left to refuse."""
    found = ti.broadcast_dims(in_dims, structure) if isinstance(in_dims, (int, tuple)) else None
    if not leaves or found is None or all(dim is None for dim in found):
        raise GraphBreak(breaks.REGION, f"vmap with in_dims={in_dims}, which does not match the arguments")
    for leaf, dim in zip(leaves, found, strict=True):
        if dim is not None and not (isinstance(leaf, TensorValue) and -leaf.example.dim() <= dim < leaf.example.dim()):
            raise GraphBreak(breaks.REGION, f"vmap over dimension {dim} of {leaf.describe()}")
    return found


def _out_dims(out_dims: Any, result: Value, structure: Any, count: int) -> tuple:
    found: list[Any] | None
    if isinstance(result, TensorValue):
        found = list(out_dims) if isinstance(out_dims, tuple) else [out_dims]
    else:
        found = ti.broadcast_dims(out_dims, structure)
    if found is None or len(found) != count or not count:
        raise GraphBreak(breaks.REGION, f"vmap with out_dims={out_dims}, which does not match the results")
    return tuple(found)


class _Argnums:
    """The arguments that a function is differentiated by, flattened."""

    def __init__(self, tr: Tracer, made: TransformedValue, args: list[Value]) -> None:
        argnums = made.plain(tr, "argnums", 0)
        self.single = isinstance(argnums, int)
        numbers = (argnums,) if self.single else tuple(argnums)
        if not numbers or any(not -len(args) <= n < len(args) for n in numbers):
            raise GraphBreak(breaks.REGION, f"{made.kind} with argnums={argnums} for {len(args)} arguments")
        self.positions = [n % len(args) for n in numbers]
        if len(set(self.positions)) != len(numbers):
            raise GraphBreak(breaks.REGION, f"{made.kind} with argnums={argnums}")
        self.flat = [flatten(tr, args[n]) for n in self.positions]
        self.count = sum(len(leaves) for leaves, _ in self.flat)

    def replaced(self, args: list[Value], make: Callable[[Value], Value]) -> list[Value]:
        """The arguments with what ``make`` makes of each of the tensors."""
        given = list(args)
        for position, (leaves, structure) in zip(self.positions, self.flat, strict=True):
            given[position] = unflatten([make(leaf) for leaf in leaves], structure)
        return given

    def gathered(self, values: list[Value]) -> Value:
        """One value for each tensor, in the structure that ``grad`` returns."""
        parts, start = [], 0
        for leaves, structure in self.flat:
            parts.append(unflatten(values[start : start + len(leaves)], structure))
            start += len(leaves)
        return parts[0] if self.single else TupleValue(parts)


def _apply_grad(tr: Tracer, made: TransformedValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    argnums = _Argnums(tr, made, args)
    inside = _Inside(tr, made.describe(), made.function, roots=[])
    result = inside.call(argnums.replaced(args, inside.tracked), kwargs, records=True)
    has_aux = made.plain(tr, "has_aux", False)
    value, aux, structure = _with_aux(tr, result, has_aux)
    fresh, aux = inside.run(gradients, [value], aux, (tuple(range(argnums.count)),), [])
    grads, value = argnums.gathered(fresh[:-1]), fresh[-1]
    if made.kind == "grad":
        return TupleValue([grads, unflatten(aux, structure)]) if has_aux else grads
    return TupleValue([grads, TupleValue([value, unflatten(aux, structure)]) if has_aux else value])


def _apply_jacobian(tr: Tracer, made: TransformedValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if kwargs or made.plain(tr, "_preallocate_and_copy", False):
        raise GraphBreak(breaks.REGION, f"{made.kind} with these arguments")
    argnums = _Argnums(tr, made, args)
    inside = _Inside(tr, made.describe(), made.function, roots=[])
    backward = made.kind == "jacrev"
    result = inside.call(argnums.replaced(args, inside.tracked), {}, records=backward)
    has_aux = made.plain(tr, "has_aux", False)
    main, aux, structure = _with_aux(tr, result, has_aux)
    outputs, out_structure = flatten(tr, main)
    last = made.plain(tr, "chunk_size", None) if backward else made.plain(tr, "randomness", "error")
    options = (tuple(range(argnums.count)), len(outputs), last)
    fresh, aux = inside.run(jacobian_reverse if backward else jacobian_forward, outputs, aux, options, [])
    width = argnums.count
    rows = [argnums.gathered(fresh[i * width : (i + 1) * width]) for i in range(len(outputs))]
    jacobian = unflatten(rows, out_structure)
    return TupleValue([jacobian, unflatten(aux, structure)]) if has_aux else jacobian


_APPLY: dict[str, Callable[[Tracer, TransformedValue, list[Value], dict[str, Value]], Value]] = {
    "vmap": _apply_vmap, "grad": _apply_grad, "grad_and_value": _apply_grad, "jacrev": _apply_jacobian,
    "jacfwd": _apply_jacobian,
}  # fmt: skip


# --- jvp and vjp --------------------------------------------------------------------------------------------------


@handles(torch.func.jvp)
def jvp(
    tr: Tracer, func: Value, primals: Value, tangents_: Value, *, strict: Value = FALSE, has_aux: Value = FALSE
) -> Value:
    if not isinstance(primals, TupleValue) or not isinstance(tangents_, TupleValue):
        raise GraphBreak(breaks.REGION, "jvp without a tuple of primals and a tuple of tangents")
    leaves, structure = flatten(tr, primals)
    moved, moved_structure = flatten(tr, tangents_)
    if structure != moved_structure or not all(isinstance(value, TensorValue) for value in moved):
        raise GraphBreak(breaks.REGION, "jvp with tangents that do not match the primals")
    inside = _Inside(tr, f"jvp of {func.describe()}", func, roots=[])
    given = unflatten([inside.tracked(leaf) for leaf in leaves], structure)
    result = inside.call(given.unpack(tr), {}, records=False)
    main, aux, aux_structure = _with_aux(tr, result, has_aux.truth(tr))
    outputs, out_structure = flatten(tr, main)
    options = (len(leaves), len(outputs), strict.truth(tr))
    fresh, aux = inside.run(tangents, outputs, aux, options, [value.arg(tr) for value in moved])
    parts = [unflatten(fresh[: len(outputs)], out_structure), unflatten(fresh[len(outputs) :], out_structure)]
    return TupleValue([*parts, unflatten(aux, aux_structure)] if has_aux.truth(tr) else parts)


@handles(torch.func.vjp)
def vjp(tr: Tracer, func: Value, *primals: Value, has_aux: Value = FALSE) -> Value:
    leaves, structure = flatten(tr, primals)
    inside = _Inside(tr, f"vjp of {func.describe()}", func, roots=[])
    given = unflatten([inside.tracked(leaf) for leaf in leaves], structure)
    result = inside.call(given.unpack(tr), {}, records=True)
    main, aux, aux_structure = _with_aux(tr, result, has_aux.truth(tr))
    outputs, out_structure = flatten(tr, main)
    graph = inside.close(outputs, aux)[1]
    args, fakes = inside.arguments(graph, (len(leaves), len(outputs)), [])
    results = tr.propagate("call_function", pullback, list(fakes), {})
    node = tr.create_node("call_function", pullback, args, {})
    node.meta["example_value"] = results
    tr.op_count += 1
    fresh = tr.wrap_result(results[:-1], node).unpack(tr)
    function = tr.create_node("call_function", operator.getitem, (node, len(fresh)), {})
    function.meta["example_value"] = results[-1]
    parts = [unflatten(fresh[: len(outputs)], out_structure), PullbackValue(function, out_structure, structure)]
    if has_aux.truth(tr):
        parts.append(unflatten(_refilled(aux, fresh[len(outputs) :]), aux_structure))
    return TupleValue(parts)


class PullbackValue(Value):
    """The function that ``vjp`` returns; it exists only inside the graph."""

    __slots__ = ("node", "results", "structure")

    def __init__(self, node: Node, results: Any, structure: Any) -> None:
        self.node = node
        self.results = results
        self.structure = structure
        self.source = None

    def pytype(self) -> type:
        return FunctionType

    def describe(self) -> str:
        return "the function that vjp returns"

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) != 1 or kwargs:
            raise GraphBreak(breaks.REGION, f"{self.describe()} with these arguments")
        leaves, structure = flatten(tr, args[0])
        if structure != self.results or not all(isinstance(leaf, TensorValue) for leaf in leaves):
            raise GraphBreak(breaks.REGION, f"{self.describe()} with gradients that do not match the results")
        nodes = [self.node, *(leaf.arg(tr) for leaf in leaves)]
        return unflatten(run_operator(tr, pull_back, tuple(nodes), examples(nodes)), self.structure)
