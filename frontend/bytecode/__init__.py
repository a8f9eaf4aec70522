"""Python bytecode: reading it, normalizing it, and writing the code that CPython runs in place of the user's.

Nothing outside this package depends on the CPython version.  Raw instructions (``parse``) go through the
version's table into one set of micro-ops (``normalize``), which the interpreter follows.  Captured code becomes a code
object again through trampolines and resume functions.

* ``tables``: what differs between CPython versions.
* ``instruction``: raw instructions, with their exception handlers, read from a code object.
* ``normalize``: raw instructions as micro-ops.
* ``effects``: what each micro-op does to the stack, and the shape of the stack before it.
* ``liveness``, ``loops``, ``parameters``: which locals may still be read, where loops are, the parameters of a code.
* ``build``: the instruction sequences of which generated code consists.
* ``inline``: the body of a function in the code that would call it.
* ``trampoline``: the code that replaces a frame; ``resume``: the code that continues after a graph break.
* ``assemble``: instructions as a code object, with its exception table; ``locations``: its table of source lines.
* ``identity``: a cache keyed by the code object itself, not by its value.
"""

from .assemble import assemble
from .effects import after, in_handler, pops_pushes, stack_shapes, takes
from .instruction import CellName, Handler, Instruction, parse
from .liveness import live_locals, reads_frame
from .loops import loop_ends, loop_exits
from .normalize import NULL_BELOW_CALLABLE, Op, Program, normalize
from .parameters import parameters
from .resume import begins, cell_parameters, only_returns, resume_code, resume_origin
from .trampoline import alone_trampoline, break_trampoline, eager_trampoline, reads_globals, return_trampoline

__all__ = [
    "NULL_BELOW_CALLABLE",
    "CellName",
    "Handler",
    "Instruction",
    "Op",
    "Program",
    "after",
    "alone_trampoline",
    "assemble",
    "begins",
    "break_trampoline",
    "cell_parameters",
    "eager_trampoline",
    "in_handler",
    "live_locals",
    "loop_ends",
    "loop_exits",
    "normalize",
    "only_returns",
    "parameters",
    "parse",
    "pops_pushes",
    "reads_frame",
    "reads_globals",
    "resume_code",
    "resume_origin",
    "return_trampoline",
    "stack_shapes",
    "takes",
]
