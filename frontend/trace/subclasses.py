"""Tensors of classes that hold other tensors and say by ``__torch_dispatch__`` what operators do with them.

Quantized tensors are of that kind.  Their classes tell what they hold (``__tensor_flatten__``) and make a tensor of it
again (``__tensor_unflatten__``), so the graph needs plain tensors only: see ``desugar``.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from torchmux import torch_internals as ti

from .. import breaks
from ..breaks import GraphBreak
from ..guards.forms import PLAIN, SAME, Unknown, flattens_to, form_of
from ..guards.guards import TensorGuard
from ..guards.kinds.objects import NoOwnAttribute
from ..guards.kinds.tensors import FlattensTo
from ..guards.sources import Attr, Global
from ..values.base import MISSING, Raised, Value
from ..values.constants import ConstValue
from ..values.descriptors import bind_class_attribute
from ..values.tensors import CONST_PROPERTIES, TENSOR_PROPERTIES, TensorMethodValue, TensorValue

if TYPE_CHECKING:
    from ..guards.sources import Source
    from .tracer import FrameWriter, Tracer

_CONSTANTS = (*SAME, *PLAIN)
_NOT_CODE = frozenset({"__module__", "__doc__", "__dict__", "__weakref__", "__firstlineno__", "__annotations__"})


class SubclassValue(TensorValue):
    """A tensor that consists of others.  ``parts`` has their values, ``context`` what else it is made of."""

    __slots__ = ("context", "parts")

    def __init__(
        self, example: Any, parts: dict[str, Value], context: Any, cls: type, source: Source | None = None
    ) -> None:
        super().__init__(None, example, source, cls)
        self.parts = parts
        self.context = context

    def describe(self) -> str:
        return f"{self.cls.__qualname__} {self.source.words() if self.source else 'made in the graph'}"

    def arg(self, tr: Tracer) -> Any:
        raise self._not_understood("as an argument of what takes functions or graphs")

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
        raw = tr.static_lookup(self.cls, name)
        if raw is not MISSING and raw is not tr.static_lookup(torch.Tensor, name):
            tr.guard_lookup(self.cls, name, raw)
            if isinstance(raw, (types.FunctionType, property, classmethod, staticmethod)):
                return bind_class_attribute(tr, self, self.cls, name, raw)
            if name not in self.parts and name not in self.example.__dict__:
                return bind_class_attribute(tr, self, self.cls, name, raw)
        if name in self.parts:
            return self.parts[name]
        if name in CONST_PROPERTIES:
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
        self._check_sizes()
        return super().size(tr, dim)

    def _shape_method(self, tr: Tracer, name: str, args: list[Value]) -> Value:
        self._check_sizes()
        return super()._shape_method(tr, name, args)

    def _check_sizes(self) -> None:
        if any(isinstance(n, torch.SymInt) for n in (*self.example.shape, *self.example.stride())):
            raise self._not_understood("has sizes that change")

    def _to_python(self, tr: Tracer, name: str, args: list[Value]) -> Value:
        raise GraphBreak(breaks.TENSOR_TO_PYTHON, f"Tensor.{name} on {self.describe()}")

    # --- leaving the trace -----------------------------------------------------------------------------------------

    def rebuild(self, out: FrameWriter) -> str:
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
    """Read a tensor of that kind; its parts are inputs of the graph."""
    cls = type(tensor)
    # A subclass sees who asks it for attributes.  The sizes of a nested tensor are no numbers of a ShapeEnv.
    if not ti.is_wrapper(tensor) or tensor.is_nested:
        raise GraphBreak(breaks.SUBCLASS, f"{source.words()} is a {cls.__qualname__}")
    try:
        form = flattens_to(tensor)
    except Exception as error:  # it is just being made
        raise GraphBreak(breaks.SUBCLASS, f"{source.words()} is a {cls.__qualname__}: {error}", error) from None
    if type(form[1]) is Unknown:
        raise GraphBreak(breaks.SUBCLASS, f"{source.words()} is a {cls.__qualname__} whose context cannot be compared")
    names, context = tensor.__tensor_flatten__()
    tr.guards.type_is(source, cls)
    tr.guards.add(FlattensTo(source, form))
    _guard_code(tr, cls)
    with tr.fixed_sizes():
        parts = {name: tr.wrap(getattr(tensor, name), Attr(source, name)) for name in names}
    if not all(isinstance(part, TensorValue) for part in parts.values()):
        raise GraphBreak(breaks.SUBCLASS, f"{source.words()} is a {cls.__qualname__} of other things than tensors")
    examples = {name: part.example for name, part in parts.items()}
    try:
        example = cls.__tensor_unflatten__(examples, context, tensor.shape, tensor.stride())
        if tensor.requires_grad:
            example.requires_grad_()
    except Exception as error:
        raise GraphBreak(breaks.SUBCLASS, f"{source.words()} cannot be made of fake tensors: {error}", error) from None
    value = SubclassValue(example, parts, context, cls, source)
    tr.subclass_inputs[value] = tensor
    tr.guards.tensors[source] = TensorGuard(source, tensor, example)
    value.check_parts()
    return value
