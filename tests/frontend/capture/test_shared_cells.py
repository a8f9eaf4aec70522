"""Functions that share variables with the frame, across graph breaks: as in eager, and captured once."""

from __future__ import annotations

import pytest
import torch

import torchmux

X = torch.linspace(-1, 1, 4)


def pause():
    torchmux.graph_break()


def written_after_the_break(x):
    count = 0

    def more():
        nonlocal count
        count += 1
        return count

    y = x + more()
    pause()
    count += 10
    return y * more(), count


def written_only_inside(x):
    total = x

    def add(y):
        nonlocal total
        total = total + y

    add(x)
    pause()
    add(x * 2)
    return total


def written_only_outside(x):
    scale = 1

    def scaled(y):
        return y * scale

    pause()
    scale = 3
    y = scaled(x)
    pause()
    scale = 4
    return y + scaled(x)


def several_share_one(x):
    state = 0

    def up():
        nonlocal state
        state += 1

    def down():
        nonlocal state
        state -= 3

    def read():
        return state

    for f in (up, down, up):
        pause()
        f()
    state *= 2
    return x * read() + state


def two_variables(x):
    a, b = x, 0

    def swap():
        nonlocal a, b
        a, b = b + a, a

    pause()
    swap()
    pause()
    b = b * 2
    swap()
    return a, b


def unbound_and_bound_again(x):
    held = x

    def drop():
        nonlocal held
        del held

    def put():
        nonlocal held
        held = x * 5

    pause()
    drop()
    put()
    pause()
    held = held + 1
    return held


def in_a_loop(x):
    n = 0

    def step(y):
        nonlocal n
        n += 1
        return y + n

    for _ in range(3):
        x = step(x)
        pause()
        n += 2
        x = step(torch.sin(x))
    return x, n


def by_a_comprehension(x):
    n = 1

    def scaled(y):
        return y * n

    pause()
    n = 2
    ys = [scaled(x) + n for _ in range(2)]
    n = 3
    return ys, [scaled(x) for _ in range(2)]


def by_a_generator(x):
    n = 1

    def each():
        nonlocal n
        for _ in range(3):
            n += 1
            yield x * n

    pause()
    n = 5
    return [y + n for y in each()], n


def recursive(x):
    depth = 0

    def down(y):
        nonlocal depth
        depth += 1
        return y if depth > 3 else down(y + depth)

    pause()
    depth = 1
    return down(x), depth


def broken_inside_a_nested_function(x):
    n = 0

    def up():
        nonlocal n
        n += 1

    def work(y):
        nonlocal n
        n += 1
        up()
        y = y * n
        pause()
        up()
        n += 1
        return y + n

    return work(work(x)), n


def given_as_a_default(x):
    n = 1

    def scaled(y):
        return y * n

    def use(y, f=scaled):
        return f(y)

    pause()
    n = 7
    return use(x)


PROGRAMS = [
    each for each in list(globals().values()) if callable(each) and each.__module__ == __name__ and each != pause
]


def counted():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    return graphs, backend


def same(got, want):
    if isinstance(want, torch.Tensor):
        return torch.equal(got, want)
    if isinstance(want, (tuple, list)):
        return type(got) is type(want) and len(got) == len(want) and all(map(same, got, want))
    return type(got) is type(want) and got == want


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_as_in_eager_and_captured_once(program):
    graphs, backend = counted()
    compiled = torchmux.compile(program, backend=backend)
    assert same(compiled(X), program(X))
    first = len(graphs)
    assert first
    for scale in range(2, 6):
        assert same(compiled(X * scale), program(X * scale))
    assert len(graphs) == first


def counter():
    count = 0

    def get():
        return count

    def put(value):
        nonlocal count
        count = value

    def f(x, read=get):
        nonlocal count
        count += 1
        return x * read() + count

    return f, get, put


def test_a_function_that_shares_the_variable_of_the_compiled_one():
    f, get, put = counter()
    graphs, backend = counted()
    compiled = torchmux.compile(f, backend=backend, fullgraph=True)
    for number in range(1, 7):
        assert torch.equal(compiled(X), X * number + number)
        assert get() == number
    assert len(graphs) == 2  # the second for any number
    put(-2)
    assert torch.equal(compiled(X), X * -1 - 1)


def test_a_function_that_shares_it_and_one_that_does_not():
    f, get, put = counter()
    _, other, put_other = counter()
    compiled = torchmux.compile(f, backend="eager")
    for read in (other, get, get, other, other, get):
        put(0)
        put_other(0)  # so that the contents do not tell the two apart
        assert torch.equal(compiled(X, read), X * (read is get) + 1)


def test_a_rest_that_looks_at_its_own_variables_sees_no_others():
    def names(x):
        n = 1

        def up():
            nonlocal n
            n += 1

        pause()
        up()
        n += 1
        return x * n, sorted(locals())

    compiled = torchmux.compile(names, backend="eager")
    for _ in range(3):
        got, want = compiled(X), names(X)
        assert torch.equal(got[0], want[0])
        assert got[1] == want[1]
