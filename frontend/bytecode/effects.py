"""What each micro-op does to the stack, and the shape of the stack before every op of a program.

A shape is a tuple with one mark per entry, bottom first.  It distinguishes only what matters for moving a frame: NULLs,
and the entries of an exception that is being handled.
"""

import opcode
from _opcode import stack_effect

VALUE, NULL, MAYBE_NULL, EXCEPTION = "value", "NULL", "value or NULL", "exception state"

_POPS_PUSHES = {
    "LOAD_CONST": (0, 1), "LOAD_FAST": (0, 1), "STORE_FAST": (1, 0), "DELETE_FAST": (0, 0),
    "LOAD_CELL": (0, 1), "LOAD_DEREF": (0, 1), "STORE_DEREF": (1, 0), "DELETE_DEREF": (0, 0),
    "LOAD_CLASSDEREF": (0, 1), "LOAD_FROM_DICT_OR_DEREF": (1, 1),
    "LOAD_GLOBAL": (0, 1), "LOAD_NAME": (0, 1), "STORE_NAME": (1, 0), "DELETE_NAME": (0, 0),
    "STORE_GLOBAL": (1, 0), "DELETE_GLOBAL": (0, 0), "POP_TOP": (1, 0),
    "LOAD_ATTR": (1, 1), "STORE_ATTR": (2, 0), "DELETE_ATTR": (1, 0), "LOAD_SUPER_ATTR": (3, 1),
    "BINARY_OP": (2, 1), "COMPARE_OP": (2, 1), "IS_OP": (2, 1), "CONTAINS_OP": (2, 1),
    "UNARY_NEGATIVE": (1, 1), "UNARY_NOT": (1, 1), "UNARY_INVERT": (1, 1), "UNARY_POSITIVE": (1, 1), "TO_BOOL": (1, 1),
    "BINARY_SUBSCR": (2, 1), "STORE_SUBSCR": (3, 0), "DELETE_SUBSCR": (2, 0),
    "BINARY_SLICE": (3, 1), "STORE_SLICE": (4, 0),
    "LIST_EXTEND": (1, 0), "LIST_APPEND": (1, 0), "SET_ADD": (1, 0), "MAP_ADD": (2, 0), "SET_UPDATE": (1, 0),
    "DICT_UPDATE": (1, 0), "DICT_MERGE": (1, 0), "LIST_TO_TUPLE": (1, 1),
    "JUMP": (0, 0), "POP_JUMP_IF_TRUE": (1, 0), "POP_JUMP_IF_FALSE": (1, 0), "POP_JUMP_IF_NONE": (1, 0),
    "POP_JUMP_IF_NOT_NONE": (1, 0), "JUMP_IF_TRUE_OR_POP": (1, 0), "JUMP_IF_FALSE_OR_POP": (1, 0),
    "GET_ITER": (1, 1), "FOR_ITER": (0, 1), "GET_LEN": (0, 1), "MATCH_MAPPING": (0, 1), "MATCH_SEQUENCE": (0, 1),
    "MATCH_KEYS": (0, 1), "MATCH_CLASS": (3, 1),
    "RETURN_VALUE": (1, 0), "SET_FUNCTION_ATTRIBUTE": (2, 1), "LOAD_BUILD_CLASS": (0, 1),
    "LOAD_ASSERTION_ERROR": (0, 1), "LOAD_LOCALS": (0, 1), "IMPORT_NAME": (2, 1), "IMPORT_FROM": (0, 1),
    "SETUP_ANNOTATIONS": (0, 0),
    "POP_EXCEPT": (1, 0), "RERAISE": (1, 0), "CHECK_EXC_MATCH": (1, 1), "CHECK_EG_MATCH": (2, 2),
    "WITH_EXCEPT_START": (0, 1), "BEFORE_WITH": (1, 2), "CLEANUP_THROW": (3, 2), "PREP_RERAISE_STAR": (2, 1),
    "RETURN_GENERATOR": (0, 1), "YIELD_VALUE": (1, 1), "SEND": (1, 1), "END_SEND": (2, 1),
    "GET_YIELD_FROM_ITER": (1, 1), "CONVERT_VALUE": (1, 1),
}  # fmt: skip

_BINARY_INTRINSICS = frozenset(
    {"TYPEVAR_WITH_BOUND", "TYPEVAR_WITH_CONSTRAINTS", "SET_FUNCTION_TYPE_PARAMS", "SET_TYPEPARAM_DEFAULT"}
)

_BY_ARGUMENT = {
    "CALL": lambda arg: (arg[0] + 2, 1),
    "CALL_KW": lambda arg: (arg + 3, 1),
    "CALL_FUNCTION_EX": lambda arg: (3 + arg, 1),
    "BUILD_TUPLE": lambda arg: (arg, 1),
    "BUILD_LIST": lambda arg: (arg, 1),
    "BUILD_SET": lambda arg: (arg, 1),
    "BUILD_STRING": lambda arg: (arg, 1),
    "BUILD_SLICE": lambda arg: (arg, 1),
    "BUILD_MAP": lambda arg: (2 * arg, 1),
    "BUILD_CONST_KEY_MAP": lambda arg: (arg + 1, 1),
    "UNPACK_SEQUENCE": lambda arg: (1, arg),
    "UNPACK_EX": lambda arg: (1, arg[0] + 1 + arg[1]),
    "MAKE_FUNCTION": lambda arg: (1 + bin(arg & 15).count("1"), 1),
    "RAISE_VARARGS": lambda arg: (arg, 0),
    "FORMAT_VALUE": lambda arg: (1 + arg[1], 1),
    "END_FOR": lambda arg: (arg, 0),
    "INTRINSIC": lambda arg: (2 if arg in _BINARY_INTRINSICS else 1, 1),
}

NO_FALL_THROUGH = frozenset({"RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "JUMP"})


def pops_pushes(op):
    """(entries popped, entries pushed) where ``op`` does not jump; COPY, SWAP and the like count as they come."""
    counts = _POPS_PUSHES.get(op.name)
    return counts if counts is not None else _BY_ARGUMENT[op.name](op.arg)


def after(op, stack, instruction, null_local=MAYBE_NULL):
    """(shape where ``op`` falls through, shape where it jumps), each None where it cannot.

    ``instruction`` is the raw instruction of ``op``; ``null_local`` is the mark of what ``LOAD_FAST_AND_CLEAR`` pushes.
    """
    name = op.name
    if name == "UNSUPPORTED":
        change = stack_effect(opcode.opmap[instruction.op], instruction.arg, jump=False)
        return (*stack, *(VALUE,) * change) if change >= 0 else stack[:change], None
    if name == "COPY":
        return (*stack, stack[-op.arg]), None
    if name == "SWAP":
        swapped = list(stack)
        swapped[-1], swapped[-op.arg] = swapped[-op.arg], swapped[-1]
        return tuple(swapped), None
    if name == "PUSH_NULL":
        return (*stack, NULL), None
    if name == "LOAD_FAST_AND_CLEAR":
        return (*stack, null_local), None
    if name == "PUSH_EXC_INFO":
        return (*stack[:-1], EXCEPTION, VALUE), None
    if name in NO_FALL_THROUGH:
        return None, stack if name == "JUMP" else None
    pops, pushes = pops_pushes(op)
    falls = (*stack[: len(stack) - pops], *(VALUE,) * pushes)
    if op.target is None:
        return falls, None
    if name == "FOR_ITER":
        return falls, stack[:-1] if op.arg else stack
    if name == "SEND":
        return falls, (*stack[:-2], VALUE) if op.arg else (*stack[:-1], VALUE)
    if name in ("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"):
        return falls, stack
    return falls, falls


def stack_shapes(program):
    """The shape of the stack before each op; None where control never comes (worked out once per program)."""
    shapes = program.memo.get("shapes")
    if shapes is None:
        shapes = program.memo["shapes"] = _stack_shapes(program)
    return shapes


def _stack_shapes(program):
    ops, instructions = program.ops, program.instructions
    shapes = [None] * len(ops)
    work = [(0, ())]
    while work:
        index, shape = work.pop()
        while shape is not None and index < len(ops) and shapes[index] is None:
            shapes[index] = shape
            op = ops[index]
            if op.handler is not None:
                target, depth, lasti = op.handler
                if shapes[target] is None:
                    work.append((target, shape[:depth] + (VALUE,) * lasti + (EXCEPTION,)))
            shape, jumped = after(op, shape, instructions[op.index])
            if jumped is not None:
                work.append((op.target, jumped))
            index += 1
    return shapes


def takes(program, raw_index):
    """How many entries of the stack a raw instruction looks at; an iterator that it only advances is none of them."""
    depth = lowest = 0
    for op in program.ops[program.first_op[raw_index] :]:
        if op.index != raw_index:
            break
        if op.name in ("COPY", "SWAP", "PUSH_NULL", "LOAD_FAST_AND_CLEAR", "PUSH_EXC_INFO", "UNSUPPORTED"):
            continue  # in the middle of an instruction, they move what it puts there itself
        pops, pushes = pops_pushes(op)
        lowest = min(lowest, depth - pops)
        depth += pushes - pops
    return -lowest


def in_handler(program, raw_index):
    """Is an exception being handled at this raw instruction?  Its state lives in the thread and cannot be moved."""
    first = program.first_op[raw_index]
    shapes = stack_shapes(program)
    return first < len(shapes) and shapes[first] is not None and EXCEPTION in shapes[first]
