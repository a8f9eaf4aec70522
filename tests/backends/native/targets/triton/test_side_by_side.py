"""Small kernels that one launch runs side by side, and products in rows with gaps between them."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

from torchmux.backends.native.ir import expressions, index
from torchmux.backends.native.ir.index import Index
from torchmux.backends.native.schedule.together import are_apart

triton_only = pytest.mark.parametrize("target", ["triton"], indirect=True)


@triton_only
@pytest.mark.parametrize("dim", [0, 1])
def test_the_parts_of_cat_are_one_launch(check, dim) -> None:
    """A few are chosen from where the whole is read; more are written side by side, by programs of one kernel."""
    for count in (3, 5):
        parts = [torch.randn((5, n) if dim else (n, 5)) for n in (3, 4, 9, 1, 2)[:count]]
        functions = {
            (0, 3): lambda a, b, c: torch.cat((a, b, c)),
            (1, 3): lambda a, b, c: torch.cat((a, b, c), 1),
            (0, 5): lambda a, b, c, d, e: torch.cat((a, b, c, d, e)),
            (1, 5): lambda a, b, c, d, e: torch.cat((a, b, c, d, e), 1),
        }
        kernels, host = check(functions[dim, count], *parts).output_code
        assert host.count("launch(") == 1
        assert kernels.count("if (program >= ") == (count if count > 4 else 0)


@triton_only
def test_what_is_overwritten_keeps_its_order(check) -> None:
    def written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = torch.slice_scatter(x, y[:3], 0, 1, 4)
        return torch.slice_scatter(x, y[1:4] * 2, 0, 2, 5)

    check(written, torch.randn(6, 4), torch.randn(4, 4))


def _step(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m2, v2 = torch.lerp(m, g, 0.1), v * 0.999 + g * g * 0.001
    return p - 0.001 * m2 / (v2.sqrt() + 1e-8), m2, v2


@triton_only
def test_steps_of_an_optimizer_are_one_launch(check) -> None:
    def steps(p, g, m, v, p2, g2, m2, v2):
        return (*_step(p, g, m, v), *_step(p2, g2, m2, v2))

    _, host = check(steps, *[torch.rand(s) for s in ((8, 16), (3,)) for _ in range(4)]).output_code
    assert host.count("launch(") == 1


@triton_only
def test_what_depends_on_another_comes_later(check) -> None:
    def chained(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = x.sum(0)
        return total, (x / total).sum(1), total.cumsum(0)

    check(chained, torch.rand(70, 90) + 1)


@triton_only
def test_rows_of_products_start_where_libraries_read(check) -> None:
    """Of a product with an odd number of columns, and of the products that its gradient needs."""

    def both(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits = F.linear(x, w)
        gradient = logits.float().softmax(-1).to(x.dtype)
        return logits, gradient @ w, gradient.t() @ x

    x, w = torch.randn(256, 264, dtype=torch.bfloat16), torch.randn(257, 264, dtype=torch.bfloat16) / 16
    _, host = check(both, x, w).output_code
    assert host.count("ops.torchmux.mm_in_rows.default(") == 3
    assert "empty((256, 257, ), (264, 1, )" in host


def _values(at: Index, variables: list[index.Var]) -> set[int]:
    found = set()
    for point in itertools.product(*(range(v.size) for v in variables)):
        value = index.substitute(at, dict(zip(variables, point, strict=True)))
        assert isinstance(value, int)
        found.add(value)
    return found


def test_apart_is_apart() -> None:
    """For many pairs of positions, against all their values; and it is seen for rows and for parts of rows."""
    with expressions.lock:
        i, j = index.var("i0", 4), index.var("j0", 3)
        variables = [v for v in (index.the_var(i), index.the_var(j)) if v is not None]
        positions = [a * i + b * j + c for a in (1, 3, 7, 8) for b in (0, 1, 4) for c in (0, 2, 3, 5, 12)]
        values = [_values(at, variables) for at in positions]
        seen = 0
        for (left, all_left), (right, all_right) in itertools.combinations(zip(positions, values, strict=True), 2):
            if are_apart(left, right):
                seen += 1
                assert all_left.isdisjoint(all_right)
        assert seen > 100
        assert are_apart(8 * i + j, 8 * i + j + 3)
        assert are_apart(i, i + 4)
        assert not are_apart(i, i + 3)
        expressions.forget()


@triton_only
def test_a_row_that_one_part_gives(check) -> None:
    """Whole programs read from one part or the other, as where a token is put before those of a picture."""

    def tokens(first: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(torch.cat((first.expand(2, 1, 64), rest), 1) * 2, (64,))

    check(tokens, torch.randn(1, 1, 64), torch.randn(2, 5, 64))
