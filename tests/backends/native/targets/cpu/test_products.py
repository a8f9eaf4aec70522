"""Large matrix products: by the library and by our own kernel, and the choice between them."""

from __future__ import annotations

import ctypes
import platform
from typing import Any

import pytest
import torch

import torchmux
from torchmux.backends.native.ir.expressions import Buffer
from torchmux.backends.native.ir.products import Product
from torchmux.backends.native.ir.program import TensorRef
from torchmux.backends.native.targets.cpu import build, choosing, libraries
from torchmux.backends.native.targets.cpu.selection import fits_blas
from torchmux.config import config

from ...conftest import Check


@pytest.fixture(params=[choosing.BY_MKL, choosing.BY_TILES], ids=["library", "tiles"])
def way(request, monkeypatch) -> int:
    """The way that all products of a choice go."""
    monkeypatch.setattr(choosing, "_way", lambda shape, library: request.param)
    return request.param


@pytest.mark.sampled(3)
@pytest.mark.parametrize("sizes", [(128, 128, 64), (131, 97, 193), (8, 1000, 400), (21, 48, 1200), (300, 7, 500)])
@pytest.mark.parametrize("left_transposed", [False, True])
@pytest.mark.parametrize("right_transposed", [False, True])
def test_a_product(way, check: Check, sizes, left_transposed: bool, right_transposed: bool) -> None:
    """Of whole tiles, and of rows, columns and depths that leave a part of one."""
    m, n, k = sizes
    left = torch.randn(k, m).t() if left_transposed else torch.randn(m, k)
    right = torch.randn(n, k).t() if right_transposed else torch.randn(k, n)
    report = check(lambda x, y: torch.mm(x, y) + 1, left, right)
    assert "chosen_product(way[0]" in report.output_code[0]


def test_products_of_a_batch(way, check: Check) -> None:
    def heads(q, k, v):
        return torch.softmax(q @ k.transpose(-1, -2), -1) @ v

    report = check(heads, *(torch.randn(2, 3, 130, 70) for _ in range(3)))
    assert report.output_code[0].count(" chosen_product(way[") == 2


def test_each_matrix_of_a_batch_times_a_vector(check: Check) -> None:
    """In either layout, from either side, with whole vectors and parts, of vectors in rows and in columns."""

    def products(a, turned, x, apart):
        return a @ x, turned @ x, x.mT @ a.mT, x.mT @ turned.mT, a @ apart, turned @ apart, a[:, :1] @ x

    a, turned, rows = torch.randn(5, 23, 19), torch.randn(5, 19, 23).mT, torch.randn(5, 19, 9)
    a[1, 0, 5] = float("nan")
    report = check(products, a, turned, torch.randn(5, 19, 1), rows[..., 2:3])
    assert " product(" in report.output_code[0]


def test_a_part_of_a_larger_matrix(way, check: Check) -> None:
    """What lies between its rows stays as it is."""
    check(lambda x, y: x[5:200, 3:203] @ y[1:201, 7:150], torch.randn(210, 220), torch.randn(205, 160))


def test_gradients(way) -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(160, 130), torch.nn.GELU(), torch.nn.Linear(130, 90))

    def gradients(compiled, x):
        for parameter in layer.parameters():
            parameter.grad = None
        compiled(x).square().mean().backward()
        return [p.grad for p in layer.parameters()]

    x = torch.randn(100, 160)
    compiled = torchmux.compile(layer, backend="native", strict=True)
    compiled(x)
    assert any("chosen_product(" in code for code in torchmux.report(compiled).graphs[0].report.output_code)
    for got, wanted in zip(gradients(compiled, x), gradients(layer, x), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


def test_what_is_not_finite_stays_where_it_is(way, check: Check) -> None:
    x, y = torch.randn(130, 200), torch.randn(200, 130)
    x[3, 5], x[129, 7], y[11, 129] = float("inf"), float("nan"), float("-inf")
    check(lambda x, y: x @ y, x, y)


def test_few_rows_and_none_where_the_size_is_symbolic(way, capture) -> None:
    weight = torch.randn(300, 200)
    captured = capture(lambda x: torch.relu(x @ weight), torch.randn(40, 300), dynamic={0: [0]})
    compiled = captured.compile("native", strict=True)
    assert "chosen_product" in compiled.report.output_code[0]
    for rows in (40, 1, 7, 8, 9, 333, 2):
        x = torch.randn(rows, 300)
        torch.testing.assert_close(captured.run(compiled, x), torch.relu(x @ weight), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86-64 processor")
@pytest.mark.parametrize("march", ["haswell", "x86-64-v2"])
def test_narrower_vectors(march: str, monkeypatch) -> None:
    """AVX2 and SSE have tiles of other sizes; processors with AVX-512 run their code too."""
    if march == "haswell" and torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip("needs AVX2")
    flags = [f"-march={march}" if flag.startswith("-march") else flag for flag in build.FLAGS]
    monkeypatch.setattr(build, "FLAGS", flags)
    library = libraries.load(build.compile_source('#include "kernels.h"\n#include "gemm.h"\n'))
    address, size = ctypes.c_void_p, ctypes.c_int64
    library.tiled_product.argtypes = (address, address, size, size, address, *(size,) * 8)
    for m, n, k in [(131, 97, 193), (4, 7, 5), (64, 48, 192)]:
        for tx, ty in [(False, False), (False, True), (True, False)]:
            x, y = torch.randn((k, m) if tx else (m, k)), torch.randn((n, k) if ty else (k, n))
            out = torch.full((m, n), float("nan"))
            given = (x.data_ptr(), x.shape[1], tx, y.data_ptr(), y.shape[1], ty, m, n, k, 1, 0, 0)
            library.tiled_product(out.data_ptr(), *given)
            exact = (x.t() if tx else x).double() @ (y.t() if ty else y).double()
            torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-4)


def test_small_and_wide_products_are_the_librarys(check: Check) -> None:
    small, wide = torch.randn(10, 10), torch.randn(200, 200, dtype=torch.float64)
    for given in (small, wide):
        assert "chosen_product" not in check(lambda x, y: x @ y, given, given).output_code[0]


def test_the_library_can_be_asked_for(capture) -> None:
    x = torch.randn(200, 200)
    captured = capture(lambda x, y: x @ y, x, x)
    compiled = captured.compile("native", strict=True, options={"matmul": "library"})
    assert "chosen_product" not in compiled.report.output_code[0]
    assert torch.equal(captured.run(compiled, x, x), x @ x)


def test_the_choice_is_measured_once_and_kept(tmp_path, monkeypatch) -> None:
    """Also by a later process, whose memory of it is empty."""
    measured = []
    measure = choosing._measured
    monkeypatch.setattr(choosing, "_measured", lambda *given: measured.append(1) or measure(*given))
    x = torch.randn(256, 256)
    with config.patch(cache_dir=tmp_path):
        for function in (lambda x: x @ x, lambda x: (x @ x) + 1):
            monkeypatch.setattr(choosing, "_decided", {})
            torchmux.compile(function, backend="native", strict=True)(x)
    assert len(measured) == 1


def test_a_backward_pass_is_measured_among_fake_tensors(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(choosing, "_decided", {})
    layer = torch.nn.Linear(130, 150)
    with config.patch(cache_dir=tmp_path):
        torchmux.compile(layer, backend="native", strict=True)(
            torch.randn(120, 130, requires_grad=True)
        ).sum().backward()
    assert len(choosing._decided) == 3  # the result, and both gradients


def test_what_is_clearly_faster_is_chosen() -> None:
    times = iter([0.0, 2.0, 10.0, 11.0] * 3)  # the first way takes 2 s, the second 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choosing.time, "perf_counter", lambda: next(times))
        patch.setattr(choosing.time, "thread_time", lambda: next(times))
        assert choosing._measured({1: lambda: None, 2: lambda: None}) == 2
    times = iter([0.0, 1.0, 10.0, 10.99] * 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choosing.time, "perf_counter", lambda: next(times))
        patch.setattr(choosing.time, "thread_time", lambda: next(times))
        assert choosing._measured({1: lambda: None, 2: lambda: None}) == 1


def test_sizes_beyond_32_bits_are_left_to_torch() -> None:
    buffers = [Buffer(f"b{n}", torch.float32, (2, 2), (2, 1), torch.device("cpu")) for n in range(3)]

    def product(stride: int, m: int) -> Product:
        left = TensorRef(buffers[0], (m, 2), (stride, 1), 0)
        return Product(buffers[2], left, TensorRef(buffers[1], (2, 2), (2, 1), 0))

    assert fits_blas(product(2, 2))
    assert fits_blas(product(2**31 - 1, 2))
    assert not fits_blas(product(2**31, 2))
    assert not fits_blas(product(2, 2**31))


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_long_sums_of_few_rows_do_not_lose_digits(rows: int) -> None:
    """Sums that wait in memory are rounded once for each row of the right operand, and these are many."""
    x, y = torch.rand(rows, 16384), torch.rand(16384, 9)
    found = torchmux.compile(lambda x, y: x @ y, backend="native", dynamic=False)(x, y).double()
    exact = x.double() @ y.double()
    assert float((found - exact).abs().max()) <= 8 * 2.0**-23 * float(exact.max())


def test_a_product_is_finished_in_place_unless_it_is_read_again() -> None:
    """What is returned of a product, and read by a reduction over other rows in the same kernel."""
    weights, values, scale = torch.rand(50, 6), torch.randn(50, 4), torch.rand(6) + 1
    finishes = {"quotient": lambda m, r: m / r.sum(0)[:, None], "scaled": lambda m, r: m * scale[:, None]}
    readers = {
        "sum": lambda m, r, x: (r[..., None] * (x[:, None] - m) ** 2).sum(0),
        "last": lambda m, r, x: (x[:, None] - m).abs().sum(-1),
    }
    for finish in finishes.values():
        for read in readers.values():

            def moments(r: Any, x: Any, finish: Any = finish, read: Any = read) -> Any:
                m = finish(r.t() @ x, r)
                return m, read(m, r, x)

            torchmux.reset()
            compiled = torchmux.compile(moments, backend="native", fullgraph=True)
            torch.testing.assert_close(compiled(weights, values), moments(weights, values))
