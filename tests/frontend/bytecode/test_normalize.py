"""The micro-ops mean what the bytecode means: a concrete evaluator of them does what CPython does."""

import pytest

from torchmux.frontend.bytecode import after, normalize, stack_shapes

from .cases import CASES
from .evaluator import NULL, Unsupported, Wrong
from .frames import evaluate, states


def outcome(function, *args, **kwargs):
    """What a call gave, in a form that compares."""
    try:
        return "returned", repr(function(*args, **kwargs))
    except (Unsupported, Wrong):
        raise
    except Exception as error:
        kept = () if isinstance(error, (UnboundLocalError, NameError)) else error.args
        return "raised", type(error), kept, type(error.__cause__)


@pytest.mark.parametrize("name", CASES)
def test_evaluated_as_cpython_does(name):
    function, make_args, keywords = CASES[name]
    args = make_args()
    expected_args = make_args()
    expected = outcome(function, *expected_args, **keywords)
    try:
        found = outcome(evaluate, function, args, keywords)
    except Unsupported as reason:
        assert normalize(function.__code__).rebound_cells, reason
        return
    assert found == expected
    assert [repr(a) for a in args if isinstance(a, (list, dict))] == [
        repr(a) for a in expected_args if isinstance(a, (list, dict))
    ]


@pytest.mark.parametrize("name", CASES)
def test_shapes_tell_where_the_nulls_are(name):
    function, make_args, keywords = CASES[name]
    program = normalize(function.__code__)
    if program.rebound_cells:
        pytest.skip("not in the evaluator's reach")
    shapes = stack_shapes(program)

    def before(frame, index):
        shape = shapes[program.first_op[index]]
        assert len(shape) == len(frame.stack)
        for mark, value in zip(shape, frame.stack, strict=True):
            assert mark == "value or NULL" or (mark == "NULL") == (value is NULL)

    outcome(evaluate, function, make_args(), keywords, before)


def test_a_program_is_made_once_per_code_object():
    def function(x):
        return x

    twin = function.__code__.replace()
    assert twin == function.__code__
    assert normalize(function.__code__) is normalize(function.__code__)
    assert normalize(twin) is not normalize(function.__code__)


def test_generators_are_evaluated_as_cpython_does():
    def numbers(n):
        got = yield "start"
        try:
            for i in range(n):
                got = yield i, got
        finally:
            yield "finally"
        result = yield from inner()
        return result

    def inner():
        x = yield "inner"
        return x, 1

    def drive(generator):
        out = [next(generator)]
        try:
            while True:
                out.append(generator.send(len(out)))
        except StopIteration as stop:
            out.append(stop.value)
        return out

    assert drive(evaluate(numbers, (3,))) == drive(numbers(3))


def test_a_generator_that_raises_stop_iteration():
    def broken():
        yield 1
        raise StopIteration(2)

    generator = evaluate(broken)
    assert next(generator) == 1
    with pytest.raises(RuntimeError, match="generator raised StopIteration"):
        next(generator)


def test_targets_of_jumps_and_handlers_are_ops():
    for function, _, _ in CASES.values():
        program = normalize(function.__code__)
        for op in program.ops:
            assert program.first_op[op.index] <= program.ops.index(op) < program.first_op[op.index + 1]
            assert op.target is None or 0 <= op.target < len(program.ops)
            assert op.handler is None or 0 <= op.handler[0] < len(program.ops)
            jumps = after(op, ("value",) * 30, program.instructions[op.index])[1]
            assert (jumps is None) == (op.target is None)


def test_states_start_with_an_empty_stack():
    function, make_args, keywords = CASES["loops-0"]
    found = states(function, make_args(), keywords)
    assert next(iter(found.values())) == ((), frozenset({"n"}))
