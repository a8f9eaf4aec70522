"""From instructions back to a code object, byte for byte as CPython's own compiler would have written it."""

import opcode
from _opcode import stack_effect

from .instruction import (
    BACKWARD,
    CACHES,
    COMPARE,
    COMPARE_SHIFT,
    CONST,
    DEREF,
    FAST,
    FAST_PAIR,
    FORWARD,
    KINDS,
    NAME,
    SHIFTS,
    TERMINATORS,
    CellName,
    FreeName,
    encode_exception_entry,
)
from .locations import encode_locations
from .tables import CURRENT as TABLE

_OPMAP = opcode.opmap
_EXTENDED_ARG = opcode.EXTENDED_ARG
_CMP_OP = opcode.cmp_op


class _Names:
    """The name tables of the code in the making: the template's, extended by what the instructions mention."""

    def __init__(self, template, varnames, cellvars, freevars):
        self.template_consts = template.co_consts
        self.consts = list(template.co_consts)
        self.names = list(template.co_names)
        self.varnames = list(varnames)
        self.cellvars = cellvars
        self.freevars = freevars
        self.const_index = {id(value): i for i, value in reversed(list(enumerate(self.consts)))}
        self.name_index = {name: i for i, name in enumerate(self.names)}
        self.fast_index = {name: i for i, name in enumerate(self.varnames)}
        self.cell_index = {}
        self.free_index = {}

    def collect_fast(self, instructions):
        """Give every plain local its slot; the cells' slots come after all of them."""
        fast = self.fast_index
        for instruction in instructions:
            kind = KINDS[_OPMAP[instruction.op]]
            if kind == FAST:
                names = (instruction.argval,)
            elif kind == FAST_PAIR:
                names = instruction.argval
            else:
                continue
            for name in names:
                if name not in fast and not isinstance(name, CellName):
                    fast[name] = len(self.varnames)
                    self.varnames.append(name)
        extra = [name for name in self.cellvars if name not in fast]
        slots = len(self.varnames)
        self.free_index = {name: slots + len(extra) + i for i, name in enumerate(self.freevars)}
        cells = {name: slots + i for i, name in enumerate(extra)}
        cells.update((name, fast[name]) for name in self.cellvars if name in fast)
        self.cell_index = {**self.free_index, **cells}

    def const(self, value, arg):
        # Constants are distinguished only by identity: 1, 1.0 and True are equal, and so are 0.0 and -0.0.
        old = self.template_consts
        if arg is not None and arg < len(old) and old[arg] is value:
            return arg
        index = self.const_index.get(id(value))
        if index is None:
            index = self.const_index[id(value)] = len(self.consts)
            self.consts.append(value)
        return index

    def name(self, name):
        index = self.name_index.get(name)
        if index is None:
            index = self.name_index[name] = len(self.names)
            self.names.append(name)
        return index

    def fast(self, name):
        return self.cell(name) if isinstance(name, CellName) else self.fast_index[name]

    def cell(self, name):
        return self.free_index[name] if type(name) is FreeName else self.cell_index[name]

    def arg(self, instruction, code, kind):
        """The oparg of an instruction that is no jump and names no two locals."""
        if kind == CONST:
            return self.const(instruction.argval, instruction.arg)
        if kind == NAME:
            shift = SHIFTS[code]
            return self.name(instruction.argval) << shift | (instruction.arg or 0) & ((1 << shift) - 1)
        if kind == FAST:
            return self.fast(instruction.argval)
        if kind == DEREF:
            return self.cell(instruction.argval)
        if kind == COMPARE and instruction.arg is None:
            return _CMP_OP.index(instruction.argval) << COMPARE_SHIFT
        return instruction.arg or 0


class _Rows:
    """The code in the making, as parallel columns with one row per instruction that is written."""

    def __init__(self, instructions, names):
        self.codes, self.args, self.owners = codes, args, owners = [], [], []
        self.row_of = row_of = {}
        self.jumps = jumps = []
        for instruction in instructions:
            row = row_of[id(instruction)] = len(codes)
            code = _OPMAP[instruction.op]
            kind = KINDS[code]
            if kind >= FORWARD:
                # Two jumps across each other may both be long or both be short: start from what they were.
                jumps.append((row, kind == BACKWARD))
                arg = instruction.arg or 0
            elif kind == FAST_PAIR:
                first, second = map(names.fast, instruction.argval)
                if first > 15 or second > 15:
                    # Each half of a pair has four bits; what does not fit is written as two instructions.
                    one, two = TABLE.PAIRS[instruction.op]
                    codes.append(_OPMAP[one])
                    args.append(first)
                    owners.append(instruction)
                    code, arg = _OPMAP[two], second
                else:
                    arg = first << 4 | second
            else:
                arg = names.arg(instruction, code, kind)
            codes.append(code)
            args.append(arg)
            owners.append(instruction)

    def resolve_jumps(self):
        """Settle jump arguments and instruction sizes; leaves ``starts`` (in code units, one more than rows)."""
        codes, args = self.codes, self.args
        sizes = [1 + CACHES[code] + _prefixes(arg) for code, arg in zip(codes, args, strict=True)]
        while True:
            starts, at = [], 0
            for size in sizes:
                starts.append(at)
                at += size
            starts.append(at)
            grown = False
            for row, backward in self.jumps:
                target = self.row_of[id(self.owners[row].target)]
                distance = starts[target] - starts[row + 1]
                if backward:
                    distance = -distance
                if distance < 0:
                    raise ValueError(f"{self.owners[row]!r} jumps in the wrong direction")
                args[row] = distance
                size = 1 + CACHES[codes[row]] + _prefixes(distance)
                # Sizes only grow, so that this ends.
                if size > sizes[row]:
                    sizes[row] = size
                    grown = True
            if not grown:
                self.sizes, self.starts = sizes, starts
                return

    def code_bytes(self):
        out = bytearray()
        for code, arg, size in zip(self.codes, self.args, self.sizes, strict=True):
            caches = CACHES[code]
            for shift in range(8 * (size - caches - 1), 0, -8):
                out.append(_EXTENDED_ARG)
                out.append(arg >> shift & 0xFF)
            out.append(code)
            out.append(arg & 0xFF)
            if caches:
                out.extend(bytes(2 * caches))
        return bytes(out)

    def exception_table(self):
        out = bytearray()
        handler, begin = None, 0
        for owner, start in zip(self.owners, self.starts[:-1], strict=True):
            if owner.handler is not handler:
                if handler is not None:
                    self._exception_entry(out, begin, start, handler)
                handler, begin = owner.handler, start
        if handler is not None:
            self._exception_entry(out, begin, self.starts[-1], handler)
        return bytes(out)

    def _exception_entry(self, out, begin, end, handler):
        target = self.starts[self.row_of[id(handler.target)]]
        encode_exception_entry(out, begin, end, target, handler.depth, handler.lasti)

    def stack_size(self):
        """The deepest the stack can get, following every path from the first instruction."""
        codes, args, owners, row_of = self.codes, self.args, self.owners, self.row_of
        count = len(codes)
        jumping = {row for row, _ in self.jumps}
        seen = bytearray(count)
        deepest = 0
        work = [(0, 0)]
        while work:
            row, depth = work.pop()
            while row < count and not seen[row]:
                seen[row] = 1
                code, owner = codes[row], owners[row]
                arg = args[row] if KINDS[code] else None
                handler = owner.handler
                if handler is not None:
                    target = row_of[id(handler.target)]
                    if not seen[target]:
                        work.append((target, handler.depth + handler.lasti + 1))
                    deepest = max(deepest, handler.depth + handler.lasti + 1)
                if row in jumping:
                    after = depth + stack_effect(code, arg, jump=True)
                    deepest = max(deepest, after)
                    target = row_of[id(owner.target)]
                    if not seen[target]:
                        work.append((target, after))
                    if owner.op in TERMINATORS:
                        break
                elif owner.op in TERMINATORS:
                    break
                # The value with which a generator is first resumed is on its stack; 3.11 and 3.12 do not count it.
                depth += 1 if owner.op == "RETURN_GENERATOR" else stack_effect(code, arg, jump=False)
                if depth > deepest:
                    deepest = depth
                row += 1
        return deepest


def _prefixes(arg):
    return 0 if arg < 0x100 else 1 if arg < 0x10000 else 2 if arg < 0x1000000 else 3


def assemble(
    instructions,
    template,
    *,
    name=None,
    qualname=None,
    argnames=None,
    cellvars=None,
    freevars=None,
    flags=None,
):
    """The code object that ``instructions`` describe; whatever is not given is as in ``template``.

    Names, constants and locals are found by what the instructions' ``argval`` says and added where ``template`` lacks
    them.  With ``argnames`` the code takes exactly these positional arguments, and its locals are collected afresh.
    """
    cellvars = template.co_cellvars if cellvars is None else tuple(cellvars)
    freevars = template.co_freevars if freevars is None else tuple(freevars)
    names = _Names(template, template.co_varnames if argnames is None else argnames, cellvars, freevars)
    names.collect_fast(instructions)
    rows = _Rows(instructions, names)
    rows.resolve_jumps()
    changes = {}
    if argnames is not None:
        changes.update(co_argcount=len(argnames), co_posonlyargcount=0, co_kwonlyargcount=0)
    return template.replace(
        co_code=rows.code_bytes(),
        co_consts=tuple(names.consts),
        co_names=tuple(names.names),
        co_varnames=tuple(names.varnames),
        co_nlocals=len(names.varnames),
        co_cellvars=cellvars,
        co_freevars=freevars,
        co_stacksize=rows.stack_size(),
        co_exceptiontable=rows.exception_table(),
        co_linetable=encode_locations(rows, template.co_firstlineno),
        co_name=template.co_name if name is None else name,
        co_qualname=template.co_qualname if qualname is None else qualname,
        co_flags=template.co_flags if flags is None else flags,
        **changes,
    )
