"""Tensors of classes that hold other tensors and say by ``__torch_dispatch__`` what operators do with them.

Quantized and distributed tensors are of that kind.  Their classes tell what they hold (``__tensor_flatten__``) and make
a tensor of it again (``__tensor_unflatten__``), so the graph needs plain tensors only: see ``desugar``.

That is below autograd and autocast.  Where one of them has a say, and for tensors that hold more than tensors, the
trace starts again with *whole* ones: they are nodes of the graph like others, and whoever compiles it takes them apart.
"""

from __future__ import annotations

import contextlib
import copy
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from torchmux import torch_internals as ti

from .. import breaks
from ..breaks import GraphBreak
from ..capture.attempts import NeedsShapeEnv, SubclassesStayWhole
from ..guards.forms import PLAIN, SAME, Unknown, flattens_to, form_of
from ..guards.guards import TensorGuard
from ..guards.kinds.objects import NoOwnAttribute
from ..guards.kinds.tensors import ContextAccepted, DistributedAs, FlattensTo, PropertyEquals
from ..guards.sources import Attr, Global, Size
from ..values.base import MISSING, Raised, Value
from ..values.constants import ConstValue
from ..values.descriptors import bind_class_attribute
from ..values.meshes import MeshValue
from ..values.tensors import CONST_PROPERTIES, TENSOR_PROPERTIES, TensorMethodValue, TensorValue

if TYPE_CHECKING:
    from ..guards.sources import Source
    from .tracer import FrameWriter, Tracer

_CONSTANTS = (*SAME, *PLAIN)
_NOT_CODE = frozenset({"__module__", "__doc__", "__dict__", "__weakref__", "__firstlineno__", "__annotations__"})


class SubclassValue(TensorValue):
    """A tensor that consists of others.  ``parts`` has their values, ``context`` what else it is made of.

    One that has a ``node`` is whole; the parts of one that an operator has made are read from it.
    """

    __slots__ = ("context", "parts")

    def __init__(
        self,
        example: Any,
        parts: dict[str, Value],
        context: Any,
        cls: type,
        source: Source | None = None,
        node: Any = None,
    ) -> None:
        super().__init__(node, example, source, cls, is_input=node is not None and source is not None)
        self.parts = parts
        self.context = context

    def describe(self) -> str:
        return f"{self.cls.__qualname__} {self.source.words() if self.source else 'made in the graph'}"

    def arg(self, tr: Tracer) -> Any:
        if self.node is None:
            raise self._not_understood("as an argument of what takes functions or graphs")
        return self.node

    def _not_understood(self, what: str) -> GraphBreak:
        return GraphBreak(breaks.SUBCLASS, f"{self.describe()} {what}")

    def check_parts(self) -> None:
        """An operator may have given the object other parts, which none of ours would follow."""
        names, context = self.example.__tensor_flatten__()
        same = list(names) == list(self.parts) and form_of(context) == form_of(self.context)
        if not same or any(getattr(self.example, n) is not part.example for n, part in self.parts.items()):  # type: ignore[attr-defined]
            raise self._not_understood("is made of other tensors after an operator")

    # --- attributes ------------------------------------------------------------------------------------------------

    def getattr(self, tr: Tracer, name: str) -> Value:
        if ti.is_distributed(self.cls) and name in ("placements", "device_mesh"):
            return tr.lift(getattr(self.example, name))
        raw = tr.static_lookup(self.cls, name)
        if raw is not MISSING and raw is not tr.static_lookup(torch.Tensor, name):
            tr.guard_lookup(self.cls, name, raw)
            if isinstance(raw, (types.FunctionType, property, classmethod, staticmethod)):
                return bind_class_attribute(tr, self, self.cls, name, raw)
            if name not in self.parts and name not in self.example.__dict__:
                return bind_class_attribute(tr, self, self.cls, name, raw)
        if name in self.parts:
            return self.parts[name]
        if self.node is not None and not self.is_input and name in self.example.__tensor_flatten__()[0]:
            return tr.emit("call_function", getattr, [self, ConstValue(name)], {})
        if name in CONST_PROPERTIES:
            if name == "is_leaf" and self.source is not None:
                value = tr.subclass_inputs[self].is_leaf
                tr.guards.add(PropertyEquals(self.source, name, value))
                return ConstValue(value)
            return ConstValue(getattr(self.example, name))
        if name == "__class__":
            return tr.lift(self.cls)
        if name == "shape":
            return self.sizes(tr)
        if name == "ndim":
            return ConstValue(self.example.dim())
        if name in TENSOR_PROPERTIES:
            return tr.emit("call_function", getattr, [self, ConstValue(name)], {})
        if raw is not MISSING and callable(raw):
            return TensorMethodValue(self, name)
        if raw is not MISSING or name == "__dict__":
            raise self._not_understood(f"is asked for {name}")
        return self._own(tr, name)

    def has_mark(self, tr: Tracer, name: str) -> bool:
        """Whether torch has marked the object as a parameter or a buffer, which is no class then."""
        try:
            return self._own(tr, name).truth(tr)
        except Raised:
            return False

    def _own(self, tr: Tracer, name: str) -> Value:
        """An attribute of the object beside those that its class tells of."""
        if self.source is not None:
            own = tr.subclass_inputs[self].__dict__
            if name in own:
                return tr.wrap(own[name], Attr(self.source, name))
            tr.guards.add(NoOwnAttribute(self.source, name))
        elif name in self.example.__dict__:
            found = self.example.__dict__[name]
            if not isinstance(found, _CONSTANTS):
                raise self._not_understood(f"is asked for {name}")
            return ConstValue(found)
        raise Raised(tr.make_exception(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'"))

    def guard_operator(self, tr: Tracer, name: str) -> None:
        raw = tr.static_lookup(self.cls, name)
        if raw is not tr.static_lookup(torch.Tensor, name):
            raise self._not_understood(f"has a {name} of its own")
        tr.guard_lookup(self.cls, name, raw)

    def setattr(self, tr: Tracer, name: str, value: Value) -> None:
        raise self._not_understood(f"gets an attribute {name}")

    def size(self, tr: Tracer, dim: int) -> Value:
        if not self.example.is_nested:
            self._check_sizes()
        elif isinstance(n := self.example.size(dim), torch.SymInt) and n.node.is_nested_int():
            raise self._not_understood("is asked for the length of its rows")
        return super().size(tr, dim)

    def _shape_method(self, tr: Tracer, name: str, args: list[Value]) -> Value:
        if not self.example.is_nested or name not in ("size", "sym_size", "__len__"):
            self._check_sizes()
        return super()._shape_method(tr, name, args)

    def _check_sizes(self) -> None:
        if self.example.is_nested:
            raise self._not_understood("is asked for all its sizes")
        if any(isinstance(n, torch.SymInt) for n in (*self.example.shape, *self.example.stride())):
            raise self._not_understood("has sizes that change")

    def _to_python(self, tr: Tracer, name: str, args: list[Value]) -> Value:
        raise GraphBreak(breaks.TENSOR_TO_PYTHON, f"Tensor.{name} on {self.describe()}")

    # --- leaving the trace -----------------------------------------------------------------------------------------

    def rebuild(self, out: FrameWriter) -> str:
        if self.node is not None:
            return out.graph_output(self)
        size, stride = tuple(self.example.shape), self.example.stride()
        if any(isinstance(n, torch.SymInt) for n in (*size, *stride)) or type(form_of(self.context)) is Unknown:
            raise GraphBreak(breaks.NOT_REBUILDABLE, f"{self.describe()} with sizes that change")
        const, parts = out.names.const, ", ".join(f"{name!r}: {out.value(part)}" for name, part in self.parts.items())
        made_of = f"{const(self.cls)}, {{{parts}}}, {const(self.context)}, {const(torch.Size(size))}, {stride}"
        return f"{const(_unflatten)}({made_of})"


def _unflatten(cls: Any, parts: dict[str, Any], context: Any, size: torch.Size, stride: tuple[int, ...]) -> Any:
    """The tensor that consists of these; nothing that its class does for that is captured."""
    return cls.__tensor_unflatten__(parts, context, size, stride)


ti.set_code_exec_strategy(_unflatten.__code__, ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.SKIP))


def _guard_code(tr: Any, cls: type) -> None:
    """What the class does with operators is not traced, so all that its code may read stays as it is.

    That is: what stands in the class, and the globals of its functions and of those that they name.
    """
    pending: list[Any] = []
    for base in cls.__mro__[: cls.__mro__.index(torch.Tensor)]:
        for name, raw in vars(base).items():
            if name not in _NOT_CODE:
                tr.guard_lookup(base, name, tr.static_lookup(base, name))
                pending += [getattr(raw, "__func__", raw), getattr(raw, "fget", None)]
    seen: set[Any] = set()
    while pending:
        function = pending.pop()
        if not isinstance(function, types.FunctionType) or function in seen or tr.is_settled_class(function):
            continue
        seen.add(function)
        pending += [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]
        for name in _names(function.__code__):
            value = function.__globals__.get(name, MISSING)
            source = Global(function.__globals__, name)
            if isinstance(value, types.FunctionType | type | types.ModuleType | dict | list):
                tr.guards.is_object(source, value)
                pending.append(value)
            elif isinstance(value, (*PLAIN, float, torch.dtype)):
                tr.guards.equals(source, value)


def _names(code: types.CodeType) -> set[str]:
    """All names that a function and those inside it use."""
    inner = [_names(const) for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*inner)


def subclass_input(tr: Any, tensor: torch.Tensor, source: Source) -> SubclassValue:
    """Read a tensor of that kind; its parts are inputs of the graph, or the tensor itself if it is whole."""
    cls = type(tensor)
    # A subclass sees who asks it for attributes.
    if not ti.is_wrapper(tensor):
        raise GraphBreak(breaks.SUBCLASS, f"{source.words()} is a {cls.__qualname__}")
    if tensor.is_nested and not tr.whole_subclasses:
        raise SubclassesStayWhole(f"{source.words()} is a {cls.__qualname__}")
    if tensor.is_nested and not tr.symbolic:
        raise NeedsShapeEnv
    names, context = _guard_form(tr, tensor, source)
    with _nested_parts(tr) if tensor.is_nested else tr.fixed_sizes():
        parts = {name: tr.wrap(getattr(tensor, name), Attr(source, name)) for name in names}
    if not all(isinstance(part, (TensorValue, MeshValue)) for part in parts.values()):
        raise GraphBreak(breaks.SUBCLASS, f"{source.words()} is a {cls.__qualname__} of other things than tensors")
    if not tr.whole_subclasses and any(isinstance(part, MeshValue) for part in parts.values()):
        raise SubclassesStayWhole(f"{source.words()} is a {cls.__qualname__}")
    examples = {name: part.real() if isinstance(part, MeshValue) else part.example for name, part in parts.items()}
    try:
        size = _nested_size(tr, tensor, examples) if tensor.is_nested else tensor.shape
        example = cls.__tensor_unflatten__(examples, context, size, tensor.stride())
        if tensor.requires_grad:
            example.requires_grad_()
    except Exception as error:
        raise GraphBreak(breaks.SUBCLASS, f"{source.words()} cannot be made of fake tensors: {error}", error) from None
    node = tr.whole_input(tensor, example, source) if tr.whole_subclasses else None
    value = SubclassValue(example, parts, context, cls, source, node)
    tr.subclass_inputs[value] = tensor
    if tensor.is_nested:  # its sizes follow from its parts, and one of them is no number
        index = context["ragged_idx"]
        tr.shape_inputs.append((example.shape[index], Size(source, index)))
    else:
        tr.guards.tensors[source] = TensorGuard(source, tensor, example)
    if node is None:
        value.check_parts()
    return value


@contextlib.contextmanager
def _nested_parts(tr: Any) -> Iterator[None]:
    tr.reads_nested = True
    try:
        yield
    finally:
        tr.reads_nested = False


def _nested_size(tr: Any, tensor: Any, parts: dict[str, Any]) -> tuple[Any, ...]:
    """The sizes of a nested tensor; that of its rows is known by the tensor that says where they begin."""
    ragged = parts.get("_lengths", parts["_offsets"]).get_nested_int()
    return tuple(ragged if isinstance(n, torch.SymInt) else n for n in tensor.shape)


def _guard_form(tr: Any, tensor: Any, source: Source) -> tuple[Any, Any]:
    """What a tensor consists of: the names of its parts, and its context, which stay as they are."""
    cls = type(tensor)
    tr.guards.type_is(source, cls)
    if ti.is_distributed(cls):
        tr.guards.add(DistributedAs(source, ti.Distribution.of(tensor)))
        names, context = tensor.__tensor_flatten__()
        return names, context
    try:
        names, context = tensor.__tensor_flatten__()
    except Exception as error:  # it is just being made
        raise GraphBreak(breaks.SUBCLASS, f"{source.words()} is a {cls.__qualname__}: {error}", error) from None
    if isinstance(getattr(cls, "__metadata_guard__", None), types.FunctionType | types.MethodType):
        tr.guards.add(ContextAccepted(source, cls, list(names), copy.deepcopy(context)))
        tr.guard_lookup(cls, "__metadata_guard__", tr.static_lookup(cls, "__metadata_guard__"))
    else:
        form = flattens_to(tensor)
        if type(form[1]) is Unknown:
            why = f"{source.words()} is a {cls.__qualname__} whose context cannot be compared"
            raise GraphBreak(breaks.SUBCLASS, why)
        tr.guards.add(FlattensTo(source, form))
    if not tr.is_settled_class(cls):
        _guard_code(tr, cls)
    return names, context


def refuse_writes(tr: Any, name: str) -> None:
    """End the graph at an operator that has written to an input that consists of others, or to a part of one.

    Raises:
        GraphBreak: it has.
    """
    for value in tr.subclass_inputs:
        if value.node is None:
            continue
        parts = [part for part in value.parts.values() if isinstance(part, TensorValue)]
        if any(tr.is_written(each) for each in (value, *parts)):
            raise GraphBreak(breaks.SUBCLASS, f"{name} writes to {value.describe()}, or to what it consists of")


class RefusesDraws(ti.TorchDispatchMode):
    """Ends the graph at random operators that set the state of a generator for each process: no graph would."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if args and ti.draws_by_rank(func, args[0]):
            raise GraphBreak(breaks.SUBCLASS, f"{func.__name__} of a DTensor draws other numbers in each process")
        return func(*args, **(kwargs or {}))


def made_by_operator(tr: Any, result: Any, node: Any) -> TensorValue:
    """The value of a tensor of that kind that an operator on whole ones has returned."""
    if not ti.is_wrapper(result):
        raise GraphBreak(breaks.SUBCLASS, f"an operator returns a {type(result).__qualname__}")
    if not tr.whole_subclasses:
        raise SubclassesStayWhole(f"an operator returns a {type(result).__qualname__}")
    return SubclassValue(result, {}, result.__tensor_flatten__()[1], type(result), node=node)
