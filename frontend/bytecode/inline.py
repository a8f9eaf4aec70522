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
    own = getattr(function, "__code__", None)
    if own is None or own.co_flags & (GENERATOR_FLAGS | _OTHER_WAYS_TO_PASS) or own.co_cellvars or own.co_freevars:
        return False
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
            return False
        if instruction.op == "LOAD_GLOBAL":
            body.extend(_constant(instruction, function.__globals__))
        elif kind == FAST:
            if instruction.op == "LOAD_FAST" and instruction.argval in loads:
                instruction.op, instruction.argval = loads[instruction.argval]
            elif instruction.argval in loads:
                return False
            else:
                instruction.argval = _own_name(instruction.argval)
        elif kind == FAST_PAIR:
            pairs = [loads.get(name, ("LOAD_FAST", _own_name(name))) for name in instruction.argval]
            stored = [
                name
                for op, name in zip(TABLE.PAIRS[instruction.op], instruction.argval, strict=True)
                if op != "LOAD_FAST"
            ]
            if any(op != "LOAD_FAST" for op, _ in pairs) or not loads.keys().isdisjoint(stored):
                return False
            instruction.argval = tuple(name for _, name in pairs)
    builder.extend(body)
    return True


def _load(code, kind, name):
    if kind == "cell":
        return TABLE.LOAD_CELL, CellName(name)
    in_cell = name in code.co_cellvars or name not in code.co_varnames
    return ("LOAD_DEREF" if in_cell else "LOAD_FAST"), name


def _own_name(name):
    return f"__torchmux_{name}"


def _constant(instruction, namespace):
    """Make reading a global a constant; returns the instruction that follows, if it also pushes a NULL."""
    name, with_null = instruction.argval, instruction.arg & 1
    value = namespace[name] if name in namespace else getattr(builtins, name)
    constant, null = ("LOAD_CONST", value), ("PUSH_NULL", None)
    first, *rest = (constant,) if not with_null else (null, constant) if TABLE.NULL_BELOW_CALLABLE else (constant, null)
    instruction.op, instruction.argval = first
    instruction.arg = None
    return [Instruction(op, None, value, None, instruction.handler, instruction.positions) for op, value in rest]
