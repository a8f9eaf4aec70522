"""``auto`` with splits and chains: which it chooses, which it refuses, and what it says of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import torchmux
from torchmux.multiplexer.candidates import Candidate, pin, resolved
from torchmux.multiplexer.decisions import Row
from torchmux.multiplexer.sharing.segments import Segment
from torchmux.multiplexer.sharing.splits import Finalist, Split, chains
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

    x = torch.randn(32, 64)
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


# --- what is predicted, without processes ----------------------------------------------------------------------------

SEGMENTS = [Segment(0, 4, {"convolution": 1.0}, 800), Segment(4, 7, {"elementwise": 1.0}, 0)]


def finalist(backend, seconds, share=1.0, **options):
    row = Row(backend, backend, options, "", share=share, compile_seconds=1.0)
    return Finalist(Candidate(backend, options), row, seconds)


def choice(pieces, whole, error=1e-5, segments=SEGMENTS):
    """What is made of two backends with these seconds for the pieces and a call, and for the whole graph."""
    found = [finalist("one", whole[0], fusion=False), finalist("two", whole[1])]
    split = Split(Path(), None, found, strict=False, training=False, memory=0, ends=0.0)
    errors = {name: [error] * len(times) for name, times in pieces.items()}
    return split, split.choose(segments, [2, 3, 4, 5], pieces, errors)


def test_a_split_is_a_candidate_where_it_promises_a_gain() -> None:
    split, found = choice({"one": [0.002, 0.009, 0.001], "two": [0.008, 0.003, 0.001]}, (0.010, 0.010))
    assert (found.backend, found.options) == ("two+one", {"one": {"fusion": False}})
    assert found.pins == {2: "one", 3: "one", 4: "two", 5: "two"}
    assert found.name == "split one(fusion=False) 1, two 1"
    row = Row(found.name, found.backend, found.options, "slower", "1.20 times the time of two", milliseconds=12.0)
    split.explain(row)
    assert row.reason == (
        "one: convolution | two: elementwise; predicted 5 ms, of which crossings 1 ms, against 10 ms of one(fusion="
        "False); measured 12 ms end to end: the crossings cost more than the pieces gain; 1.20 times the time of two"
    )


@pytest.mark.parametrize(
    ("pieces", "whole", "error", "words"),
    [
        (  # a call costs 4 ms of the 5 and more that each piece takes
            {"one": [0.005, 0.007, 0.004], "two": [0.007, 0.005, 0.004]}, (0.008, 0.008), 1e-5,
            "each piece with its quickest backend (one: convolution | two: elementwise) takes 6 ms, and the crossings "
            "between them 4 ms: 10 ms predicted, against 8 ms of one(fusion=False)",
        ),
        (
            {"one": [0.003, 0.009, 0.001], "two": [0.008, 0.0078, 0.001]}, (0.011, 0.0148), 5e-3,
            "which is no gain beyond",
        ),
        ({"one": [0.002, 0.003, 0.001], "two": [0.004, 0.005, 0.001]}, (0.004, 0.008), 1e-5,
         "one computes each of 2 pieces the quickest"),
    ],
)  # fmt: skip
def test_a_split_is_refused_with_the_sums(pieces, whole, error, words) -> None:
    _, found = choice(pieces, whole, error)
    assert (found.candidate, found.verdict) == ("split", "refused")
    assert words in found.reason


def test_chains_are_of_partial_backends_with_the_quickest_complete_one_behind() -> None:
    ranked = [
        finalist("eager", 0.5), finalist("a", 1.0, share=0.6), finalist("b", 2.0, keep=True), finalist("c", 3.0, 0.9),
        finalist("d", 4.0), finalist("e", 5.0, share=0.5),
    ]  # fmt: skip
    assert [(c.name, c.options) for c in chains(ranked)] == [
        ("a+b(keep=True)", {"b": {"keep": True}}),
        ("c+b(keep=True)", {"b": {"keep": True}}),
    ]
    assert chains(ranked[:2]) == []


def test_pins_of_a_decision_lead_nodes_to_their_backends(picky) -> None:
    one, two = picky("one"), picky("two")
    found = []

    def keep(gm, inputs):
        pins = {str(i): "two" if "cos" in n.name else "one" for i, n in enumerate(gm.graph.nodes) if "call" in n.op}
        found.append(resolved("one+two", {}).compile(pin(gm, pins), inputs, training=False))
        return found[0]

    x = torch.randn(4)
    with torch.no_grad():
        assert torch.equal(torchmux.compile(lambda x: x.sin().cos().exp(), backend=keep)(x), x.sin().cos().exp())
    assert (one.operators, two.operators) == ([["sin"], ["exp"]], [["cos"]])
