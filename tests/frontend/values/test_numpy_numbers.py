"""NumPy's numbers: one graph for all values, as arguments of operators and of what Python and NumPy compute."""

import warnings

import numpy as np
import pytest
import torch

import torchmux


def counted(function, calls, **options):
    """How many graphs these calls take; each must give what eager gives."""
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    compiled = torchmux.compile(function, backend=backend, **options)
    for args in calls:
        found, expected = compiled(*args), function(*args)
        assert repr(found) == repr(expected)
        assert type(found) is type(expected)
    return len(graphs)


def times(x, n):
    return x * n


def both_sides(x, n):
    return n - x, x.clamp(max=n), x > n, torch.where(x > 2, x, n), torch.add(x, x, alpha=n)


def sizes(x, n):
    return x.view(n, -1), torch.zeros(n), x[:n]


def full(x, n):
    return torch.full((2,), n), x.new_full((2,), n), x.int() * n, torch.add(x.int(), n)


def in_python(x, n):
    return x * n, type(n).__name__, n + 1, n if n > 2 else 0, f"{n:.1f}"


def in_containers(x, n):
    found = {"n": [n]}
    return x * found["n"][0]


def as_a_tensor(x, n):
    return torch.tensor(n) + x, torch.tensor([n, 1]), x.new_tensor(n), torch.as_tensor(n)


def computed_by_numpy(x, n):
    """NumPy may not warn here: what warns is left to the line of the program."""
    more = x * np.sqrt(n * 2 + 1) * np.exp(-n / 10), max(n, 0.25), abs(-n), n.astype(np.float64), np.clip(n, 0, 3)
    return *more, x[: n.astype(int) % 3 + 1], round(n, 1), (n + 1).item() * x, f"{n} {n:.2f} {[n]}", np.minimum(n, 99)


def overflowing(x, n):
    return x * (n * n), n + n, np.log(n - 2)


X = torch.arange(4.0) + 1
INTEGERS = [(X, np.int64(n)) for n in (1, 2, 4)]
FLOATS = [(X, np.float64(n)) for n in (1.5, 2, 0.1, 4)]


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (times, INTEGERS), (times, FLOATS), (times, [(X, np.float32(n / 7)) for n in range(1, 4)]),
        (computed_by_numpy, [(X, np.float64(n)) for n in (4.5, 5.25, 7.5)]),
        (computed_by_numpy, [(X, np.int64(n)) for n in (4, 5, 7)]),
        (both_sides, FLOATS), (sizes, INTEGERS), (full, INTEGERS), (full, FLOATS), (in_containers, FLOATS),
    ],
)  # fmt: skip
def test_one_graph_for_all_values(function, calls):
    assert counted(function, calls, fullgraph=True) == 1


def test_python_sees_the_number_itself():
    assert counted(in_python, INTEGERS, fullgraph=True) == 2  # either side of the branch


def test_what_numpy_warns_of():
    for numbers in ([3, 4, 2**62, 1, 2, 5], [3.0, 1e300, 2.0, 1.0, 4.0]):
        calls = [(X, np.int64(n) if type(n) is int else np.float64(n)) for n in numbers]
        heard = []
        for function in (overflowing, torchmux.compile(overflowing, backend="eager")):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                results = [function(*arguments) for arguments in calls]
            heard.append((str(results), [(str(w.message), w.lineno) for w in caught]))
        assert heard[0] == heard[1]


def test_a_tensor_of_it_has_its_dtype():
    counted(as_a_tensor, INTEGERS)
    counted(as_a_tensor, [(X, np.float32(0.1)), (X, np.float64(0.1))])


def test_types_and_special_values_are_apart():
    calls = [(X, n) for n in (np.int64(3), 3, np.float64(3), 3.0, np.int32(3), np.float32(3), np.bool_(True))]
    calls += [(X, np.float64(n)) for n in (0.0, -0.0, float("inf"), float("nan"))]
    counted(times, calls)


class Scales(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.shift = np.float64(0.5), np.int64(2)

    def forward(self, x):
        return x * self.scale + self.shift, np.log(self.scale) * x


def test_settings_of_a_module_are_constants_that_are_guarded():
    model = Scales()
    compiled = torchmux.compile(model, backend="eager", fullgraph=True)
    for scale in (0.5, 1.5, 0.5):
        model.scale = np.float64(scale)
        for found, expected in zip(compiled(X), model(X), strict=True):
            assert torch.equal(found, expected)


def test_gradients():
    weight = torch.ones(3, requires_grad=True)
    compiled = torchmux.compile(lambda w, n: (w * n).sum(), backend="aot_eager")
    for number in (np.float64(2), np.float64(3), np.int64(4)):
        weight.grad = None
        compiled(weight, number).backward()
        assert weight.grad.tolist() == [number] * 3


def test_numbers_beside_arrays_are_symbolic():
    def scales(array, number):
        return array * number, number - array, array / number

    arrays = np.arange(3.0), np.arange(3)
    calls = [(arrays[0], n) for n in (1.5, 2.5, 3.5, np.float64(4.5), np.float64(5.5))]
    calls += [(arrays[1], n) for n in (2, 3, 4)]
    counted(scales, calls)
