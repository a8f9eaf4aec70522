"""Triton kernels of the program inside of what is compiled, on the CPU by Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

import torchmux
from torchmux.config import config

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

pytestmark = [
    pytest.mark.parametrize("target", ["triton"], indirect=True),
    pytest.mark.usefixtures("target"),
]


@triton.jit
def weighted(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, inside) + 2 * tl.load(y + at, inside), inside)


def launched(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    weighted[((x.numel() + 63) // 64,)](x, y, out, x.numel(), BLOCK=64)
    return out


@torch.library.custom_op("torchmux_tests::weighted", mutates_args=())
def operator(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return launched(x, y)


@operator.register_fake
def _(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_a_kernel(backend: str, tmp_path) -> None:
    """A launch runs between graphs, and an operator that launches is in the graph."""
    x, y = torch.randn(1000), torch.randn(1000)
    wanted = (2 * x + 2 * y).relu() + 1
    with config.patch(cache_dir=tmp_path):
        for call, in_graph in ((launched, False), (operator, True)):
            torchmux.reset()

            def function(x: torch.Tensor, y: torch.Tensor, call=call) -> torch.Tensor:
                return call(x * 2, y).relu() + 1

            compiled = torchmux.compile(function, backend=backend, fullgraph=in_graph)
            for _ in range(2):
                torch.testing.assert_close(compiled(x, y), wanted)
            report = torchmux.report(compiled)
            assert (report.graph_count == 1) is in_graph
            assert all("launches kernels" in each.reason for each in report.breaks)
            assert bool(report.breaks) is not in_graph
