"""Raw instructions: what ``code.co_code`` holds, read into objects that can be moved, changed and assembled again."""

import opcode

from .tables import CURRENT as TABLE

NO_POSITION = (None, None, None, None)


class CellName(str):
    """The name of a local slot that holds a cell, where an opcode for plain locals touches that slot.

    A name may refer to both a plain local and a free variable in one function (an inlined comprehension's variable),
    so the name carries the kind of its slot.
    """

    __slots__ = ("cell",)

    def __new__(cls, name):
        self = super().__new__(cls, name)
        self.cell = name
        return self


class FreeName(CellName):
    """The name of a free variable in code that also has a cell of that name."""

    __slots__ = ()


class Handler:
    """An exception-table entry: where control goes, how deep the stack stays, whether the raising offset is pushed.

    Consecutive instructions that share one ``Handler`` object are one entry of the table.
    """

    __slots__ = ("depth", "lasti", "target")

    def __init__(self, target, depth, lasti):
        self.target = target
        self.depth = depth
        self.lasti = lasti

    def __repr__(self):
        return f"Handler({self.target!r}, depth={self.depth}, lasti={self.lasti})"


class Instruction:
    """One raw instruction, without its caches and ``EXTENDED_ARG`` prefixes.

    ``arg`` is the raw oparg; the assembler recomputes it for jumps and takes only its flag bits where ``argval`` names
    something.  ``argval`` is the constant, the name, the comparison's symbol or the jump's target instruction, else
    the same as ``arg``.
    """

    __slots__ = ("arg", "argval", "handler", "offset", "op", "positions", "target")

    def __init__(self, op, arg=None, argval=None, target=None, handler=None, positions=NO_POSITION, offset=-1):
        self.op = op
        self.arg = arg
        self.argval = argval
        self.target = target
        self.handler = handler
        self.positions = positions
        self.offset = offset

    def copy(self):
        """The same instruction as another object; its target and handler are still the original's."""
        return Instruction(self.op, self.arg, self.argval, self.target, self.handler, self.positions, self.offset)

    def __repr__(self):
        value = f"to {self.target.offset}" if self.target is not None else repr(self.argval)
        return f"<{self.offset} {self.op} {value}>"


# How the oparg of each opcode is to be read.
NO_ARG, PLAIN, CONST, NAME, FAST, FAST_PAIR, DEREF, COMPARE, FORWARD, BACKWARD = range(10)

# These leave the straight line and never fall through to the next instruction.
TERMINATORS = frozenset(
    {
        "RETURN_VALUE",
        "RETURN_CONST",
        "RAISE_VARARGS",
        "RERAISE",
        "JUMP_FORWARD",
        "JUMP_BACKWARD",
        "JUMP_BACKWARD_NO_INTERRUPT",
    }
)


def _kinds():
    kinds = []
    with_arg = getattr(opcode, "hasarg", None)
    for code, name in enumerate(opcode.opname[:256]):
        if code in opcode.hasconst:
            kind = CONST
        elif code in opcode.hasname:
            kind = NAME
        elif name in TABLE.PAIRS:
            kind = FAST_PAIR
        elif code in opcode.haslocal:
            kind = FAST
        elif code in opcode.hasfree:
            kind = DEREF
        elif code in opcode.hascompare:
            kind = COMPARE
        elif code in opcode.hasjrel:
            kind = BACKWARD if "BACKWARD" in name else FORWARD
        elif code in with_arg if with_arg is not None else code >= opcode.HAVE_ARGUMENT:
            kind = PLAIN
        else:
            kind = NO_ARG
        kinds.append(kind)
    return kinds


def _caches():
    entries = opcode._inline_cache_entries
    if isinstance(entries, dict):
        return [entries.get(name, 0) for name in opcode.opname[:256]]
    return list(entries[:256])


OPMAP = opcode.opmap
KINDS = _kinds()
CACHES = _caches()
SHIFTS = [TABLE.NAME_SHIFT.get(name, 0) for name in opcode.opname[:256]]
COMPARE_SHIFT = TABLE.COMPARE_SHIFT

_OPNAME = opcode.opname
_EXTENDED_ARG = opcode.EXTENDED_ARG
_CMP_OP = opcode.cmp_op


def two_cells(code):
    """The names that are both a cell of ``code`` and a free variable: two slots, two cells."""
    return frozenset(code.co_cellvars).intersection(code.co_freevars)


def slot_names(code):
    """(names for plain locals' opcodes, names for cells' opcodes) of all local slots, in slot order."""
    plain, cells = code.co_varnames, code.co_cellvars
    slots = [*plain, *[name for name in cells if name not in plain]]
    count = len(plain)
    fast = [CellName(name) if i >= count or name in cells else name for i, name in enumerate(slots)]
    for name in code.co_freevars:
        slots.append(FreeName(name) if name in cells else name)
        fast.append(FreeName(name) if name in cells else CellName(name))
    return fast, slots


def _varint(table, at):
    byte = table[at]
    value = byte & 63
    while byte & 64:
        at += 1
        byte = table[at]
        value = value << 6 | byte & 63
    return value, at + 1


def exception_entries(code):
    """[(start, end, target, depth, lasti)] in bytes, as ``co_exceptiontable`` has them."""
    table, at, entries = code.co_exceptiontable, 0, []
    while at < len(table):
        start, at = _varint(table, at)
        length, at = _varint(table, at)
        target, at = _varint(table, at)
        depth, at = _varint(table, at)
        entries.append((start * 2, (start + length) * 2, target * 2, depth >> 1, bool(depth & 1)))
    return entries


def encode_exception_entry(out, start, end, target, depth, lasti):
    """Append to ``out`` what :func:`exception_entries` reads; positions are in code units of two bytes."""
    first = 0x80  # marks where an entry begins
    for value in (start, end - start, target, depth << 1 | lasti):
        for shift in (24, 18, 12, 6):
            if value >= 1 << shift:
                out.append(value >> shift & 63 | 64 | first)
                first = 0
        out.append(value & 63 | first)
        first = 0


def parse(code):
    """The raw instructions of ``code``, in order, linked by their jump targets and exception handlers."""
    raw = code.co_code
    positions = list(code.co_positions())
    consts, names = code.co_consts, code.co_names
    fast, deref = slot_names(code)
    kinds, caches, opname = KINDS, CACHES, _OPNAME
    instructions, jumps, at = [], [], {}
    append = instructions.append
    offset = start = extended = 0
    end = len(raw)
    while offset < end:
        op = raw[offset]
        arg = raw[offset + 1] | extended
        offset += 2
        if op == _EXTENDED_ARG:
            extended = arg << 8
            continue
        extended = 0
        kind = kinds[op]
        if kind == FAST:
            argval = fast[arg]
        elif kind == NO_ARG:
            arg = argval = None
        elif kind == PLAIN:
            argval = arg
        elif kind == NAME:
            argval = names[arg >> SHIFTS[op]]
        elif kind == CONST:
            argval = consts[arg]
        elif kind == DEREF:
            argval = deref[arg]
        elif kind == COMPARE:
            argval = _CMP_OP[arg >> COMPARE_SHIFT]
        elif kind == FAST_PAIR:
            argval = (fast[arg >> 4], fast[arg & 15])
        else:
            argval = None
        instruction = Instruction(opname[op], arg, argval, None, None, positions[start >> 1], start)
        at[start] = instruction
        append(instruction)
        if caches[op]:
            offset += 2 * caches[op]
        if kind >= FORWARD:
            jumps.append((instruction, offset + 2 * (arg if kind == FORWARD else -arg)))
        start = offset
    for instruction, target in jumps:
        instruction.target = instruction.argval = at[target]
    if code.co_exceptiontable:
        _link_handlers(instructions, at, exception_entries(code))
    return instructions


def _link_handlers(instructions, at, entries):
    entries = iter(entries)
    start, end, target, depth, lasti = next(entries)
    handler = Handler(at[target], depth, lasti)
    for instruction in instructions:
        if instruction.offset < start:
            continue
        while instruction.offset >= end:
            entry = next(entries, None)
            if entry is None:
                return
            start, end, target, depth, lasti = entry
            handler = Handler(at[target], depth, lasti)
        if instruction.offset >= start:
            instruction.handler = handler
