"""Resume functions: the rest of a function from one instruction on, as a separate function."""

import inspect

from .assemble import assemble
from .build import Builder, checked_loads, copy_code, entry_index, free_names
from .identity import CodeMap
from .instruction import Instruction, two_cells
from .liveness import reads_frame, zero_argument_super
from .normalize import normalize

_origins = CodeMap()
GENERATOR_FLAGS = (
    inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
)
_ARGUMENT_FLAGS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_FUNCTION_FLAGS = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS
_SUSPENDING = frozenset({"YIELD_VALUE", "SEND", "RETURN_GENERATOR"})


def resume_origin(code):
    """(original code, raw instruction index) of a resume code, None for any other code."""
    return _origins.get(code)


def begins(code):
    """The raw instruction with which a function begins, behind what makes its frame."""
    return 1 + next(index for index, each in enumerate(normalize(code).instructions) if each.op == "RESUME")


def resume_code(code, index, stack, locals_):
    """The code of a function that continues in ``code`` at raw instruction ``index``.

    Its parameters are the stack's entries that are not NULL (``stack`` marks the NULLs with True), bottom first, then
    the locals named by ``locals_``; every other local is unbound.  All cells of ``code`` that are still needed are
    free variables, and parameters as well, the last ones: see :func:`cell_parameters`.
    """
    check_function(code)
    if two_cells(code):
        raise ValueError(f"{code.co_qualname} has two cells of one name")
    program = normalize(code)
    start = entry_index(program.instructions, index)
    copies = copy_code(program.instructions, start)
    if any(copy.op in _SUSPENDING for copy in copies.values()):
        raise ValueError(f"the rest of a generator cannot run as a plain function: {code.co_qualname}")
    body, entry = _with_super_arguments(program, copies, start)
    body = checked_loads(body, locals_)
    parameters = stack_names(stack, locals_)
    cells = (*code.co_cellvars, *code.co_freevars)
    used = cells if reads_frame(program) else free_names(body)
    freevars = [name for name in cells if name in used]
    taken = (*[name for name in parameters if name is not None], *locals_)
    held = {} if reads_frame(program) else _cell_names(freevars, (*taken, *code.co_varnames))

    builder = Builder(entry.positions)
    builder.prologue((), len(freevars))
    builder.push_stack(parameters)
    builder.enter(body, entry)
    resumed = assemble(
        builder.instructions,
        code,
        argnames=(*taken, *held.values()),
        cellvars=(),
        freevars=freevars,
        flags=code.co_flags & ~GENERATOR_FLAGS & ~_ARGUMENT_FLAGS | _FUNCTION_FLAGS,
    )
    _origins.set(resumed, (code, index))
    if reads_frame(program):
        # The rest may no longer name what reads the frame: it may hold it already.
        normalize(resumed).memo["reads_frame"] = True
    normalize(resumed).memo["cells"] = held
    return resumed


def cell_parameters(code):
    """{free variable: the parameter that holds its cell} of a resume code, in the order of the parameters.

    A check of a frame receives the contents of the frame's cells, so only a parameter can tell whether another function
    shares a cell.  Code that may look into its own frame has none, as it would see them.
    """
    return normalize(code).memo.get("cells", {})


def _cell_names(names, taken, prefix="__cell_"):
    while any(name.startswith(prefix) for name in taken):
        prefix = "_" + prefix
    return {name: prefix + name for name in names}


# What moves values about, and runs nothing of the program's.
_MOVES = frozenset(
    {
        "LOAD_FAST", "STORE_FAST", "DELETE_FAST", "LOAD_CONST", "LOAD_DEREF", "POP_TOP", "PUSH_NULL", "COPY", "SWAP",
        "BUILD_TUPLE", "BUILD_LIST", "JUMP", "RETURN_VALUE",
    }
)  # fmt: skip


def only_returns(code):
    """Whether the rest of a function does nothing but return a value."""
    ops, at, seen = normalize(code).ops, 0, set()
    while at not in seen and at < len(ops) and ops[at].name in _MOVES:
        seen.add(at)
        if ops[at].name == "RETURN_VALUE":
            return True
        at = at + 1 if ops[at].target is None else ops[at].target
    return False


def check_function(code):
    """Only a function's own locals and stack can be moved; a module or class body lives in a dict."""
    if code.co_flags & _FUNCTION_FLAGS != _FUNCTION_FLAGS:
        raise ValueError(f"{code.co_qualname} is not the code of a function")


def stack_names(stack, taken, prefix="__stack_"):
    """A local's name for every stack entry, None for a NULL, such that none is in ``taken``."""
    while any(name.startswith(prefix) for name in taken):
        prefix = "_" + prefix
    names, count = [], 0
    for null in stack:
        names.append(None if null else f"{prefix}{count}")
        count += not null
    return names


def _with_super_arguments(program, copies, start):
    """([instruction], the one to enter at), with ``super()`` spelled out as ``super(__class__, self)``.

    Without arguments it looks for ``self`` in the frame's first slot, where a resume function has something else.
    """
    entry, body = copies[start], []
    for index, copy in copies.items():
        if zero_argument_super(program, index):
            if not zero_argument_super(program, index - 1):
                body.extend(_super_arguments(program, copy))
                if index == start:
                    entry = body[-2]
            copy.arg = copy.argval = 2
        body.append(copy)
    return body, entry


def _super_arguments(program, call):
    first = program.varnames[0]
    load = "LOAD_DEREF" if first in program.cellvars else "LOAD_FAST"
    return [
        Instruction(op, None, name, None, call.handler, call.positions)
        for op, name in (("LOAD_DEREF", "__class__"), (load, first))
    ]
