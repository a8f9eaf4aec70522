"""Running functions in the evaluator: whole, up to an instruction, or noting every state on the way."""

import inspect
import types

from torchmux.frontend.bytecode import in_handler

from .evaluator import NULL, Evaluator, Stopped, Unfinished, Wrong


def bind(function, args, kwargs):
    """(locals, cells) of a frame of ``function`` at its start."""
    code = function.__code__
    # Through a function that returns its own locals, the arguments are bound by CPython itself.
    values = _bind_arguments(function, args, kwargs)
    cells = {name: types.CellType() for name in code.co_cellvars}
    cells.update(zip(code.co_freevars, function.__closure__ or (), strict=True))
    for name in code.co_cellvars:
        if name in values:
            cells[name].cell_contents = values.pop(name)
    return values, cells


def _bind_arguments(function, args, kwargs):
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def evaluate(function, args=(), kwargs=None, before=None):
    """What ``function(*args, **kwargs)`` gives, by its micro-ops; a generator where it is a generator function."""
    values, cells = bind(function, args, kwargs or {})
    frame = Evaluator(function.__code__, function.__globals__, values, cells, before)
    return frame.steps() if function.__code__.co_flags & 0x20 else frame.run()


def states(function, args=(), kwargs=None):
    """{raw index: (NULL marks of the stack, names of the bound locals)} where a run first comes by, not in handlers."""
    found = {}

    def before(frame, index):
        if any(isinstance(value, Unfinished) for value in frame.stack) or in_handler(frame.program, index):
            return
        if index not in found:
            found[index] = tuple(value is NULL for value in frame.stack), frozenset(frame.locals)

    try:
        evaluate(function, args, kwargs, before)
    except Wrong:
        raise
    except Exception:
        # Whether it is the function's own or the end of what is supported: the states before it count.
        return found
    return found


def stop_at(index):
    """A ``before`` that ends evaluation ahead of one raw instruction."""

    def before(frame, reached):
        if reached == index:
            raise Stopped

    return before
