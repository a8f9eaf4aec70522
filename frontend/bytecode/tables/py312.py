"""CPython 3.12.  ``py311`` explains each name."""

from .common import (
    CONVERSIONS,
    INTRINSICS_1,
    INTRINSICS_2,
    RULES as COMMON,
    call,
    intrinsic,
    keep_kwnames,
    load_super_attr,
    return_const,
)

NULL_BELOW_CALLABLE = True
NAME_SHIFT = {"LOAD_GLOBAL": 1, "LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2}
COMPARE_SHIFT = 4
PAIRS = {}
CALL_PREFIXES = frozenset({"KW_NAMES"})
FOR_ITER_SKIP = 1
FOR_ITER_END = ("END_FOR",)
BEFORE_CALL = ()
LOAD_CELL = "LOAD_CLOSURE"
MAKE_CLOSURE = (("MAKE_FUNCTION", 8),)
TAKE_FAST = ("LOAD_FAST_AND_CLEAR",)
JUMP_IF_FALSE = "POP_JUMP_IF_FALSE"
LOAD_FAST_CHECK = "LOAD_FAST_CHECK"
LOCATIONS_MERGE = True

_NULL = (("PUSH_NULL", None), ("SWAP", 2))


def plain_attribute(instruction):
    """(op, arg) of the same attribute read without the method form; None if it is not in method form."""
    if instruction.op in ("LOAD_ATTR", "LOAD_SUPER_ATTR") and instruction.arg & 1:
        return instruction.op, instruction.arg & ~1
    return None


def _load_global(instruction, state):
    load = ("LOAD_GLOBAL", instruction.argval)
    return (("PUSH_NULL", None), load) if instruction.arg & 1 else (load,)


def _load_attr(instruction, state):
    load = ("LOAD_ATTR", instruction.argval)
    return (load, *_NULL) if instruction.arg & 1 else (load,)


RULES = {
    **COMMON,
    "LOAD_FAST_CHECK": "LOAD_FAST",
    "LOAD_FAST_AND_CLEAR": "LOAD_FAST_AND_CLEAR",
    "KW_NAMES": keep_kwnames,
    "CALL": call,
    "LOAD_CLOSURE": "LOAD_CELL",
    "LOAD_FROM_DICT_OR_DEREF": "LOAD_FROM_DICT_OR_DEREF",
    "LOAD_LOCALS": "LOAD_LOCALS",
    "LOAD_GLOBAL": _load_global,
    "LOAD_ATTR": _load_attr,
    "LOAD_SUPER_ATTR": load_super_attr(_NULL),
    "BINARY_SLICE": "BINARY_SLICE",
    "STORE_SLICE": "STORE_SLICE",
    "CALL_INTRINSIC_1": intrinsic(INTRINSICS_1),
    "CALL_INTRINSIC_2": intrinsic(INTRINSICS_2),
    "MAKE_FUNCTION": "MAKE_FUNCTION",
    "FORMAT_VALUE": lambda i, state: (("FORMAT_VALUE", (CONVERSIONS[i.arg & 3], bool(i.arg & 4))),),
    "RETURN_CONST": return_const,
    "FOR_ITER": lambda i, state: (("FOR_ITER", True),),
    "END_FOR": lambda i, state: (("END_FOR", 2),),
    "SEND": lambda i, state: (("SEND", False),),
    "END_SEND": "END_SEND",
    "CLEANUP_THROW": "CLEANUP_THROW",
}
for _condition in ("TRUE", "FALSE", "NONE", "NOT_NONE"):
    RULES["POP_JUMP_IF_" + _condition] = "POP_JUMP_IF_" + _condition

CELL_RULES = {}
