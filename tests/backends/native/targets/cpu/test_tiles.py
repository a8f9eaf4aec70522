"""What lies across: transposes of every type in squares, reductions of columns, and elements that lie a few apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchmux
from torchmux.backends.native.ir import index, operations as ops
from torchmux.backends.native.ir.expressions import Buffer, Statement
from torchmux.backends.native.schedule import tiles
from torchmux.backends.native.schedule.kernel import of_statement

DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
)  # fmt: skip


def _numbers(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    return (torch.randn(*sizes) * 20).abs().to(dtype)


def _walk(strides: tuple[int, int], sizes: tuple[int, int] = (40, 24)) -> tuple[bool, bool]:
    """Whether the last loop is the vector, and whether there are squares, where an operand has such strides."""
    device = torch.device("cpu")
    i, j = index.var("d0", sizes[0]), index.var("d1", sizes[1])
    source = Buffer("source", torch.float32, sizes, strides, device)
    target = Buffer("target", torch.float32, sizes, (sizes[1], 1), device)
    value = ops.unary("exp", ops.load(source, i * strides[0] + j * strides[1]))
    loops = tuple(v for at in (i, j) if (v := index.the_var(at)) is not None)
    kernel = of_statement(Statement(target, i * sizes[1] + j, value, loops), 0)
    found = tiles.choose(kernel, {target}, kernel.space[-1])
    return found.vector is kernel.space[-1], found.tile is not None


def test_squares_are_planned_where_operands_lie_across() -> None:
    assert _walk((24, 1)) == (True, False)
    assert _walk((1, 40)) == (True, True)
    assert _walk((0, 1)) == (True, False)
    assert _walk((1, 40), (40, 3)) == (False, True)  # vectors of three elements would be mostly empty


@pytest.mark.parametrize("sizes", [(33, 70), (8, 16), (5, 3)])
def test_transposes_of_every_type(check: Any, sizes: tuple[int, int]) -> None:
    given = [_numbers(dtype, *sizes) for dtype in DTYPES]

    def function(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, i: Any, j: Any) -> Any:
        tensors = (a, b, c, d, e, f, g, h, i, j)
        turned = [t.t().contiguous() for t in tensors]
        mixed = [one.t() + other for one, other in zip(tensors[:8], turned[1:9], strict=True)]
        return [*turned, *mixed, (a.t() > 3) & j.t()]

    check(function, *given)


def test_images_in_both_layouts(check: Any) -> None:
    def function(images: torch.Tensor, few: torch.Tensor, heads: torch.Tensor) -> Any:
        last = images.permute(0, 2, 3, 1).contiguous()
        return last, last.permute(0, 3, 1, 2).contiguous() * 2, few.permute(0, 2, 3, 1).contiguous(), heads.mT.exp()

    check(function, torch.randn(2, 19, 7, 9), torch.randn(2, 3, 9, 11), torch.randn(2, 3, 17, 20))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16])
def test_images_of_any_number_of_channels(dtype: torch.dtype) -> None:
    """Three channels fill no vector: a kernel for any number asks, and then takes vectors of pixels."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.permute(0, 3, 1, 2).float() / 255 - 0.5).contiguous()

    compiled = torchmux.compile(f, backend="native", dynamic=True, strict="own")
    for channels in (3, 4, 8, 13):
        x = _numbers(dtype, 2, 9, 11, channels)
        assert torch.equal(compiled(x), f(x))
    (graph,) = torchmux.report(compiled).graphs
    code = graph.report.output_code[0]
    assert code.index("<= LANES) {") < code.index("strided(") < code.index("return;") < code.index("squares<")


def test_columns(check: Any) -> None:
    def function(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
        most, most_at = a.max(0)
        return (
            torch.softmax(a, 0), torch.log_softmax(a.t() * 2, -1), a.sum(0), most, most_at, a.argmin(0), a.var(0),
            torch.softmax(b, 1), b.sum((0, 2)), b.argmax(1), c.sum(0), c.mean(0, dtype=torch.float32),
        )  # fmt: skip

    a = torch.randn(70, 43)
    a[3, 5] = a[9, 5] = float("nan")
    a[4, 6] = float("inf")
    check(function, a, torch.randn(3, 40, 50).bfloat16(), torch.randn(2500, 19))


def test_what_waits_for_the_sum_lies_where_the_result_goes(check: Any) -> None:
    """Rows that are too long for scratch memory."""
    check(lambda a: torch.softmax(a, 0) * 2, torch.randn(1500, 24))


def test_elements_a_few_apart(check: Any) -> None:
    def function(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
        found: list[torch.Tensor] = []
        for t in (a, b, c, d, e, f):
            found += [t[..., ::step] + t[..., 1::step] for step in (2, 4)]
            found += [torch.stack([t[..., ::2], t[..., 1::2]], -1).flatten(-2), t.view(5, -1, 3).mT.contiguous()]
            found += [t.view(5, -1, 2).mT.contiguous().mT.contiguous()]
        return found

    check(function, *(_numbers(dtype, 5, 48) for dtype in (*DTYPES[:3], torch.int64, torch.int16, torch.uint8)))


def test_rows_that_end_within_a_vector_are_not_computed_twice_over_themselves(check: Any) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        return torch.relu(x @ w + 1) * 3, torch.softmax(x @ w.exp(), -1)

    check(function, torch.randn(6, 32), torch.randn(32, 27))
