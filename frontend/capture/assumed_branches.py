"""Graphs that assume the outcome of a branch, and calls in which the branch goes the other way.

A graph returns the conditions that its trace assumed (``trace.expectations``).  If one of them is false, or the graph
fails, its results are discarded: the call runs in eager from the beginning, and raises the program's own exception from
the program's own lines.

This is equivalent only if the graph has no side effects.  Side effects in Python always come after the graph, and small
module buffers that the graph writes are restored.  A graph that writes to other inputs, or does not run only on the
CPU, gets no assumed branches.
"""

from __future__ import annotations

import inspect
import logging
import operator
import types
from typing import TYPE_CHECKING, Any

import torch

from torchmux import torch_internals as ti

from .. import logs
from ..bytecode import parameters
from ..guards.kinds.frames import BranchesAsExpected
from ..guards.sources import Cell, Const, Local
from ..handlers import classify
from ..trace.overlap import overlaps_itself
from .random_operators import argument, may_draw
from .tracebacks import starts_again

if TYPE_CHECKING:
    from ..trace.tracer import FrameWriter, Tracer
    from .captured import CodeState

log = logging.getLogger("torchmux")

_PATIENCE = 3
_SMALL = 1 << 16  # numbers in a buffer that is saved at each call
_NORMALIZERS = tuple(
    getattr(namespace, name)
    for namespace, name in (
        (torch.nn.functional, "batch_norm"), (torch, "batch_norm"),
        (torch.nn.functional, "instance_norm"), (torch, "instance_norm"),
    )
)  # fmt: skip


# --- which graphs ----------------------------------------------------------------------------------------------------


def leaves_no_trace(tr: Tracer) -> bool:
    """Whether the recorded graph has no effect besides its results, or its writes can be undone.

    The small module buffers to restore, such as those of batch norms, are in ``tr.put_back``, in input order.
    """
    if not only_writes(tr):
        return False
    return all(node in tr.static_inputs and _is_small_buffer(node.meta["example_value"]) for node in tr.put_back)


def only_writes(tr: Tracer) -> bool:
    """Whether the recorded graph has no effect but writes to inputs: these are in ``tr.put_back``, in their order."""
    inputs = {node: node.meta["example_value"] for node, _ in tr.inputs}
    found: set[Any] = set()
    for node in tr.main.nodes:
        example = node.meta.get("example_value")
        tensors = example if isinstance(example, (tuple, list)) else [example]
        if any(isinstance(t, torch.Tensor) and t.device.type != "cpu" for t in tensors):
            return False
        if node.op == "placeholder":
            continue
        if node.op not in ("call_function", "call_method") or not _is_known(node) or _renorms(node):
            return False
        for written in _written(node):
            tensor = written.meta.get("example_value")
            if not isinstance(tensor, torch.Tensor):
                return False
            found.update(each for each, x in inputs.items() if _is_part_of(tensor, x))
    tr.put_back = [node for node in inputs if node in found]
    return True


def is_small(tr: Tracer, nodes: list[Any]) -> bool:
    """Whether the contents of these inputs may be kept in each call, and can be put back."""
    tensors = [tr.real_inputs[node] for node in nodes]
    if not all(type(each) in (torch.Tensor, torch.nn.Parameter) and not each.is_inference() for each in tensors):
        return False
    if any(map(overlaps_itself, tensors)) or any(_is_computed(node.meta["example_value"]) for node in nodes):
        return False
    return sum(each.numel() for each in tensors) <= _SMALL


def _is_computed(example: torch.Tensor) -> bool:
    """Whether autograd has recorded how a tensor came about, or how a graph changed it."""
    return example.requires_grad and not example.is_leaf


def _is_small_buffer(tensor: torch.Tensor) -> bool:
    return not tensor.requires_grad and tensor.numel() <= _SMALL


def _is_part_of(tensor: torch.Tensor, other: Any) -> bool:
    return isinstance(other, torch.Tensor) and ti.share_storage(tensor, other)


def _is_known(node: Any) -> bool:
    target = node.target
    if node.op == "call_method" or target in (getattr, ti.set_grad_enabled):
        return True
    if overloads := ti.overloads(target):
        return not any(ti.operator_schema(overload).is_mutable for overload in overloads)
    return getattr(target, "__module__", None) in ("_operator", "math") or classify.is_operator(target)


def _renorms(node: Any) -> bool:
    """An embedding with ``max_norm`` writes to its weight."""
    embeddings = (torch.nn.functional.embedding, torch.nn.functional.embedding_bag)
    return node.target in embeddings and argument(node, "max_norm") is not None


def _running_statistics(node: Any) -> list[Any]:
    """The running statistics that a batch or instance norm updates, although its schema declares no write."""
    training = [node.kwargs[name] for name in ("training", "use_input_stats") if name in node.kwargs]
    if [*node.args[5:6], *training][:1] == [False]:
        return []
    return [*node.args[1:3], node.kwargs.get("running_mean"), node.kwargs.get("running_var")]


_WRITING = frozenset({operator.setitem, operator.delitem}) | {
    getattr(operator, name) for name in dir(operator) if name.startswith("i") and f"__{name}__" in dir(operator)
}


def _written(node: Any) -> list[Any]:
    """The nodes whose tensors an operator writes to."""
    written = [node.kwargs.get("out")]
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    in_place = name.endswith("_") != name.endswith("__") or name == "__setitem__"
    in_place = in_place or (name.startswith("__i") and name.endswith("__"))
    if in_place or node.target in _WRITING or argument(node, "inplace"):
        written.append(node.args[0] if node.args else node.kwargs.get("input"))
    if node.target in _NORMALIZERS:
        written += _running_statistics(node)
    if name == "native_batch_norm":  # whose schema does not say either
        written += node.args[3:5]
    for overload in ti.overloads(getattr(torch.ops.aten, name, None)):
        written += _declared_writes(node, ti.operator_schema(overload))
    return [each for each in ti.pytree.tree_leaves(written) if isinstance(each, torch.fx.Node)]


def _declared_writes(node: Any, schema: Any) -> list[Any]:
    """What the schema of an operator says it writes to: lists of tensors, and more than the first argument."""
    found = []
    for place, declared in enumerate(schema.arguments):
        if declared.alias_info is not None and declared.alias_info.is_write:
            is_positional = not declared.kwarg_only and place < len(node.args)
            found.append(node.args[place] if is_positional else node.kwargs.get(declared.name))
    return found


# --- what runs -------------------------------------------------------------------------------------------------------


class Rerun:
    """Runs a call in eager from its beginning, after a graph that was expected otherwise.

    A branch may raise what the program itself catches; if that happens again and again, ``holds`` ends, and with it
    what was compiled under expectations.
    """

    def __init__(self, code: types.CodeType, namespace: dict[str, Any], state: CodeState) -> None:
        self.code = code
        self.namespace = namespace
        self.state = state
        self.holds = True
        self._returned = 0

    def __call__(self, before: Before, error: Exception | None, arguments: tuple, cells: tuple) -> Any:
        before.restore()
        code = self.code
        logs.emit("graph_breaks", f"{code.co_qualname} runs in eager", "the call took a branch that only raises")
        function = types.FunctionType(code, self.namespace, code.co_name, None, cells)
        positional, named = arguments_in_order(code, arguments)
        previous = ti.set_eval_frame(None)
        try:
            result = function(*positional, **named)
        finally:
            ti.set_eval_frame(previous)
        if error is not None:
            log.warning("%s ran in eager, because its graph failed: %s", code.co_qualname, error)
        self._returned += 1
        if self._returned == _PATIENCE:
            self.holds = False
            self.state.assumptions = self.state.assumptions.instead(may_expect=False)
        return result


starts_again(Rerun.__call__)


class Before:
    """The state that a graph may change besides its results, before it runs."""

    def __init__(self, is_random: bool, *written: torch.Tensor) -> None:
        self.random = torch.default_generator.get_state() if is_random else None
        self.grad = torch.is_grad_enabled()
        self.written = written
        with torch.no_grad():
            self.contents = [tensor.clone() for tensor in written]

    def restore(self) -> None:
        if self.random is not None:
            torch.default_generator.set_state(self.random)
        with torch.no_grad():
            for tensor, contents in zip(self.written, self.contents, strict=True):
                tensor.copy_(contents)
        ti.set_grad_enabled(self.grad)


def arguments_in_order(code: types.CodeType, arguments: tuple) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments from the values of a code object's parameters, in its order."""
    count, named = code.co_argcount, code.co_kwonlyargcount
    positional = list(arguments[:count])
    keywords = dict(zip(code.co_varnames[count : count + named], arguments[count : count + named], strict=True))
    rest = list(arguments[count + named :])
    if code.co_flags & inspect.CO_VARARGS:
        positional += rest.pop(0)
    if code.co_flags & inspect.CO_VARKEYWORDS:
        keywords.update(rest.pop(0))
    return positional, keywords


class Check:
    """The lines of a frame function that run a graph under expectations.

    If the frame continues after the graph (``ends`` is false), the function returns whether it does, and the values.
    """

    def __init__(
        self,
        tr: Tracer,
        out: FrameWriter,
        state: CodeState,
        ends: bool = True,
    ) -> None:
        self.ends = ends
        code = tr.code
        self.rerun = Rerun(code, tr.root.namespace, state)
        tr.guards.add(BranchesAsExpected(Const(self.rerun, "the way of its branches")))
        self.conditions = [f"bool({out.graph_output(value)}) is {outcome}" for value, outcome in tr.expectations]
        self.arguments = [out.load(Local(name)) for name in parameters(code)]
        self.cells = [out.load(Cell(name)) for name in code.co_freevars]
        self.is_random = any(map(may_draw, tr.main.nodes))

    def lines(self, out: FrameWriter, call: str, inputs: str) -> list[str]:
        """``call`` runs the graph and stores its results."""
        arguments, cells = ("".join(f"{name}, " for name in names) for names in (self.arguments, self.cells))
        written = [out.load(source) for node, source in out.tr.inputs if node in out.tr.put_back]
        result = f"{out.names.const(self.rerun)}(before, failure, ({arguments}), ({cells}))"
        if not self.ends:
            result = f"True, {result}"
        return [
            f"before = {out.names.const(Before)}({', '.join([str(self.is_random), *written])})",
            "failure = None",
            "try:",
            f"    {call}",
            f"    as_expected = {' and '.join(self.conditions)}",
            "except Exception as error:",
            "    as_expected, failure = False, error",
            "if not as_expected:",
            f"    return {result}",
        ]
