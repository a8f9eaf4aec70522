"""``auto`` with splits and chains: which it chooses, which it refuses, and what it says of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import torchmux
from torchmux.registry import BackendSpec

HERE = Path(__file__).parent
WEIGHTS = [torch.randn(64, 64) / 8 for _ in range(3)]


def halves(x):
    """Products, then others: each takes as many steps as the other."""
    for weight in WEIGHTS:
        x = nn.functional.linear(x, weight)
    return (x.sin().cos().tanh(),)


@pytest.fixture
def slow(own_catalog, monkeypatch):
    """``slow("slow_products", ...)`` registers functions of ``split_backends`` as backends."""
    monkeypatch.syspath_prepend(str(HERE))

    def register(*names: str) -> list[str]:
        for name in names:
            torchmux.register_backend(
                BackendSpec(name, "for tests", f"split_backends:{name}", training=True, dtypes=("*",), fingerprint=str)
            )
        return list(names)

    return register


def decided(names):
    """What auto decides on ``halves`` among the backends ``names``: the report, and the table without its widths."""
    x = torch.randn(4096, 64)
    options = {"wait": True, "allow": names, "budget_s": 400.0}
    compiled = torchmux.compile(halves, backend="auto", options=options, strict=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), halves(x))
    report = torchmux.report(compiled).graphs[0].report
    return report, [" ".join(line.split()) for note in report.notes for line in note.splitlines()]


@pytest.mark.slow
def test_a_split_is_chosen_where_each_part_has_a_backend_that_suits_it(slow) -> None:
    report, table = decided(slow("slow_products", "slow_others"))
    placed = {p.op.split(".")[1]: p.placed_on for p in report.placements}
    assert placed["mm"] == "slow_others"
    assert placed["sin"] == placed["cos"] == placed["tanh"] == "slow_products"
    (line,) = [line for line in table if line.startswith("split slow_others 1, slow_products 1 ")]
    assert " chosen slow_others: matrix product | slow_products: elementwise; predicted " in line
    assert "ms end to end" in line


@pytest.mark.slow
def test_a_training_graph_is_split_with_its_backward_pass(slow) -> None:
    weights = [nn.Parameter(torch.randn(64, 64) / 8) for _ in range(3)]

    def f(x):
        for weight in weights:
            x = nn.functional.linear(x, weight)
        return x.sin().cos().tanh().sum()

    x = torch.randn(4096, 64)
    options = {"wait": True, "allow": slow("slow_products", "slow_others"), "budget_s": 400.0}
    compiled = torchmux.compile(f, backend="auto", options=options, strict=True)
    got = torch.autograd.grad(compiled(x), weights)
    torch.testing.assert_close(got, torch.autograd.grad(f(x), weights), rtol=1e-3, atol=1e-3)
    report = torchmux.report(compiled).graphs[0].report
    assert {p.placed_on for p in report.placements if ".mm" in p.op} == {"slow_others"}
    assert {p.placed_on for p in report.placements if "tanh" in p.op} == {"slow_products"}


@pytest.mark.slow
def test_a_split_whose_crossings_cost_more_than_it_gains_is_refused_by_the_model(slow) -> None:
    report, table = decided(slow("far_products", "far_others"))
    assert len({p.placed_on for p in report.placements}) == 1
    (line,) = [line for line in table if line.startswith("split ")]
    assert line.startswith("split refused each piece with its quickest backend (far_others: matrix product | far_")
    assert "and the crossings between them" in line and "predicted, against" in line


@pytest.mark.slow
def test_a_split_that_keeps_no_promise_is_refused_after_its_measurement(slow) -> None:
    report, table = decided(slow("rival_products", "rival_others"))
    assert len({p.placed_on for p in report.placements}) == 1
    (line,) = [line for line in table if line.startswith("split rival_others 1, rival_products 1 ")]
    assert " slower " in line and "ms end to end: the crossings cost more than the pieces gain" in line
