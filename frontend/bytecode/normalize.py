"""From one CPython version's instructions to the one micro-op set that the interpreter knows.

Calls keep CPython's own layout: ``[NULL, callable, args...]`` where ``NULL_BELOW_CALLABLE``, else
``[callable, NULL, args...]``.  In both, a call without a NULL has ``[callable, first argument, args...]``, and the
first argument is not in the count: comprehensions, ``assert`` and ``__exit__`` are called so.
"""

from .identity import CodeMap
from .instruction import CellName, parse, two_cells
from .tables import CURRENT as TABLE
from .tables.common import DEREF_OPS, FAST_OPS, unsupported

NULL_BELOW_CALLABLE = TABLE.NULL_BELOW_CALLABLE


class Op:
    """One micro-op.

    ``target`` is an index into ``Program.ops``; ``handler`` is None or (target, stack depth, push the raising
    offset?); ``index`` is the raw instruction that the op is part of.
    """

    __slots__ = ("arg", "handler", "index", "line", "name", "target")

    def __init__(self, name, arg, target, index, handler, line):
        self.name = name
        self.arg = arg
        self.target = target
        self.index = index
        self.handler = handler
        self.line = line

    def __repr__(self):
        target = "" if self.target is None else f" to {self.target}"
        return f"<{self.name} {self.arg!r}{target}>"


class Program:
    """A code object as micro-ops, together with the raw instructions that they came from.

    ``first_op[i]`` is the first micro-op at or after raw instruction ``i`` (there is one more entry than there are
    raw instructions).  It holds everything of the code object that the analyses need, but not the code object.
    """

    __slots__ = (
        "argument_count",
        "cellvars",
        "first_op",
        "freevars",
        "instructions",
        "memo",
        "ops",
        "rebound_cells",
        "varnames",
    )

    def __init__(self, code, instructions, rebound_cells):
        self.instructions = instructions
        self.ops = []
        self.first_op = []
        self.varnames = code.co_varnames
        self.cellvars = code.co_cellvars
        self.freevars = code.co_freevars
        self.argument_count = code.co_argcount
        # Names of cells that are not told apart by name: ops that use them are UNSUPPORTED.
        self.rebound_cells = rebound_cells
        # What the analyses found out, by their name.
        self.memo = {}


class _State:
    """What one instruction leaves for a later one."""

    __slots__ = ("kwnames",)

    def __init__(self):
        self.kwnames = ()


_programs = CodeMap()
_RULES_WITH_CELLS = {**TABLE.RULES, **TABLE.CELL_RULES}
_HAS_TARGET = frozenset(
    {
        "JUMP",
        "POP_JUMP_IF_TRUE",
        "POP_JUMP_IF_FALSE",
        "POP_JUMP_IF_NONE",
        "POP_JUMP_IF_NOT_NONE",
        "JUMP_IF_TRUE_OR_POP",
        "JUMP_IF_FALSE_OR_POP",
        "FOR_ITER",
        "SEND",
    }
)


def normalize(code):
    """The ``Program`` of ``code``; made once per code object."""
    program = _programs.get(code)
    if program is None:
        program = _normalize(code)
        _programs.set(code, program)
    return program


def _normalize(code):
    instructions = parse(code)
    rules = TABLE.RULES
    rebound = frozenset()
    if code.co_cellvars or code.co_freevars:
        rules = _RULES_WITH_CELLS
        rebound = _rebound_cells(instructions, code)
        if rebound:
            rules = _without_rebound(rules, instructions, rebound, two_cells(code))
    program = Program(code, instructions, rebound)
    ops, first_op, state = program.ops, program.first_op, _State()
    linked = []
    for index, instruction in enumerate(instructions):
        first_op.append(len(ops))
        rule = rules.get(instruction.op, unsupported)
        if rule is None:
            continue
        line = instruction.positions[0]
        handler = instruction.handler
        target = instruction.target
        if rule.__class__ is str:
            op = Op(rule, instruction.argval, None, index, handler, line)
            ops.append(op)
            if target is not None:
                op.arg = None
                linked.append((op, target))
            continue
        for name, arg in rule(instruction, state):
            op = Op(name, arg, None, index, handler, line)
            ops.append(op)
            if target is not None and name in _HAS_TARGET:
                linked.append((op, target))
    first_op.append(len(ops))
    if linked or code.co_exceptiontable:
        _link(program, linked, code.co_exceptiontable)
    return program


def _link(program, linked, has_handlers):
    first_op = program.first_op
    number = {id(instruction): index for index, instruction in enumerate(program.instructions)}
    for op, target in linked:
        index = number[id(target)]
        if op.name == "FOR_ITER":
            index += TABLE.FOR_ITER_SKIP
        op.target = first_op[index]
    if has_handlers:
        resolved = {}
        for op in program.ops:
            handler = op.handler
            if handler is not None:
                entry = resolved.get(id(handler))
                if entry is None:
                    target = first_op[number[id(handler.target)]]
                    entry = resolved[id(handler)] = (target, handler.depth, handler.lasti)
                op.handler = entry


class MovedCell(str):
    """The argument of an op on a slot that a comprehension may have taken from the cell ``name``: the raw opcode.

    Who has followed the frame up to here knows what is in the slot; to all others the op is unsupported.
    """

    name: str

    def __new__(cls, opcode: str, name: str) -> "MovedCell":
        made = super().__new__(cls, opcode)
        made.name = name
        return made


def _rebound_cells(instructions, code):
    """Cells whose name says not enough: all uses of them that could be mistaken are left to CPython.

    An inlined comprehension may move a cell out of its slot and put its own variable there; between the two moves the
    slot is not what its name says, and telling a cell from a value would take a flow analysis.  Where its variable is
    a cell and the function has a free variable of that name, there are even two cells of one name.
    """
    moved = {
        instruction.argval.cell
        for instruction in instructions
        if instruction.op == "LOAD_FAST_AND_CLEAR" and isinstance(instruction.argval, CellName)
    }
    return frozenset(moved) | two_cells(code)


def _without_rebound(rules, instructions, rebound, doubled):
    body = next((i.offset for i in instructions if i.op == "RESUME"), 0)

    def moving(instruction, name):
        return (("UNSUPPORTED", MovedCell(instruction.op, name)),)

    def guarded(rule):
        def check(instruction, state):
            names = instruction.argval if type(instruction.argval) is tuple else (instruction.argval,)
            if len(names) == 1 and names[0] not in doubled and names[0] in rebound and isinstance(names[0], CellName):
                return moving(instruction, names[0].cell)
            if any(name in doubled or (name in rebound and isinstance(name, CellName)) for name in names):
                return unsupported(instruction, state)
            return ((rule, instruction.argval),) if type(rule) is str else rule(instruction, state)

        return check

    def make_cell(instruction, state):
        if instruction.offset <= body or instruction.argval not in rebound:
            return ()
        known = instruction.argval not in doubled
        return moving(instruction, str(instruction.argval)) if known else unsupported(instruction, state)

    changed = {op: guarded(rules[op]) for op in (*FAST_OPS, *DEREF_OPS, *TABLE.PAIRS) if op in rules}
    return {**rules, **changed, "MAKE_CELL": make_cell}
