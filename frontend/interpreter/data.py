"""Arithmetic, comparison, subscripts, building and unpacking containers, f-strings."""

from __future__ import annotations

from typing import Any

from ..breaks import EXCEPTION, INSTRUCTION, GraphBreak
from ..values.base import MISSING, Raised, Value
from ..values.constants import ConstValue
from ..values.containers.mappings import DictValue, pairs
from ..values.containers.sequences import ListValue, SliceValue, TupleValue
from ..values.containers.sets import SetValue, by_hash
from ..values.texts import joined
from .frame import Frame, op


@op("BINARY_OP")
def binary_op(frame: Frame, ins: Any) -> None:
    right, left = frame.pop(), frame.pop()
    frame.push(frame.tr.binary(ins.arg, left, right))


@op("COMPARE_OP")
def compare_op(frame: Frame, ins: Any) -> None:
    right, left = frame.pop(), frame.pop()
    frame.push(frame.tr.compare(ins.arg, left, right))


@op("IS_OP")
def is_op(frame: Frame, ins: Any) -> None:
    right, left = frame.pop(), frame.pop()
    frame.push(ConstValue(frame.tr.is_same(left, right) is not ins.arg))


@op("CONTAINS_OP")
def contains_op(frame: Frame, ins: Any) -> None:
    container, element = frame.pop(), frame.pop()
    found = container.contains(frame.tr, element).truth(frame.tr)
    frame.push(ConstValue(found is not ins.arg))


@op("UNARY_NEGATIVE")
def unary_negative(frame: Frame, ins: Any) -> None:
    frame.push(frame.tr.unary("-", frame.pop()))


@op("UNARY_POSITIVE")
def unary_positive(frame: Frame, ins: Any) -> None:
    frame.push(frame.tr.unary("+", frame.pop()))


@op("UNARY_INVERT")
def unary_invert(frame: Frame, ins: Any) -> None:
    frame.push(frame.tr.unary("~", frame.pop()))


@op("UNARY_NOT")
def unary_not(frame: Frame, ins: Any) -> None:
    frame.push(ConstValue(not frame.pop().truth(frame.tr)))


@op("BINARY_SUBSCR")
def binary_subscr(frame: Frame, ins: Any) -> None:
    key, owner = frame.pop(), frame.pop()
    frame.push(owner.getitem(frame.tr, key))


@op("STORE_SUBSCR")
def store_subscr(frame: Frame, ins: Any) -> None:
    key, owner, value = frame.pop(), frame.pop(), frame.pop()
    owner.setitem(frame.tr, key, value)


@op("DELETE_SUBSCR")
def delete_subscr(frame: Frame, ins: Any) -> None:
    key, owner = frame.pop(), frame.pop()
    owner.delitem(frame.tr, key)


@op("BINARY_SLICE")
def binary_slice(frame: Frame, ins: Any) -> None:
    stop, start, owner = frame.pop(), frame.pop(), frame.pop()
    frame.push(owner.getitem(frame.tr, SliceValue(start, stop, ConstValue(None))))


@op("STORE_SLICE")
def store_slice(frame: Frame, ins: Any) -> None:
    stop, start, owner, value = frame.pop(), frame.pop(), frame.pop(), frame.pop()
    owner.setitem(frame.tr, SliceValue(start, stop, ConstValue(None)), value)


@op("BUILD_TUPLE")
def build_tuple(frame: Frame, ins: Any) -> None:
    frame.push(TupleValue(frame.popn(ins.arg)))


@op("BUILD_LIST")
def build_list(frame: Frame, ins: Any) -> None:
    frame.push(ListValue(frame.popn(ins.arg)))


@op("BUILD_SET")
def build_set(frame: Frame, ins: Any) -> None:
    frame.push(SetValue(by_hash(frame.tr, frame.popn(ins.arg))))


@op("BUILD_MAP")
def build_map(frame: Frame, ins: Any) -> None:
    flat = frame.popn(2 * ins.arg)
    result = DictValue({})
    for key, value in zip(flat[::2], flat[1::2], strict=True):
        result.setitem(frame.tr, key, value)
    frame.push(result)


@op("BUILD_CONST_KEY_MAP")
def build_const_key_map(frame: Frame, ins: Any) -> None:
    keys = frame.pop().unpack(frame.tr)
    values = frame.popn(ins.arg)
    result = DictValue({})
    for key, value in zip(keys, values, strict=True):  # equal keys are one, the first
        result.setitem(frame.tr, key, value)
    frame.push(result)


@op("BUILD_SLICE")
def build_slice(frame: Frame, ins: Any) -> None:
    parts = frame.popn(ins.arg)
    frame.push(SliceValue(parts[0], parts[1], parts[2] if ins.arg == 3 else ConstValue(None)))


@op("BUILD_STRING")
def build_string(frame: Frame, ins: Any) -> None:
    frame.push(joined(frame.tr, frame.popn(ins.arg)))


@op("FORMAT_VALUE")
def format_value(frame: Frame, ins: Any) -> None:
    conversion, has_spec = ins.arg
    spec = frame.pop() if has_spec else None
    value = frame.pop()
    if conversion is not None:
        value = frame.tr.convert(value, conversion)
    frame.push(frame.tr.format(value, spec))


@op("CONVERT_VALUE")
def convert_value(frame: Frame, ins: Any) -> None:
    frame.push(frame.tr.convert(frame.pop(), ins.arg))


@op("LIST_APPEND")
def list_append(frame: Frame, ins: Any) -> None:
    value = frame.pop()
    frame.stack[-ins.arg].call_method(frame.tr, "append", [value], {})


@op("LIST_EXTEND")
def list_extend(frame: Frame, ins: Any) -> None:
    value = frame.pop()
    frame.stack[-ins.arg].call_method(frame.tr, "extend", [value], {})


@op("SET_ADD")
def set_add(frame: Frame, ins: Any) -> None:
    value = frame.pop()
    frame.stack[-ins.arg].call_method(frame.tr, "add", [value], {})


@op("SET_UPDATE")
def set_update(frame: Frame, ins: Any) -> None:
    value = frame.pop()
    frame.stack[-ins.arg].call_method(frame.tr, "update", [value], {})


@op("MAP_ADD")
def map_add(frame: Frame, ins: Any) -> None:
    value, key = frame.pop(), frame.pop()
    frame.stack[-ins.arg].setitem(frame.tr, key, value)


@op("DICT_UPDATE")
def dict_update(frame: Frame, ins: Any) -> None:
    value = frame.pop()
    frame.stack[-ins.arg].call_method(frame.tr, "update", [value], {})


@op("DICT_MERGE")
def dict_merge(frame: Frame, ins: Any) -> None:
    """As DICT_UPDATE, for ``f(**a, **b)``, where a repeated key is an error."""
    value, target = frame.pop(), frame.stack[-ins.arg]
    for key, element in pairs(frame.tr, value):
        if target.contains(frame.tr, key).truth(frame.tr):
            raise GraphBreak(EXCEPTION, f"keyword argument {key.const(frame.tr)!r} is given twice")
        target.setitem(frame.tr, key, element)


@op("LIST_TO_TUPLE")
def list_to_tuple(frame: Frame, ins: Any) -> None:
    frame.push(TupleValue(frame.pop().unpack(frame.tr)))


@op("UNPACK_SEQUENCE")
def unpack_sequence(frame: Frame, ins: Any) -> None:
    items = _unpack(frame, ins.arg)
    frame.stack.extend(reversed(items))


def _unpack(frame: Frame, count: int) -> list[Value]:
    owner = _iterable(frame)
    items = owner.unpack(frame.tr) if _has_items(owner) else _first(frame.tr, owner.iter(frame.tr), count + 1)
    if len(items) != count:
        message = (
            f"too many values to unpack (expected {count})"
            if len(items) > count
            else f"not enough values to unpack (expected {count}, got {len(items)})"
        )
        raise Raised(frame.tr.make_exception(ValueError, message))
    return items


def _has_items(owner: Value) -> bool:
    """Whether all of its items can be read without a program noticing."""
    return type(owner).unpack is not Value.unpack


def _first(tr: Any, iterator: Value, count: int) -> list[Value]:
    """At most this many items of an iterator, which is asked for no more."""
    items: list[Value] = []
    while len(items) < count and (element := iterator.next(tr)) is not None:
        items.append(element)
        tr.check_budget(len(items))
    return items


def _iterable(frame: Frame) -> Value:
    """What is unpacked: on top of the stack."""
    owner = frame.pop()
    cls = owner.pytype()
    if not hasattr(cls, "__iter__") and not hasattr(cls, "__getitem__"):
        raise Raised(frame.tr.make_exception(TypeError, f"cannot unpack non-iterable {cls.__name__} object"))
    return owner


@op("UNPACK_EX")
def unpack_ex(frame: Frame, ins: Any) -> None:
    before, after = ins.arg
    owner, tr = _iterable(frame), frame.tr
    if _has_items(owner):
        items = owner.unpack(tr)
    else:
        iterator = owner.iter(tr)
        items = _first(tr, iterator, before)
        if len(items) == before:
            items += iterator.unpack(tr)  # Python makes a list of the iterator, and so asks it for an iterator again
    if len(items) < before + after:
        message = f"not enough values to unpack (expected at least {before + after}, got {len(items)})"
        raise Raised(frame.tr.make_exception(ValueError, message))
    middle = ListValue(items[before : len(items) - after])
    rest = items[len(items) - after :] if after else []
    frame.stack.extend(reversed([*items[:before], middle, *rest]))


@op("GET_LEN")
def get_len(frame: Frame, ins: Any) -> None:
    frame.push(frame.stack[-1].length(frame.tr))


@op("MATCH_SEQUENCE")
def match_sequence(frame: Frame, ins: Any) -> None:
    cls = frame.stack[-1].pytype()
    frame.push(ConstValue(bool(cls.__flags__ & (1 << 5))))  # Py_TPFLAGS_SEQUENCE


@op("MATCH_MAPPING")
def match_mapping(frame: Frame, ins: Any) -> None:
    cls = frame.stack[-1].pytype()
    frame.push(ConstValue(bool(cls.__flags__ & (1 << 6))))  # Py_TPFLAGS_MAPPING


@op("MATCH_KEYS")
def match_keys(frame: Frame, ins: Any) -> None:
    keys, subject = frame.stack[-1].unpack(frame.tr), frame.stack[-2]
    found: list[Value] = []
    for key in keys:
        if not subject.contains(frame.tr, key).truth(frame.tr):
            frame.push(ConstValue(None))
            return
        found.append(subject.getitem(frame.tr, key))
    frame.push(TupleValue(found))


@op("MATCH_CLASS")
def match_class(frame: Frame, ins: Any) -> None:
    tr = frame.tr
    names, cls, subject = frame.pop(), frame.pop(), frame.pop()
    real = cls.real()
    if real is MISSING or not isinstance(real, type):
        raise GraphBreak(INSTRUCTION, "match against something that is not a class")
    if not tr.is_instance(subject, real):
        frame.push(ConstValue(None))
        return
    positional: list[str | None] = []
    if ins.arg:
        try:
            positional = [name.const(tr) for name in cls.getattr(tr, "__match_args__").unpack(tr)][: ins.arg]
        except Raised as raised:
            if not issubclass(raised.value.pytype(), AttributeError):
                raise
    if ins.arg and not positional and real in _SELF_MATCHING:
        positional = [None]
    if len(positional) < ins.arg:
        plural = "s" if len(positional) != 1 else ""
        message = f"{real.__name__}() accepts {len(positional)} positional sub-pattern{plural} ({ins.arg} given)"
        raise Raised(tr.make_exception(TypeError, message))
    found = []
    for name in [*positional, *names.const(tr)]:
        try:
            found.append(subject if name is None else subject.getattr(tr, name))
        except Raised as raised:
            if not issubclass(raised.value.pytype(), AttributeError):
                raise
            frame.push(ConstValue(None))
            return
    frame.push(TupleValue(found))


_SELF_MATCHING = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)
