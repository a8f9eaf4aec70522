"""``torch.autograd.Function``: its forward and its backward, each traced into a graph.

The outer graph has one call to :func:`autograd_function`, which applies torchmux's own ``Function`` that runs the two
graphs.  The parts of the program's ``ctx`` that are the same in every call (numbers, flags, which tensors are saved)
are known during tracing; tensors that backward uses are passed from one graph to the other.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.fx import Node

from torchmux import torch_internals as ti

from .. import breaks
from ..breaks import GraphBreak
from ..handlers.table import handles
from ..values.base import GraphValue, Raised, Value
from ..values.builtin_methods import BuiltinMethodValue
from ..values.constants import ConstValue
from ..values.containers.sequences import ListValue, TupleValue
from ..values.contexts import UNKNOWN_GRAD
from ..values.descriptors import MethodValue
from ..values.functions import FunctionValue
from ..values.tensors import TensorValue
from .graph_effects import writes_through_data
from .region import Region, examples, in_backward, in_transform, node_of, rebind, run_operator

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

NONE = ConstValue(None)
_ONCE = once_differentiable(lambda ctx: None).__code__
_METHODS = ("mark_dirty", "mark_non_differentiable", "save_for_backward", "save_for_forward", "set_materialize_grads")
_KNOWN_TO_CTX = frozenset(dir(FunctionCtx)) | {"saved_tensors", "needs_input_grad"}


# --- what the graph calls -----------------------------------------------------------------------------------------


class Layout(NamedTuple):
    """The positions in the flat arguments and results of the two graphs.

    forward: ``(*inputs, *captures) -> (*outputs, *carried)``, backward: ``(*grads, *carried) -> (*input grads,)``.
    """

    order: tuple[int, ...]  # for each input of the forward graph: its place among (*tensors, *hidden)
    outputs: int
    graded: tuple[int, ...]  # the outputs whose gradients backward takes
    constant: tuple[int, ...]  # the outputs that are not differentiable
    dirty: tuple[int, ...]  # the tensors that forward changes and returns
    saved: tuple[int, ...]  # which of the carried tensors were passed to save_for_backward
    gradients: tuple[int, ...]  # for each tensor, the position of its gradient among backward's results, or -1
    materialize: bool  # gradients that nothing depends on are zeros, rather than missing
    once: bool
    carried: tuple[int, ...] | None  # in a transform: the place of each carried tensor among (*tensors, *outputs)


class GraphFunction(torch.autograd.Function):
    """Runs a forward graph and, for gradients, a backward graph."""

    @staticmethod
    def forward(ctx: Any, forward: Any, backward: Any, layout: Layout, hidden: tuple, *tensors: Any) -> Any:
        given = (*tensors, *hidden)
        results = forward(*(given[place] for place in layout.order))
        outputs, carried = results[: layout.outputs], results[layout.outputs :]
        if layout.constant:
            ctx.mark_non_differentiable(*(outputs[place] for place in layout.constant))
        if layout.dirty:
            ctx.mark_dirty(*(tensors[place] for place in layout.dirty))
        if backward is not None:
            ctx.set_materialize_grads(layout.materialize)
            ctx.save_for_backward(*(carried[place] for place in layout.saved))
            ctx.carried = [None if place in layout.saved else value for place, value in enumerate(carried)]
            ctx.backward_graph, ctx.layout = backward, layout
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        layout, carried = ctx.layout, list(ctx.carried)
        if layout.saved:  # to ask autograd for them fails once they are freed
            for place, tensor in zip(layout.saved, ctx.saved_tensors, strict=True):
                carried[place] = tensor
        # The graph was traced with contiguous gradients, so code that checks this gets the right answer.
        if any(grads[place] is None for place in layout.graded):
            raise RuntimeError(
                "An autograd.Function with set_materialize_grads(False) was captured with a gradient, but now has "
                "none. Mark the function that applies it with torchmux.disable."
            )
        given = [grads[place].contiguous() for place in layout.graded]
        results = ctx.backward_graph(*given, *carried)
        return (None, None, None, None, *(None if place < 0 else results[place] for place in layout.gradients))


class TransformedGraphFunction(torch.autograd.Function):
    """The same inside of function transforms: what backward needs are arguments and results of the forward graph."""

    generate_vmap_rule = True

    @staticmethod
    def forward(forward: Any, backward: Any, layout: Layout, *tensors: Any) -> Any:
        return tuple(forward(*(tensors[place] for place in layout.order))[: layout.outputs])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        _, backward, layout, *tensors = inputs
        if layout.constant:
            ctx.mark_non_differentiable(*(output[place] for place in layout.constant))
        if backward is not None:
            known = (*tensors, *output)
            ctx.save_for_backward(*(known[place] for place in layout.carried))
            ctx.backward_graph, ctx.layout = backward, layout

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        layout = ctx.layout
        given = [grads[place].contiguous() for place in layout.graded]
        results = ctx.backward_graph(*given, *ctx.saved_tensors)
        return (None, None, None, *(None if place < 0 else results[place] for place in layout.gradients))


class OnceDifferentiableGraphFunction(GraphFunction):
    """The same for a backward that is marked with ``once_differentiable``."""

    backward = staticmethod(once_differentiable(GraphFunction.backward))


def autograd_function(forward: Any, backward: Any, layout: tuple, hidden: tuple, *tensors: Any) -> tuple:
    """Apply the two graphs as one ``autograd.Function``; ``hidden`` tensors take no part in autograd."""
    described = Layout(*layout)
    if described.carried is not None:
        return TransformedGraphFunction.apply(forward, backward, described, *tensors)
    function = OnceDifferentiableGraphFunction if described.once else GraphFunction
    return function.apply(forward, backward, described, hidden, *tensors)


# --- the program's ctx --------------------------------------------------------------------------------------------


class ContextValue(Value):
    """``ctx``: attributes that forward leaves for backward."""

    __slots__ = ("attrs", "constant", "dirty", "in_backward", "materialize", "needs_input_grad", "saved", "unpacked")

    def __init__(self, needs_input_grad: Value) -> None:
        self.source = None
        self.attrs: dict[str, Value] = {}
        self.constant: list[Value] = []
        self.dirty: list[Value] = []
        self.needs_input_grad = needs_input_grad
        self.saved: list[Value] = []
        self.in_backward = False
        self.materialize = True
        self.unpacked = False

    def pytype(self) -> type:
        return FunctionCtx

    def describe(self) -> str:
        return "the ctx of an autograd.Function"

    def truth(self, tr: Tracer) -> bool:
        return True

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name == "needs_input_grad":
            return self.needs_input_grad
        if name == "saved_tensors" and self.in_backward:
            self.unpacked = True
            return TupleValue(list(self.saved))
        if name in _METHODS:
            return BuiltinMethodValue(self, FunctionCtx, name)
        if name in self.attrs:
            return self.attrs[name]
        if name in _KNOWN_TO_CTX or hasattr(torch.autograd.function.BackwardCFunction, name):
            raise GraphBreak(breaks.OPERATION, f"{name} of {self.describe()}")
        raise Raised(tr.make_exception(AttributeError, f"'FunctionBackward' object has no attribute {name!r}"))

    def setattr(self, tr: Tracer, name: str, value: Value) -> None:
        if name in _KNOWN_TO_CTX or hasattr(torch.autograd.function.BackwardCFunction, name):
            raise GraphBreak(breaks.OPERATION, f"setting {name} of {self.describe()}")
        tr.effects.changed(self)
        self.attrs[name] = value

    def delattr(self, tr: Tracer, name: str) -> None:
        if name not in self.attrs:
            super().delattr(tr, name)
        tr.effects.changed(self)
        del self.attrs[name]

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if kwargs or self.in_backward:
            raise GraphBreak(breaks.OPERATION, f"{name} of {self.describe()}")
        if name == "save_for_backward":
            if not all(isinstance(value, TensorValue) or _is_none(value) for value in args):
                raise GraphBreak(breaks.OPERATION, "save_for_backward of a value that is not a tensor")
            self.saved = args
        elif name == "mark_non_differentiable":
            self.constant = args
        elif name == "mark_dirty":
            self.dirty = args
        elif name == "set_materialize_grads":
            self.materialize = args[0].truth(tr)
        elif name != "save_for_forward":  # which is for forward-mode gradients only
            raise GraphBreak(breaks.OPERATION, f"{name} of {self.describe()}")
        return NONE


def _is_none(value: Value) -> bool:
    return isinstance(value, ConstValue) and value.value is None


# --- tracing ------------------------------------------------------------------------------------------------------


# A class method in Python before torch 2.14, in C since.
_APPLY = torch.autograd.Function.__dict__["apply"]


@handles(getattr(_APPLY, "__func__", _APPLY))
def apply(tr: Tracer, owner: Value, *args: Value) -> Value:
    """``cls.apply(*args)``."""
    cls = owner.real()
    is_mapped = in_transform(tr, "gradient")
    if is_mapped and not _is_mapped_by_torch(tr, cls):
        raise GraphBreak(breaks.REGION, f"autograd.Function {cls.__qualname__}, whose vmap is its own, in vmap")
    if in_backward(tr):
        raise GraphBreak(
            breaks.REGION, f"autograd.Function {cls.__qualname__} in a backward pass whose gradients are not known"
        )
    return _Application(tr, cls, list(args)).run()


def _is_mapped_by_torch(tr: Tracer, cls: type) -> bool:
    """Whether ``vmap`` maps the passes of a function, as it maps their graphs."""
    generates = tr.static_lookup(cls, "generate_vmap_rule")
    tr.guard_lookup(cls, "generate_vmap_rule", generates)
    return generates is True and cls.vmap is torch.autograd.Function.vmap  # type: ignore[attr-defined]


class _Application:
    """One call of ``apply``."""

    def __init__(self, tr: Tracer, cls: type, args: list[Value]) -> None:
        self.tr = tr
        self.cls = cls
        self.args = args
        needs = [isinstance(a, TensorValue) and a.example.requires_grad for a in args]
        self.records = (tr.grad_enabled or tr.grad_enabled is UNKNOWN_GRAD) and any(needs)
        self.ctx = ContextValue(TupleValue([ConstValue(n) for n in needs]))

    def run(self) -> Value:
        tr = self.tr
        with Region(tr, f"{self.cls.__qualname__}.forward", pure=False, roots=self._roots()) as forward:
            forward.assume_grad(False)
            result = self._forward()
        self._refuse_hidden_writes(forward)
        outputs = self._outputs(result)
        in_list = isinstance(result, ListValue)
        dirty = self._dirty(outputs, in_list)
        if in_list:  # is no tensor to autograd, which does not look into it
            self.records = False
        computed: list[Value] = [value for value in outputs if isinstance(value, GraphValue)]
        transformed = in_transform(tr)
        carried: list[Node] = []
        gradients: list[Value] = []
        backward_graph, once = None, False
        if self.records:
            backward, gradients, once = self._backward(forward, computed, outputs)
            backward_graph = backward.close([v.arg(tr) for v in gradients if not _is_none(v)])
            carried = list(backward.captures)
        left = [value for value in forward.left_behind() if not any(value is other for other in computed)]
        returned = _nodes([self.args[place] for place in dirty])
        written = [*returned, *self._unmarked_writes(forward)]
        forward_graph = forward.close([*(value.arg(tr) for value in (*computed, *left)), *carried], written=written)
        places = itertools.count()
        layout = Layout(
            order=(),
            outputs=len(computed) + len(left),
            graded=tuple(i for i, value in enumerate(computed) if self._has_gradient(value)),
            constant=_constant([*computed, *left], [*(computed if in_list else self.ctx.constant), *left]),
            dirty=tuple(map(_nodes(self.args).index, returned)),
            saved=tuple(i for i, node in enumerate(carried) if node in _nodes(self.ctx.saved)),
            gradients=tuple(-1 if _is_none(value) else next(places) for value in gradients),
            materialize=self.ctx.materialize,
            once=once,
            carried=self._known(forward, carried, computed, once) if transformed else None,
        )
        fresh = self._emit(forward, forward_graph, backward_graph, layout)
        rebind(left, fresh[len(computed) :])
        results = iter(fresh)
        values = [
            self._result(forward, value, next(results)) if isinstance(value, GraphValue) else value for value in outputs
        ]
        if in_list:
            return ListValue(
                [old if _is_outside(forward, old) else new for old, new in zip(outputs, values, strict=True)]
            )
        return TupleValue(values) if isinstance(result, TupleValue) else values[0]

    def _known(self, forward: Region, carried: list[Node], computed: list[Value], once: bool) -> tuple[int, ...]:
        """In a transform: the place of each tensor that backward uses among the arguments and results.

        A transform follows those through its levels, and no others.
        """
        tensors = _nodes(self.args)
        known = [*tensors, *_nodes(computed)]
        apart = self._is_default("setup_context") or once or not self.ctx.materialize
        if apart or any(node not in tensors for node in forward.captures) or any(node not in known for node in carried):
            raise GraphBreak(breaks.REGION, f"autograd.Function {self.cls.__qualname__} inside a function transform")
        return tuple(map(known.index, carried))

    def _refuse_hidden_writes(self, forward: Region) -> None:
        """Break at a write that autograd must not see, and does where a compiler has made a graph of it."""
        if writes_through_data(forward.graph):
            raise GraphBreak(breaks.REGION, f"{forward.what} writes to a tensor through .data, behind autograd's back")

    def _dirty(self, outputs: list[Value], in_list: bool) -> list[int]:
        """The places of the arguments that forward changes and returns.

        They must be computed in the graph: autograd takes an input's change for the program's own, not the graph's.
        """
        found = [next((i for i, a in enumerate(self.args) if a is value), -1) for value in self.ctx.dirty]
        for place in found:
            value = self.args[place]
            if place < 0 or in_list or in_transform(self.tr) or not any(value is each for each in outputs):
                raise GraphBreak(breaks.REGION, f"{self.cls.__qualname__} marks what it does not return as dirty")
            if self.tr.shares_memory_with_input(value.example):  # type: ignore[attr-defined]
                raise GraphBreak(breaks.REGION, f"{self.cls.__qualname__} changes an input of the graph")
        return found

    def _unmarked_writes(self, forward: Region) -> list[Node]:
        """What forward changes without a mark: autograd only counts such writes, in the graph as in eager.

        A compiler repeats those to inputs of the graph behind it, where they are no longer a part of the function.
        """
        if in_transform(self.tr):
            return []
        changed = forward.changed_tensors()
        return [node for node in changed if not self.tr.shares_memory_with_input(node.meta["example_value"])]

    def _result(self, forward: Region, value: Any, result: Value) -> Value:
        """What ``apply`` returns for an output of forward: the same object, unless it came from outside, unchanged."""
        if _is_outside(forward, value) and not any(value is dirty for dirty in self.ctx.dirty):
            return result
        rebind([value], [result])
        return value

    # --- forward ---------------------------------------------------------------------------------------------------

    def _function(self, name: str) -> FunctionValue | MethodValue:
        """The method of the class, guarded to stay what it is."""
        raw = self.tr.static_lookup(self.cls, name)
        value = self.tr.lift(self.cls).getattr(self.tr, name)
        if isinstance(raw, staticmethod) and isinstance(value, FunctionValue):
            return value
        if isinstance(raw, classmethod) and isinstance(value, MethodValue):
            return value
        what = f"{self.cls.__qualname__}.{name} is neither a static method nor a class method written in Python"
        raise GraphBreak(breaks.REGION, what)

    def _roots(self) -> list[Value]:
        names = ("forward",) if self._is_default("setup_context") else ("forward", "setup_context")
        return [*self.args, *map(self._function, names)]

    def _forward(self) -> Value:
        tr, ctx = self.tr, self.ctx
        if self._is_default("setup_context"):
            return self._function("forward").call(tr, [ctx, *self.args], {})
        result = self._function("forward").call(tr, list(self.args), {})
        self._function("setup_context").call(tr, [ctx, TupleValue(list(self.args)), result], {})
        return result

    def _is_default(self, name: str) -> bool:
        return getattr(self.cls, name) is getattr(torch.autograd.Function, name)

    def _outputs(self, result: Value) -> list[Value]:
        if isinstance(result, TensorValue):
            return [result]
        if not isinstance(result, TupleValue) and (not isinstance(result, ListValue) or result.source is not None):
            raise GraphBreak(breaks.REGION, f"{self.cls.__qualname__}.forward returns {result.describe()}")
        return result.items(self.tr)

    # --- backward --------------------------------------------------------------------------------------------------

    def _backward(
        self, forward: Region, computed: list[Value], outputs: list[Value]
    ) -> tuple[Region, list[Value], bool]:
        """The traced backward, the gradient of each tensor passed to ``apply``, and whether it works only once."""
        tr, ctx = self.tr, self.ctx
        name = "backward" if self._is_default("vjp") else "vjp"
        function, once = _unmarked(tr, self._function(name))
        ctx.in_backward = True
        region = Region(tr, f"{self.cls.__qualname__}.{name}", pure=True, roots=[function, ctx], beside=forward)
        wanted = [value for value in computed if self._has_gradient(value)]
        if len(wanted) > 1 and not ctx.materialize:
            raise GraphBreak(breaks.REGION, "set_materialize_grads(False): it is not known which gradients exist")
        grads = iter([self._gradient(region, value) for value in wanted])
        given = [next(grads) if self._has_gradient(value) else NONE for value in outputs]
        with region, ti.disable_autocast():  # in whose region forward may run, and backward hardly ever
            region.assume_grad(UNKNOWN_GRAD)  # on if the gradients will be differentiated
            result = function.call(tr, [ctx, *given], {})
        if ctx.unpacked:  # autograd then checks all of them for changes since forward
            for node in _nodes(ctx.saved):
                region.lift(node)
        return region, self._gradients(result), once

    def _has_gradient(self, output: Value) -> bool:
        """Whether backward receives a tensor for this output of forward."""
        if not isinstance(output, TensorValue) or self.ctx.materialize:
            return isinstance(output, TensorValue)
        example = output.example
        return (example.is_floating_point() or example.is_complex()) and not any(output is c for c in self.ctx.constant)

    def _gradient(self, region: Region, output: Any) -> Value:
        like = output.example
        with self.tr.fake_mode, torch.no_grad():
            example = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        return region.parameter(example, "grad")

    def _gradients(self, result: Value) -> list[Value]:
        found = result.items(self.tr) if isinstance(result, TupleValue) else [result]
        count = len(self.args)
        if len(found) < count or not all(map(_is_none, found[count:])):
            raise GraphBreak(
                breaks.REGION, f"{self.cls.__qualname__} returns {len(found)} gradients for {count} inputs"
            )
        for given, gradient in zip(self.args, found, strict=False):
            if not _is_none(gradient) and not (isinstance(given, TensorValue) and isinstance(gradient, TensorValue)):
                raise GraphBreak(breaks.REGION, f"{self.cls.__qualname__} returns {gradient.describe()} as a gradient")
        return [gradient for given, gradient in zip(self.args, found, strict=False) if isinstance(given, TensorValue)]

    # --- the outer graph -------------------------------------------------------------------------------------------

    def _emit(self, forward: Region, forward_graph: Any, backward_graph: Any, layout: Layout) -> list[Value]:
        tr = self.tr
        tensors = _nodes(self.args)
        hidden = [node for node in forward.captures if node not in tensors]
        places = {node: i for i, node in reversed(list(enumerate([*tensors, *hidden])))}
        layout = layout._replace(order=tuple(places[node] for node in forward.captures))
        graphs = [node_of(tr, forward_graph, "forward"), None]
        if backward_graph is not None:
            graphs[1] = node_of(tr, backward_graph, "backward")
        args = (*graphs, tuple(layout), tuple(hidden), *tensors)
        fakes = (forward_graph, backward_graph, tuple(layout), examples(hidden), *examples(tensors))
        return run_operator(tr, autograd_function, args, fakes)


def _unmarked(tr: Tracer, function: Value) -> tuple[Value, bool]:
    """The function itself, and whether it was marked with ``once_differentiable``."""
    if isinstance(function, MethodValue):
        inner, once = _unmarked(tr, function.function)
        return MethodValue(inner, function.owner), once
    if not isinstance(function, FunctionValue) or function.code is not _ONCE:
        return function, False
    marked = function.closure[_ONCE.co_freevars.index("fn")].read(tr)
    assert marked is not None
    return marked, True


def _is_outside(forward: Region, value: Any) -> bool:
    return isinstance(value, GraphValue) and value.node.graph is not forward.graph


def _constant(values: list[Value], marked: list[Value]) -> tuple[int, ...]:
    """The places of the tensors that are marked not to be differentiable."""
    places = range(len(values))
    return tuple(i for i in places if isinstance(values[i], TensorValue) and any(values[i] is m for m in marked))


def _nodes(values: list[Value]) -> list[Node]:
    return [value.node for value in values if isinstance(value, TensorValue)]
