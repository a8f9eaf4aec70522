"""The part of the tables that all supported versions agree on.

A rule says which micro-ops one raw instruction becomes.  It is one of

* ``None``: no micro-op at all,
* a string: one micro-op of that name with the instruction's ``argval`` (and jump target),
* a function ``(instruction, state) -> ((name, arg), ...)`` for everything else; ``state`` carries what one
  instruction leaves for a later one (``KW_NAMES``).
"""

FAST_OPS = ("LOAD_FAST", "STORE_FAST", "DELETE_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR")

DEREF_OPS = (
    "LOAD_CLOSURE",
    "LOAD_DEREF",
    "STORE_DEREF",
    "DELETE_DEREF",
    "LOAD_CLASSDEREF",
    "LOAD_FROM_DICT_OR_DEREF",
)

BINARY_OPERATORS = (
    "+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^", "+=", "&=", "//=", "<<=", "@=", "*=",
    "%=", "|=", "**=", ">>=", "-=", "/=", "^=",
)  # fmt: skip

INTRINSICS_1 = (
    "INVALID", "PRINT", "IMPORT_STAR", "STOPITERATION_ERROR", "ASYNC_GEN_WRAP", "UNARY_POSITIVE",
    "LIST_TO_TUPLE", "TYPEVAR", "PARAMSPEC", "TYPEVARTUPLE", "SUBSCRIPT_GENERIC", "TYPEALIAS",
)  # fmt: skip

INTRINSICS_2 = (
    "INVALID", "PREP_RERAISE_STAR", "TYPEVAR_WITH_BOUND", "TYPEVAR_WITH_CONSTRAINTS",
    "SET_FUNCTION_TYPE_PARAMS", "SET_TYPEPARAM_DEFAULT",
)  # fmt: skip

CONVERSIONS = (None, "s", "r", "a")


def unsupported(instruction, state):
    """The rule of every opcode that the interpreter does not know."""
    return (("UNSUPPORTED", instruction.op),)


def fixed(*ops):
    """A rule that ignores the instruction: always these micro-ops."""
    return lambda instruction, state: ops


def flag(name):
    """A rule whose argument is the oparg read as a boolean."""
    return lambda instruction, state: ((name, bool(instruction.arg)),)


def call(instruction, state):
    """``CALL`` with the keyword names that a preceding ``KW_NAMES`` left."""
    names, state.kwnames = state.kwnames, ()
    return (("CALL", (instruction.arg, names)),)


def keep_kwnames(instruction, state):
    """``KW_NAMES`` is a prefix of ``CALL``, not an operation."""
    state.kwnames = instruction.argval
    return ()


def intrinsic(names):
    """``CALL_INTRINSIC_n``: the intrinsics that other versions have as opcodes go by the opcode's name."""

    def rule(instruction, state):
        name = names[instruction.arg] if instruction.arg < len(names) else "INVALID"
        if name in ("UNARY_POSITIVE", "LIST_TO_TUPLE", "PREP_RERAISE_STAR"):
            return ((name, None),)
        return (("INTRINSIC", name),)

    return rule


def return_const(instruction, state):
    """``RETURN_CONST`` (3.12 and later)."""
    return (("LOAD_CONST", instruction.argval), ("RETURN_VALUE", None))


def load_super_attr(null_ops):
    """``LOAD_SUPER_ATTR``: bit 0 asks for the method form, bit 1 says that ``super`` had its two arguments."""

    def rule(instruction, state):
        op = ("LOAD_SUPER_ATTR", (instruction.argval, bool(instruction.arg & 2)))
        return (op, *null_ops) if instruction.arg & 1 else (op,)

    return rule


_SAME = """
POP_TOP PUSH_NULL COPY SWAP LOAD_CONST LOAD_FAST STORE_FAST DELETE_FAST LOAD_DEREF STORE_DEREF DELETE_DEREF
LOAD_NAME STORE_NAME DELETE_NAME STORE_GLOBAL DELETE_GLOBAL STORE_ATTR DELETE_ATTR
UNARY_NEGATIVE UNARY_NOT UNARY_INVERT COMPARE_OP BINARY_SUBSCR STORE_SUBSCR DELETE_SUBSCR
BUILD_TUPLE BUILD_LIST BUILD_SET BUILD_MAP BUILD_STRING BUILD_SLICE BUILD_CONST_KEY_MAP
LIST_EXTEND LIST_APPEND SET_ADD MAP_ADD SET_UPDATE DICT_UPDATE DICT_MERGE UNPACK_SEQUENCE
GET_ITER GET_LEN MATCH_MAPPING MATCH_SEQUENCE MATCH_KEYS MATCH_CLASS
RETURN_VALUE SET_FUNCTION_ATTRIBUTE LOAD_BUILD_CLASS LOAD_ASSERTION_ERROR IMPORT_NAME IMPORT_FROM SETUP_ANNOTATIONS
PUSH_EXC_INFO POP_EXCEPT RERAISE RAISE_VARARGS CHECK_EXC_MATCH CHECK_EG_MATCH WITH_EXCEPT_START BEFORE_WITH
RETURN_GENERATOR GET_YIELD_FROM_ITER
"""

RULES = {name: name for name in _SAME.split()}
RULES.update(
    {
        "RESUME": None,
        "NOP": None,
        "CACHE": None,
        "MAKE_CELL": None,
        "COPY_FREE_VARS": None,
        "JUMP_FORWARD": "JUMP",
        "JUMP_BACKWARD": "JUMP",
        "JUMP_BACKWARD_NO_INTERRUPT": "JUMP",
        "BINARY_OP": lambda i, state: (("BINARY_OP", BINARY_OPERATORS[i.arg]),),
        "IS_OP": flag("IS_OP"),
        "CONTAINS_OP": flag("CONTAINS_OP"),
        "UNPACK_EX": lambda i, state: (("UNPACK_EX", (i.arg & 0xFF, i.arg >> 8)),),
        "CALL_FUNCTION_EX": lambda i, state: (("CALL_FUNCTION_EX", bool(i.arg & 1)),),
        # A yield's operand is only the block depth, for CPython's debugger.
        "YIELD_VALUE": fixed(("YIELD_VALUE", None)),
    }
)
