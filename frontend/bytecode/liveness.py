"""Which plain locals may still be read: what a frame must carry when it is split at an instruction."""

from .effects import NO_FALL_THROUGH

_READS = frozenset({"LOAD_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR"})
_WRITES = frozenset({"STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR"})

# A function that names one of these may look at its own locals by other means than its instructions.
_FRAME_READERS = frozenset({"locals", "vars", "dir", "eval", "exec"})


def reads_frame(program):
    """May the function look into its own frame by name, so that every local and cell counts as used?"""
    answer = program.memo.get("reads_frame")
    if answer is None:
        answer = program.memo["reads_frame"] = any(
            op.arg in _FRAME_READERS for op in program.ops if op.name == "LOAD_GLOBAL"
        )
    return answer


def zero_argument_super(program, raw_index):
    """Is this raw instruction the call in ``super()``, which reads the frame's first argument?"""
    op = program.ops[program.first_op[raw_index]]
    if op.name != "CALL" or op.arg[0] or "__class__" not in program.freevars or not program.argument_count:
        return False
    before = [i for i in program.instructions[max(0, raw_index - 2) : raw_index] if i.op != "PRECALL"][-1:]
    return bool(before) and before[0].op == "LOAD_GLOBAL" and before[0].argval == "super"


def live_locals(program, raw_index):
    """The plain locals that may be read at or after this raw instruction, on any path, handlers included."""
    masks, names, sets = program.memo.get("live") or _solve(program)
    op = program.first_op[raw_index]
    mask = masks[op] if op < len(masks) else 0
    live = sets.get(mask)
    if live is None:
        live = sets[mask] = frozenset(name for i, name in enumerate(names) if mask >> i & 1)
    return live


def _solve(program):
    names = program.varnames
    bit = {name: 1 << i for i, name in enumerate(names)}
    if reads_frame(program):
        plain = sum(mask for name, mask in bit.items() if name not in program.cellvars)
        masks = [plain] * len(program.ops)
    else:
        masks = _fixpoint(program, bit)
    solution = program.memo["live"] = (masks, names, {})
    return solution


def _fixpoint(program, bit):
    ops = program.ops
    count = len(ops)
    reads, keeps = [0] * count, [-1] * count
    for i, op in enumerate(ops):
        if op.name in _READS:
            reads[i] = bit.get(op.arg, 0)
        if op.name in _WRITES:
            keeps[i] = ~bit.get(op.arg, 0)
        elif op.name == "CALL" and zero_argument_super(program, op.index):
            first = program.varnames[0]
            reads[i] |= 0 if first in program.cellvars else bit[first]
    live = [0] * (count + 1)
    changed = True
    while changed:
        changed = False
        for i in range(count - 1, -1, -1):
            op = ops[i]
            out = 0 if op.name in NO_FALL_THROUGH else live[i + 1]
            if op.target is not None:
                out |= live[op.target]
            mask = reads[i] | out & keeps[i]
            if op.handler is not None:
                # The exception may come before the op has stored anything.
                mask |= live[op.handler[0]]
            if mask != live[i]:
                live[i] = mask
                changed = True
    return live
