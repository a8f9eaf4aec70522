"""CPython 3.11."""

from .common import CONVERSIONS, RULES as COMMON, call, keep_kwnames

# Is the NULL of a call below the callable, or between the callable and the arguments?
NULL_BELOW_CALLABLE = True

# How many low bits of a name's oparg are flags, not part of the index.
NAME_SHIFT = {"LOAD_GLOBAL": 1}

# How far the comparison's index is shifted in COMPARE_OP's oparg.
COMPARE_SHIFT = 0

# Instructions that name two locals, as the two instructions that they combine.
PAIRS = {}

# Instructions without micro-ops that belong to the call after them.
CALL_PREFIXES = frozenset({"KW_NAMES", "PRECALL"})

# Where FOR_ITER really continues, counted in raw instructions from its jump target.
FOR_ITER_SKIP = 0

# The instruction at FOR_ITER's jump target, which generated code must also have there.
FOR_ITER_END = ()

# Emitted before CALL with the same oparg.
BEFORE_CALL = ("PRECALL",)

# Pushes the cell itself.
LOAD_CELL = "LOAD_CLOSURE"

# Turns [closure tuple, code] into a function.
MAKE_CLOSURE = (("MAKE_FUNCTION", 8),)

# Pushes a local and unbinds it.
TAKE_FAST = ("LOAD_FAST", "DELETE_FAST")

# Jumps forward if the bool on top of the stack is False.
JUMP_IF_FALSE = "POP_JUMP_FORWARD_IF_FALSE"

# Pushes a local that may be unbound.  (From 3.12 on LOAD_FAST does not look.)
LOAD_FAST_CHECK = "LOAD_FAST"

# Do neighbouring instructions from one place share an entry of the location table?
LOCATIONS_MERGE = False

_NULL = (("PUSH_NULL", None), ("SWAP", 2))


def plain_attribute(instruction):
    """(op, arg) of the same attribute read without the method form; None if it is not in method form."""
    return ("LOAD_ATTR", None) if instruction.op == "LOAD_METHOD" else None


def _load_global(instruction, state):
    load = ("LOAD_GLOBAL", instruction.argval)
    return (("PUSH_NULL", None), load) if instruction.arg & 1 else (load,)


RULES = {
    **COMMON,
    "KW_NAMES": keep_kwnames,
    "PRECALL": None,
    "CALL": call,
    "LOAD_CLOSURE": "LOAD_CELL",
    "LOAD_CLASSDEREF": "LOAD_CLASSDEREF",
    "LOAD_GLOBAL": _load_global,
    "LOAD_ATTR": "LOAD_ATTR",
    "LOAD_METHOD": lambda i, state: (("LOAD_ATTR", i.argval), *_NULL),
    "UNARY_POSITIVE": "UNARY_POSITIVE",
    "LIST_TO_TUPLE": "LIST_TO_TUPLE",
    "PREP_RERAISE_STAR": "PREP_RERAISE_STAR",
    "MAKE_FUNCTION": "MAKE_FUNCTION",
    "FORMAT_VALUE": lambda i, state: (("FORMAT_VALUE", (CONVERSIONS[i.arg & 3], bool(i.arg & 4))),),
    "JUMP_IF_TRUE_OR_POP": "JUMP_IF_TRUE_OR_POP",
    "JUMP_IF_FALSE_OR_POP": "JUMP_IF_FALSE_OR_POP",
    "FOR_ITER": lambda i, state: (("FOR_ITER", True),),
    "SEND": lambda i, state: (("SEND", True),),
}
for _condition in ("TRUE", "FALSE", "NONE", "NOT_NONE"):
    for _direction in ("FORWARD", "BACKWARD"):
        RULES[f"POP_JUMP_{_direction}_IF_{_condition}"] = "POP_JUMP_IF_" + _condition

# Rules that replace those above in code that has cells or free variables.
CELL_RULES = {}
