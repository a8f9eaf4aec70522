"""Default dtypes and devices that the program sets, in one graph, and left as it leaves them."""

from __future__ import annotations

import contextlib

import pytest
import torch

import torchmux


@pytest.fixture(autouse=True)
def defaults():
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)


@pytest.fixture(params=["eager", "aot_eager"])
def backend(request):
    return request.param


def look(value):
    """What can be told of a result, in a form that compares."""
    if isinstance(value, torch.Tensor):
        numbers = value.tolist() if value.device.type != "meta" else None
        return value.dtype, value.device, tuple(value.shape), numbers
    return [look(each) for each in value] if isinstance(value, (tuple, list)) else str(value)


def agree(function, backend, *calls, breaks=0):
    """The same results, and the same defaults after each call."""
    compiled = torchmux.compile(function, backend=backend)
    found = []
    for each in (function, compiled):
        answers = []
        for args in calls:
            torch.manual_seed(0)
            answers.append(look(each(*args)))
            answers.append(look(torch.ones(1)))
        found.append(answers)
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
    assert found[0] == found[1]
    assert len(torchmux.report(compiled).breaks) == breaks


X = torch.arange(4.0) - 1.5


def dtype_and_back(x):
    torch.set_default_dtype(torch.float64)
    try:
        made = torch.ones(1), torch.tensor([1.5]), torch.arange(3), torch.arange(3.0), torch.full((2,), 1.5)
        drawn = torch.rand(2), torch.normal(0.0, 1.0, (2,)), torch.zeros(2, dtype=torch.float16)
        return x + 1, x * 1j, torch.where(x > 0, x, 0.5), torch.Tensor([1, 2]), torch.get_default_dtype(), made, drawn
    finally:
        torch.set_default_dtype(torch.float32)


def dtype_stays(x, dtype):
    torch.set_default_dtype(dtype)
    return torch.linspace(x[0], x[1], 3), torch.ones(2), torch.finfo()


def test_dtype(backend):
    agree(dtype_and_back, backend, (X,), (X,))
    agree(dtype_stays, backend, *[(X, dtype) for dtype in (torch.float64, torch.float32, torch.bfloat16)])


def integers(x):
    numbers = torch.arange(4)
    torch.set_default_dtype(torch.float64)
    sums = numbers + 1
    halves = numbers / 2
    torch.set_default_dtype(torch.float32)
    return sums, halves, x


def test_what_converts_integers_to_the_default_dtype_breaks(backend):
    agree(integers, backend, (X,), breaks=1)


def refused(x):
    with contextlib.suppress(TypeError):
        torch.set_default_dtype(torch.int64)
    return x + torch.ones(4)


def device_and_back(x):
    torch.set_default_device("cpu")
    y = x + torch.ones(4)
    torch.set_default_device(None)
    return y


def device_stays(x, device):
    torch.set_default_device(device)
    return torch.ones(2), x + 1


def regions(x, device):
    with torch.device("meta"):
        made = torch.ones(4) * 2, torch.empty(2, device="cpu").device, x.new_ones(2), torch.get_default_device()
        with torch.device("cpu"):
            inner = torch.zeros(3)
        outer = torch.zeros(3)
    with contextlib.ExitStack() as stack:
        if device:
            stack.enter_context(torch.device(device))
        last = torch.ones(2)
    return x + 1, made, inner, outer, last, torch.zeros(1)


def left_by_an_error(x):
    try:
        with torch.device("meta"):
            y = torch.ones(2)
            raise ValueError
    except ValueError:
        return y, torch.ones(4) + x


def region_with_a_break(x):
    with torch.device("meta"):
        y = torch.ones(4)
        print(end="")
        z = torch.ones(4)
    return y, z, torch.ones(4) + x


def within_vmap(x):
    torch.set_default_dtype(torch.float64)
    y = torch.vmap(lambda row: row + torch.ones(1))(x[None])
    torch.set_default_dtype(torch.float32)
    return y


def in_a_branch(x):
    torch.set_default_dtype(torch.float64)
    y = torch.cond(x.sum() > 0, lambda x: x + torch.ones(1), lambda x: x - torch.ones(1), (x.double(),))
    torch.set_default_dtype(torch.float32)
    return y


def test_functions_that_torch_calls(backend):
    """What runs at once takes the defaults; what torch may run again later breaks."""
    agree(within_vmap, backend, (X,), (X,))
    agree(in_a_branch, backend, (X,), breaks=1)


def test_device(backend):
    for function in (refused, device_and_back, left_by_an_error):
        agree(function, backend, (X,), (X,))
    agree(device_stays, backend, (X, "meta"))
    agree(device_stays, backend, (X, "meta"), (X, "meta"), breaks=1)  # which is under a default device already
    agree(regions, "eager", (X, "meta"), (X, None), (X, "cpu"))


def test_a_region_of_a_device_with_a_break(backend):
    agree(region_with_a_break, backend, (X,), (X,), breaks=2)
