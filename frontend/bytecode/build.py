"""Writes new instructions: the few sequences that generated code consists of, for the running version."""

from .instruction import TERMINATORS, CellName, Handler, Instruction
from .tables import CURRENT as TABLE
from .tables.common import DEREF_OPS

# A loop's exhaustion jumps over these, but they have to be there.
FOR_ITER_END = TABLE.FOR_ITER_END


class Builder:
    """A growing list of instructions that all come from one place in the source."""

    def __init__(self, positions):
        self.positions = positions
        self.instructions = []

    def emit(self, op, argval=None, arg=None, target=None, handler=None):
        """Append one instruction and return it; ``arg`` is only for flag bits in addition to a name."""
        if argval.__class__ is int and arg is None and op != "LOAD_CONST":
            arg = argval
        instruction = Instruction(op, arg, argval, target, handler, self.positions)
        self.instructions.append(instruction)
        return instruction

    def extend(self, instructions):
        """Append instructions that exist already."""
        self.instructions.extend(instructions)

    def prologue(self, cellvars, free_count):
        """What every function starts with: its closure, its cells, and the check for interrupts."""
        if free_count:
            self.emit("COPY_FREE_VARS", free_count)
        for name in cellvars:
            self.emit("MAKE_CELL", name)
        self.emit("RESUME", 0)

    def begin_call(self, push_callable):
        """Push the callable, by the given function, with the NULL on the side where this version wants it."""
        if TABLE.NULL_BELOW_CALLABLE:
            self.emit("PUSH_NULL")
        push_callable()
        if not TABLE.NULL_BELOW_CALLABLE:
            self.emit("PUSH_NULL")

    def end_call(self, count):
        """Call what ``begin_call`` pushed with the ``count`` values above it."""
        for op in TABLE.BEFORE_CALL:
            self.emit(op, count)
        self.emit("CALL", count)

    def return_if_first(self):
        """Take a pair from the stack; return its second, if its first is True, else leave that on the stack."""
        self.emit("UNPACK_SEQUENCE", 2)
        jump = self.emit(TABLE.JUMP_IF_FALSE)
        self.emit("RETURN_VALUE")
        jump.target = jump.argval = self.emit("NOP")

    def globals(self):
        """Push the globals in which the code runs."""
        self.begin_call(lambda: self.emit("LOAD_CONST", globals))
        self.end_call(0)

    def first_of(self, items):
        """Push the first item of a list."""
        self.emit("LOAD_CONST", items)
        self.emit("LOAD_CONST", 0)
        self.emit("BINARY_SUBSCR")

    def jump_if_is(self, name, value):
        """A jump, whose target is still to be set, that is taken where a local is ``value``."""
        self.emit("LOAD_FAST", name)
        self.emit("LOAD_CONST", value)
        self.emit("IS_OP", 1)
        return self.emit(TABLE.JUMP_IF_FALSE)

    def jump_unless_globals(self, namespace):
        """A jump, whose target is still to be set, that is taken where the globals are not ``namespace``."""
        self.globals()
        self.emit("LOAD_CONST", namespace)
        self.emit("IS_OP", 0)
        return self.emit(TABLE.JUMP_IF_FALSE)

    def load_cell(self, name):
        """Push the cell itself."""
        self.emit(TABLE.LOAD_CELL, CellName(name))

    def take(self, name):
        """Push a bound local and unbind it, so that the frame does not keep the value alive."""
        for op in TABLE.TAKE_FAST:
            self.emit(op, name)

    def closure(self, code):
        """Push a function of ``code`` that shares this frame's cells."""
        if not code.co_freevars:
            self.emit("LOAD_CONST", code)
            self.emit("MAKE_FUNCTION", 0)
            return
        self.cells(code.co_freevars)
        self.emit("LOAD_CONST", code)
        for op, arg in TABLE.MAKE_CLOSURE:
            self.emit(op, arg)

    def cells(self, names):
        """Push a tuple of cells; None, if there are none."""
        for name in names:
            self.load_cell(name)
        if names:
            self.emit("BUILD_TUPLE", len(names))
        else:
            self.emit("LOAD_CONST", None)

    def push_stack(self, names):
        """Push the locals of these names, bottom first; None means a NULL."""
        for name in names:
            if name is None:
                self.emit("PUSH_NULL")
            else:
                self.take(name)

    def enter(self, body, entry):
        """Append ``body`` so that control continues at its instruction ``entry``."""
        if entry.op == "MAKE_CELL":
            # An inlined comprehension's own cell: the instruction before it has emptied the slot.
            name = entry.argval
            self.emit("DELETE_FAST", name if isinstance(name, CellName) else CellName(name))
        if entry is not body[0]:
            self.emit("JUMP_FORWARD", entry, target=entry)
        self.extend(body)


def entry_index(instructions, index):
    """Where to enter ``index``: a call is entered at the instructions that belong to it."""
    while index < len(instructions) and instructions[index].op in TABLE.CALL_PREFIXES:
        index += 1
    while index and instructions[index - 1].op in TABLE.CALL_PREFIXES:
        index -= 1
    return index


def plain_attribute(instruction):
    """(op, flag bits) of an attribute read in method form without that form, else None.

    Whether the method form pushes a method and its object or a NULL and the attribute shows only when it runs, so
    where the stack must be known, the plain form replaces it.
    """
    return TABLE.plain_attribute(instruction)


def null_after_attribute(builder):
    """Put the NULL of a call next to the attribute on top of the stack."""
    builder.emit("PUSH_NULL")
    if TABLE.NULL_BELOW_CALLABLE:
        builder.emit("SWAP", 2)


def free_names(instructions):
    """The cells that these instructions touch."""
    names = set()
    for instruction in instructions:
        values = instruction.argval if type(instruction.argval) is tuple else (instruction.argval,)
        if instruction.op in DEREF_OPS or instruction.op == "MAKE_CELL":
            names.add(instruction.argval)
        elif "_FAST" in instruction.op:
            names.update(value.cell for value in values if isinstance(value, CellName))
    return names


def copy_instruction(instruction):
    """A copy that depends neither on where it stands nor on what the frame's first slot holds.

    ``LOAD_SUPER_ATTR`` has the class and the instance on its stack, but for ``super()`` without arguments it ignores
    them and looks into the frame, unless bit 1 says that they were written out.
    """
    copy = instruction.copy()
    if copy.target is not None:
        # How far it jumped in the original says nothing here.
        copy.arg = None
    if copy.op == "LOAD_SUPER_ATTR":
        copy.arg |= 2
    return copy


def checked_loads(instructions, bound):
    """The same instructions, with every local that is not in ``bound`` loaded by an opcode that looks whether it is.

    The compiler knew what was bound on every way from the function's start; made code starts elsewhere.
    """
    checked = []
    for instruction in instructions:
        checked.append(instruction)
        if instruction.op == "LOAD_FAST" and _may_be_unbound(instruction.argval, bound):
            instruction.op = TABLE.LOAD_FAST_CHECK
        elif instruction.op in TABLE.PAIRS and any(_may_be_unbound(name, bound) for name in instruction.argval):
            checked.append(_split(instruction, bound))
    return checked


def _may_be_unbound(name, bound):
    return type(name) is str and name not in bound


def _split(pair, bound):
    """Make a pair its first half; returns the second."""
    second = pair.copy()
    for half, op, name in zip((pair, second), TABLE.PAIRS[pair.op], pair.argval, strict=True):
        checks = op == "LOAD_FAST" and _may_be_unbound(name, bound)
        half.op, half.argval, half.arg = TABLE.LOAD_FAST_CHECK if checks else op, name, None
    return second


def copy_code(instructions, entry, ends=()):
    """{index: copy} of what control can come to from index ``entry``, in the original's order.

    Whatever falls through to its neighbour still does, and no jump changes its direction.  Nothing is followed beyond
    the indices ``ends``.
    """
    number = {id(instruction): index for index, instruction in enumerate(instructions)}
    kept = sorted(_reachable(instructions, entry, number, ends))
    copies = {index: copy_instruction(instructions[index]) for index in kept}
    for end in ends:  # marks what follows, and does nothing itself
        copies[end] = Instruction("NOP", positions=instructions[end].positions)
    handlers = {}
    for copy in copies.values():
        if copy.target is not None:
            copy.target = copy.argval = copies[number[id(copy.target)]]
        old = copy.handler
        if old is not None:
            new = handlers.get(id(old))
            if new is None:
                new = handlers[id(old)] = Handler(copies[number[id(old.target)]], old.depth, old.lasti)
            copy.handler = new
    return copies


def _reachable(instructions, entry, number, ends=()):
    seen, work = set(), [entry]
    while work:
        index = work.pop()
        while index not in seen and index < len(instructions):
            seen.add(index)
            if index in ends:
                break
            instruction = instructions[index]
            if instruction.target is not None:
                work.append(number[id(instruction.target)])
            if instruction.handler is not None:
                work.append(number[id(instruction.handler.target)])
            if instruction.op in TERMINATORS:
                break
            index += 1
    return seen
