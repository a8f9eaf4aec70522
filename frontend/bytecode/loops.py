"""The loops of a program: where they are, and what is known at their exits."""

import itertools

from .build import entry_index
from .effects import EXCEPTION, MAYBE_NULL, NO_FALL_THROUGH, stack_shapes
from .liveness import live_locals

_BACK = ("JUMP_BACKWARD", "POP_JUMP_BACKWARD")
_AWAITS = "JUMP_BACKWARD_NO_INTERRUPT"


def loop_ends(program):
    """{raw instruction that a loop begins with: its last one}; a loop is laid out in one piece.

    A ``while`` has its condition at both ends, and ``continue`` jumps to the first: what comes of it are jumps back
    that cross one another, and are one loop.  A comprehension that is a function of its own, as in CPython 3.11, is the
    call that takes its iterator.
    """
    ends = program.memo.get("loops")
    if ends is None:
        ends = program.memo["loops"] = {}
        number = {id(instruction): index for index, instruction in enumerate(program.instructions)}
        for index, instruction in enumerate(program.instructions):
            if instruction.op.startswith(_BACK) and instruction.op != _AWAITS:
                ends[number[id(instruction.target)]] = index
        for before, op in itertools.pairwise(program.ops):
            if before.name == "GET_ITER" and op.name == "CALL":
                ends[op.index] = op.index
        for head in sorted(ends, reverse=True):
            crossed = [ends[other] for other in ends if head < other <= ends[head]]
            ends[head] = max([ends[head], *crossed])
    return ends


def loop_exits(program, head, start, bound):
    """The raw instructions at which the loop that begins with ``head`` is left, and where a frame can be cut.

    That is, where it is known what is on the stack and which locals are bound, given that control comes from
    instruction ``start`` with the locals ``bound``.
    """
    ops, last = program.ops, loop_ends(program)[head]
    inside = range(program.first_op[head], program.first_op[last + 1])
    ways_out = {op.target for op in ops[inside.start : inside.stop] if op.target is not None} | {inside.stop}
    # Ahead of what belongs to a call: CPython 3.11 may run all of it at PRECALL.
    cuts = {
        entry_index(program.instructions, ops[way].index) for way in ways_out if way not in inside and way < len(ops)
    }
    cuts = {cut for cut in cuts if _is_known(stack_shapes(program)[program.first_op[cut]])}
    known = _bound_locals(program, program.first_op[start], bound, {program.first_op[cut] for cut in cuts})
    return tuple(
        cut
        for cut in sorted(cuts)
        if (found := known.get(program.first_op[cut])) is not None and live_locals(program, cut) <= found
    )


def _is_known(shape):
    return shape is not None and EXCEPTION not in shape and MAYBE_NULL not in shape


def _bound_locals(program, start, bound, ends):
    """{op: the locals that are bound there on every way from op ``start``}, not followed beyond the ops ``ends``.

    An inlined comprehension puts away what its variables were before it, bound or not, and stores that again at its
    end; ``(name,)`` stands for a bound local that is put away.
    """
    shapes, found, work = stack_shapes(program), {}, [(start, frozenset(bound))]
    while work:
        at, now = work.pop()
        while at < len(program.ops):
            before = found.get(at)
            now = now if before is None else before & now
            if now == before:
                break
            found[at] = now
            if at in ends:
                break
            op = program.ops[at]
            if op.handler is not None:
                work.append((op.handler[0], now - {op.arg} if op.name in ("DELETE_FAST", "STORE_FAST") else now))
            if op.name == "STORE_FAST":
                if shapes[at][-1] != MAYBE_NULL or (op.arg,) in now:
                    now |= {op.arg}
                else:
                    now -= {op.arg}
                now -= {(op.arg,)}
            elif op.name == "LOAD_FAST_AND_CLEAR":
                now = now - {op.arg} | {(op.arg,)} if op.arg in now else now - {op.arg, (op.arg,)}
            elif op.name == "DELETE_FAST":
                now -= {op.arg}
            if op.target is not None:
                work.append((op.target, now))
            if op.name in NO_FALL_THROUGH:
                break
            at += 1
    return found
