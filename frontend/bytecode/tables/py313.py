"""CPython 3.13.  ``py311`` explains each name."""

from .common import (
    CONVERSIONS,
    INTRINSICS_1,
    INTRINSICS_2,
    RULES as COMMON,
    fixed,
    intrinsic,
    load_super_attr,
    return_const,
)

NULL_BELOW_CALLABLE = False
NAME_SHIFT = {"LOAD_GLOBAL": 1, "LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2}
COMPARE_SHIFT = 5
PAIRS = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
CALL_PREFIXES = frozenset()
FOR_ITER_SKIP = 2
FOR_ITER_END = ("END_FOR", "POP_TOP")
BEFORE_CALL = ()
LOAD_CELL = "LOAD_FAST"
MAKE_CLOSURE = (("MAKE_FUNCTION", None), ("SET_FUNCTION_ATTRIBUTE", 8))
TAKE_FAST = ("LOAD_FAST_AND_CLEAR",)
JUMP_IF_FALSE = "POP_JUMP_IF_FALSE"
LOAD_FAST_CHECK = "LOAD_FAST_CHECK"
LOCATIONS_MERGE = True

_NULL = (("PUSH_NULL", None),)

# COMPARE_OP may ask for the result as an exact bool.
_COMPARE_TO_BOOL = 16


def plain_attribute(instruction):
    """(op, arg) of the same attribute read without the method form; None if it is not in method form."""
    if instruction.op in ("LOAD_ATTR", "LOAD_SUPER_ATTR") and instruction.arg & 1:
        return instruction.op, instruction.arg & ~1
    return None


def _load_global(instruction, state):
    load = ("LOAD_GLOBAL", instruction.argval)
    return (load, *_NULL) if instruction.arg & 1 else (load,)


def _load_attr(instruction, state):
    load = ("LOAD_ATTR", instruction.argval)
    return (load, *_NULL) if instruction.arg & 1 else (load,)


def _compare(instruction, state):
    compare = ("COMPARE_OP", instruction.argval)
    return (compare, ("TO_BOOL", None)) if instruction.arg & _COMPARE_TO_BOOL else (compare,)


def _pair(first, second):
    return lambda instruction, state: ((first, instruction.argval[0]), (second, instruction.argval[1]))


def _is_cell(name):
    return hasattr(name, "cell")


def _fast_or_cell(op, name):
    # There is no LOAD_CLOSURE: a closure is built by LOAD_FAST on the slot that holds the cell.
    return ("LOAD_CELL", name.cell) if op == "LOAD_FAST" and _is_cell(name) else (op, name)


def _pair_with_cells(first, second):
    def rule(instruction, state):
        names = instruction.argval
        return (_fast_or_cell(first, names[0]), _fast_or_cell(second, names[1]))

    return rule


RULES = {
    **COMMON,
    "LOAD_FAST_CHECK": "LOAD_FAST",
    "LOAD_FAST_AND_CLEAR": "LOAD_FAST_AND_CLEAR",
    "CALL": lambda i, state: (("CALL", (i.arg, ())),),
    "CALL_KW": "CALL_KW",
    "LOAD_FROM_DICT_OR_DEREF": "LOAD_FROM_DICT_OR_DEREF",
    "LOAD_LOCALS": "LOAD_LOCALS",
    "LOAD_GLOBAL": _load_global,
    "LOAD_ATTR": _load_attr,
    "LOAD_SUPER_ATTR": load_super_attr(_NULL),
    "COMPARE_OP": _compare,
    "TO_BOOL": "TO_BOOL",
    "BINARY_SLICE": "BINARY_SLICE",
    "STORE_SLICE": "STORE_SLICE",
    "CALL_INTRINSIC_1": intrinsic(INTRINSICS_1),
    "CALL_INTRINSIC_2": intrinsic(INTRINSICS_2),
    "MAKE_FUNCTION": fixed(("MAKE_FUNCTION", 0)),
    "CONVERT_VALUE": lambda i, state: (("CONVERT_VALUE", CONVERSIONS[i.arg]),),
    "FORMAT_SIMPLE": fixed(("FORMAT_VALUE", (None, False))),
    "FORMAT_WITH_SPEC": fixed(("FORMAT_VALUE", (None, True))),
    "RETURN_CONST": return_const,
    "FOR_ITER": lambda i, state: (("FOR_ITER", True),),
    "END_FOR": lambda i, state: (("END_FOR", 1),),
    "SEND": lambda i, state: (("SEND", False),),
    "END_SEND": "END_SEND",
    "CLEANUP_THROW": "CLEANUP_THROW",
}
RULES.update({op: _pair(*parts) for op, parts in PAIRS.items()})
for _condition in ("TRUE", "FALSE", "NONE", "NOT_NONE"):
    RULES["POP_JUMP_IF_" + _condition] = "POP_JUMP_IF_" + _condition

CELL_RULES = {op: _pair_with_cells(*parts) for op, parts in PAIRS.items()}
CELL_RULES["LOAD_FAST"] = lambda i, state: (_fast_or_cell("LOAD_FAST", i.argval),)
