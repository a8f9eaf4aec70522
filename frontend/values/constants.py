"""Constants: numbers, strings, None, dtypes, devices, enum members; and symbolic integers."""

from __future__ import annotations

import enum
import math
import operator
import types
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchmux import torch_internals as ti

from ..breaks import C_FUNCTION, OPERATION, GraphBreak
from ..guards.kinds.objects import NoAttribute
from ..guards.sources import Attr, Const, NumpyItem, Source
from ..trace.enumerations import ask_class, ask_operand
from .base import GraphValue, Raised, Value

if TYPE_CHECKING:
    from ..trace.tracer import FrameWriter, Tracer

# Types whose instances are immutable, compare by value, and can be baked into a graph.
CONST_TYPES: frozenset[type] = frozenset(
    {
        type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented),
        torch.dtype, torch.device, torch.layout, torch.memory_format, type(torch.finfo(torch.float32)),
        type(torch.iinfo(torch.int32)), type(torch.per_tensor_affine),
        np.float64, np.float32, np.int64, np.int32, np.bool_,
        ti.SDPBackend,
    }
)  # fmt: skip

# Of these, the classes of which equal objects need not be the same.
HAVE_TWINS = frozenset(
    {int, float, complex, str, bytes, torch.device, np.float64, np.float32, np.int64, np.int32, np.bool_}
)

_OF_TEXTS = frozenset({str, bytes, int, float, bool, complex})  # their methods only compute

# Kept out of folding: they return fresh mutable objects, read the outside world, or take unbounded time.
_UNSAFE_METHODS = frozenset({"__reduce__", "__reduce_ex__", "__getattribute__", "__init_subclass__", "__setattr__"})


def is_const_object(obj: Any) -> bool:
    cls = type(obj)
    return cls in CONST_TYPES or isinstance(obj, enum.Enum)


def has_no_twin(value: Any) -> bool:
    """Whether CPython has only one object of this value."""
    if type(value) is int:
        return -5 <= value <= 256
    return type(value) in (str, bytes) and len(value) < 2 and value.isascii()


def _joined_by(text: Any, *parts: Any) -> Any:
    return text.join(parts)


class ConstValue(Value):
    """A constant; guarded (if it came from outside) when it is read."""

    __slots__ = ("value",)

    def __init__(self, value: Any, source: Any = None) -> None:
        self.value = value
        self.source = source

    def pytype(self) -> type:
        return type(self.value)

    def is_const(self) -> bool:
        return True

    def const(self, tr: Tracer) -> Any:
        return self.value

    def real(self) -> Any:
        return self.value

    def describe(self) -> str:
        return f"constant {self.value!r:.60}"

    def getattr(self, tr: Tracer, name: str) -> Value:
        value = self.value
        if isinstance(value, enum.Enum):
            cls = type(value)
            static = tr.static_lookup(cls, name)
            if not tr.is_settled_class(cls):
                return self._of_member(tr, cls, name, static)
            if isinstance(static, types.FunctionType):
                return tr.wrap(static, None).call_method(tr, "__get__", [self], {})
            if isinstance(static, property) and isinstance(static.fget, types.FunctionType):
                return tr.wrap(static.fget, None).call(tr, [self], {})
        try:
            result = getattr(value, name)
        except AttributeError as error:
            raise Raised(tr.exception(error)) from None
        if isinstance(result, (types.BuiltinMethodType, types.MethodWrapperType)) and result.__self__ is value:
            return ConstMethodValue(self, name)
        return tr.lift(result)

    def _of_member(self, tr: Tracer, cls: type, name: str, static: Any) -> Value:
        """An attribute of a member of an enumeration of the program's, which is guarded like that of any object."""
        value, path = self.value, Const(self.value, str(self.value))
        tr.guard_lookup(cls, name, static)
        if isinstance(static, types.FunctionType):
            return tr.wrap(static, None).call_method(tr, "__get__", [self], {})
        if isinstance(static, property) and isinstance(static.fget, types.FunctionType):
            return tr.wrap(static.fget, None).call(tr, [self], {})
        own = {"value": "_value_", "name": "_name_"}.get(name, name)
        if static is not enum.Enum.__dict__.get(name) or static is None:
            own = name
        try:
            result = getattr(value, name)
        except AttributeError as error:
            tr.guards.add(NoAttribute(path, name))
            raise Raised(tr.exception(error)) from None
        if isinstance(result, (types.BuiltinMethodType, types.MethodWrapperType)) and result.__self__ is value:
            return ConstMethodValue(self, name)
        if is_const_object(result):
            tr.guards.equals(Attr(path, own), result)
            return ConstValue(result)
        return tr.wrap(result, Attr(path, own))

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if callable(self.value):  # a member of an enumeration
            return self.getattr(tr, "__call__").call(tr, args, kwargs)
        raise Raised(tr.make_exception(TypeError, f"{type(self.value).__name__!r} object is not callable"))

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if isinstance(self.value, enum.Enum):
            method = self.getattr(tr, name)
            if not isinstance(method, ConstMethodValue):
                return method.call(tr, args, kwargs)
        if isinstance(self.value, torch.device) and name in ("__enter__", "__exit__"):
            return tr.device_region(self.value, name)
        if name in _UNSAFE_METHODS:
            raise GraphBreak(C_FUNCTION, f"{type(self.value).__name__}.{name}")
        if name == "join" and isinstance(self.value, str) and len(args) == 1 and not args[0].is_const():
            items = args[0].unpack(tr)
            if (found := tr.computed(_joined_by, [self, *items])) is not None:
                return found
            return tr.fold(self.value.join, [[part.const(tr) for part in items]], {})
        if name == "format" and isinstance(self.value, str) and args and not all(arg.is_const() for arg in args):
            if not kwargs and (found := tr.format_fields(self.value, args)) is not None:
                return found
        if type(self.value) in _OF_TEXTS and (
            found := tr.computed(getattr(type(self.value), name), [self, *args], kwargs)
        ):
            return found
        return tr.fold(
            getattr(self.value, name), [a.const(tr) for a in args], {k: v.const(tr) for k, v in kwargs.items()}
        )

    def truth(self, tr: Tracer) -> bool:
        ask_operand(tr, self.value, "__bool__", "__len__")
        return bool(self.value)

    def length(self, tr: Tracer) -> Value:
        ask_operand(tr, self.value, "__len__")
        return tr.fold(len, [self.value], {})

    def getitem(self, tr: Tracer, key: Value) -> Value:
        ask_operand(tr, self.value, "__getitem__")
        return tr.fold(operator.getitem, [self.value, tr.as_index(key).const(tr)], {})

    def contains(self, tr: Tracer, item: Value) -> Value:
        ask_operand(tr, self.value, "__contains__")
        return tr.fold(operator.contains, [self.value, item.const(tr)], {})

    def iter(self, tr: Tracer) -> Value:
        from .containers.iteration import SequenceIterator

        ask_operand(tr, self.value, "__iter__", "_iter_member_")
        if isinstance(self.value, enum.Flag):
            ask_class(tr, type(self.value), "__iter__")  # which members there are
        elif not isinstance(self.value, (str, bytes)):
            raise Raised(tr.make_exception(TypeError, f"{type(self.value).__name__!r} object is not iterable"))
        of = self.value if isinstance(self.value, str | bytes) and type(self.value) in (str, bytes) else None
        return SequenceIterator([ConstValue(c) for c in self.value], of)

    def hash_key(self, tr: Tracer) -> Any:
        if self.value != self.value and isinstance(self.value, (float, complex)):
            raise GraphBreak(OPERATION, "nan as a key: which nan it is decides what is found")
        ask_operand(tr, self.value, "__hash__", "__eq__")
        return self.value

    def arg(self, tr: Tracer) -> Any:
        return self.fake(tr)

    def fake(self, tr: Tracer) -> Any:
        if isinstance(self.value, np.generic):
            return tr.numpy_argument(self.value)
        if isinstance(self.value, enum.Flag) and self.value.name not in type(self.value).__members__:
            if not isinstance(self.value, int):  # the text of a graph has members by their names
                raise self.not_understood("a combination of flags")
            return int.__int__(self.value)
        if type(self.value) is complex and not _prints(self.value):
            raise self.not_understood("a complex number whose text is another number")
        return self.value

    def rebuild(self, out: FrameWriter) -> str:
        value = self.value
        if type(value) in (int, str, bool, type(None), bytes):
            return repr(value)
        if isinstance(value, np.generic) and self.source is None:  # computed anew: an object of its own in each call
            return f"{out.names.const(type(value))}({out.names.const(value)})"
        return out.names.const(value)


def _prints(number: complex) -> bool:
    """Whether the text of a graph holds a complex number: it is a sum, which loses the sign of a zero."""
    real, imag = number.real, number.imag
    negative_zero = "-0.0" in (repr(real), repr(imag)) or (real == 0 and imag < 0)
    return math.isfinite(real) and math.isfinite(imag) and not negative_zero


_AS_PYTHONS = frozenset({"item", "tolist"})  # methods that give the number as one of Python's
NUMPY_NUMBERS = (np.float64, np.float32, np.int64, np.int32)


class NumpyNumberValue(ConstValue):
    """One of NumPy's numbers from outside: symbolic as an argument of operators, a constant to all who read its value.

    Only then is it guarded.
    """

    __slots__ = ("_number", "_tr")

    source: Source

    def __init__(self, tr: Tracer, number: np.generic, source: Source) -> None:
        self._tr = tr
        super().__init__(number, source)
        tr.guards_type(source, type(number))

    @property
    def value(self) -> Any:
        self._tr.guards_equal(self.source, self._number)
        return self._number

    @value.setter
    def value(self, number: Any) -> None:
        self._number = number

    def pytype(self) -> type:
        return type(self._number)

    def describe(self) -> str:
        return f"{type(self._number).__name__} {self.source.words()}"

    def getattr(self, tr: Tracer, name: str) -> Value:
        if isinstance(getattr(self.pytype(), name, None), _IN_C):
            return ConstMethodValue(self, name)
        return super().getattr(tr, name)

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in _AS_PYTHONS and not args and not kwargs:
            return self.symbol()
        if name not in _UNSAFE_METHODS and isinstance(function := getattr(self.pytype(), name, None), _IN_C):
            if (found := tr.computed(function, [self, *args], kwargs)) is not None:
                return found
        return super().call_method(tr, name, args, kwargs)

    def known(self) -> np.generic:
        """What it is in this call, not guarded."""
        return self._number

    def symbol(self) -> Value:
        """What operators get."""
        return self._tr.number_input(self._number.item(), NumpyItem(self.source))

    def rebuild(self, out: FrameWriter) -> str:
        return out.load(self.source)

    def arg(self, tr: Tracer) -> Any:
        return self.symbol().arg(tr)

    def fake(self, tr: Tracer) -> Any:
        return self.symbol().fake(tr)


class ComputedValue(ConstValue):
    """What Python computes from numbers that change: a constant to all who read it, which is then guarded.

    Where it only outlives the graph, the frame computes it in each call.
    """

    __slots__ = ("_known", "_tr", "computed")

    def __init__(self, tr: Tracer, value: Any, computed: Source) -> None:
        self._tr = tr
        self.computed = computed
        super().__init__(value)
        tr.guards_type(computed, type(value))  # it can be computed

    @property
    def value(self) -> Any:
        if type(self._known) is str and not self._tr.breaks_are_errors:
            if self._tr.dims.is_one_of_many(self._known, self.computed):
                raise GraphBreak(OPERATION, f"{self.describe()}, which changes: each text would be another graph")
        self._tr.guards_equal(self.computed, self._known)
        return self._known

    @value.setter
    def value(self, value: Any) -> None:
        self._known = value

    def known(self) -> Any:
        """What it is in this call, not guarded."""
        return self._known

    def pytype(self) -> type:
        return type(self._known)

    def describe(self) -> str:
        return f"{type(self._known).__name__} {self.computed.words()}"

    def getattr(self, tr: Tracer, name: str) -> Value:
        if isinstance(getattr(self.pytype(), name, None), _IN_C):
            return ConstMethodValue(self, name)
        return super().getattr(tr, name)

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name not in _UNSAFE_METHODS and isinstance(function := getattr(self.pytype(), name, None), _IN_C):
            if (found := tr.computed(function, [self, *args], kwargs)) is not None:
                return found
        return super().call_method(tr, name, args, kwargs)

    def length(self, tr: Tracer) -> Value:
        return tr.computed(len, [self]) or super().length(tr)

    def getitem(self, tr: Tracer, key: Value) -> Value:
        return tr.computed(operator.getitem, [self, tr.as_index(key)]) or super().getitem(tr, key)

    def contains(self, tr: Tracer, item: Value) -> Value:
        return tr.computed(operator.contains, [self, item]) or super().contains(tr, item)

    def rebuild(self, out: FrameWriter) -> str:
        return out.load(self.computed)


CHANGING = (ComputedValue, NumpyNumberValue)
"""Constants to all who read them, of which the frame computes in each call what Python or NumPy makes."""


def operand(value: Value) -> Value:
    """An operand of arithmetic with a tensor, where NumPy's numbers count as Python's."""
    if isinstance(value, NumpyNumberValue):
        return value.symbol()
    if isinstance(value, ConstValue) and type(value.value) in NUMPY_NUMBERS:
        return ConstValue(value.value.item())
    return value


_IN_C = (types.MethodDescriptorType, types.WrapperDescriptorType)


class ConstMethodValue(Value):
    """A method of a constant, not called yet."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: ConstValue, name: str) -> None:
        self.owner = owner
        self.name = name
        self.source = None

    def pytype(self) -> type:
        return types.BuiltinMethodType

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.owner.call_method(tr, self.name, args, kwargs)

    def truth(self, tr: Tracer) -> bool:
        return True

    def rebuild(self, out: FrameWriter) -> str:
        return f"({out.value(self.owner)}).{self.name}"


_MOST_KEYS = 32  # that a symbolic number is compared with; among more it is a constant


class SymValue(GraphValue):
    """A symbolic number: ``sym`` is torch's SymInt, SymFloat or SymBool, ``node`` its place in the graph."""

    __slots__ = ("sym",)

    def __init__(self, sym: Any, node: Any, source: Any = None) -> None:
        self.sym = sym
        self.node = node
        self.source = source

    def pytype(self) -> type:
        return {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(self.sym)]

    def describe(self) -> str:
        return f"symbolic {self.pytype().__name__} {self.sym}"

    def const(self, tr: Tracer) -> Any:
        return tr.specialize(self)

    def truth(self, tr: Tracer) -> bool:
        return tr.decide(self.sym, self.node)

    def getattr(self, tr: Tracer, name: str) -> Value:
        if self.pytype() is not bool and self.has(name):
            if name in ("real", "numerator"):
                return self
            if name in ("imag", "denominator"):  # which depend on no number
                return ConstValue(getattr(self.pytype()(1), name))
        if isinstance(getattr(self.pytype(), name, None), types.MethodDescriptorType):
            from .builtin_methods import BuiltinMethodValue

            return BuiltinMethodValue(self, self.pytype(), name)
        return ConstValue(self.const(tr)).getattr(tr, name)

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "conjugate" and self.pytype() is not bool and not args and not kwargs:
            return self
        function = getattr(self.pytype(), name, None)
        if isinstance(function, types.MethodDescriptorType) and name not in _UNSAFE_METHODS:
            if (found := tr.computed(function, [self, *args], kwargs)) is not None:
                return found
            return ConstValue(self.const(tr)).call_method(tr, name, args, kwargs)
        return super().call_method(tr, name, args, kwargs)

    def has(self, name: str) -> bool:
        """Whether there is such an attribute, which does not depend on the number."""
        return any(name in cls.__dict__ for cls in self.pytype().__mro__)

    def hash_key(self, tr: Tracer) -> Any:
        return self.const(tr)

    def arg(self, tr: Tracer) -> Any:
        return self.node

    def fake(self, tr: Tracer) -> Any:
        return self.sym

    def rebuild(self, out: FrameWriter) -> str:
        """Recomputed in Python if the inputs determine it; otherwise the graph returns it."""
        return self._expression(out, self.node) or out.graph_output(self)

    def _expression(self, out: FrameWriter, node: Any) -> str | None:
        if type(node) in (int, float, bool):
            return out.names.const(node) if type(node) is float else repr(node)
        if not isinstance(node, torch.fx.Node):
            return None
        source = out.tr.number_source(node)
        if source is not None:
            return out.load(source)
        if node.op != "call_function" or node.kwargs:
            return None
        args = [self._expression(out, each) for each in node.args]
        return None if None in args else f"{out.names.const(node.target)}({', '.join(args)})"  # type: ignore[arg-type]


def is_another(tr: Tracer, key: Value, keys: Collection[Any]) -> bool:
    """Whether ``key`` is a symbolic integer unlike all ``keys`` of a container; no more than that is guarded then."""
    if not isinstance(key, SymValue) or not isinstance(key.sym, torch.SymInt) or len(keys) > _MOST_KEYS:
        return False
    if not all(type(each) in (int, bool, str, type(None)) for each in keys):
        return False
    return not any(tr.decide(key.sym == int(each)) for each in keys if isinstance(each, int))


def sym_result(tr: Tracer, result: Any, node: Any) -> Value:
    """Wrap the result of an operator on symbolic numbers; what turned out constant becomes a constant."""
    if not isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return ConstValue(result)
    expr = result.node.expr
    if expr.is_number or expr in (True, False):
        hint = result.node.hint  # Python computed it; the expression may have more digits than a float
        return ConstValue(SymValue(result, node).pytype()(result if hint is None else hint))
    if node is None:
        raise GraphBreak(OPERATION, f"the symbolic number {expr} is not available in the graph")
    return SymValue(result, node)
