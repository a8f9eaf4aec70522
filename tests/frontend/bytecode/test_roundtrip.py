"""Parsing and assembling give back the same bytes, for every code object of the standard library."""

# ruff: noqa: SIM905

import functools
import pathlib
import random
import sysconfig
import types
import warnings

import pytest

from torchmux.frontend.bytecode import (
    Instruction,
    assemble,
    break_trampoline,
    in_handler,
    live_locals,
    normalize,
    parse,
    resume_code,
    stack_shapes,
)

from .cases import CASES, many_locals

SAMPLE = """
abc.py argparse.py ast.py asyncio/base_events.py asyncio/tasks.py collections/__init__.py contextlib.py copy.py
dataclasses.py dis.py email/_header_value_parser.py enum.py functools.py inspect.py json/decoder.py logging/__init__.py
pathlib.py pathlib/_local.py pickle.py statistics.py tarfile.py traceback.py typing.py unittest/mock.py zipfile.py
""".split()

SAME = """
co_code co_exceptiontable co_linetable co_consts co_names co_varnames co_cellvars co_freevars co_flags
co_nlocals co_argcount co_posonlyargcount co_kwonlyargcount co_firstlineno co_name co_qualname co_filename
""".split()


def library():
    return pathlib.Path(sysconfig.get_path("stdlib"))


def walk(code):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from walk(const)


@functools.lru_cache(maxsize=8)
def codes_of(path):
    """All code objects of a source file; none where it is not for this version."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return ()
    return tuple(walk(code))


def sample_files():
    return [path for path in (library() / name for name in SAMPLE) if path.exists()]


def all_files():
    return sorted(path for path in library().rglob("*.py") if "site-packages" not in path.parts)


def assert_round_trip(code):
    again = assemble(parse(code), code)
    for attribute in SAME:
        assert getattr(again, attribute) == getattr(code, attribute), (code, attribute)
    # CPython also counts code that it drops afterwards, so a few originals ask for more than they use.
    assert again.co_stacksize <= code.co_stacksize
    assert list(again.co_positions()) == list(code.co_positions())
    assert all(a is b for a, b in zip(again.co_consts, code.co_consts, strict=True))


@pytest.mark.parametrize("path", sample_files(), ids=lambda path: str(path.relative_to(library())))
def test_round_trip(path):
    for code in codes_of(path):
        assert_round_trip(code)


@pytest.mark.slow
def test_round_trip_of_the_whole_library():
    count = roomier = 0
    for path in all_files():
        for code in codes_of(path):
            assert_round_trip(code)
            roomier += assemble(parse(code), code).co_stacksize < code.co_stacksize
            count += 1
    assert count > 10_000
    assert roomier < count / 1000


def is_stacked(program, op):
    """RETURN_CONST is two micro-ops, but its constant never comes onto CPython's stack."""
    return program.instructions[op.index].op != "RETURN_CONST"


def assert_analyses_agree(code):
    """Every op is known, and the stack is as deep on every way to an op; the handlers' depths are met."""
    program = normalize(code)
    shapes = stack_shapes(program)
    for op, shape in zip(program.ops, shapes, strict=True):
        if shape is not None and op.handler is not None:
            assert len(shape) >= op.handler[1], (code, op)
        if shape is not None and op.target is not None:
            assert shapes[op.target] is not None
    if shapes:
        pairs = zip(program.ops, shapes, strict=True)
        depths = [len(shape) for op, shape in pairs if shape and is_stacked(program, op)]
        assert max(depths, default=0) <= code.co_stacksize
    for index in range(0, len(program.instructions), 7):
        assert live_locals(program, index) <= set(code.co_varnames)


def assert_cuts_assemble(code, choose):
    """Trampolines and resume codes can be written at any instruction, and their stacks are as deep as they should."""
    program = normalize(code)
    shapes = stack_shapes(program)
    indexes = [
        index
        for index in range(len(program.instructions))
        if (first := program.first_op[index]) < len(shapes) and shapes[first] is not None
        if program.ops[first].index == index and not in_handler(program, index)
    ]
    for index in choose.sample(indexes, min(4, len(indexes))):
        stack = tuple(mark == "NULL" for mark in shapes[program.first_op[index]])
        locals_ = tuple(n for n in code.co_varnames if n in live_locals(program, index) and n not in code.co_cellvars)

        def resumes(*where):
            resumed = resume_code(code, *where)
            assert_round_trip(resumed)
            assert_analyses_agree(resumed)
            return resumed

        made = break_trampoline(code, print, [], index, stack, locals_, resumes)
        assert_round_trip(made)


def is_plain_function(code):
    return code.co_flags & 3 == 3 and not code.co_flags & 0x3A0


@pytest.mark.parametrize("path", sample_files()[::3], ids=lambda path: str(path.relative_to(library())))
def test_analyses_and_cuts(path):
    choose = random.Random(0)
    for code in codes_of(path):
        assert_analyses_agree(code)
        if is_plain_function(code):
            assert_cuts_assemble(code, choose)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(24))
def test_analyses_and_cuts_of_the_whole_library(part):
    choose = random.Random(part)
    for path in all_files()[part::24]:
        for code in codes_of(path):
            assert_analyses_agree(code)
            if is_plain_function(code):
                assert_cuts_assemble(code, choose)


def test_instructions_are_not_changed_by_assembling():
    code = many_locals().__code__
    instructions = parse(code)
    before = [(i.op, i.arg, i.argval, i.target, i.handler) for i in instructions]
    assemble(instructions, code, argnames=("n", *[f"v{i}" for i in range(40)]))
    assert before == [(i.op, i.arg, i.argval, i.target, i.handler) for i in instructions]


def test_equal_constants_of_different_kinds_stay_apart():
    def function():
        return 0

    code = function.__code__
    values = [1, 1.0, True, 0.0, -0.0, (1,), (1.0,)]
    instructions = [i for i in parse(code) if i.op == "RESUME"]
    instructions += [Instruction("LOAD_CONST", None, value) for value in values]
    instructions += [Instruction("BUILD_TUPLE", len(values), len(values)), Instruction("RETURN_VALUE")]
    result = types.FunctionType(assemble(instructions, code), {})()
    assert all(a is b for a, b in zip(result, values, strict=True))


def test_new_names_are_added():
    def function(a):
        return a

    code = function.__code__
    instructions = [i for i in parse(code) if i.op == "RESUME"]
    instructions += [
        Instruction("LOAD_GLOBAL", 0, "answer"),
        Instruction("STORE_FAST", None, "b"),
        Instruction("LOAD_FAST", None, "b"),
        Instruction("RETURN_VALUE"),
    ]
    made = assemble(instructions, code, name="renamed", qualname="some.renamed")
    assert made.co_varnames == ("a", "b")
    assert (made.co_name, made.co_qualname) == ("renamed", "some.renamed")
    assert types.FunctionType(made, {"answer": 42})(0) == 42


def test_long_jumps_grow_until_they_reach():
    def function(flag):
        return flag if flag else 5

    code = function.__code__
    for padding in (1, 100, 126, 127, 128, 252, 253, 254, 255, 256, 257, 40_000):
        instructions = parse(code)
        jump = next(i for i in instructions if i.target is not None)
        at = instructions.index(jump) + 1
        instructions[at:at] = [Instruction("NOP") for _ in range(padding)]
        made = types.FunctionType(assemble(instructions, code), {})
        assert (made(3), made(0)) == (3, 5)


def test_a_jump_the_wrong_way_is_refused():
    def function(flag):
        return flag if flag else 5

    instructions = parse(function.__code__)
    jump = next(i for i in instructions if i.target is not None)
    jump.target = instructions[0]
    with pytest.raises(ValueError, match="wrong direction"):
        assemble(instructions, function.__code__)


def test_the_cases_round_trip():
    for function, _, _ in CASES.values():
        for code in walk(function.__code__):
            assert_round_trip(code)
