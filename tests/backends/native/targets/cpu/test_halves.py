"""Half precision where the processor has no instruction for it."""

from __future__ import annotations

import ctypes
import platform
import shutil

import pytest
import torch

from torchmux.backends.native.targets.cpu import build, libraries

SOURCE = """#include "kernels.h"
extern "C" void widen_all(const u16* from, f32* to, i64 n) {
  for (i64 i = 0; i < n; i += LANES) {
    u16v v; __builtin_memcpy(&v, from + i, sizeof(v));
    f32v w = widen_f16(v); __builtin_memcpy(to + i, &w, sizeof(w));
  }
}
extern "C" void narrow_all(const f32* from, u16* to, i64 n) {
  for (i64 i = 0; i < n; i += LANES) {
    f32v v; __builtin_memcpy(&v, from + i, sizeof(v));
    u16v w = narrow_f16(v); __builtin_memcpy(to + i, &w, sizeof(w));
  }
}
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86-64 processor")
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("march", ["x86-64-v2", "native"])
def test_each_half_and_what_lies_between(compiler: str, march: str, monkeypatch) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setattr(
        build, "FLAGS", [f"-march={march}" if flag.startswith("-march") else flag for flag in build.FLAGS]
    )
    library = libraries.load(build.compile_source(SOURCE))
    halves = torch.arange(65536, dtype=torch.int32).to(torch.uint16)
    known = halves.view(torch.float16).float()
    # Each half, what is in the middle of two, and the floats beside it; what overflows and what is lost.
    ordered = known[known.isfinite()].sort().values
    middles = (ordered[1:] + ordered[:-1]) / 2
    beside = [torch.nextafter(middles, torch.tensor(to)) for to in (-torch.inf, torch.inf)]
    far = torch.tensor([65519.9, 65520.0, 65536.0, 1e30, 2.0**-25, 2.0**-26, 1e-40, torch.inf, torch.nan]).repeat(2)
    far[9:] *= -1
    floats = torch.cat([known, middles, *beside, far])
    floats = torch.cat([floats, torch.zeros(-len(floats) % 16)])
    wide, narrow = torch.empty(65536), torch.empty(len(floats), dtype=torch.uint16)
    for run, given, result in ((library.widen_all, halves, wide), (library.narrow_all, floats, narrow)):
        run(ctypes.c_void_p(given.data_ptr()), ctypes.c_void_p(result.data_ptr()), ctypes.c_int64(len(given)))
    assert torch.equal(wide.nan_to_num(1.5).view(torch.int32), known.nan_to_num(1.5).view(torch.int32))
    got, wanted = narrow.view(torch.float16), floats.half()
    assert torch.equal(got.isnan(), wanted.isnan())
    numbers = ~wanted.isnan()
    assert torch.equal(got.view(torch.int16)[numbers], wanted.view(torch.int16)[numbers])


@pytest.mark.skipif("AVX" not in torch.backends.cpu.get_cpu_capability(), reason="needs masks of lanes")
@pytest.mark.parametrize("kind", ["u8", "bf16", "f32", "f64", "i64"])
def test_rows_that_end_within_a_vector_call_nothing(kind: str) -> None:
    """A ``memcpy`` of what a row has left is a call: a row of three numbers then takes ten times as long."""
    loop = "for (i64 i = 0; i < rows; i++) store(q + i * n, load(p + i * n, Some{n}), Some{n});"
    source = f'#include "kernels.h"\nextern "C" void copied({kind}* p, {kind}* q, i64 rows, int n) {{ {loop} }}\n'
    code = build.compile_source(source)
    assert b"memcpy" not in code
    run = libraries.load(code).copied
    from_rows, to_rows = torch.arange(256, dtype=torch.uint8), torch.zeros(256, dtype=torch.uint8)
    if kind in ("bf16", "f32", "f64"):  # no pattern is nan
        from_rows &= 63
    width = {"u8": 1, "bf16": 2, "f32": 4}.get(kind, 8)
    run(ctypes.c_void_p(from_rows.data_ptr()), ctypes.c_void_p(to_rows.data_ptr()), ctypes.c_int64(8), 3)
    assert torch.equal(to_rows[: 24 * width], from_rows[: 24 * width]) and not to_rows[24 * width :].any()
