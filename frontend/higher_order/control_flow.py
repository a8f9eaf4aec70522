"""``torch.cond`` and ``while_loop``: torch's own operators over the graphs of their branches and bodies."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from torchmux import torch_internals as ti

from .. import breaks
from ..breaks import GraphBreak
from ..capture.attempts import FloatsAreConstants, NeedsShapeEnv
from ..handlers.table import handles
from ..values.base import Value
from ..values.constants import ConstValue
from ..values.containers.sequences import ListValue, TupleValue
from ..values.tensors import TensorValue
from .region import Region, examples, in_transform, node_of, run_operator
from .trees import flatten, unflatten

if TYPE_CHECKING:
    from ..trace.tracer import FrameWriter, Tracer

NOTHING = TupleValue([])


@handles(torch.cond)
def cond(tr: Tracer, pred: Value, true_fn: Value, false_fn: Value, operands: Value = NOTHING) -> Value:
    """A branch by the value of a tensor; by anything else it is decided while tracing."""
    given = _operands(tr, "cond", operands)
    if not isinstance(pred, TensorValue):
        return (true_fn if pred.truth(tr) else false_fn).call(tr, given, {})
    if pred.example.numel() != 1:
        raise GraphBreak(breaks.REGION, f"cond with {pred.describe()}, which does not have exactly one element")
    regions, outputs, structures, returned = [], [], [], []
    for name, branch in (("true", true_fn), ("false", false_fn)):
        region = _region(tr, f"the {name} branch of cond", [branch, *given], "vmap")
        with region:
            result = branch.call(tr, given, {})
            leaves, structure = flatten(tr, result)
            returned.append([_whole_number(leaf) for leaf in leaves])
            leaves = [_as_tensor(tr, leaf) for leaf in leaves]
        regions.append(region)
        outputs.append(_tensors(region, leaves))
        structures.append(structure)
    _check_same("the branches of cond return", *zip(outputs, structures, strict=True))
    captures = list({node: None for region in regions for node in region.captures})
    _check_captures(tr, "cond", captures)
    graphs = [r.close([v.node for v in o], captures) for r, o in zip(regions, outputs, strict=True)]
    args = (pred.node, node_of(tr, graphs[0], "true_branch"), node_of(tr, graphs[1], "false_branch"), tuple(captures))
    fakes = (pred.example, *graphs, examples(captures))
    results = run_operator(tr, torch.ops.higher_order.cond, args, fakes)
    numbers = list(zip(*returned, strict=True))
    return unflatten([_as_number(tr, *each) for each in zip(results, numbers, strict=True)], structures[0])


def _whole_number(leaf: Value) -> int | None:
    """The number that a branch returns in the place of a tensor."""
    return leaf.real() if isinstance(leaf, ConstValue) and type(leaf.real()) is int else None


def _as_tensor(tr: Tracer, leaf: Value) -> Value:
    """A whole number as the tensor that torch's operator returns for it."""
    if _whole_number(leaf) is None:
        return leaf
    named: dict[str, Value] = {"dtype": ConstValue(torch.int64), "device": ConstValue(torch.device("cpu"))}
    return tr.emit("call_function", torch.full, [NOTHING, leaf], named)


def _as_number(tr: Tracer, result: Value, numbers: tuple[int | None, ...]) -> Value:
    """What the program gets for a result: one number of two becomes a tensor's value, which only the graph knows."""
    given = {type(number) for number in numbers}
    if given == {type(None)}:
        return result
    if given != {int}:
        raise GraphBreak(breaks.REGION, "cond whose branches return a number and a tensor")
    if numbers[0] == numbers[1]:
        return ConstValue(numbers[0])
    assert isinstance(result, TensorValue)
    return result.call_method(tr, "item", [], {}) if tr.dims.scalars else NumberOfBranch(result)


class NumberOfBranch(Value):
    """The whole number that one of two branches returns; the program may pass it on, and not compute with it."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: TensorValue) -> None:
        self.tensor = tensor
        self.source = None

    def pytype(self) -> type:
        return int

    def describe(self) -> str:
        return "the number that a branch of cond returns"

    def const(self, tr: Tracer) -> Any:
        raise GraphBreak(breaks.TENSOR_TO_PYTHON, f"the value of {self.describe()} is needed in Python")

    def truth(self, tr: Tracer) -> bool:
        raise GraphBreak(breaks.DATA_DEPENDENT_BRANCH, f"the branch depends on {self.describe()}")

    def rebuild(self, out: FrameWriter) -> str:
        return out.value(self.tensor) + ".item()"


@handles(ti.while_loop)
def while_loop(tr: Tracer, cond_fn: Value, body_fn: Value, carried_inputs: Value) -> Value:
    """A loop whose end depends on the values of tensors."""
    if not tr.symbolic:
        raise NeedsShapeEnv  # torch's operator requires one
    leaves, structure = flatten(tr, carried_inputs)
    _operands(tr, "while_loop", carried_inputs)
    check = _region(tr, "the condition of while_loop", [cond_fn])
    with check:
        answer = cond_fn.call(tr, _parameters(tr, check, leaves, structure), {})
    body = _region(tr, "the body of while_loop", [body_fn])
    with body:
        result = body_fn.call(tr, _parameters(tr, body, leaves, structure), {})
    outputs, out_structure = flatten(tr, result)
    carried = [value for value in leaves if isinstance(value, TensorValue)]
    _check_same(
        "the body of while_loop takes and returns", (carried, structure), (_tensors(body, outputs), out_structure)
    )
    if not isinstance(answer, TensorValue) or answer.example.shape or answer.example.dtype is not torch.bool:
        raise GraphBreak(breaks.REGION, f"the condition of while_loop returns {answer.describe()}")
    captures = list({node: None for region in (check, body) for node in region.captures})
    _check_captures(tr, "while_loop", captures)
    graphs = [check.close([answer.node], captures), body.close([v.node for v in outputs], captures)]  # type: ignore[attr-defined]
    graphs[0] = _without_tuple(graphs[0])
    nodes = [value.node for value in carried]
    args = (node_of(tr, graphs[0], "condition"), node_of(tr, graphs[1], "body"), tuple(nodes), tuple(captures))
    fakes = (*graphs, examples(nodes), examples(captures))
    return unflatten(run_operator(tr, torch.ops.higher_order.while_loop, args, fakes), structure)


def _region(tr: Tracer, what: str, roots: list[Value], *transforms: str) -> Region:
    """A branch or a body; ``transforms`` are those inside of which torch has a rule for the operator."""
    if in_transform(tr, *transforms):
        raise GraphBreak(breaks.REGION, f"{what} inside a function transform")
    return Region(tr, what, pure=True, roots=roots)


def _operands(tr: Tracer, name: str, operands: Value) -> list[Value]:
    if not isinstance(operands, (TupleValue, ListValue)):
        raise GraphBreak(breaks.REGION, f"{name} with {operands.describe()} instead of a tuple")
    if not all(isinstance(leaf, TensorValue) for leaf in flatten(tr, operands)[0]):
        raise GraphBreak(breaks.REGION, f"{name} with operands that are not tensors")
    return operands.unpack(tr)


def _parameters(tr: Tracer, region: Region, leaves: list[Value], structure: Any) -> list[Value]:
    """Tensors like the carried ones, of which the loop makes others each time."""
    with tr.fake_mode, torch.no_grad():
        fakes = [torch.empty_like(leaf.example) for leaf in leaves]  # type: ignore[attr-defined]
    return unflatten([region.parameter(fake, "carried") for fake in fakes], structure).unpack(tr)


def _tensors(region: Region, leaves: list[Value]) -> list[TensorValue]:
    """Results that are new tensors, as torch's operators require: neither inputs nor views."""
    found: list[TensorValue] = []
    seen: list[Any] = [node.meta["example_value"] for node in (*region.captures, *region.parameters)]
    for leaf in leaves:
        if not isinstance(leaf, TensorValue):
            raise GraphBreak(breaks.REGION, f"{region.what} returns {leaf.describe()}")
        if leaf.node.graph is not region.graph or any(_share(leaf.example, other) for other in seen):
            raise GraphBreak(breaks.REGION, f"{region.what} returns {leaf.describe()}, which is not a new tensor")
        seen.append(leaf.example)
        found.append(leaf)
    return found


def _check_captures(tr: Tracer, name: str, captures: list[Node]) -> None:
    given = examples(captures)
    floats = frozenset(str(s) for e in given if isinstance(e, torch.SymFloat) for s in e.node.expr.free_symbols)
    if floats and (sources := tr.sources_of_floats(floats)):
        raise FloatsAreConstants(sources)
    tensors = [e for e in given if isinstance(e, torch.Tensor)]
    if any(_share(a, b) for a, b in itertools.combinations(tensors, 2)):
        raise GraphBreak(breaks.REGION, f"{name} receives tensors that share memory")


def _share(left: Any, right: Any) -> bool:
    return isinstance(right, torch.Tensor) and ti.share_storage(left, right)


def _check_same(what: str, left: tuple[list[TensorValue], Any], right: tuple[list[TensorValue], Any]) -> None:
    def look(value: TensorValue) -> tuple:
        like = value.example
        return tuple(like.shape), like.dtype, like.device

    if left[1] != right[1] or list(map(look, left[0])) != list(map(look, right[0])):
        raise GraphBreak(breaks.REGION, f"{what} tensors of different shapes, dtypes or structure")


def _without_tuple(graph: Any) -> Any:
    """A condition returns its only result unchanged."""
    output = next(iter(reversed(graph.graph.nodes)))
    output.args = (output.args[0][0],)
    graph.recompile()
    return graph
