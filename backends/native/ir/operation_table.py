"""The operations of scalar expressions: their types, what they cost, and how each target spells them.

This table is the only place that says what an operation is.  ``operations.py`` makes expressions of them, ``verify.py``
checks expressions against the signatures, and the printers read the spellings.

A *signature* names the operands' types and the result's: ``"B T T -> T"`` takes a bool and two values of one type, and
gives that type.  :data:`KINDS` says what each letter stands for; a letter that comes twice is the same type both times,
and an operand in brackets may be missing.

A *spelling* is a format string over the operands.  Where a target writes an operation from more than its operands (an
address, a type, a loop), the spelling is :data:`BY_PRINTER`, and the printer has a method for it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

_FLOATS = frozenset((torch.float32, torch.float64))
_INTEGERS = frozenset((torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8))
_BOOL = frozenset((torch.bool,))

KINDS: dict[str, frozenset[torch.dtype]] = {
    "F": _FLOATS,
    "S": frozenset((torch.float32,)),
    "I": _INTEGERS,
    "D": frozenset((torch.float64,)),
    "J": frozenset((torch.int32,)),
    "L": frozenset((torch.int64,)),
    "N": _FLOATS | _INTEGERS,
    "B": _BOOL,
    "C": frozenset((torch.complex64, torch.complex128)),
    "G": _INTEGERS | _BOOL,
    "T": _FLOATS | _INTEGERS | _BOOL,
    "U": _FLOATS | _INTEGERS | _BOOL,
}
"""The types that a letter of a signature stands for; half precision is computed in float32."""

BY_PRINTER = "by the printer"


@dataclass(frozen=True)
class Cpp:
    """How C++ spells an operation.

    ``text`` does for vectors and, without ``scalar``, for scalars.  A result that C++ ``promotes`` is an int where the
    operands are smaller integers or bools, and is converted back.
    """

    text: str
    scalar: str | None = None
    promotes: bool = False


@dataclass(frozen=True)
class Operation:
    """One row.

    ``fold`` computes the operation on constant integers where the result is exact, None leaves it alone.  ``rough`` is
    how Triton spells one that takes fewer instructions and is some units of float32 off, if there is one.
    """

    name: str
    operands: tuple[str, ...]
    optional: int
    result: str
    cost: int
    cpp: Cpp
    triton: str
    fold: Callable[..., Any] | None
    rough: str | None


OPERATIONS: dict[str, Operation] = {}


def _add(
    name: str,
    signature: str,
    *,
    cpp: Cpp | str,
    triton: str,
    cost: int = 1,
    fold: Callable[..., Any] | None = None,
    rough: str | None = None,
) -> None:
    given, _, result = signature.partition("->")
    words = given.split()
    operands = tuple(word.strip("[]") for word in words)
    optional = sum(word.startswith("[") for word in words)
    spelled = Cpp(cpp) if isinstance(cpp, str) else cpp
    OPERATIONS[name] = Operation(name, operands, optional, result.strip(), cost, spelled, triton, fold, rough)


# --- leaves, and what is made of more than operands -------------------------------------------------------------------

_add("const", "-> T", cpp=BY_PRINTER, triton=BY_PRINTER, cost=0)
_add("index", "-> L", cpp=BY_PRINTER, triton=BY_PRINTER, cost=0)
_add("load", "[B] -> T", cpp=BY_PRINTER, triton=BY_PRINTER, cost=0)
_add("result", "-> T", cpp=BY_PRINTER, triton=BY_PRINTER)
_add("cast", "U -> T", cpp=BY_PRINTER, triton=BY_PRINTER)
_add("round", "S -> S", cpp=BY_PRINTER, triton=BY_PRINTER)
_add("check", "L -> L", cpp=BY_PRINTER, triton=BY_PRINTER)
_add("within", "L -> L", cpp="{0}", triton="{0}", cost=0)
_add("pair", "T L -> T", cpp=BY_PRINTER, triton=BY_PRINTER)
_add("complex", "F F -> C", cpp=BY_PRINTER, triton=BY_PRINTER, cost=0)

for _size, _float, _int in ((32, "S", "J"), (64, "D", "L")):  # the bits of a number as an integer, and back
    for _name, _from, _to, _type in (("bits", _float, _int, "int"), ("number", _int, _float, "float")):
        _spelled = f"({{0}}).to(tl.{_type}{_size}, bitcast=True)"
        _add(f"{_name}_{_size}", f"{_from} -> {_to}", cpp=f"{_name}({{0}})", triton=_spelled)

# --- arithmetic -------------------------------------------------------------------------------------------------------


def _infix(name: str, signature: str, sign: str, fold: Callable[..., Any] | None = None) -> None:
    text = f"{{0}} {sign} {{1}}"
    _add(name, signature, cpp=Cpp(text, promotes=True), triton=text, fold=fold)


_infix("add", "N N -> N", "+", operator.add)
_infix("sub", "N N -> N", "-", operator.sub)
_infix("mul", "N N -> N", "*", operator.mul)
_add("div", "F F -> F", cpp="{0} / {1}", triton="fn.div({0}, {1})", rough="{0} / {1}")
_infix("and", "G G -> G", "&")
_infix("or", "G G -> G", "|")
_infix("xor", "G G -> G", "^")
_infix("shl", "I I -> I", "<<")  # both by 0 to the number of bits less one
_infix("shr", "I I -> I", ">>")
_add("not", "B -> B", cpp=Cpp("~{0}", scalar="!{0}"), triton="{0} == 0")
_add("bitwise_not", "I -> I", cpp=Cpp("~{0}", promotes=True), triton="~{0}")
_add("neg", "N -> N", cpp=Cpp("-{0}", promotes=True), triton="fn.neg({0})")
_add("abs", "N -> N", cpp="m_abs({0})", triton="tl.abs({0})")
_add("floor_div", "I I -> I", cpp="floor_div({0}, {1})", triton="fn.floor_div({0}, {1})")
_add("floor_rem", "I I -> I", cpp="floor_rem({0}, {1})", triton="fn.floor_rem({0}, {1})")
_add("maximum", "N N -> N", cpp="maximum({0}, {1})", triton="tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)")
_add("minimum", "N N -> N", cpp="minimum({0}, {1})", triton="tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)")
_add("where", "B T T -> T", cpp="sel({0}, {1}, {2})", triton="tl.where({0}, {1}, {2})")


def _comparison(name: str, sign: str, fold: Callable[..., Any]) -> None:
    _add(name, "T T -> B", cpp=f"{name}({{0}}, {{1}})", triton=f"{{0}} {sign} {{1}}", fold=fold)


_comparison("lt", "<", operator.lt)
_comparison("le", "<=", operator.le)
_comparison("gt", ">", operator.gt)
_comparison("ge", ">=", operator.ge)
_comparison("eq", "==", operator.eq)
_comparison("ne", "!=", operator.ne)

# --- functions of floating-point numbers ------------------------------------------------------------------------------


def _function(name: str, cost: int, triton: str | None = None, operands: int = 1, rough: str | None = None) -> None:
    """A function of ``kernels.h``; for Triton by default one of libdevice."""
    arguments = ", ".join(f"{{{n}}}" for n in range(operands))
    signature = " ".join(["F"] * operands) + " -> F"
    spelled = f"m.{name}({arguments})" if triton is None else triton
    _add(name, signature, cpp=f"m_{name}({arguments})", triton=spelled, cost=cost, rough=rough)


for _name, _cost, _count in (
    ("expm1", 20, 1),
    ("exp2", 20, 1),
    ("log", 20, 1),
    ("log1p", 20, 1),
    ("log2", 20, 1),
    ("log10", 20, 1),
    ("erf", 20, 1),
    ("tanh", 20, 1),
    ("sin", 20, 1),
    ("cos", 20, 1),
    ("tan", 20, 1),
    ("trunc", 1, 1),
    ("rint", 1, 1),
    ("copysign", 1, 2),
    ("asin", 30, 1),
    ("acos", 30, 1),
    ("atan", 30, 1),
    ("sinh", 30, 1),
    ("cosh", 30, 1),
    ("asinh", 1, 1),
    ("acosh", 1, 1),
    ("atanh", 1, 1),
    ("lgamma", 30, 1),
    ("atan2", 30, 2),
    ("hypot", 1, 2),
    ("nextafter", 1, 2),
    ("fmod", 30, 2),
):
    _function(_name, _cost, operands=_count)
_function("exp", 20, rough="tl.exp({0})")
for _name in ("normal_cdf", "normal_pdf"):
    _function(_name, 20, f"fn.{_name}({{0}})")
_function("erfc", 20, "fn.erfc({0})")
_function("pow", 30, "fn.pow({0}, {1})", operands=2, rough="m.pow({0}, {1})")
_function("sqrt", 1, "fn.sqrt({0})", rough="tl.sqrt({0})")
_function("floor", 1, "tl.floor({0})")
_function("ceil", 1, "tl.ceil({0})")
