"""The body of a frame function stands in the code that replaces a frame."""

import sys
import types

import pytest

from torchmux.frontend.bytecode import break_trampoline, normalize, return_trampoline

FACTOR = 3


def plain(a, b):
    return (a, b)


def calls(first, second):
    total = sum([first, second], FACTOR)
    out = max(total, 0) if first else min(first, second)
    return out, len([total])


def loops_and_handles(first, second):
    found = []
    for item in (first, second):
        try:
            found.append(1 / item)
        except ZeroDivisionError as error:
            found.append(str(error))
    return FACTOR, found


def joins_names(first, second):
    kept = first
    kept, other = second, kept
    return kept, other, first, second


def of_cells(first, cell):
    cell.cell_contents += first
    return cell.cell_contents


def replaced(function, frame_fn, arguments):
    """``function`` with code that does what ``frame_fn`` does."""
    code = return_trampoline(function.__code__, frame_fn, arguments)
    return types.FunctionType(code, {}, closure=function.__closure__, argdefs=function.__defaults__), code


@pytest.mark.parametrize("frame_fn", [calls, loops_and_handles, joins_names])
@pytest.mark.parametrize("given", [(1, 2), (0, 5), (-4, 0)])
def test_it_does_what_the_function_does(frame_fn, given):
    function, code = replaced(plain, frame_fn, [("local", "a"), ("local", "b")])
    assert function(*given) == frame_fn(*given)
    assert frame_fn not in code.co_consts
    swapped, _ = replaced(plain, frame_fn, [("local", "b"), ("local", "a")])
    assert swapped(*given) == frame_fn(*reversed(given))


def test_cells_are_passed_as_they_are():
    def make(kept):
        def function(a):
            nonlocal kept
            kept += a
            return kept

        return function, lambda: kept

    function, look = make(10)
    made, code = replaced(function, of_cells, [("local", "a"), ("cell", "kept")])
    assert made(5) == 15 and look() == 15
    assert of_cells not in code.co_consts


def test_a_parameter_in_a_cell_is_passed_by_its_contents():
    def function(a, b):
        return lambda: a + b

    made, code = replaced(function, calls, [("local", "a"), ("local", "b")])
    assert made(1, 2) == calls(1, 2)
    assert calls not in code.co_consts


def with_more(*values):
    return values


def writes_a_global(first, second):
    global FACTOR
    FACTOR = FACTOR + 0
    return first + second + FACTOR


def makes_a_function(first, second):
    return (lambda: FACTOR)() + second


def rebinds(first, second):
    first = first + 1
    return first, second


@pytest.mark.parametrize("frame_fn", [with_more, writes_a_global, makes_a_function, rebinds])
def test_what_cannot_stand_elsewhere_is_called(frame_fn):
    function, code = replaced(plain, frame_fn, [("local", "a"), ("local", "b")])
    assert function(1, 2) == frame_fn(1, 2)
    assert frame_fn in code.co_consts


def look(kept):
    return kept, sorted(sys._getframe(1).f_locals)


def goes_on(a, b):
    kept = a + b
    return look(kept)


def returns_on_each_way(first, second):
    total = first
    if second > 1:
        more = total + second
        return (more,)
    return (total,)


def returns_a_constant(first, second):
    return ("constant",)


@pytest.mark.parametrize("frame_fn", [returns_on_each_way, returns_a_constant])
@pytest.mark.parametrize("given", [(1, 2), (5, 0)])
def test_ahead_of_a_break_only_its_results_remain(frame_fn, given):
    instructions = normalize(goes_on.__code__).instructions
    index = 1 + next(at for at, each in enumerate(instructions) if "STORE_FAST" in each.op)
    arguments = [("local", "a"), ("local", "b")]
    code = break_trampoline(goes_on.__code__, frame_fn, arguments, index, [], ["kept"], None)
    function = types.FunctionType(code, globals())
    assert function(*given) == (*frame_fn(*given), ["kept"])
    assert frame_fn not in code.co_consts
