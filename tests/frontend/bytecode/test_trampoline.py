"""Cutting a function anywhere changes nothing: the first part by the evaluator, the rest in trampoline and resume code.

The evaluator stands in for the captured part. It runs up to an instruction and hands out the stack and the locals, as a
compiled graph does; the trampoline then goes on from there.
"""

import gc
import traceback
import types
import weakref
from pathlib import Path

import pytest

from torchmux.frontend.bytecode import (
    break_trampoline,
    cell_parameters,
    in_handler,
    live_locals,
    normalize,
    resume_code,
    resume_origin,
    return_trampoline,
)

from .cases import CASES, many_locals
from .evaluator import NULL, Evaluator, Stopped
from .frames import evaluate, states, stop_at
from .test_normalize import outcome


def with_code(function, code):
    scope, name, closure = function.__globals__, function.__name__, function.__closure__
    made = types.FunctionType(code, scope, name, function.__defaults__, closure)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def frame_arguments(code):
    """What a captured part is given: all plain arguments by value, all cells themselves."""
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    cells = [*code.co_cellvars, *code.co_freevars]
    plain = [name for name in code.co_varnames[:count] if name not in code.co_cellvars]
    return [("local", name) for name in plain] + [("cell", name) for name in cells]


def captured_part(code, global_names, index, locals_):
    """A ``frame_fn``: evaluates ``code`` up to ``index`` and returns the frame as the trampoline wants it."""
    kinds = frame_arguments(code)

    def run(*values):
        plain = {name: value for (kind, name), value in zip(kinds, values, strict=True) if kind == "local"}
        cells = {name: value for (kind, name), value in zip(kinds, values, strict=True) if kind == "cell"}
        frame = Evaluator(code, global_names, plain, cells, stop_at(index))
        try:
            frame.run()
        except Stopped:
            values = [value for value in frame.stack if value is not NULL]
            return (*values, *[frame.locals[name] for name in locals_])
        raise AssertionError("never came by")

    return run


def cut(code, global_names, index, stack, bound, resumes):
    """The trampoline that ends the captured part at ``index``."""
    program = normalize(code)
    locals_ = tuple(name for name in code.co_varnames if name in bound & live_locals(program, index))
    frame_fn = captured_part(code, global_names, index, locals_)
    return break_trampoline(code, frame_fn, frame_arguments(code), index, stack, locals_, resumes)


def raised_at(error):
    """The innermost frame of the traceback that is the function's own."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return last.name, last.lineno, last.colno


def where(function, args, keywords):
    try:
        function(*args, **keywords)
    except Exception as error:
        return raised_at(error)
    return None


@pytest.mark.parametrize("rest", ["resumed", "plain"])
@pytest.mark.parametrize("name", CASES)
def test_cut_at_every_instruction(name, rest):
    function, make_args, keywords = CASES[name]
    code = function.__code__
    expected_args = make_args()
    expected = outcome(function, *expected_args, **keywords)
    expected_where = where(function, make_args(), keywords)

    def resumes(index, stack, locals_):
        return resume_code(code, index, stack, locals_)

    reached = states(function, make_args(), keywords)
    assert reached
    for index, (stack, bound) in reached.items():
        trampoline = cut(code, function.__globals__, index, stack, bound, resumes if rest == "resumed" else None)
        again = with_code(function, trampoline)
        args = make_args()
        assert outcome(again, *args, **keywords) == expected, (index, normalize(code).instructions[index])
        assert repr([a for a in args if type(a) in (list, dict)]) == repr(
            [a for a in expected_args if type(a) in (list, dict)]
        )
        assert where(again, make_args(), keywords) == expected_where


class Stepper:
    """Runs a function one instruction at a time: every resume function is cut again at its own first instruction."""

    def __init__(self, global_names):
        self.global_names = global_names
        self.made = {}
        self.steps = 0

    def resumes_of(self, code):
        def resumes(index, stack, locals_):
            key = (code, index, stack, locals_)
            if key not in self.made:
                self.made[key] = self.step(resume_code(code, index, stack, locals_), stack, locals_)
            return self.made[key]

        return resumes

    def step(self, code, stack, locals_):
        """``code``, a resume code, cut at the instruction that it resumes at."""
        # Both ways of a branch are followed whether or not they are taken, so a loop would never end.
        self.steps += 1
        if self.steps > 150:
            return code
        program = normalize(code)
        index = resumes_at(code, program, stack)
        op = program.ops[program.first_op[index]]
        if in_handler(program, index) or op.name in ("RETURN_VALUE", "UNSUPPORTED"):
            return code
        trampoline = cut(code, self.global_names, index, stack, frozenset(locals_), self.resumes_of(code))
        normalize(trampoline).memo["cells"] = cell_parameters(code)  # it is called as the resume code is
        return trampoline


def resumes_at(code, program, stack):
    """The raw instruction of a resume code that its prefix leads to."""
    ops = program.ops
    position = 0
    for null in stack:
        position += 1 if null or ops[position].name == "LOAD_FAST_AND_CLEAR" else 2
    instruction = program.instructions[ops[position].index]
    if instruction.op == "JUMP_FORWARD":
        position = ops[position].target
    return ops[position].index


@pytest.mark.parametrize("name", CASES)
def test_one_instruction_at_a_time(name):
    function, make_args, keywords = CASES[name]
    code = function.__code__
    expected = outcome(function, *make_args(), **keywords)
    found = states(function, make_args(), keywords)
    index, (stack, bound) = next(iter(found.items()))
    stepper = Stepper(function.__globals__)
    trampoline = cut(code, function.__globals__, index, stack, bound, stepper.resumes_of(code))
    assert outcome(with_code(function, trampoline), *make_args(), **keywords) == expected
    assert stepper.steps or normalize(code).rebound_cells


@pytest.mark.parametrize("name", CASES)
def test_return_trampoline_keeps_the_signature(name):
    function, make_args, keywords = CASES[name]
    code = function.__code__
    if normalize(code).rebound_cells:
        pytest.skip("not in the evaluator's reach")
    kinds = frame_arguments(code)

    def frame_fn(*values):
        plain = {name: value for (kind, name), value in zip(kinds, values, strict=True) if kind == "local"}
        cells = {name: value for (kind, name), value in zip(kinds, values, strict=True) if kind == "cell"}
        return Evaluator(code, function.__globals__, plain, cells).run()

    again = with_code(function, return_trampoline(code, frame_fn, kinds))
    for attribute in ("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags", "co_firstlineno"):
        assert getattr(again.__code__, attribute) == getattr(code, attribute)
    assert outcome(again, *make_args(), **keywords) == outcome(function, *make_args(), **keywords)


def test_an_argument_in_a_cell_is_passed_by_its_contents():
    def function(a, b):
        return lambda: a + b

    code = return_trampoline(function.__code__, lambda *values: values, [("local", "a"), ("local", "b")])
    assert with_code(function, code)(1, 2) == (1, 2)


def test_resume_code_reads_like_the_user_s():
    def outer(x):
        y = x + 1
        return y, lambda: (x, y)

    program = normalize(outer.__code__)
    index = next(i for i, instruction in enumerate(program.instructions) if instruction.op == "BINARY_OP")
    resumed = resume_code(outer.__code__, index, (False, False), ())
    assert resumed.co_name == "outer"
    assert resumed.co_qualname == outer.__code__.co_qualname
    assert resumed.co_filename == outer.__code__.co_filename
    assert resumed.co_firstlineno == outer.__code__.co_firstlineno
    assert resumed.co_freevars == ("x", "y")
    assert resumed.co_cellvars == ()
    assert resumed.co_varnames[: resumed.co_argcount] == ("__stack_0", "__stack_1", "__cell_x", "__cell_y")
    assert cell_parameters(resumed) == {"x": "__cell_x", "y": "__cell_y"}
    assert resume_origin(resumed) == (outer.__code__, index)
    assert resume_origin(outer.__code__) is None
    assert (None, None) not in [position[:2] for position in resumed.co_positions()]


def test_no_clash_with_the_parameters_of_a_resume_code():
    def function(a, b):
        return a - b

    code = function.__code__
    index = next(i for i, ins in enumerate(normalize(code).instructions) if ins.op == "BINARY_OP")
    first = resume_code(code, index, (False, False), ())
    program = normalize(first)
    second_load = next(i for i, ins in enumerate(program.instructions) if ins.argval == "__stack_1")
    second = resume_code(first, second_load, (False,), ("__stack_1",))
    assert second.co_varnames[:2] == ("___stack_0", "__stack_1")
    assert types.FunctionType(second, {})(7, 5) == 2


def test_generators_are_refused():
    def numbers(n):
        yield n
        yield n + 1

    code = numbers.__code__
    index = next(i for i, ins in enumerate(normalize(code).instructions) if ins.op == "YIELD_VALUE")
    with pytest.raises(ValueError, match="generator"):
        resume_code(code, index, (False,), ("n",))
    with pytest.raises(ValueError, match="generator"):
        break_trampoline(code, print, [], index, (False,), (), None)


def test_handlers_are_told():
    def function(x):
        try:
            x = x()
        except ValueError:
            x = len("handled")
        with x:
            x = len("body")
        return x

    program = normalize(function.__code__)
    where = {ins.argval: in_handler(program, i) for i, ins in enumerate(program.instructions) if ins.op == "LOAD_CONST"}
    assert where["handled"] and not where["body"]
    handled = next(i for i, ins in enumerate(program.instructions) if ins.argval == "handled")
    with pytest.raises(ValueError, match="handles an exception"):
        break_trampoline(function.__code__, print, [], handled, (), (), None)


def test_a_module_s_code_is_refused():
    code = compile("x = 1", "<module>", "exec")
    with pytest.raises(ValueError, match="not the code of a function"):
        resume_code(code, 1, (), ())


class Tracked:
    pass


def dead_values():
    seen = []

    def function(a, b, probe):
        c = Tracked()
        probe(c)
        c = None
        b = a = None  # noqa: F841
        gc.collect()
        return seen[0]()

    def probe(value):
        seen.append(weakref.ref(value))

    code = function.__code__
    program = normalize(code)
    call = next(i for i, ins in enumerate(program.instructions) if ins.op == "CALL")
    stack, bound = _state_at(function, call)
    trampoline = cut(code, function.__globals__, call, stack, bound, lambda *where: resume_code(code, *where))
    return with_code(function, trampoline)(1, 2, probe)


def test_dead_values_are_released_before_the_rest_runs(run_python):
    """In a process of its own: an exception that has gone through torch's hook leaves it on, and then each call keeps
    what it passes on.
    """
    code = "from frontend.bytecode.test_trampoline import dead_values\nprint(dead_values())"
    assert run_python(code, path=(Path(__file__).parents[2],)) == "None\n"


def _state_at(function, index):
    kept = {}

    def before(frame, reached):
        if reached == index:
            kept["state"] = tuple(value is NULL for value in frame.stack), frozenset(frame.locals)
            raise Stopped

    with pytest.raises(Stopped):
        evaluate(function, (1, 2, None), before=before)
    return kept["state"]


def test_wide_operands():
    function = many_locals()
    expected = function(4)
    code = function.__code__
    found = states(function, (4,))
    for index in list(found)[:: len(found) // 40]:
        stack, bound = found[index]
        trampoline = cut(code, function.__globals__, index, stack, bound, lambda *where: resume_code(code, *where))
        assert with_code(function, trampoline)(4) == expected


def test_a_local_that_was_not_handed_on_is_unbound():
    def function(a, b):
        c = a
        c, b = b, c
        return [a, b, c, a + b]

    code = function.__code__
    program = normalize(code)
    first_load = next(i for i, ins in enumerate(program.instructions) if ins.op == "RESUME") + 1
    resumed = resume_code(code, first_load, (), ("b",))
    with pytest.raises(UnboundLocalError):
        types.FunctionType(resumed, {})(2)
