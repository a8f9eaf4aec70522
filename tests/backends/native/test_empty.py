"""Reductions, searches and orders along dimensions without elements, and of tensors without any: as eager, or the same
error in the same words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchmux

DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float32, torch.float64, torch.bfloat16, torch.float16,
)  # fmt: skip
SIZES = ((3, 0), (0, 3), (0, 0), (0,), (2, 0, 3), (2, 3))
"""The last one has elements: what is asked of the others must not change it."""

ALONG = "max min argmax argmin amax amin median nanmedian mode sort topk kthvalue cummax cummin logsumexp softmax prod"
ALONG += " mean var std any all sum log_softmax cumsum cumprod count_nonzero nansum"
OF_ALL = "max min argmax argmin amax amin aminmax median nanmedian prod mean var std any all sum count_nonzero nansum"
TUPLES = "amax amin logsumexp mean var std sum any all nansum count_nonzero"
KEEPS = "max min argmax argmin amax amin median nanmedian mode kthvalue logsumexp prod mean var any all sum"
PLAIN = {"topk": (1,), "kthvalue": (1,)}


def functions() -> dict[str, Callable[[torch.Tensor], Any]]:
    found: dict[str, Callable[[torch.Tensor], Any]] = {}
    for name in ALONG.split():
        f = getattr(torch, name)
        before = PLAIN.get(name, ())
        for dim in (0, 1, -1, -2, 5):
            found[f"{name} along {dim}"] = lambda x, f=f, a=before, d=dim: f(x, *a, d)
    for name in KEEPS.split():
        f = getattr(torch, name)
        before = PLAIN.get(name, ())
        found[f"{name} kept"] = lambda x, f=f, a=before: f(x, *a, dim=-1, keepdim=True)
    for name in OF_ALL.split():
        found[f"{name} of all"] = lambda x, n=name: getattr(torch, n)(x)
    for name in TUPLES.split():
        for dims in ((0, 1), (-1, 0), (), (0, 0)):
            found[f"{name} over {dims}"] = lambda x, n=name, d=dims: getattr(torch, n)(x, d)
    for dim in (0, -1):
        found[f"aminmax along {dim}"] = lambda x, d=dim: torch.aminmax(x, dim=d)
    return found


FUNCTIONS = functions()


def outcome(function: Callable[..., Any], x: torch.Tensor) -> Any:
    try:
        found = function(x)
        return list(found) if isinstance(found, tuple) else [found]
    except Exception as error:
        return type(error), str(error).splitlines()[0]


def difference(got: Any, eager: Any) -> str | None:
    if isinstance(got, tuple) or isinstance(eager, tuple):
        return None if got == eager else f"{got} and not {eager}"
    for a, b in zip(got, eager, strict=True):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"{a.dtype} {tuple(a.shape)} and not {b.dtype} {tuple(b.shape)}"
        if not torch.allclose(a.double(), b.double(), rtol=1e-2, atol=1e-2, equal_nan=True):
            return f"{a} and not {b}"
    return None


def wrong(functions: dict[str, Callable[[torch.Tensor], Any]], x: torch.Tensor, *, dynamic: bool) -> dict[str, str]:
    """What has a result is one graph, so that it costs one compilation; what raises is a graph each."""
    expected = {name: outcome(f, x) for name, f in functions.items()}
    fine = {n: f for n, f in functions.items() if not isinstance(expected[n], tuple)}
    torchmux.reset()
    joined = torchmux.compile(lambda x: [f(x) for f in fine.values()], backend="native", dynamic=dynamic)
    found = {}
    for name, result in zip(fine, joined(x), strict=True):
        got = list(result) if isinstance(result, tuple) else [result]
        if (why := difference(got, expected[name])) is not None:
            found[name] = why
    for name, f in functions.items():
        if name not in fine:
            torchmux.reset()
            got = outcome(torchmux.compile(lambda x, f=f: f(x), backend="native", dynamic=dynamic), x)
            if (why := difference(got, expected[name])) is not None:
                found[name] = why
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_one_type(sizes: tuple[int, ...]) -> None:
    assert wrong(FUNCTIONS, torch.ones(sizes), dynamic=False) == {}


@pytest.mark.parametrize(
    "dtype", [pytest.param(d, marks=() if d is torch.int8 else pytest.mark.slow) for d in DTYPES], ids=str
)
def test_every_type(dtype: torch.dtype) -> None:
    chosen = {n: f for n, f in FUNCTIONS.items() if n.endswith(("along 1", "of all"))}
    found = {}
    for sizes in ((3, 0), (0, 3)):
        for name, why in wrong(chosen, torch.ones(sizes).to(dtype), dynamic=True).items():
            found[f"{name} {sizes}"] = why
    assert found == {}


def test_no_indices_for_a_matrix():
    """torch takes indices of any shape that has no elements."""
    given = torch.randn(3, 4), torch.empty(0, dtype=torch.long)
    assert torchmux.compile(lambda x, at: torch.gather(x, 0, at), backend="native")(*given).shape == (0,)


def test_diagonals_without_elements_begin_where_the_tensor_does():
    """Or at the beginning of memory of their own."""

    def f(x):
        return F.conv1d(x, x[:, None, :2], stride=3, padding=2, dilation=2).diagonal(-1, -2, 1)

    x = torch.randn(1, 5)
    found = torchmux.compile(f, backend="native")(x)
    assert (found.shape, found.stride(), found.storage_offset()) == (f(x).shape, f(x).stride(), 0)
