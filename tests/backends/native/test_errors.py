"""What eager raises, a compiled graph raises: the same type in the same words, with static and with symbolic sizes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchmux

INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error).splitlines()[0]


def assert_same(compiled: Any, eager: Any, told: Any) -> None:
    if isinstance(eager, torch.Tensor) or (isinstance(eager, tuple) and isinstance(eager[0], torch.Tensor)):
        torch.testing.assert_close(compiled, eager, rtol=0, atol=0, equal_nan=True, msg=lambda m: f"{told}: {m}")
    else:
        assert compiled == eager, told


REDUCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    **{f"{n} along {d}": lambda x, n=n, d=d: getattr(torch, n)(x, d) for n in ("max", "min") for d in (0, 1, -1)},
    **{f"{n} at {d}": lambda x, n=n, d=d: getattr(torch, n)(x, dim=d) for n in ("argmax", "argmin") for d in (None, 1)},
    **{f"{n} of all": lambda x, n=n: getattr(torch, n)(x) for n in ("max", "min")},
    **{f"{n} over {d}": lambda x, n=n, d=d: getattr(torch, n)(x, d) for n in ("amax", "amin") for d in (0, -1, (0, 1))},
    "aminmax": lambda x: tuple(torch.aminmax(x, dim=1)),
    "median": lambda x: tuple(torch.median(x, 1)),
    "sum": lambda x: x.sum(1),
    "any": lambda x: x.any(1),
    "prod": lambda x: x.prod(0),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_reductions_over_nothing(name: str, dynamic: bool) -> None:
    function = REDUCTIONS[name]
    torchmux.reset()
    compiled = torchmux.compile(function, backend="native", dynamic=dynamic)
    for sizes in ((3, 2), (4, 5), (3, 0), (0, 3), (0, 0)):
        x = torch.arange(sizes[0] * sizes[1]).reshape(sizes) * 1.5
        assert_same(outcome(compiled, x), outcome(function, x), (name, sizes))


@pytest.mark.parametrize("name", ["max over", "argmax", "amin", "norm"])
def test_a_size_that_turns_0(name: str, capture) -> None:
    """The frontend compiles empty tensors apart; a graph that is told less must notice by itself."""
    function: Any = {
        "max over": lambda x: torch.max(x, 1),
        "argmax": lambda x: torch.argmax(x),
        "amin": lambda x: torch.amin(x, -1),
        "norm": lambda x: torch.linalg.vector_norm(x, float("inf"), 1),
    }[name]
    captured = capture(function, torch.ones(3, 5), dynamic={0: [1]})
    compiled = captured.compile("native", strict=True)
    assert "raise" in compiled.report.output_code[1]
    captured.run(compiled, torch.ones(3, 7))
    assert outcome(captured.run, compiled, torch.ones(3, 0)) == outcome(function, torch.ones(3, 0))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_extrema_of_integers(dtype: torch.dtype) -> None:
    def function(x):
        found = [*torch.max(x, 0), *torch.min(x, 1), x.amax(), x.amin(0)]
        if x.dtype is not torch.bool:
            found += [x.argmax(), x.argmin(), x.argmax(0), x.argmin(1)]
        return tuple(found)

    compiled = torchmux.compile(function, backend="native", dynamic=True, strict=True)
    for sizes in ((5, 40), (33, 7), (3, 70000)):
        x = torch.randint(-128 if dtype.is_signed else 0, 128, sizes).to(dtype)
        got, eager = compiled(x), function(x)
        for n, (a, b) in enumerate(zip(got, eager, strict=True)):
            if b.dtype is torch.int64 and n in (1, 3):  # of equal ones torch takes any
                a, b = (x.gather(0, i[None])[0] if n == 1 else x.gather(1, i[:, None])[:, 0] for i in (a, b))
            assert torch.equal(a, b), (n, sizes)


W = torch.arange(12.0).reshape(3, 4)
INDEXED: dict[str, Callable[..., Any]] = {
    "embedding": lambda w, i: torch.nn.functional.embedding(i, w),
    "index": lambda w, i: w[i],
    "index columns": lambda w, i: w[:, i],
    "index_select": lambda w, i: w.index_select(0, i),
    "index_select columns": lambda w, i: w.index_select(1, i),
    "gather": lambda w, i: w.gather(0, i[:, None].expand(2, 4)),
    "gather columns": lambda w, i: w.gather(1, i[None].expand(3, 2)),
    "scatter": lambda w, i: w.scatter(0, i[:, None].expand(2, 4), w),
    "scatter value": lambda w, i: w.scatter(1, i[None].expand(3, 2), 7.0),
    "scatter_add": lambda w, i: w.scatter_add(0, i[:, None].expand(2, 4), w),
    "index_put": lambda w, i: w.index_put((i,), w[0]),
    "index_put accumulated": lambda w, i: w.index_put((i,), w[0], accumulate=True),
    "index_add": lambda w, i: w.index_add(0, i, w[:2]),
    "index_add columns": lambda w, i: w.index_add(1, i, w[:, :2]),
    "index_copy": lambda w, i: w.index_copy(0, i, w[:2]),
    "take": lambda w, i: w.take(i),
    "nll_loss": lambda w, i: torch.nn.functional.nll_loss(w[:2], i),
}


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("dynamic", [False, True])
def test_indices_out_of_range(name: str, dynamic: bool) -> None:
    function = INDEXED[name]
    compiled = torchmux.compile(function, backend="native", dynamic=dynamic)
    for pair in [(0, 2), *itertools.product((0, -1, -4, -5, 3, 4, 99), (1, 2))]:
        i = torch.tensor(pair)
        assert_same(outcome(compiled, W, i), outcome(function, W, i), (name, pair))


def test_random_programs_that_may_raise() -> None:
    """Chains of the above: the first error is eager's, and there is none where eager has none."""
    draw = random.Random(0)
    names = ["index", "index_select", "gather", "scatter", "index_put", "index_add"]
    for number in range(12):
        chosen = draw.sample(names, 2)

        def program(w, i, j, chosen=chosen):
            return INDEXED[chosen[1]](INDEXED[chosen[0]](w, i)[:2].relu() + 1, j).sum(0)

        compiled = torchmux.compile(program, backend="native", dynamic=number % 2 == 1)
        for _ in range(6):
            i = torch.tensor([draw.choice((0, 1, 2, 3, -1)), draw.choice((0, 1))])
            j = torch.tensor([draw.choice((0, 1)), draw.choice((0, 1, 2, 7))])
            assert_same(outcome(compiled, W, i, j), outcome(program, W, i, j), (chosen, i, j))
