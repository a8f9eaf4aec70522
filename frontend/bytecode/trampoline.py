"""Trampolines: code that replaces a function, runs the captured part, and returns the rest to CPython."""

from .assemble import assemble
from .build import (
    FOR_ITER_END,
    Builder,
    checked_loads,
    copy_code,
    copy_instruction,
    entry_index,
    null_after_attribute,
    plain_attribute,
)
from .effects import NULL, VALUE, after, in_handler, stack_shapes
from .inline import inlined, inlined_ahead
from .instruction import TERMINATORS, Handler, two_cells
from .liveness import live_locals
from .normalize import normalize
from .parameters import parameters
from .resume import (
    GENERATOR_FLAGS,
    begins,
    cell_parameters,
    check_function,
    only_returns,
    resume_code,
    stack_names,
)


def return_trampoline(code, frame_fn, args, home=None):
    """Code with the signature of ``code`` that returns ``frame_fn(*args)``.

    ``args`` is a list of ("local", name) for the value of an argument and ("cell", name) for a cell itself.  A function
    of plain parameters is not called: its body stands in the code.
    ``home`` is ``(globals, note)`` of what was captured: in other globals the code calls ``note()`` and runs as it is.
    """
    check_function(code)
    builder = Builder((code.co_firstlineno, code.co_firstlineno, None, None))
    away = _begin(builder, code, home)
    if not inlined(builder, code, frame_fn, args):
        _call_frame(builder, code, frame_fn, args)
        builder.emit("RETURN_VALUE")
    return _assemble(builder, code, away)


def break_trampoline(code, frame_fn, args, index, stack, locals_, resumes, may_end=False, home=None, link_to=None):
    """Code with the signature of ``code`` that runs the captured part up to raw instruction ``index``.

    ``frame_fn(*args)`` returns the stack's values (without the NULLs, which ``stack`` marks with True), bottom first,
    then the values of ``locals_``.  The instruction itself runs here, under its original handler, and the function
    goes on in ``resumes(next_index, stack, locals_)``, called for each way control may leave the instruction.  With
    None for ``resumes`` the rest runs as it stands in ``code``, without being captured again.

    With ``may_end`` the function returns ``(False, those values)``, or ``(True, result)`` to return at once.
    ``link_to(code)``, if there is such a function, is a list of one function for each of those codes, which takes the
    globals, the closure (or None) and the arguments, and returns what to call in the place of that code, or False.
    """
    check_function(code)
    if code.co_flags & GENERATOR_FLAGS:
        raise ValueError(f"{code.co_qualname} is a generator: it cannot end in a call")
    program = normalize(code)
    if in_handler(program, index):
        raise ValueError(f"{code.co_qualname} handles an exception at instruction {index}")
    start = entry_index(program.instructions, index)
    builder = Builder(program.instructions[start].positions)
    away = _begin(builder, code, home)
    _run_frame(builder, code, frame_fn, args)
    if may_end:
        builder.return_if_first()
    _restore_state(builder, code, stack, locals_)
    if resumes is None or two_cells(code) or _touches_rebound_cell(program, start):
        copies = copy_code(program.instructions, start)
        builder.enter(checked_loads(copies.values(), locals_), copies[start])
    else:
        _Break(builder, program, start, stack, locals_, resumes, link_to, home).write()
    return _assemble(builder, code, away)


def eager_trampoline(code, captured, index, cuts, resumes, may_end=False, home=None, link_to=None):
    """Code with the signature of ``code`` that runs a loop as it stands and goes on in resume functions behind it.

    ``captured`` is ``(frame_fn, args, stack, locals)``, as for ``break_trampoline``, like ``may_end``: the part up to
    raw instruction ``index``; with None for it all of the function runs as it stands.  Where control comes to one of
    ``cuts``, it goes on in ``resumes(cut, stack, locals)``.
    """
    check_function(code)
    program = normalize(code)
    start = entry_index(program.instructions, index) if captured is not None else 0
    builder = Builder(program.instructions[start].positions)
    copies = copy_code(program.instructions, start, cuts)
    body = list(copies.values())
    away = None
    if captured is not None:
        frame_fn, args, stack, locals_ = captured
        away = _begin(builder, code, home)
        _run_frame(builder, code, frame_fn, args)
        if may_end:
            builder.return_if_first()
        _restore_state(builder, code, stack, locals_)
        body = checked_loads(body, locals_)
    if any(NULL in stack_shapes(program)[program.first_op[cut]] for cut in cuts):
        body = _plain_attributes(body)
    for cut in cuts:
        place = body.index(copies[cut]) + 1
        body[place:place] = _going_on(program, cut, resumes, link_to)
    if captured is None:
        builder.extend(body)
    else:
        builder.enter(body, copies[start])
    return _assemble(builder, code, away)


def _plain_attributes(body):
    """The same instructions with attributes read in plain form: only then is the stack of a cut what is known of it."""
    builder = Builder(None)
    for instruction in body:
        builder.extend([instruction])
        if (plain := plain_attribute(instruction)) is not None:
            instruction.op, instruction.arg = plain
            builder.positions = instruction.positions
            null_after_attribute(builder)
    return builder.instructions


def _going_on(program, cut, resumes, link_to):
    """Instructions that call the resume function for ``cut`` and return what it returns."""
    stack = stack_shapes(program)[program.first_op[cut]]
    live = live_locals(program, cut)
    passed = tuple(name for name in program.varnames if name in live)
    nulls = tuple(mark == NULL for mark in stack)
    spilled = _spill_names([False] * len(stack), program.varnames)
    builder = Builder(program.instructions[cut].positions)
    for name in reversed(spilled):
        builder.emit("STORE_FAST", name)
    for name in program.varnames:  # bound or not, the frame is not to keep it alive
        if name not in passed and name not in program.cellvars:
            builder.emit("LOAD_CONST", None)
            builder.emit("STORE_FAST", name)
    arguments = [*[name for name, null in zip(spilled, nulls, strict=True) if not null], *passed]
    _return_resumed(builder, resumes(cut, nulls, passed), arguments, link_to)
    return builder.instructions


def _return_resumed(builder, resumed, arguments, link_to=None, home=None):
    """Return what a resume function returns that takes the locals ``arguments`` from here."""
    cells = cell_parameters(resumed)
    ways = [lambda: builder.closure(resumed)]
    if link_to is not None and not only_returns(resumed):  # nobody has code for that
        (chosen,) = stack_names([False], arguments, "__link_")
        builder.begin_call(lambda: builder.first_of(link_to(resumed)))
        if home is None:
            builder.globals()
        else:
            builder.emit("LOAD_CONST", home[0])
        builder.cells(resumed.co_freevars)
        for name in arguments:
            builder.emit("LOAD_FAST", name)
        for name in cells:
            builder.load_cell(name)
        builder.end_call(2 + len(arguments) + len(cells))
        builder.emit("STORE_FAST", chosen)
        no = builder.jump_if_is(chosen, False)
        ways.insert(0, lambda: builder.take(chosen))
    for way in ways:
        builder.begin_call(way)
        for name in arguments:
            builder.take(name)
        for name in cells:
            builder.load_cell(name)
        builder.end_call(len(arguments) + len(cells))
        builder.emit("RETURN_VALUE")
        if way is not ways[-1]:
            no.target = no.argval = builder.emit("NOP")


def _assemble(builder, code, away=None):
    if away is not None:
        _run_as_it_stands(builder, code, *away)
    return assemble(builder.instructions, code, flags=code.co_flags & ~GENERATOR_FLAGS)


def _spill_names(stack, varnames):
    return stack_names(stack, varnames, "__spill_")


def alone_trampoline(code):
    """Code with the signature of ``code`` that calls a function of its body, and that function's code.

    What the hook is told about the second holds for one entry of the first.
    """
    check_function(code)
    passed = tuple(name for name in parameters(code) if name not in code.co_cellvars)
    body = resume_code(code, begins(code), (), passed)
    builder = Builder((code.co_firstlineno, code.co_firstlineno, None, None))
    builder.prologue(code.co_cellvars, len(code.co_freevars))
    _return_resumed(builder, body, passed)
    return _assemble(builder, code), body


def reads_globals(code):
    """Whether it matters to this code in which globals it runs; a function that it makes gets them."""
    return any(instruction.op in _GLOBAL_OPS for instruction in normalize(code).instructions)


_GLOBAL_OPS = ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME", "MAKE_FUNCTION")


def _run_as_it_stands(builder, code, jump, note):
    """What a function does that shares its code with the one that was captured, but not its globals."""
    jump.target = jump.argval = builder.emit("NOP")
    builder.begin_call(lambda: builder.emit("LOAD_CONST", note))
    builder.end_call(0)
    builder.emit("POP_TOP")
    start = begins(code)
    copies = copy_code(normalize(code).instructions, start)
    builder.enter(list(copies.values()), copies[start])


def _begin(builder, code, home):
    """What comes first; returns the jump to take in other globals than its own, and what to call there."""
    builder.prologue(code.co_cellvars, len(code.co_freevars))
    return None if home is None else (builder.jump_unless_globals(home[0]), home[1])


def _run_frame(builder, code, frame_fn, args):
    """Push what the captured part returns."""
    if not inlined_ahead(builder, code, frame_fn, args):
        _call_frame(builder, code, frame_fn, args)


def _call_frame(builder, code, frame_fn, args):
    """Call the captured part."""
    builder.begin_call(lambda: builder.emit("LOAD_CONST", frame_fn))
    for kind, name in args:
        if kind == "cell":
            builder.load_cell(name)
        elif name in code.co_cellvars or name not in code.co_varnames:
            builder.emit("LOAD_DEREF", name)
        else:
            builder.emit("LOAD_FAST", name)
    builder.end_call(len(args))


def _restore_state(builder, code, stack, locals_):
    """Unpack what the captured part returned into the locals and onto the stack."""
    spilled = _spill_names(stack, code.co_varnames)
    values = [name for name in spilled if name is not None]
    builder.emit("UNPACK_SEQUENCE", len(values) + len(locals_))
    for name in (*values, *locals_):
        builder.emit("STORE_FAST", name)
    for name in parameters(code):
        if name not in locals_ and name not in code.co_cellvars:
            builder.emit("DELETE_FAST", name)
    builder.push_stack(spilled)


def _touches_rebound_cell(program, index):
    ops = program.ops[program.first_op[index] : program.first_op[index + 1]]
    return bool(program.rebound_cells) and any(op.name == "UNSUPPORTED" for op in ops)


class _Break:
    """Writes the instruction at which the captured part ends, and what comes after it."""

    def __init__(self, builder, program, start, stack, locals_, resumes, link_to, home):
        self.builder = builder
        self.program = program
        self.start = start
        self.resumes = resumes
        self.link_to = link_to
        self.home = home
        first = program.first_op[start]
        # The call's prefixes have no ops, so the op says which instruction ends the group.
        self.last = max(start, program.ops[first].index) if first < len(program.ops) else start
        self.ops = program.ops[first : program.first_op[self.last + 1]]
        self.stack = tuple(NULL if null else VALUE for null in stack)
        self.passed_in = locals_
        self.bound = set(locals_)

    def write(self):
        """The instruction, a call for each way to go on, and the handler's code if it has a handler."""
        falls, jumps, jumped_to = self._effects()
        handler, copies = self._copy_handler()
        jump = self._instruction(handler)
        if falls is not None:
            next_index = self._index_of_op(self.program.first_op[self.last + 1])
            self._continue(next_index, falls)
        if jumps is not None:
            landing = len(self.builder.instructions)
            if jump is not None:
                for op in FOR_ITER_END if jump.op == "FOR_ITER" else ():
                    self.builder.emit(op)
            self._continue(self._index_of_op(jumped_to), jumps)
            if jump is not None:
                jump.target = jump.argval = self.builder.instructions[landing]
        self.builder.extend(copies)

    def _index_of_op(self, op):
        return self.program.ops[op].index

    def _effects(self):
        """The stack where the instruction falls through and where it jumps, and the op it jumps to."""
        stack, jumps, target = self.stack, None, None
        for op in self.ops:
            null_local = VALUE if op.arg in self.bound else NULL
            raw = self.program.instructions[op.index]
            popped = stack[-1] if stack else None
            stack, jumped = after(op, stack, raw, null_local)
            if op.name == "STORE_FAST":
                (self.bound.discard if popped == NULL else self.bound.add)(op.arg)
            elif op.name in ("DELETE_FAST", "LOAD_FAST_AND_CLEAR"):
                self.bound.discard(op.arg)
            if jumped is not None:
                jumps, target = jumped, op.target
            if stack is None:
                break
        return stack, jumps, target

    def _copy_handler(self):
        """The original handler and all code it leads to: an exception raised here is CPython's to handle."""
        handler = self.program.instructions[self.last].handler
        if handler is None:
            return None, ()
        number = self.program.instructions.index(handler.target)
        copies = copy_code(self.program.instructions, number)
        code = checked_loads(copies.values(), self.passed_in)
        return Handler(copies[number], handler.depth, handler.lasti), code

    def _instruction(self, handler):
        """Write the original instruction; returns it if its jump target has still to be set."""
        jump = None
        for original in self.program.instructions[self.start : self.last + 1]:
            if original.op in TERMINATORS and original.target is not None:
                continue
            copy = copy_instruction(original)
            copy.handler = handler
            # The way on is always below.
            copy.op = copy.op.replace("JUMP_BACKWARD_IF", "JUMP_FORWARD_IF")
            plain = plain_attribute(copy)
            if plain is not None:
                copy.op, copy.arg = plain
            self.builder.extend([copy])
            if plain is not None:
                null_after_attribute(self.builder)
            if copy.target is not None:
                jump = copy
        return jump

    def _continue(self, next_index, stack):
        """Call the resume function for ``next_index`` with the stack and the locals as they now are."""
        builder = self.builder
        live = live_locals(self.program, next_index)
        passed = tuple(name for name in self.program.varnames if name in self.bound and name in live)
        nulls = tuple(mark == NULL for mark in stack)
        # A NULL is stored like any value: that is how it leaves the stack.
        spilled = _spill_names([False] * len(stack), self.program.varnames)
        for name in reversed(spilled):
            builder.emit("STORE_FAST", name)
        for name in sorted(self.bound.difference(passed)):
            builder.emit("DELETE_FAST", name)
        arguments = [*[name for name, null in zip(spilled, nulls, strict=True) if not null], *passed]
        _return_resumed(builder, self.resumes(next_index, nulls, passed), arguments, self.link_to, self.home)
