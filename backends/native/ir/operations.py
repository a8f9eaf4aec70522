"""Making scalar expressions of the operations in ``operation_table.py``, simplified where that changes no result."""

from __future__ import annotations

import math
import struct
from typing import Any

import torch

from . import index, ranges
from .expressions import Buffer, Node, compute_type, make, rewrite
from .index import Index
from .operation_table import OPERATIONS


class Unsupported(Exception):
    """A lowering cannot take this call; the message is the reason."""


COMPARE = frozenset(o.name for o in OPERATIONS.values() if o.operands == ("T", "T") and o.result == "B")


def is_float(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point


def const(value: Any, dtype: torch.dtype) -> Node:
    """A number of the given type, wrapped or rounded to it."""
    if isinstance(value, index.Ix):
        return cast(make("index", (), torch.int64, value), dtype)
    dtype = compute_type(dtype)
    if dtype.is_complex:
        return complex_of(const(value.real, dtype.to_real()), const(value.imag, dtype.to_real()))
    if dtype is torch.bool:
        value = bool(value)
    elif is_float(dtype):
        value = float(value)
    else:
        value = int(value)
        bits = torch.iinfo(dtype)
        if not bits.min <= value <= bits.max:
            value = (value - bits.min) % (bits.max - bits.min + 1) + bits.min
    return make("const", (), dtype, value)


def from_index(value: Index, dtype: torch.dtype = torch.int64) -> Node:
    """An index expression as a number."""
    if type(value) is int:
        return const(value, dtype)
    if isinstance(value, index.Ix) and (only := index.the_data(value)) is not None:
        return cast(only, dtype)
    return cast(make("index", (), torch.int64, value), dtype)


def load(buffer: Buffer, position: Index) -> Node:
    return make("load", (), compute_type(buffer.dtype), (buffer, position))


def cast(node: Node, dtype: torch.dtype) -> Node:
    """The value converted as torch converts it; half precision stays float32 here, see :func:`round_to`."""
    dtype = compute_type(dtype)
    if node.dtype is dtype:
        return node
    if node.op == "complex":
        return _cast_parts(node, dtype)
    if dtype.is_complex:
        return complex_of(cast(node, dtype.to_real()), const(0, dtype.to_real()))
    if node.op == "const" and (not isinstance(node.attr, float) or math.isfinite(node.attr)):
        if not (isinstance(node.attr, float) and not is_float(dtype) and abs(node.attr) >= 2**31):
            return const(node.attr, dtype)
    if dtype is torch.bool:
        if node.op == "cast" and _keeps_zero(node):
            return cast(node.args[0], torch.bool)
        return compare("ne", node, const(0, node.dtype))
    if node.op == "cast" and _widens(node):
        return cast(node.args[0], dtype)
    if node.dtype is torch.int64 and is_float(dtype) and _is_within(node, 31):
        node = _in_32_bits(node)  # of which a vector takes half the registers, and has instructions to convert them
    if node.op == "const" and isinstance(node.attr, float) and not is_float(dtype):
        raise Unsupported(f"{node.attr} as an integer, which has no defined value")
    return make("cast", (node,), dtype)


# --- complex numbers: a node of each part -----------------------------------------------------------------------------


def complex_of(real: Node, imaginary: Node) -> Node:
    """A complex number of its parts; every complex node is one of these."""
    return make("complex", (real, imaginary), real.dtype.to_complex())


def _cast_parts(node: Node, dtype: torch.dtype) -> Node:
    real, imaginary = node.args
    if dtype.is_complex:
        return complex_of(cast(real, dtype.to_real()), cast(imaginary, dtype.to_real()))
    if dtype is torch.bool:
        return binary("or", cast(real, dtype), cast(imaginary, dtype))
    return cast(real, dtype)  # torch warns that the other part is lost


def _of_parts(op: str, a: Node, b: Node) -> Node:
    """``a op b`` of complex numbers, by eager's formulas."""
    (re, im), (re_b, im_b) = a.args, b.args
    if op in ("add", "sub"):
        return complex_of(binary(op, re, re_b), binary(op, im, im_b))
    if op == "mul":
        real = binary("sub", binary("mul", re, re_b), binary("mul", im, im_b))
        return complex_of(real, binary("add", binary("mul", re, im_b), binary("mul", im, re_b)))
    if op == "div":
        return _quotient(re, im, re_b, im_b)
    raise Unsupported(f"{op} of complex numbers")


def _quotient(re: Node, im: Node, re_b: Node, im_b: Node) -> Node:
    """By the larger part of the divisor first, so that no square overflows or vanishes."""
    zero = const(0, re.dtype)
    size, size_b = unary("abs", re_b), unary("abs", im_b)
    by_real = compare("ge", size, size_b)
    larger, smaller = where(by_real, re_b, im_b), where(by_real, im_b, re_b)
    ratio = binary("div", smaller, larger)
    scale = binary("div", const(1, re.dtype), binary("add", larger, binary("mul", smaller, ratio)))
    first, second = where(by_real, re, im), where(by_real, im, re)
    real = binary("add", first, binary("mul", second, ratio))
    turned = binary("sub", binary("mul", im, ratio), re)
    imaginary = where(by_real, binary("sub", im, binary("mul", re, ratio)), turned)
    is_zero = binary("and", compare("eq", re_b, zero), compare("eq", im_b, zero))
    return complex_of(
        where(is_zero, binary("div", re, size), binary("mul", real, scale)),
        where(is_zero, binary("div", im, size_b), binary("mul", imaginary, scale)),
    )


def _keeps_zero(node: Node) -> bool:
    """Whether a conversion gives zero for zero alone."""
    return not is_float(node.args[0].dtype) and (is_float(node.dtype) or _widens(node))


def _widens(node: Node) -> bool:
    """Whether a conversion is one of an integer to a type that has all its values."""
    source, target = node.args[0].dtype, node.dtype
    if is_float(source) or is_float(target) or target is torch.bool:
        return False
    if source is torch.bool:
        return True
    held, wanted = torch.iinfo(target), torch.iinfo(source)
    return held.min <= wanted.min and wanted.max <= held.max


def of_one(reduction: str, node: Node) -> Node:
    """What a reduction comes to, or a running one, of one element: sums begin with zero, which has a sign."""
    if reduction != "sum" or not is_float(node.dtype):
        return node
    return binary("add", node, const(0, node.dtype))


def round_to(node: Node, dtype: torch.dtype) -> Node:
    """What is left of a float32 value in half precision."""
    if dtype not in (torch.bfloat16, torch.float16):
        return cast(node, dtype)
    if node.op == "const":
        return const(_nearest(float(node.attr), dtype), torch.float32)
    return make("round", (cast(node, torch.float32),), torch.float32, dtype)


def _nearest(number: float, dtype: torch.dtype) -> float:
    """The number of half precision that a number becomes by way of float32; one that is too large stays."""
    kind = torch.finfo(dtype)
    if not abs(number) <= kind.max:
        return number
    (number,) = struct.unpack("f", struct.pack("f", number))
    step = max(math.ldexp(kind.eps / 2, math.frexp(number)[1]), kind.smallest_normal * kind.eps)
    return math.copysign(round(number / step) * step, number)


def unary(op: str, a: Node) -> Node:
    if op == "not" and a.op == "not":
        return a.args[0]
    if a.op == "complex":
        if op != "neg":
            raise Unsupported(f"{op} of complex numbers")
        return complex_of(*(unary("neg", part) for part in a.args))
    return make(op, (a,), a.dtype)


def reinterpreted(op: str, a: Node, dtype: torch.dtype) -> Node:
    """The ``bits`` of a floating-point number, as an integer of its size, or the ``number`` that has such bits."""
    if a.op == "const":
        return const(torch.tensor(a.attr, dtype=a.dtype).view(dtype).item(), dtype)
    return make(f"{op}_{a.dtype.itemsize * 8}", (a,), dtype)


def binary(op: str, a: Node, b: Node) -> Node:
    """``a op b`` on operands of one type."""
    assert a.dtype is b.dtype, (op, a.dtype, b.dtype)
    if a.op == "complex":
        return _of_parts(op, a, b)
    if a.dtype is torch.bool and op in ("maximum", "minimum"):  # as numbers, the masks of a vector are 0 and -1
        op = "or" if op == "maximum" else "and"
    if op == "mul":
        if _is(b, 1):
            return a
        if _is(a, 1):
            return b
    if op in ("sub", "div") and _is(b, 0 if op == "sub" else 1):
        return a
    if op in ("add", "or") and not is_float(a.dtype):
        if _is(a, 0):
            return b
        if _is(b, 0):
            return a
    if op == "and" and a.dtype is torch.bool:
        if _is(a, 1):
            return b
        if _is(b, 1):
            return a
    if op in ("floor_div", "floor_rem") and b.op == "const":
        if not b.attr:
            raise Unsupported("integer division by 0, for which torch raises an error")
        if b.attr == -1:
            # The processor has no quotient for the least number by -1, and ends the process.
            return unary("neg", a) if op == "floor_div" else const(0, a.dtype)
    if op == "pow" and not is_float(a.dtype):
        raise Unsupported("powers of integers")
    if (fold := OPERATIONS[op].fold) is not None and a.op == b.op == "const" and a.dtype is torch.int64:
        return const(fold(a.attr, b.attr), a.dtype)
    if a.dtype is torch.int64 and op in _OF_INDICES and (found := _of_indices(op, a, b)) is not None:
        return from_index(found)
    return make(op, (a, b), a.dtype)


_OF_INDICES = frozenset(("add", "sub", "mul", "floor_div", "floor_rem"))


def _of_indices(op: str, a: Node, b: Node) -> Index | None:
    """What is computed of positions, such as those of ``arange``, as a position: it may index memory unverified.

    None if it could leave 32 bits, in which no sum of its parts leaves 64.
    """
    if "index" not in (a.op, b.op) or not (_is_within(a, 31) and _is_within(b, 31)):
        return None
    left, right = a.attr, b.attr
    found: Index
    if op in ("floor_div", "floor_rem"):
        if type(right) is not int or right < 1:
            return None
        found = index.floordiv(left, right) if op == "floor_div" else index.remainder(left, right)
    elif op == "mul" and a.op == b.op:
        return None
    else:
        found = left + right if op == "add" else left - right if op == "sub" else left * right
    kept = index.less(found, 2**31) and index.less(-(2**31), found)
    return found if kept else None


def _is(node: Node, value: int) -> bool:
    return node.op == "const" and node.attr == value


def compare(op: str, a: Node, b: Node) -> Node:
    assert a.dtype is b.dtype, (op, a.dtype, b.dtype)
    if a.op == "complex":
        if op not in ("eq", "ne"):
            raise Unsupported(f"{op} of complex numbers")
        parts = (compare(op, x, y) for x, y in zip(a.args, b.args, strict=True))
        return binary("and" if op == "eq" else "or", *parts)
    if a.dtype is torch.bool:
        if op == "ne":
            return make("xor", (a, b), torch.bool)
        if op == "eq":
            return make("not", (make("xor", (a, b), torch.bool),), torch.bool)
        a, b = _as_number(a), _as_number(b)
    if (fold := OPERATIONS[op].fold) is not None and a.op == b.op == "const" and not is_float(a.dtype):
        return const(fold(a.attr, b.attr), torch.bool)
    if a.op in ("const", "index") and b.op in ("const", "index") and not is_float(a.dtype):
        known = _compare_indices(op, a.attr, b.attr)
        if known is not None:
            return const(known, torch.bool)
    if a.dtype is torch.int64 and not (a.op == b.op == "const") and _is_short(a) and _is_short(b):
        a, b = cast(a, torch.int32), cast(b, torch.int32)  # of which a vector takes half the registers
    return make(op, (a, b), torch.bool)


def _is_short(node: Node) -> bool:
    """Whether a number is known to fit into 32 bits: indices and constants may be."""
    if node.op in ("const", "index"):
        return index.less(node.attr, 2**31) and index.not_negative(node.attr + 2**31)
    if node.op == "within":
        return bool(node.attr <= 2**31)
    return node.op == "check" and type(node.attr[0]) is int and node.attr[0] <= 2**31


def _is_within(node: Node, bits: int) -> bool:
    """Whether what is computed of indices is known to be between -2**bits and 2**bits, both excluded."""
    if node.op in ("const", "index"):
        return index.less(node.attr, 2**bits) and index.less(-(2**bits), node.attr)
    if node.op in ("add", "sub"):
        return all(_is_within(a, bits - 1) for a in node.args)
    return node.op in ("abs", "neg") and _is_within(node.args[0], bits)


def _in_32_bits(node: Node) -> Node:
    if node.op in ("const", "index"):
        return cast(node, torch.int32)
    return make(node.op, tuple(_in_32_bits(a) for a in node.args), torch.int32)


def _as_number(node: Node) -> Node:
    return make("cast", (node,), torch.int32) if node.op != "const" else const(node.attr, torch.int32)


def _compare_indices(op: str, a: Index, b: Index) -> bool | None:
    if op in ("gt", "ge"):
        return _compare_indices({"gt": "lt", "ge": "le"}[op], b, a)
    if op == "lt":
        return True if index.less(a, b) else False if index.not_negative(a - b) else None
    if op == "le":
        return True if index.not_negative(b - a) else False if index.less(b, a) else None
    return None


def where(condition: Node, a: Node, b: Node) -> Node:
    assert condition.dtype is torch.bool and a.dtype is b.dtype
    if condition.op == "const":
        return a if condition.attr else b
    if a is b:
        return a
    if a.op == "complex":
        return complex_of(*(where(condition, x, y) for x, y in zip(a.args, b.args, strict=True)))
    return make("where", (condition, a, b), a.dtype)


def masked(condition: Node, value: Node, other: Node) -> Node:
    """``value`` where ``condition``, which compares indices, holds.

    Elsewhere no memory is read for it, and no index of it is verified, unless the place is the same as where it holds.
    """
    if condition.op == "const":
        return value if condition.attr else other
    memo: dict[Node, Node] = {}
    varying = condition.free if _is_somewhere(condition) else None

    def needs_none(node: Node) -> bool:
        return varying is not None and not node.free & varying

    def guarded(position: Index) -> Index:
        return index.map_data(position, lambda inside: rewrite(inside, guard, memo))

    def guard(node: Node, args: tuple[Node, ...]) -> Node:
        if node.op in ("load", "check") and needs_none(node):
            return node
        if node.op == "load":
            held = binary("and", args[0], condition) if args else condition
            buffer, position = node.attr
            return make("load", (held,), node.dtype, (buffer, guarded(position)))
        if node.op == "index":
            return from_index(guarded(node.attr))
        if node.op == "check":
            return make("check", (where(condition, args[0], const(0, torch.int64)),), node.dtype, node.attr)
        return node if args == node.args else make(node.op, args, node.dtype, node.attr)

    if value.op == "complex":
        return complex_of(*(masked(condition, x, y) for x, y in zip(value.args, other.args, strict=True)))
    return where(condition, rewrite(value, guard, memo), other)


def _is_somewhere(condition: Node) -> bool:
    """Whether comparisons of single variables with constants hold together at some point."""
    bounds: dict[Any, tuple[int, int]] = {}
    stack = [condition]
    while stack:
        node = stack.pop()
        if node.op == "and":
            stack += node.args
            continue
        span = _span(node)
        if span is None:
            return False
        variable, low, high = span
        least, most = bounds.get(variable, (0, variable.size - 1))
        bounds[variable] = max(least, low), min(most, high)
    return all(low <= high for low, high in bounds.values())


def _span(node: Node) -> tuple[Any, int, int] | None:
    """The variable that a comparison is about, and the least and greatest value with which it holds."""
    if node.op not in ("lt", "ge") or len(node.args) != 2:
        return None
    at, bound = (a.args[0] if a.op == "cast" else a for a in node.args)
    if at.op != "index" or bound.op != "const" or at.dtype is not torch.int64:
        return None
    for variable in index.free(at.attr):
        shift = index.substitute(at.attr, {variable: 0})
        if type(shift) is int and index.coefficient(at.attr, variable) == 1 and type(variable.size) is int:
            edge = int(bound.attr) - shift
            return (variable, 0, edge - 1) if node.op == "lt" else (variable, edge, variable.size - 1)
    return None


def check(node: Node, extent: Index, *, wrap: bool, fault: int) -> Node:
    """``node`` as an index below ``extent``, verified when it runs; negative ones count from the end if ``wrap``.

    ``fault`` is the number of what is reported (:mod:`..faults`).
    """
    node = cast(node, torch.int64)
    if node.op in ("const", "index") and index.not_negative(node.attr) and index.less(node.attr, extent):
        return node
    if type(extent) is int:
        least, greatest = ranges.of(node)
        if least >= 0 and greatest < extent:
            return make("within", (node,), torch.int64, extent)
    return make("check", (node,), torch.int64, (extent, wrap, fault))
