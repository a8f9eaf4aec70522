"""Python's operator protocols over values: arithmetic, comparison, identity, isinstance, formatting."""

from __future__ import annotations

import collections
import math
import operator
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from torchmux import torch_internals as ti

from .. import breaks
from ..breaks import GraphBreak
from ..sizes.algebra import inverse, power_of_negative
from ..values import arrays
from ..values.arrays import AnyArray
from ..values.base import MISSING, Raised, Value
from ..values.constants import CHANGING, HAVE_TWINS, ConstValue, SymValue, has_no_twin, operand, sym_result
from ..values.containers import array_items
from ..values.containers.deques import DequeValue
from ..values.containers.mappings import DictValue, DictViewValue
from ..values.containers.proxies import ProxyValue
from ..values.containers.sequences import ListValue, RangeValue, SequenceValue, SliceValue, TupleValue
from ..values.containers.sets import SetValue
from ..values.facets.identities import IdValue, are_one
from ..values.facets.instance_dict import InstanceDictValue
from ..values.facets.references import NewWeakrefValue
from ..values.objects import ObjectValue, of_protocol
from ..values.overrides import refuse_operator
from ..values.scalars import ReadNumber
from ..values.tensors import TensorValue, is_torch_class
from ..values.texts import converted, formatted, in_fields, printed
from .enumerations import ask_operand
from .operator_table import BINARY, COMPARE, INPLACE, UNARY, unsupported
from .protocols import has_members
from .same_tensor import may_be_one, may_be_operand
from .subclasses import SubclassValue
from .tracer import Tracer

_SET_METHODS = {"|": "union", "&": "intersection", "-": "difference", "^": "symmetric_difference"}


def _unknown_identity() -> GraphBreak:
    """The frame runs as a whole in eager: what was computed before the question would be computed again after it."""
    stop = GraphBreak(breaks.OPERATION, "whether two equal constants are one object")
    stop.whole_frame = True
    return stop


_COMPARISONS = frozenset(function for function, *_ in COMPARE.values())


def _plain_number(value: Value, other: Value) -> Value:
    """A member of an ``IntEnum`` or a bool as the number that it is beside ``other``.

    Symbolic numbers do not know the one, and take the other for a reason to give a bool.
    """
    if not isinstance(value, ConstValue) or type(value.value) in (int, float):
        return value
    if type(value.value) is bool and other.pytype() is bool:
        return value
    return ConstValue(int(value.value) if isinstance(value.value, int) else float(value.value))


def _behind_proxy(value: Value) -> Value:
    """What is compared and merged for a ``MappingProxyType``: its mapping."""
    return value.mapping if isinstance(value, ProxyValue) else value


class Operators(Tracer):
    """The part of a trace that applies Python's operators to values."""

    # --- arithmetic ------------------------------------------------------------------------------------------------

    def binary(self, symbol: str, left: Value, right: Value) -> Value:
        """``left <symbol> right``; ``symbol`` may be an in-place one such as ``+=``."""
        if symbol.endswith("="):
            return self._inplace(symbol, left, right)
        function, name, reflected = BINARY[symbol]
        if isinstance(left, AnyArray) or isinstance(right, AnyArray):
            return arrays.binary(self, symbol, left, right)
        if left.is_const() and right.is_const() and not isinstance(left, ObjectValue):
            if isinstance(left, CHANGING) or isinstance(right, CHANGING):
                if (found := self.computed(function, [left, right])) is not None:
                    return found
            ask_operand(self, left.const(self), name, f"__i{name[2:]}")
            ask_operand(self, right.const(self), reflected)
            return self._fold_binary(function, symbol, left, right)
        is_text = symbol == "%" and left.pytype() in (str, bytes)
        if (isinstance(left, TensorValue) or isinstance(right, TensorValue)) and not is_text:
            if not isinstance(left, ObjectValue) and not isinstance(right, ObjectValue):
                left, right = operand(left), operand(right)
                for side, asked in ((left, name), (right, reflected)):
                    if isinstance(side, TensorValue):
                        side.guard_operator(self, asked)
                    elif side.is_const():
                        ask_operand(self, side.real(), asked)
                return self.emit("call_function", function, [left, right], {})
        if isinstance(left, ReadNumber) or isinstance(right, ReadNumber):
            return self.emit("call_function", function, [left, right], {})
        if isinstance(left, SymValue) or isinstance(right, SymValue):
            if (found := self._symbolic(function, left, right)) is not None:
                return found
        if (found := self._containers(symbol, left, right)) is not None:
            return found
        return self._dunder(symbol, name, reflected, left, right)

    def _fold_binary(self, function: Callable, symbol: str, left: Value, right: Value) -> Value:
        if symbol == "%" and isinstance(left, ConstValue) and left.pytype() in (str, bytes):
            return printed(self, left, right)
        a, b = left.const(self), right.const(self)
        if symbol in ("**", "<<") and isinstance(a, int) and isinstance(b, int) and abs(b) > 10_000:
            raise GraphBreak(breaks.OPERATION, f"{a} {symbol} {b} is too large to compute during compilation")
        return self.fold(function, [a, b], {})

    def _symbolic(self, function: Callable, left: Value, right: Value) -> Value | None:
        if not all(
            isinstance(v, SymValue) or (v.is_const() and isinstance(v.real(), (int, float))) for v in (left, right)
        ):
            return None
        if left.pytype() is right.pytype() is bool and function in _COMPARISONS:
            return self.fold(function, [left.const(self), right.const(self)], {})  # algebra orders no truths
        left, right = _plain_number(left, right), _plain_number(right, left)
        if not all(isinstance(v, SymValue) or math.isfinite(v.real()) for v in (left, right)):
            return self.fold(function, [left.const(self), right.const(self)], {})  # algebra knows no nan
        if not self._is_defined(function, right):
            return self.fold(function, [left.const(self), right.const(self)], {})  # raises what Python raises
        if function is operator.pow and left.is_const() and math.copysign(1.0, left.real()) < 0:
            return power_of_negative(self, left.real(), right)
        a, b = left.fake(self), right.fake(self)
        try:
            result = function(a, b)
        except Exception as error:
            undecided: Any = ti.fake_tensor_errors()["guard"]
            if isinstance(error, undecided):
                raise self.undecided(error.cond, f"symbolic {function.__name__}") from None
            # there is no such operation on symbols: bits, powers that may be fractions
            return self.computed(function, [left, right]) or self.fold(
                function, [left.const(self), right.const(self)], {}
            )
        if not isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return ConstValue(result)
        if result.node.expr.is_number and isinstance(result, torch.SymFloat):  # which may be zero, with a sign
            return self.fold(function, [left.const(self), right.const(self)], {})
        if result.node.expr.is_number:
            return sym_result(self, result, None)
        node = self.number_node("call_function", function, (left.arg(self), right.arg(self)), result)
        return sym_result(self, result, node)

    def _is_defined(self, function: Callable, right: Value) -> bool:
        """Whether arithmetic with this right operand computes something; guarded if it is symbolic."""
        if not isinstance(right, SymValue) or self.depends_on_data(right.sym):
            return True
        if function in (operator.truediv, operator.floordiv, operator.mod):
            return self.decide(right.sym, right.node)
        if function in (operator.lshift, operator.rshift):
            return self.decide(right.sym >= 0)
        return True

    def _containers(self, symbol: str, left: Value, right: Value) -> Value | None:
        left, right = _behind_proxy(left), _behind_proxy(right)
        if symbol == "+" and isinstance(left, SequenceValue) and isinstance(right, SequenceValue):
            if left.pytype() is right.pytype() and not isinstance(left, TupleValue):
                return left.like(self, [*left.items(self), *right.items(self)])
            if isinstance(left, TupleValue) and isinstance(right, TupleValue):
                cls = type(_sample(left) + _sample(right))
                return TupleValue([*left.items(self), *right.items(self)], cls=cls)
            return None
        if symbol == "*":
            is_left = isinstance(left, SequenceValue) or left.pytype() in (str, bytes)
            sequence, count = (left, right) if is_left else (right, left)
            is_text = isinstance(sequence, ConstValue) and sequence.pytype() in (str, bytes)
            if isinstance(count, ObjectValue):
                if self.special_method(count, "__rmul__" if is_left else "__mul__") is not None:
                    return None
                count = self.as_index(count) if is_text or isinstance(sequence, SequenceValue) else count
            if is_text and issubclass(count.pytype(), int):
                return self.fold(operator.mul, [sequence.const(self), count.const(self)], {})
            if isinstance(sequence, SequenceValue) and issubclass(count.pytype(), int):
                items = _repeated(sequence.items(self), count.const(self))
                if not isinstance(sequence, TupleValue):
                    return sequence.like(self, items)
                return TupleValue(items, cls=type(_sample(sequence) * 2 if sequence is left else 2 * _sample(sequence)))
        if (
            isinstance(left, (SetValue, DictViewValue))
            and isinstance(
                right,
                (SetValue, DictViewValue, *([SequenceValue, DictValue] if isinstance(left, DictViewValue) else [])),
            )
            and symbol in _SET_METHODS
        ):
            base = left.as_set(self) if isinstance(left, DictViewValue) else left
            return base.call_method(self, _SET_METHODS[symbol], [right], {})
        if symbol == "|" and isinstance(left, DictValue) and isinstance(right, DictValue):
            # A right operand whose class derives from the left one's is asked first, and returns its own result.
            derived = right.cls is not left.cls and issubclass(right.cls, left.cls)
            merged = (right if derived else left).call_method(self, "copy", [], {})
            if derived:
                merged.call_method(self, "clear", [], {})
                merged.call_method(self, "update", [left], {})
            merged.call_method(self, "update", [right], {})
            return merged
        if symbol == "%" and isinstance(left, ConstValue) and left.pytype() in (str, bytes):
            return printed(self, left, right)
        return None

    def _inplace(self, symbol: str, left: Value, right: Value) -> Value:
        function, name = INPLACE[symbol]
        if isinstance(left, TensorValue) and not isinstance(right, ObjectValue):
            left.guard_operator(self, name)
            return self.emit("call_function", function, [left, operand(right)], {})
        if isinstance(left, AnyArray) and not getattr(left, "is_number", False):
            return array_items.inplace(self, symbol, left, right)
        method = self.special_method(left, name) if isinstance(left, ObjectValue) else None
        if method is not None:
            result = method.call(self, [right], {})
            if not _is_not_implemented(result):
                return result
        else:
            container = self._plain_storage(left)
            if (reflected := self._reflected(symbol, container, right)) is not None:
                return reflected
            if self._changed_in_place(symbol, container, right):
                return left
        return self.binary(symbol[:-1], left, right)

    def _reflected(self, symbol: str, left: Value, right: Value) -> Value | None:
        """What a right operand that is a number makes of ``list += number``: its class is asked ahead of sequences."""
        if not isinstance(left, (ListValue, DequeValue)):
            return None
        if isinstance(right, AnyArray):
            raise GraphBreak(breaks.OPERATION, f"{left.describe()} {symbol} {right.describe()}")
        method = self.special_method(right, BINARY[symbol[:-1]][2]) if isinstance(right, ObjectValue) else None
        result = None if method is None else method.call(self, [left], {})
        return None if result is None or _is_not_implemented(result) else result

    def _changed_in_place(self, symbol: str, left: Value, right: Value) -> bool:
        """Do what a builtin container does to itself for ``left <symbol> right``, if it does."""
        if isinstance(left, (ListValue, DequeValue)) and symbol == "+=":
            left.call_method(self, "extend", [right], {})
        elif isinstance(left, ListValue) and symbol == "*=" and issubclass(right.pytype(), int):
            left.replace(self, _repeated(left.items(self), right.const(self)))
        elif isinstance(left, DictValue) and symbol == "|=":
            left.call_method(self, "update", [right], {})
        elif isinstance(left, SetValue) and left.cls is set and symbol[:-1] in _SET_METHODS:
            right = self._plain_storage(right)
            if not isinstance(right, SetValue):
                return False
            merged = left.call_method(self, _SET_METHODS[symbol[:-1]], [right], {})
            assert isinstance(merged, SetValue)
            known = left.mirror is not None and right.mirror is not None
            left.replace(self, dict(merged.entries), INPLACE[symbol][0](left.mirror, right.mirror) if known else None)
        else:
            return False
        return True

    def _dunder(self, symbol: str, name: str, reflected: str, left: Value, right: Value) -> Value:
        refuse_operator(self, symbol, left, right)
        order = [(left, name, right), (right, reflected, left)]
        if (
            right.pytype() is not left.pytype()
            and issubclass(right.pytype(), left.pytype())
            and self.static_lookup(right.pytype(), reflected) is not self.static_lookup(left.pytype(), reflected)
        ):
            order.reverse()
        tried = False
        for owner, method_name, other in order:
            method = self.special_method(owner, method_name) if isinstance(owner, ObjectValue) else None
            if method is None and isinstance(owner, ObjectValue):
                owner.refuse_c(self, method_name)
            if method is not None:
                tried = True
                result = method.call(self, [other], {})
                if not _is_not_implemented(result):
                    return result
        refuse_operator(self, symbol, right, left)
        storages = [self._plain_storage(v) for v in (left, right)]
        if any(s is not v for s, v in zip(storages, (left, right), strict=True)):
            return self.binary(symbol, *storages)
        repeats = symbol == "*" and any(hasattr(side.pytype(), "__index__") for side in (left, right))  # a sequence
        if (tried and not repeats) or (_surely_unsupported(left) and _surely_unsupported(right)):
            raise Raised(self.make_exception(TypeError, unsupported(symbol, left.pytype(), right.pytype())))
        raise GraphBreak(breaks.OPERATION, f"{left.describe()} {symbol} {right.describe()}")

    def _plain_storage(self, value: Value) -> Value:
        """The builtin contents of an object whose class derives from a builtin one."""
        if isinstance(value, ObjectValue):
            return value.storage(self) or value
        return value

    def unary(self, symbol: str, value: Value) -> Value:
        function, name = UNARY[symbol]
        if isinstance(value, AnyArray):
            return arrays.unary(self, symbol, value)
        if isinstance(value, TensorValue):
            value.guard_operator(self, name)
        if isinstance(value, (TensorValue, ReadNumber)):
            return self.emit("call_function", function, [value], {})
        if isinstance(value, SymValue) and value.pytype() is bool:
            return self.fold(function, [value.const(self)], {})
        if isinstance(value, SymValue) and symbol == "~":
            return inverse(self, value)
        if isinstance(value, SymValue):
            result = function(value.sym)
            node = self.number_node("call_function", function, (value.node,), result)
            return sym_result(self, result, node)
        if isinstance(value, ObjectValue):
            if (method := self.special_method(value, name)) is not None:
                return method.call(self, [], {})
            value.refuse_c(self, name)
        if value.is_const():
            if (found := self.computed(function, [value])) is not None:
                return found
            ask_operand(self, value.const(self), name)
            return self.fold(function, [value.const(self)], {})
        raise GraphBreak(breaks.OPERATION, f"{symbol}{value.describe()}")

    # --- comparison ------------------------------------------------------------------------------------------------

    def compare(self, symbol: str, left: Value, right: Value) -> Value:
        function, name, reflected = COMPARE[symbol]
        if isinstance(left, AnyArray) or isinstance(right, AnyArray):
            return arrays.binary(self, symbol, left, right)
        for value in (left, right):
            if isinstance(value, ReadNumber):
                raise GraphBreak(breaks.DATA_DEPENDENT_BRANCH, f"a comparison of {value.describe()}")
        objects = isinstance(left, ObjectValue) or isinstance(right, ObjectValue)
        if not objects and (isinstance(left, TensorValue) or isinstance(right, TensorValue)):
            other = right if isinstance(left, TensorValue) else left
            for side, asked in ((left, name), (right, reflected)):
                if isinstance(side, TensorValue):
                    side.guard_operator(self, asked)
            if symbol in ("==", "!=") and not _comparable_with_tensor(other):
                return ConstValue(symbol == "!=")
            return self.emit("call_function", function, [left, right], {})
        if isinstance(left, SymValue) or isinstance(right, SymValue):
            if (found := self._symbolic(function, left, right)) is not None:
                return found
        if left.is_const() and right.is_const() and not objects:
            if (found := self.computed(function, [left, right])) is not None:
                return found
            ask_operand(self, left.const(self), name)
            ask_operand(self, right.const(self), reflected)
            return self.fold(function, [left.const(self), right.const(self)], {})
        if symbol in ("==", "!=") and not objects:
            return ConstValue(self.equal(left, right) is (symbol == "=="))
        if objects:
            return self._rich_compare(symbol, name, reflected, left, right)
        polyfill = self._order_polyfill(left, right, name)
        if polyfill is not None:
            return polyfill
        raise GraphBreak(breaks.OPERATION, f"{left.describe()} {symbol} {right.describe()}")

    def _order_polyfill(self, left: Value, right: Value, name: str) -> Value | None:
        left, right = (v.as_set(self) if isinstance(v, DictViewValue) else v for v in (left, right))
        for base in (list, tuple, set, frozenset):
            if issubclass(left.pytype(), base) and issubclass(right.pytype(), base):
                polyfill = self.method_polyfill(base, name)
                if polyfill is not None:
                    return polyfill.call(self, [left, right], {})
        return None

    def _rich_compare(self, symbol: str, name: str, reflected: str, left: Value, right: Value) -> Value:
        refuse_operator(self, symbol, left, right)
        order = [(left, name, right), (right, reflected, left)]
        if right.pytype() is not left.pytype() and issubclass(right.pytype(), left.pytype()):
            order.reverse()
        for owner, method_name, other in order:
            if not isinstance(owner, ObjectValue):
                continue
            method, negated = self.special_method(owner, method_name), False
            if method is None and self.static_lookup(owner.cls, method_name) is object.__ne__:
                method, negated = self.special_method(owner, "__eq__"), True  # which object.__ne__ asks
            if method is None:
                owner.refuse_c(self, method_name)
                continue
            result = method.call(self, [other], {})
            if not _is_not_implemented(result):
                return ConstValue(not result.truth(self)) if negated else result
        refuse_operator(self, symbol, right, left)
        storages = [self._plain_storage(v) for v in (left, right)]
        if any(s is not v for s, v in zip(storages, (left, right), strict=True)):
            return self.compare(symbol, *storages)
        if symbol in ("==", "!="):
            return ConstValue(self.is_same(left, right) is (symbol == "=="))
        message = (
            f"'{symbol}' not supported between instances of {left.pytype().__name__!r} and {right.pytype().__name__!r}"
        )
        raise Raised(self.make_exception(TypeError, message))

    def equal(self, left: Value, right: Value) -> bool:
        """``bool(left == right)`` with the identity shortcut of container comparisons."""
        left, right = _behind_proxy(left), _behind_proxy(right)
        if left is right:
            return True
        if isinstance(left, ConstValue) and isinstance(right, ConstValue) and left.value != left.value:
            raise GraphBreak(breaks.OPERATION, "nan in a container: which nan it is decides what is found")
        if any(isinstance(side, (TensorValue, ObjectValue, AnyArray)) for side in (left, right)):
            return self.compare("==", left, right).truth(self)
        if isinstance(left, IdValue) or isinstance(right, IdValue):
            return are_one(self, left, right)
        if isinstance(left, SymValue) or isinstance(right, SymValue):
            found = self._symbolic(operator.eq, left, right)
            return found.truth(self) if found is not None else False
        if isinstance(left, DictViewValue) or isinstance(right, DictViewValue):
            return self._equal_views(left, right)
        for kind in (TupleValue, ListValue, DequeValue):
            if isinstance(left, kind) and isinstance(right, kind):
                a, b = left.items(self), right.items(self)
                return len(a) == len(b) and all(map(self.equal, a, b))
        if isinstance(left, DictValue) and isinstance(right, DictValue):
            left.values(self), right.values(self)
            ordered = issubclass(left.cls, collections.OrderedDict) and issubclass(right.cls, collections.OrderedDict)
            if ordered and list(left.entries) != list(right.entries):
                return False
            return left.entries.keys() == right.entries.keys() and all(
                self.equal(left.entries[k][1], right.entries[k][1]) for k in left.entries
            )
        if isinstance(left, InstanceDictValue) or isinstance(right, InstanceDictValue):
            pair = [v.snapshot(self) if isinstance(v, InstanceDictValue) else v for v in (left, right)]
            return self.equal(*pair)
        if isinstance(left, SetValue) and isinstance(right, SetValue):
            return left.entries.keys() == right.entries.keys()
        if isinstance(left, SliceValue) and isinstance(right, SliceValue):
            return all(self.equal(getattr(left, n), getattr(right, n)) for n in ("start", "stop", "step"))
        if left.is_const() and right.is_const():
            a, b = left.const(self), right.const(self)
            ask_operand(self, a, "__eq__")
            ask_operand(self, b, "__eq__")
            return bool(a == b)
        if left.pytype() is right.pytype() is types.FunctionType:
            return self.is_same(left, right)
        if weakref.ReferenceType in (left.pytype(), right.pytype()):
            raise GraphBreak(breaks.OPERATION, "equality of weak references")
        a, b = left.real(), right.real()
        if a is not MISSING and b is not MISSING:
            return bool(a == b) if not isinstance(a, torch.nn.Module) else a is b
        containers = (SequenceValue, DictValue, SetValue, RangeValue)
        if isinstance(left, containers) or isinstance(right, containers):
            return False
        try:
            return bool(left.hash_key(self) == right.hash_key(self))
        except (GraphBreak, Raised):
            raise GraphBreak(breaks.OPERATION, f"{left.describe()} == {right.describe()}") from None

    def _equal_views(self, left: Value, right: Value) -> bool:
        """Views of keys and items compare as sets, those of values by identity."""
        sets = []
        for value in (left, right):
            if isinstance(value, DictViewValue) and value.kind != "values":
                value = value.as_set(self)
            if not isinstance(value, SetValue):
                return False
            sets.append(value)
        return self.equal(*sets)

    def is_same(self, left: Value, right: Value) -> bool:
        """``left is right``."""
        if left is right:
            return True
        if isinstance(left, ConstValue) and isinstance(right, ConstValue):
            return left.pytype() is right.pytype() and self._is_same_constant(left, right)
        if isinstance(left, (ConstValue, SymValue)) and isinstance(right, (ConstValue, SymValue)):
            if left.pytype() is not right.pytype():
                return False
            if left.pytype() is bool:
                return left.truth(self) is right.truth(self)
            if not self.compare("==", left, right).truth(self):
                return False
            if not any(isinstance(side, ConstValue) and has_no_twin(side.value) for side in (left, right)):
                raise _unknown_identity()
            return True
        if isinstance(left, TensorValue) and isinstance(right, TensorValue):
            if left.node is None or right.node is None:
                return False  # what an operator gives back is known by its object
            if may_be_one(left.node, right.node):
                raise GraphBreak(breaks.OPERATION, f"whether {left.describe()} is {right.describe()}")
            return False
        if isinstance(left, InstanceDictValue) and isinstance(right, InstanceDictValue):
            return self.is_same(left.owner, right.owner)
        for side, other in ((left, right), (right, left)):
            if isinstance(side, NewWeakrefValue) and other.source is not None and other.real() is not MISSING:
                self.guards.is_object(other.source, other.real())  # it may be the one that the program makes
        is_made = isinstance(left, CHANGING) or isinstance(right, CHANGING)  # the other is no such number or text
        a, b = (MISSING, MISSING) if is_made else (left.real(), right.real())
        if a is not MISSING and a is b:
            return True
        if left.pytype() is right.pytype():
            self.identity_matters(left, right)
        return False

    def may_be_operand(self, value: Value) -> bool:
        return may_be_operand(value)

    def _is_same_constant(self, left: ConstValue, right: ConstValue) -> bool:
        """``is`` between constants: equal ones may or may not be one object, and other guards tell only equality."""
        a, b = left.value, right.value
        if type(a) is not type(b) or not (type(a) in HAVE_TWINS or ti.is_placement(type(a))):
            return a is b
        if a != b or has_no_twin(a):
            return a is b
        for side in (left, right):
            if side.source is not None:
                self.guards.is_object(side.source, side.value)
            elif not self.is_of_code(side):
                raise _unknown_identity()
        return a is b

    # --- classes ---------------------------------------------------------------------------------------------------

    def is_instance(self, value: Value, cls: Any) -> bool:
        """``isinstance`` against a real class (tuples are the caller's business)."""
        own = value.pytype()
        if cls is torch.nn.Parameter or cls is torch.nn.Buffer:
            mark = "_is_param" if cls is torch.nn.Parameter else "_is_buffer"
            if not isinstance(value, TensorValue) or (is_torch_class(own) and not isinstance(value, SubclassValue)):
                return own is cls
            self.guard_bases(own)
            return cls in own.__mro__ or value.has_mark(self, mark)
        if (
            isinstance(value, TensorValue)
            and cls.__module__ == "torch"
            and cls.__name__.endswith("Tensor")
            and cls is not torch.Tensor
        ):
            return isinstance(value.example, cls)
        try:
            if type(cls).__instancecheck__ is type.__instancecheck__:  # its metaclass has no say, but in issubclass
                self.guard_bases(own)
                found = cls in own.__mro__
            else:
                if getattr(cls, "_is_protocol", False) and cls not in own.__mro__:
                    return has_members(self, value, cls)
                asks = self.static_lookup(type(cls), "__subclasscheck__")
                self.guard_lookup(type(cls), "__subclasscheck__", asks)
                if isinstance(asks, types.FunctionType) and not self.is_settled_function(asks):
                    # isinstance() may have kept an answer that issubclass() would not give any more
                    raise GraphBreak(breaks.OPERATION, f"isinstance(..., {cls.__qualname__})")
                found = self.is_subclass(own, cls)
        except TypeError as error:
            raise Raised(self.exception(error)) from None
        if isinstance(value, ObjectValue) and (not found or type(cls) is not type):
            value.refuse_other_class(self)
        return found

    def special_method(self, owner: Value, name: str) -> Value | None:
        """A special method looked up on the class, bound; None if there is none."""
        if isinstance(owner, ObjectValue):
            return owner.special(self, name)
        if self.static_lookup(owner.pytype(), name) is MISSING:
            return None
        return owner.getattr(self, name)

    # --- text ------------------------------------------------------------------------------------------------------

    def as_index(self, value: Value) -> Value:
        method = value.special(self, "__index__") if isinstance(value, ObjectValue) else None
        ask_operand(self, value.real() if value.is_const() else None, "__index__")
        return value if method is None else of_protocol(method.call(self, [], {}), "__index__")

    def convert(self, value: Value, conversion: str) -> Value:
        return converted(self, value, conversion)

    def format(self, value: Value, spec: Value | None) -> Value:
        return formatted(self, value, "" if spec is None else spec.const(self))

    def format_fields(self, text: str, operands: list[Value]) -> Value | None:
        return in_fields(self, text, operands)


def _sample(value: TupleValue) -> tuple:
    """A tuple of the same kind; what arithmetic makes of a ``torch.Size`` depends on torch's version."""
    return torch.Size((1,)) if value.cls is torch.Size else (1,)


def _repeated(items: list[Value], count: int) -> list[Value]:
    try:
        return items * count
    except (MemoryError, OverflowError) as error:
        raise GraphBreak(breaks.TOO_DEEP, f"a sequence of {len(items) * count} items", error) from None


def _is_not_implemented(value: Value) -> bool:
    return isinstance(value, ConstValue) and value.value is NotImplemented


def _comparable_with_tensor(other: Value) -> bool:
    if isinstance(other, (TensorValue, SymValue)):
        return True
    return isinstance(other, ConstValue) and isinstance(other.value, (int, float, complex, bool))


def _surely_unsupported(value: Value) -> bool:
    return isinstance(value, (ConstValue, SequenceValue, DictValue, SetValue, ObjectValue, RangeValue))
