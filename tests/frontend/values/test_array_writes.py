"""Writes to NumPy arrays, and arrays that are made of constants, in one graph and as NumPy does them."""

import numpy as np
import pytest
import torch

import torchmux


def counting(a, n):
    out = np.zeros(n)
    for i in range(n):
        out[i] = a[i] * i
    return out


def number_before_a_write(a, n):
    first = a[0]
    each = [v for v in a]  # noqa: C416
    a[0] = 50
    return first, each[0], a


def row_after_a_write(a, n):
    grid = a.reshape(2, 3)
    row = grid[1]
    row += n
    grid[:, 0] = [7, 8]
    return a, row, grid.T


def in_place_operators(a, n):
    b = a
    a += 1
    a *= np.arange(6)
    a[1:3] -= n
    return a, b is a


def overlapping(a, n):
    a[1:] = a[:-1]
    a[:3] += a[3:]
    return a


def masks_and_indices(a, n):
    a[a > 3] = -1
    a[np.array([0, 5])] = n
    return a, a[np.arange(n)]


def constants(a, n):
    steps = np.linspace(0, 1, 6)
    known = np.arange(3) * 2
    before = known.sum()
    view = known[1:]
    view[0] = 100
    whole = np.full((2, 2), n)
    whole[0, 1] = 2.9
    return a * steps, known, before, view, whole, np.eye(2)[0], np.arange(4).tolist(), len(known)


def mixed(a, n):
    empty = np.empty(3)
    empty[:] = n
    return (
        np.where(a > 2, a, 0),
        np.maximum(a, 1),
        np.clip(a, 1, n),
        np.cumsum(a),
        np.concatenate([np.arange(2.0), a]),
        empty,
    )


def to_other_dtypes(a, n):
    flags, small = np.zeros(3, dtype=bool), np.zeros(3, dtype=np.int8)
    flags[1] = 0.5
    flags[2] = a[0]
    small[:] = flags
    single = np.zeros(2, dtype=np.float32)
    single += a[:2]
    return flags, small, single


def shapes(a, n):
    rolled, rows = np.roll(a, 2), a.reshape(2, 3)
    tiled = np.tile(a, 2), np.tile(rows, (2, 1)), np.repeat(a, 2), np.repeat(rows, 2, axis=0), np.roll(rows, 1, axis=1)
    return (
        rolled,
        tiled,
        np.round(a / 3, 1),
        np.outer(a, a),
        np.diff(a),
        np.squeeze(a[None]),
        (a / 7).round(2),
        a.clip(1, 2),
    )


PROGRAMS = [
    shapes,
    counting,
    number_before_a_write,
    row_after_a_write,
    in_place_operators,
    overlapping,
    masks_and_indices,
]
PROGRAMS += [constants, mixed, to_other_dtypes]


def forms(found):
    if isinstance(found, (tuple, list)):
        return [form for part in found for form in forms(part)]
    return [(type(found), getattr(found, "dtype", None), getattr(found, "strides", None), np.asarray(found).tolist())]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_numpy_does(program, backend):
    compiled = torchmux.compile(program, backend=backend, fullgraph=True)
    for n in (2, 3, 2, 4):
        given = np.arange(6.0) + n
        ours = given.copy()
        assert forms(compiled(ours, n)) == forms(program(given, n))
        assert ours.tolist() == given.tolist()


REFUSED = {
    "floats to integers": lambda a, n: np.arange(3).__setitem__(slice(None), a[:3]),
    "another shape": lambda a, n: a.__iadd__(np.ones((2, 6))),
    "a cast that is not of the same kind": lambda a, n: np.arange(6).__iadd__(a),
    "more than one value by a mask": lambda a, n: a.__setitem__(a > 2, a[a > 2] * 2),
    "a number that does not fit": lambda a, n: np.zeros(2, dtype=np.int8).__setitem__(0, 300),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_numpy_converts_otherwise_runs_in_eager(name):
    for n in (1, 2):
        given = np.arange(6.0)
        ours, errors = given.copy(), []
        for function, array in ((REFUSED[name], given), (torchmux.compile(REFUSED[name], backend="eager"), ours)):
            try:
                function(array, n)
                errors.append(None)
            except Exception as error:
                errors.append((type(error), str(error)))
        assert errors[0] == errors[1]
        assert ours.tolist() == given.tolist()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_arrays_that_share_memory(backend):
    def program(x, a, b):
        a += 1
        x.mul_(2)
        return a * 2, b.sum(), x + 1

    compiled = torchmux.compile(program, backend=backend)

    def inputs(kind):
        base = np.arange(6.0)
        x = torch.arange(6.0, dtype=torch.float64)
        if kind == "one base":
            return x, base[:4], base[2:], base
        if kind == "a tensor's":
            return x, x.numpy()[1:3], base, base
        return x, base, np.arange(3.0), base

    for kind in ("apart", "one base", "apart", "a tensor's", "one base"):
        given = inputs(kind)
        ours = inputs(kind)
        assert forms(compiled(*ours[:3])[:2]) == forms(program(*given[:3])[:2])
        assert forms(list(ours[1:])) == forms(list(given[1:])) and torch.equal(ours[0], given[0])
    assert len(compiled._torchmux_record) >= 1


def test_a_constant_array_is_new_in_each_call():
    def program(x):
        a = np.arange(3)
        return a, np.full(2, 1.5), torch.from_numpy(np.arange(3)) + x

    compiled = torchmux.compile(program, backend="eager", fullgraph=True)
    x = torch.ones(3, dtype=torch.int64)
    for _ in range(3):
        a, b, c = compiled(x)
        assert a.tolist() == [0, 1, 2] and b.tolist() == [1.5, 1.5] and c.tolist() == [1, 2, 3]
        a[:] = 9
        b[:] = 9


def places_that_change(a, k):
    a[k] = a[k - 1] + k
    a[:k] += 1
    return a[:k], a[k:], a[-k:], a[k - 1], a.reshape(2, 3)[:, :k][k % 2], torch.from_numpy(a)[k]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_places_that_change_are_known_to_the_graph(backend, dynamic):
    compiled = torchmux.compile(places_that_change, backend=backend, dynamic=dynamic)
    for k in (2, 3, 4, 5):
        given, expected = np.arange(6.0), np.arange(6.0)
        assert str(compiled(given, k)) == str(places_that_change(expected, k))
        assert given.tolist() == expected.tolist()
    report = torchmux.report(compiled)
    assert not report.breaks
    assert backend == "aot_eager" or len(report.graphs) < 4
    with pytest.raises(IndexError, match="index 6 is out of bounds for axis 0 with size 6"):
        compiled(np.arange(6.0), 6)
