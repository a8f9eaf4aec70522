"""The body of one function inside of another, which saves a call."""

import builtins

from .instruction import FAST, FAST_PAIR, KINDS, OPMAP, CellName, Instruction, parse
from .resume import GENERATOR_FLAGS
from .tables import CURRENT as TABLE

_OTHER_WAYS_TO_PASS = 0x04 | 0x08  # CO_VARARGS, CO_VARKEYWORDS
_NEEDS_ITS_GLOBALS = ("STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME", "MAKE_FUNCTION")


def inlined(builder, code, function, arguments):
    """Append the body of ``function`` to that of code with the locals of ``code``; False if it cannot be.

    ``arguments`` are what it would be called with: ("local", name) for the value of a local, ("cell", name) for a cell.
    It returns for both.  The globals that it reads become constants.
    """
    body = _body(builder, code, function, arguments)
    builder.extend(body or ())
    return body is not None


def inlined_ahead(builder, code, function, arguments):
    """The same where the code goes on, with what ``function`` returns on its stack and its locals unbound."""
    body = _body(builder, code, function, arguments)
    if body is None:
        return False
    end = Instruction("NOP", positions=builder.positions)
    names = {}
    for instruction in body:
        builder.extend([instruction])
        if instruction.op == "RETURN_CONST":
            instruction.op = "LOAD_CONST"
            builder.emit("JUMP_FORWARD", end, target=end)
        elif instruction.op == "RETURN_VALUE":
            instruction.op, instruction.argval, instruction.target = "JUMP_FORWARD", end, end
        elif instruction.op == "STORE_FAST":
            names[instruction.argval] = True
    builder.extend([end])
    for name in names:  # the frame is not to keep what is in it alive; not on each way is something in it
        builder.emit("LOAD_CONST", None)
        builder.emit("STORE_FAST", name)
        builder.emit("DELETE_FAST", name)
    return True


def _body(builder, code, function, arguments):
    """The instructions of ``function`` with the locals of ``code``; None if it cannot be inlined."""
    own = getattr(function, "__code__", None)
    if own is None or own.co_flags & (GENERATOR_FLAGS | _OTHER_WAYS_TO_PASS) or own.co_cellvars or own.co_freevars:
        return None
    loads = {
        parameter: _load(code, kind, name) for parameter, (kind, name) in zip(own.co_varnames, arguments, strict=False)
    }
    instructions = parse(own)
    start = 1 + next(index for index, each in enumerate(instructions) if each.op == "RESUME")
    body = []
    for instruction in instructions[start:]:
        instruction.positions = builder.positions
        body.append(instruction)
        kind = KINDS[OPMAP[instruction.op]]
        if instruction.op in _NEEDS_ITS_GLOBALS:
            return None
        if instruction.op == "LOAD_GLOBAL":
            body.extend(_constant(instruction, function.__globals__))
        elif kind == FAST:
            if (found := _half(instruction.op, instruction.argval, loads)) is None:
                return None
            instruction.op, instruction.argval = found
        elif kind == FAST_PAIR:
            ops = TABLE.PAIRS[instruction.op]
            halves = [_half(op, name, loads) for op, name in zip(ops, instruction.argval, strict=True)]
            if None in halves:
                return None
            instruction.arg = None
            (instruction.op, instruction.argval), second = halves
            body.append(Instruction(second[0], None, second[1], None, instruction.handler, instruction.positions))
    return body


def _load(code, kind, name):
    if kind == "cell":
        return TABLE.LOAD_CELL, CellName(name)
    in_cell = name in code.co_cellvars or name not in code.co_varnames
    return ("LOAD_DEREF" if in_cell else "LOAD_FAST"), name


def _half(op, name, loads):
    """The instruction for a local of the function; None for one that writes to a parameter."""
    if name not in loads:
        return op, f"__torchmux_{name}"
    return loads[name] if op == "LOAD_FAST" else None


def _constant(instruction, namespace):
    """Make reading a global a constant; returns the instruction that follows, if it also pushes a NULL."""
    name, with_null = instruction.argval, instruction.arg & 1
    value = namespace[name] if name in namespace else getattr(builtins, name)
    constant, null = ("LOAD_CONST", value), ("PUSH_NULL", None)
    first, *rest = (constant,) if not with_null else (null, constant) if TABLE.NULL_BELOW_CALLABLE else (constant, null)
    instruction.op, instruction.argval = first
    instruction.arg = None
    return [Instruction(op, None, value, None, instruction.handler, instruction.positions) for op, value in rest]
