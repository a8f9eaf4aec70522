"""Compiling small functions with the native backend and judging them by float64."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from torchmux.backends.native import targets
from torchmux.config import config
from torchmux.registry import GraphReport

from .interpreted import VARIABLE, Worker
from .sanitizer import sanitized


def leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for v in value for leaf in leaves(v)]


def in_double(value: Any) -> Any:
    """Tensors and modules in float64, everything else as it is."""
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            return value.to(torch.complex128)
        return value.double() if value.is_floating_point() else value
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value).double()
    return value


def assert_as_exact_as_eager(got: Any, eager: Any, exact: Any, factor: float = 2.0) -> None:
    """Same kind of tensors, and an error against float64 of at most ``factor`` times eager's, or a few units."""
    for a, b, c in zip(leaves(got), leaves(eager), leaves(exact), strict=True):
        assert a.dtype is b.dtype
        assert a.shape == b.shape
        assert a.stride() == b.stride()
        if a.is_complex():
            assert a.is_conj() == b.is_conj()
            a, b, c = (torch.view_as_real(t.resolve_conj()) for t in (a, b, c))
        if not a.is_floating_point():
            assert torch.equal(a, b)
            continue
        assert torch.equal(a.isnan(), b.isnan())
        finite = b.isfinite() & c.isfinite()
        assert torch.equal(a[~finite].nan_to_num(), b[~finite].nan_to_num())
        if not finite.any():
            continue
        unit = torch.finfo(a.dtype).eps
        a, b, c = (t[finite].double() for t in (a, b, c))
        scale = max(float(c.abs().max()), 0.05)  # what cancels leaves the rounding of what was added
        error, allowed = float((a - c).abs().max()), float((b - c).abs().max())
        assert error <= factor * allowed + 4 * unit * scale, (error, allowed)


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def verified() -> Iterator[None]:
    """What the compiler builds is checked after each of its passes."""
    with config.patch(debug=True):
        yield


# --- targets ----------------------------------------------------------------------------------------------------------

both_targets = pytest.mark.parametrize("target", ["cpu", "triton"], indirect=True)
"""Marks tests that run for both targets: for Triton in a process of their own, by its interpreter."""


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    """The target that native compiles for; the CPU, unless the test is marked with :data:`both_targets`.

    What Triton's kernels do to memory is checked.
    """
    name = getattr(request, "param", "cpu")
    if name == "cpu":
        yield name
    else:
        pytest.importorskip("triton")
        checked = sanitized() if VARIABLE in os.environ else contextlib.nullcontext()
        with targets.forced(name), checked:
            yield name


_WORKER = pytest.StashKey[Worker]()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Hand tests for Triton to the process where its interpreter runs."""
    if pyfuncitem.funcargs.get("target") != "triton" or VARIABLE in os.environ:
        return None
    config = pyfuncitem.config
    worker = config.stash.setdefault(_WORKER, Worker(config.rootpath))
    passed, printed = worker.run(pyfuncitem.nodeid)
    if not passed:
        pytest.fail(printed, pytrace=False)
    return True


def pytest_unconfigure(config: pytest.Config) -> None:
    if (worker := config.stash.get(_WORKER, None)) is not None:
        worker.stop()


Check = Callable[..., GraphReport]


@pytest.fixture
def check(capture, target, tmp_path) -> Check:
    """``check(function, *args)`` compiles strictly, compares with eager and float64, and returns the report."""

    def run(function: Any, *args: Any, dynamic: Any = None, options: Any = None, strict: bool = True) -> GraphReport:
        with config.patch(cache_dir=tmp_path):
            captured = capture(function, *args, dynamic=dynamic)
            compiled = captured.compile("native", strict=strict, options=options)
            with torch.no_grad():
                got = captured.run(compiled, *args)
                assert_as_exact_as_eager(got, function(*args), in_double(function)(*map(in_double, args)))
        return compiled.report

    return run
