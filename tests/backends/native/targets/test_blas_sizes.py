"""Sizes and strides that the 32 bits of the library's interface cannot tell."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

import torchmux
from torchmux.backends.native.targets.cpu import build, libraries

STEP = 2**31 + 16


@pytest.fixture(scope="module")
def apart() -> torch.Tensor:
    """Two rows, further apart than 32 bits tell; no more than these two rows of it are ever in memory."""
    try:
        memory = torch.empty(STEP + 3)
    except RuntimeError:
        pytest.skip("8 GiB of addresses are not to be had")
    return memory.as_strided((2, 3), (STEP, 1)).copy_(torch.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_rows_that_lie_far_apart(apart: torch.Tensor, dynamic: bool, freeze: bool) -> None:
    w, v = torch.arange(12.0).reshape(3, 4), torch.arange(8.0).reshape(4, 2)
    compiled: Any = torchmux.compile(
        lambda x, w, v: (x @ w, v @ x, x.t() @ v.t()), backend="native", dynamic=dynamic, options={"freeze": freeze}
    )
    near = apart.contiguous()
    with torch.no_grad():
        got = compiled(apart, w, v)
    for a, b in zip(got, (near @ w, v @ near, near.t() @ v.t()), strict=True):
        assert torch.equal(a, b)


def test_a_stride_that_only_a_call_knows(apart: torch.Tensor) -> None:
    """What is symbolic is checked by the generated code: in 32 bits the rows would be 16 apart."""
    source = """#include "kernels.h"
    extern "C" void right(f32* out, const f32* x, const f32* y, i64 step) {
      product(out, x, step, false, y, (i64)4, false, (i64)2, (i64)4, (i64)3, (i64)1, (i64)0, (i64)0);
    }
    extern "C" void left(f32* out, const f32* x, const f32* y, i64 step) {
      product(out, y, (i64)2, false, x, step, false, (i64)4, (i64)3, (i64)2, (i64)1, (i64)0, (i64)0);
    }
    """
    library: Any = libraries.load(build.compile_source(source))
    near, w, v = apart.contiguous(), torch.arange(12.0).reshape(3, 4), torch.arange(8.0).reshape(4, 2)
    for function, other, wanted in ((library.right, w, near @ w), (library.left, v, v @ near)):
        out = torch.full_like(wanted, -1.0)
        function(*(ctypes.c_void_p(t.data_ptr()) for t in (out, apart, other)), ctypes.c_int64(STEP))
        assert torch.equal(out, wanted)
