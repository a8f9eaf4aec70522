"""NumPy called on tensors, and tensors made of arrays: a break is allowed, a wrong answer is not."""

import numpy as np
import pytest
import torch

from ..snippets.corpus import tensor
from ..worlds import BACKENDS, check_graphs, check_same, feature, features_of

WHY = "NumPy is not translated to torch; arrays end the graph"


def numbers(*values):
    """Arrays as lists: what was computed is compared, not who holds it."""
    return [value.tolist() for value in values]


@feature(more=WHY)
def arrays_of_tensors(x):
    a = (x * 2).numpy()
    return torch.from_numpy(a + 1) * 3, numbers(np.sin(a))


@feature(more=WHY)
def array_is_an_argument():
    def run(a):
        return numbers(a * 2 + np.ones(3), a.sum())

    yield run, (np.arange(3.0),)
    yield run, (np.arange(3.0) * 2,)


@feature(more=WHY)
def array_from_outside():
    table = np.arange(4.0, dtype=np.float32)

    def run(x):
        return x * torch.as_tensor(table), x + torch.tensor(table)

    yield run, (tensor(),)
    table[0] = 7
    yield run, (tensor(),)


@feature(again="a number of NumPy is dynamic the second time")
def numbers_of_numpy_types():
    def run(x, scale):
        return x * scale, x + np.float32(2), x * float(np.pi), x.shape[0] * np.int64(2)

    yield run, (tensor(), np.float64(2.5))
    yield run, (tensor(), np.float64(3.5))


@feature(more=WHY)
def memory_is_shared(x):
    a = x.numpy()
    a[0] = 5
    return x * 1


@feature()
def numpy_functions_on_tensors(x):
    return numbers(np.exp(x), np.asarray(x)), x * 2


@feature()
def constants_of_numpy(x):
    return x * np.pi + np.e


@feature()
def shapes_by_numpy(x):
    return x.view(-1, int(np.prod(x.shape[1:]))), x * int(np.sqrt(16))


@feature(more=WHY)
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
