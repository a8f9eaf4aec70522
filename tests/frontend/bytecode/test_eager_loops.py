"""Trampolines that run a loop as it stands and go on behind it, against the functions that they stand for."""

from __future__ import annotations

import types

import pytest

from torchmux.frontend.bytecode import eager_trampoline, loop_ends, loop_exits, normalize, parameters, resume_code


def plain(n):
    total = 0
    for i in range(n):
        total += i
    after = total * 2
    return after, n


def with_break_and_else(n):
    for i in range(n):
        if i == 4:
            found = "break"
            break
    else:
        found = "else"
    return found, n


def returns_inside(n):
    for i in range(n):
        if i == 3:
            return "inside", i
    return "behind", n


def maybe_unbound(n):
    for i in range(n):
        last = i
    return last


def nested(n):
    pairs = []
    for i in range(n):
        for j in range(i):
            if j == 2:
                continue
            pairs.append((i, j))
        pairs.append(i)
    return pairs


def with_while(n):
    while n > 0:
        n -= 3
        if n == 1:
            break
    return n


def while_with_continue(n):
    odd = []
    while n > 0:
        n -= 1
        if n % 2 == 0:
            continue
        odd.append(n)
    return odd


def in_try(n):
    log = []
    try:
        for i in range(n):
            log.append(10 // (4 - i))
        log.append("tried")
    except ZeroDivisionError as error:
        log.append(str(error))
    finally:
        log.append("finally")
    return log


def with_cells(n, scale=2):
    made = []
    for i in range(n):
        made.append(lambda: i * scale)  # noqa: B023 - that it is so is what is tested
    scale += 1
    return [call() for call in made]


def star(*args, key=1, **rest):
    out = [key]
    for a in args:
        out.append(a)
    return out, rest


def two_in_turn(n):
    a = b = 0
    for i in range(n):
        a += i
    for i in range(a):
        b += i
    return a, b


def argument_of_a_method(n):
    table = {}
    table.update({i: i * i for i in range(n)}, last=n)
    [].extend([i + 1 for i in range(n)])
    return table, ",".join(str(i) for i in range(n))


OF_A_NUMBER = (
    plain, with_break_and_else, returns_inside, nested, with_while, while_with_continue, in_try, with_cells,
    two_in_turn, argument_of_a_method,
)  # fmt: skip
CASES = [
    *[(function, (n,)) for function in OF_A_NUMBER for n in (0, 1, 3, 7)],
    (maybe_unbound, (2,)),
    (star, (1, 2, 3)),
]


@pytest.mark.parametrize(("function", "args"), CASES)
def test_it_does_what_the_function_does(function, args):
    code = function.__code__
    program, resumed = normalize(code), []

    def resumes(cut, stack, locals_):
        resumed.append(cut)
        return resume_code(code, cut, stack, locals_)

    for head in loop_ends(program):
        cuts = loop_exits(program, head, 0, parameters(code))
        made = eager_trampoline(code, None, 0, cuts, resumes)
        stand_in = types.FunctionType(made, function.__globals__, closure=function.__closure__)
        stand_in.__defaults__, stand_in.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        for _ in range(20):  # CPython specializes what runs often
            assert stand_in(*args) == function(*args)
        assert sorted(cuts) == sorted(resumed[len(resumed) - len(cuts) :])


def test_a_loop_with_continue_is_left_behind_its_last_instruction():
    program = normalize(while_with_continue.__code__)
    ends = loop_ends(program)
    assert len(ends) == 2
    assert len(set(ends.values())) == 1
    cuts = loop_exits(program, min(ends), 0, ("n",))
    assert cuts
    assert all(cut > ends[min(ends)] for cut in cuts)


def test_a_frame_is_not_cut_where_locals_may_be_unbound():
    program = normalize(maybe_unbound.__code__)
    (head,) = loop_ends(program)
    assert loop_exits(program, head, 0, ("n",)) == ()
    with pytest.raises(UnboundLocalError):
        types.FunctionType(eager_trampoline(maybe_unbound.__code__, None, 0, (), None), {})(0)


def test_each_way_out_of_a_loop_is_a_place_to_go_on():
    program = normalize(with_break_and_else.__code__)
    (head,) = loop_ends(program)
    assert len(loop_exits(program, head, 0, ("n",))) == 2
