"""NumPy called on tensors, and tensors made of arrays: a break is allowed, a wrong answer is not."""

import warnings

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves as leaves

import torchmux

from ..snippets.corpus import tensor
from ..worlds import BACKENDS, check_graphs, check_same, feature, features_of

WHY = "an array that NumPy changes in place ends the graph"


def numbers(*values):
    """Arrays as lists: what was computed is compared, not who holds it."""
    return [value.tolist() for value in values]


@feature()
def arrays_of_tensors(x):
    a = (x * 2).numpy()
    return torch.from_numpy(a + 1) * 3, numbers(np.sin(a))


@feature()
def array_is_an_argument():
    def run(a):
        return numbers(a * 2 + np.ones(3), a.sum())

    yield run, (np.arange(3.0),)
    yield run, (np.arange(3.0) * 2,)


@feature()
def array_from_outside():
    table = np.arange(4.0, dtype=np.float32)

    def run(x):
        return x * torch.as_tensor(table), x + torch.tensor(table)

    yield run, (tensor(),)
    table[0] = 7
    yield run, (tensor(),)


@feature()
def numbers_of_numpy_types():
    def run(x, scale):
        return x * scale, x + np.float32(2), x * float(np.pi), x.shape[0] * np.int64(2)

    yield run, (tensor(), np.float64(2.5))
    yield run, (tensor(), np.float64(3.5))


@feature()
def memory_is_shared(x):
    a = x.numpy()
    a[0] = 5
    return x * 1


@feature()
def numpy_functions_on_tensors(x):
    return numbers(np.exp(x), np.asarray(x)), x * 2


UFUNCS = (
    np.add, np.subtract, np.multiply, np.true_divide, np.maximum, np.fmin, np.arctan2, np.less, np.equal,
    np.logical_and, np.bitwise_xor, np.power, np.floor_divide,
)  # fmt: skip
UNARY = (np.exp, np.log1p, np.sqrt, np.tanh, np.rint, np.absolute, np.negative, np.isfinite, np.logical_not, np.sign)
KINDS = ("float32", "float64", "int32", "int64", "uint8", "bool")


def array(dtype, first=1):
    return (np.arange(first, first + 12) % 7).reshape(3, 4).astype(dtype)


def described(value):
    return type(value), value.dtype, value.shape, value.tolist()


def universal(kinds):
    """Each function of each two dtypes, those that are refused included, and with numbers, which have no dtype."""

    def run(ufunc, a, b):
        try:
            return ufunc(a, b), ufunc(b, 2), ufunc(1.5, a)
        except TypeError:
            return None

    def run_unary(ufunc, a):
        try:
            return ufunc(a), ufunc(a)[0, 1]
        except TypeError:
            return None

    yield from ((run, (ufunc, array(a), array(b, 2))) for ufunc in UFUNCS for a, b in kinds)
    yield from ((run_unary, (ufunc, array(a))) for ufunc in UNARY for a, _ in kinds)


def in_both(function, args, one_graph=False):
    """What NumPy returns, and what the compiled function does: classes, dtypes, shapes and numbers."""
    torchmux.reset()  # what is compiled for other arguments does not count against the limit
    compiled = torchmux.compile(function, backend="eager")
    with np.errstate(all="ignore"):
        for _ in range(2):
            expected, found = (each(*args) for each in (function, compiled))
            assert (expected is None) == (found is None), (function, args)
            for a, b in zip(expected or (), found or (), strict=True):
                assert described(a)[:3] == described(b)[:3], (function, args, a, b)
                np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-7, err_msg=str((function, args)))
    report = torchmux.report(compiled)
    if one_graph:
        assert report.graph_count == 1 and not report.breaks, report.breaks
    return report.graph_count


def test_universal_functions_of_all_dtypes():
    pairs = [("float32", "float32"), ("int64", "int64"), *zip(KINDS, (*KINDS[1:], "float32"), strict=True)]
    graphs = [in_both(function, args) for function, args in universal(pairs)]
    assert sum(graphs) > 0.5 * len(graphs)  # the others are refused


def test_reductions_and_shapes_are_one_graph():
    def reductions(a):
        means = a.mean(), a.std(axis=0), np.var(a, 1, keepdims=True), a.sum(axis=(0, 1)), a.prod(axis=1)
        return *means, np.max(a), a.min(0), a.argmax(), a.argmin(axis=1), (a > 2).any(), np.all(a, axis=0)

    def shapes(a):
        both = np.concatenate([a, a * 2], axis=1), np.stack((a, a)), np.where(a > 2, a, a * 3), np.expand_dims(a, 0)
        parts = a[0], a[0, 1], a[..., None, ::2], a[1:, -1], a.T, a.transpose(1, 0), a.swapaxes(0, 1), a.copy()
        new = np.zeros(3), np.ones((2, 2), dtype=np.int32), np.zeros_like(a), a.reshape(2, -1), a.ravel(), a.flatten()
        return *both, *parts, *new, a.astype(np.float64), np.dot(a.T.astype(np.float32), a.astype(np.float32))

    for dtype in KINDS[:4]:
        in_both(reductions, (array(dtype),), one_graph=True)
        in_both(shapes, (array(dtype),), one_graph=True)


def test_triangles_and_rows_are_one_graph():
    def run(a):
        rows = np.vstack([a[0], a[1]]), np.hstack((a[0], a[1])), np.vstack([a, a * 2]), np.hstack([a, a])
        return np.tril(a), np.triu(a, 1), np.tril(a, -1), np.triu(a[None]), *rows

    for dtype in KINDS:
        in_both(run, (array(dtype),), one_graph=True)


def test_shapes_for_which_triangles_and_rows_differ_from_torchs():
    def run(a):
        return np.tril(a[0]), np.triu(a.T), np.vstack([a[0], a]), np.hstack([a, a.astype(np.float64)])

    in_both(run, (array("float32"),))


def written_in_both(function, array, one_graph=True):
    """What both return, all of it in one row, and what the array is afterwards."""
    torchmux.reset()
    compiled = torchmux.compile(function, backend="eager")
    for _ in range(2):
        (expected, before), (found, after) = ((each(a := array.copy("K")), a) for each in (function, compiled))
        expected, found = [*leaves(expected), before], [*leaves(found), after]
        for one, other in zip(expected, found, strict=True):
            assert type(one) is type(other) and np.asarray(one).dtype == np.asarray(other).dtype, (one, other)
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
    report = torchmux.report(compiled)
    assert not one_graph or (report.graph_count == 1 and not report.breaks), report.breaks


def test_parts_and_orders_are_one_graph():
    def run(a):
        parts = np.split(a, 3), np.split(a, [1, 3], axis=1), np.split(a, (2, -1), 1), np.array_split(a, 3, axis=-1)
        rows = np.hsplit(a, [1]), np.vsplit(a, 3), np.dsplit(a[None], 2), np.hsplit(a[0], 2)
        rows[1][0][0, 0] = 7
        places = np.argsort(a, kind="stable"), a.argsort(0, kind="mergesort"), np.argsort(a, None, stable=True)
        whole = a.astype(np.float64) if a.dtype.kind == "f" else a
        products = np.cumprod(whole), whole.cumprod(axis=1), np.average(a, 0), np.append(a, a, 1), np.append(a, a)
        return parts, rows, places, products, np.sort(a), np.sort(a, axis=None), np.full_like(a, 3)

    for dtype in ("float32", "int32"):
        written_in_both(run, array(dtype))
    special = np.array([np.nan, 1, -np.inf, np.nan, -1, 1])
    written_in_both(lambda a: (np.sort(a), np.argsort(a, kind="stable")), special)


def test_arrays_in_reverse_are_one_graph():
    def run(a):
        back, both, rows = a[::-1], np.flip(a), np.fliplr(a)
        before = back.copy()
        a[0, 0] = 9  # which shows in each of them
        product = both @ a.T if a.dtype.kind == "f" else before
        computed = back + 1, both.sum(0), rows * a, -both, abs(rows), np.flip(both) + 0, both.astype(np.float64)
        joined = np.concatenate([a, back]), np.where(both > 2, both, 0), np.ascontiguousarray(both), np.zeros_like(rows)
        rest = [row + 0 for row in both], len(back), back.shape, torch.from_numpy(back.copy()).numpy()
        return back, both, rows, a[::-1, :], np.flip(a, -1), before, product, computed, joined, rest

    written_in_both(run, array("float32"))
    written_in_both(run, np.asfortranarray(array("int64")), one_graph=False)  # which are not joined


def test_what_is_written_to_an_array_in_reverse_is_in_the_array():
    def written(a):
        a[::-1][0] = 5
        back = np.flip(a, 1)
        back *= 2
        a[:] = a[::-1]
        return np.flip(a)[0], np.flip(a).reshape(-1), np.flip(a).T, np.flip(a, ()) is a, np.arange(3)[::-1]

    written_in_both(written, array("float32"), one_graph=False)
    with pytest.raises(ValueError, match="negative"):
        torchmux.compile(lambda a: torch.from_numpy(a[::-1]) * 2, backend="eager")(np.ones(3))


def test_functions_of_known_arrays_are_computed_while_tracing():
    def run(x):
        schedule = np.cumprod(1 - np.linspace(0.1, 0.2, 5))
        order = np.argsort(np.array([3, 1, 2]))
        mask = torch.from_numpy(np.tril(np.ones((2, 3), dtype=bool)))
        middle = np.median(schedule), np.linalg.norm(schedule), np.percentile(schedule, 50)
        schedule[0] = 5  # the others are made already
        return (x * float(schedule[2])).masked_fill(mask, -1.0), order, *middle, schedule

    in_both(lambda x: run(x)[1:], (torch.ones(2, 3),))
    compiled = torchmux.compile(run, backend="eager")
    torch.testing.assert_close(compiled(torch.ones(2, 3))[0], run(torch.ones(2, 3))[0])


def test_division_by_numbers_selection_by_lists_and_moved_axes_are_one_graph():
    def run(a):
        divided = a // 2, a % 2, a // 3, a % 3, abs(a - 2)
        return (
            *divided,
            a[[0, 2]],
            a[[-1, 0, 0]],
            np.moveaxis(a, 0, 1),
            a.astype(np.float64).T.dot(a.astype(np.float64)),
        )

    for dtype in ("float32", "float64", "int64", "int32"):
        in_both(run, (array(dtype, -3) - np.dtype(dtype).type(3),), one_graph=True)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -4.0, 1e300, 5.5])
    signed = torchmux.compile(lambda a: (a // 2, a % 2, a // 0.3, a % 0.3), backend="eager")(special)
    with np.errstate(all="ignore"):
        for found, expected in zip(signed, (special // 2, special % 2, special // 0.3, special % 0.3), strict=True):
            assert np.array_equal(found, expected, equal_nan=True)
            assert (np.signbit(found) == np.signbit(expected))[~np.isnan(expected)].all()


def test_division_by_what_may_be_zero_is_numpys():
    def run(a, b):
        return a // b, a // 0, 7 // b, a % -2

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for expected, found in zip(run(array("int64"), array("int64")), torchmux.compile(run, backend="eager")(
            array("int64"), array("int64")
        ), strict=True):  # fmt: skip
            assert expected.tolist() == found.tolist()


def test_the_order_in_memory():
    """Copies have the order that NumPy gives them, whatever order the array has."""

    def run(a):
        copies = a.copy(), np.copy(a), a.T.copy(), a.astype(np.int64), a.flatten(), a.ravel(), np.zeros_like(a)
        return (
            *copies,
            a[[0, 0]],
            a // 2,
            a + 1,
            a * a.T.copy().T,
            np.where(a > 2, a, 0),
            np.stack((a, a)),
            np.concatenate([a, a]),
            a.T,
        )

    dense = np.arange(12.0).reshape(3, 4)
    for a in (dense, np.asfortranarray(dense), dense[:, ::2], np.zeros((2, 3, 4)).transpose(1, 2, 0), dense[:1]):
        torchmux.reset()
        for expected, found in zip(run(a), torchmux.compile(run, backend="eager")(a), strict=True):
            assert expected.tolist() == found.tolist()
            steps = [[s for s, n in zip(x.strides, x.shape, strict=True) if n > 1] for x in (expected, found)]
            assert steps[0] == steps[1], a.strides


def test_tensors_share_the_memory_of_arrays():
    def run(a, b):
        torch.from_numpy(a).add_(1)
        return a, torch.from_numpy(a) * 2, torch.tensor(b), torch.as_tensor(b)

    compiled = torchmux.compile(run, backend="aot_eager")
    one, other = np.ones(3), np.zeros(3)
    for a, b in ((one, other), (one, one), (one[::2], other), (one.astype(np.float32), other)):
        copies = {id(each): each.copy() for each in (a, b)}
        eager, found = run(*(copies[id(each)] for each in (a, b))), compiled(a, b)
        assert found[0] is a
        for expected, each in zip(eager, found, strict=True):
            assert expected.tolist() == each.tolist() and expected.dtype == each.dtype
        found[3].add_(5)
        assert b.tolist() == found[3].tolist() != found[2].tolist()


def test_arrays_that_are_no_plain_memory_break_the_graph():
    class Derived(np.ndarray):
        def __add__(self, other):
            return "mine"

    readonly = np.ones(3)
    readonly.flags.writeable = False
    compiled = torchmux.compile(lambda a: a + 1, backend="eager")
    assert compiled(np.ones(3)).tolist() == [2, 2, 2]
    assert compiled(np.ones(3).view(Derived)) == "mine"
    for odd in (readonly, np.arange(3.0)[::-1], np.array([1, 2], dtype=">i4"), np.array(["a"], dtype=object)):
        assert (compiled(odd) == odd + 1).all() if odd.dtype != object else True


@feature()
def constants_of_numpy(x):
    return x * np.pi + np.e


@feature()
def shapes_by_numpy(x):
    return x.view(-1, int(np.prod(x.shape[1:]))), x * int(np.sqrt(16))


@feature()
def types_of_numpy(x):
    return torch.zeros(2, dtype=torch.from_numpy(np.zeros(1, dtype=np.int32)).dtype) + x[0, 0]


HALF, TWO = np.float64(0.5), np.int64(2)


# Operators that take NumPy's numbers for Python's, and those that look at their class.
@feature()
def numbers_of_numpy_as_arguments(x, k=HALF, n=TWO):
    y = torch.empty(2).uniform_(-k, k) * 0 + torch.full((n,), k) + x.new_full((2,), np.float32(0.25))
    return x.view(n, -1), y, torch.clamp(x, np.float32(-k)), x.sum(np.int64(1)), torch.arange(n), x[np.int64(1)]


@feature()
def numbers_of_numpy_with_a_dtype(x, k=HALF):
    return torch.tensor(k) * x, torch.as_tensor([k, np.float32(2)]), torch.tensor(np.float32(3)), x[np.bool_(True)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", features_of(__name__))
def test_numpy_is_as_in_eager(name, backend):
    check_same(__name__, name, backend)


@pytest.mark.parametrize("name", features_of(__name__))
def test_numpy_takes_no_more_graphs(name):
    check_graphs(__name__, name)


def test_arrays_of_constants_are_computed_while_tracing():
    def run(x, patch):
        size = np.array(x.shape)
        rest = (size % np.power(patch, 2)) > 0
        if rest.any():
            raise ValueError(f"{size.tolist()} is not divided by {patch}")
        half = np.floor(size / 2).astype(np.int64)
        return x.view(*half.tolist(), -1) * int(np.prod(half)) - size[0].item(), half, -size, np.max(size)

    compiled = torchmux.compile(run, backend="eager", fullgraph=True, dynamic=False)
    for _ in range(2):
        expected, found = run(torch.ones(4, 8), 2), compiled(torch.ones(4, 8), 2)
        assert str(expected) == str(found)
        assert [type(each) for each in expected] == [type(each) for each in found]
        assert found[1] is not compiled(torch.ones(4, 8), 2)[1]
    with pytest.raises(ValueError, match="is not divided by 3"):
        compiled(torch.ones(4, 8), 3)

    def changes(x):
        size = np.array([1, 2])
        size += 1
        return x * size.sum().item(), size

    def changes_a_view(x):
        size = np.array([1, 2])
        rows, first = size.reshape(2, 1), size[:1]
        rows += 1
        return x * size.sum().item(), size, first

    for function in (changes, changes_a_view):
        assert str(torchmux.compile(function, backend="eager")(torch.ones(2))) == str(function(torch.ones(2)))
