"""openvino where its own code would give other numbers than torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import torchmux

pytest.importorskip("openvino")


def results(capture, function, *args, dynamic=None):
    """What openvino and eager return, and the report."""
    captured = capture(function, *args, dynamic=dynamic)
    compiled = captured.compile("openvino")
    with torch.no_grad():
        return captured.run(compiled, *args), function(*args), compiled.report


@pytest.mark.parametrize("dynamic", [None, {0: [0]}], ids=["static", "dynamic"])
def test_sizes_of_numbers_that_no_input_decides(capture, dynamic) -> None:
    """OpenVINO leaves the abs of a range out."""

    def f(x):
        n = x.shape[0]
        steps = torch.linspace(-1, 1, 5).abs(), torch.arange(-2, 3).abs(), (torch.arange(n) - 2).abs()
        return *steps, torch.erf(torch.arange(-2, 3) * 0.25), (torch.arange(-2, 3) * x.sum()).abs(), x + 1

    got, wanted, report = results(capture, f, torch.randn(4), dynamic=dynamic)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other)
    assert report.share > 0.8


def test_a_row_that_is_masked_altogether(capture) -> None:
    """``_safe_softmax`` makes zeros of it."""
    x = torch.tensor([[0.5, -torch.inf, 2.0], [-torch.inf] * 3])
    got, wanted, report = results(capture, lambda x: torch.ops.aten._safe_softmax(x, -1), x)
    torch.testing.assert_close(got, wanted)
    assert not wanted[1].any()
    assert report.share > 0.5


def test_which_of_equal_numbers_comes_first(capture) -> None:
    def f(x):
        values, places = x.topk(3)
        return values, places, x.topk(2)[0] + 1

    x = torch.tensor([[3, 1, 3, 3, 2], [0, 0, 0, 0, 0]])
    got, wanted, report = results(capture, f, x)
    assert all(torch.equal(one, other) for one, other in zip(got, wanted, strict=True))
    assert "equal numbers" in report.fallbacks[0].reason
    assert "openvino" in {p.placed_on for p in report.placements}


@pytest.mark.parametrize("op", ["repeat", "expand_copy"])
def test_a_scalar_is_not_broadcast_to_a_scalar(op: str, capture) -> None:
    broadcast = getattr(torch.ops.aten, op)
    got, wanted, report = results(capture, lambda x: broadcast(x, []), torch.tensor(3.0))
    assert torch.equal(got, wanted)
    assert "scalar is broadcast" in report.fallbacks[0].reason


def test_an_inverse_with_few_digits_near_the_end_of_its_domain_is_refused(capture) -> None:
    got, wanted, report = results(capture, lambda x: x.erfinv(), torch.tensor([0.3, 0.99, -0.999]))
    assert torch.equal(got, wanted)
    assert "inverse of erf" in report.fallbacks[0].reason


def test_erf_to_the_last_digit(capture) -> None:
    x = torch.cat([torch.linspace(-6, 6, 20001), torch.tensor([torch.inf, -torch.inf, torch.nan, 1e-30, -1e30])])
    got, _, report = results(capture, lambda x: x.erf(), x)
    assert report.share == 1.0
    wanted = torch.erf(x.double())
    torch.testing.assert_close(got, wanted.float(), equal_nan=True)
    last = torch.finfo(torch.float32).eps * 2 ** wanted.abs().log2().floor()
    assert ((got.double() - wanted).abs() / last).nan_to_num(0).max() < 1.6
    got, wanted, _ = results(capture, lambda x: x.erf(), torch.arange(-4, 4))
    torch.testing.assert_close(got, wanted)


def test_counts_beyond_the_integers_of_float32(capture) -> None:
    """OpenVINO adds bools in float32."""
    flags = torch.ones(2**24 + 5, dtype=torch.bool)
    got, wanted, report = results(capture, lambda x: (x.sum(), x.sum(dtype=torch.int32), x[:9].sum()), flags)
    assert got == wanted
    assert [p.placed_on for p in report.placements if p.op == "aten.sum.default"].count("openvino") == 1


def test_integers_that_float32_does_not_have(capture) -> None:
    """OpenVINO multiplies matrices of int32 in float32, and keeps int64 in 32 bits: the largest int32 becomes 2^31."""
    x = torch.tensor([[2**31 - 1, 5, -(2**31)], [2**24 + 1, 3, 2**30 + 1]], dtype=torch.int32)

    def f(x):
        products = F.linear(x, x), torch.dot(x[0], x[1]), torch.addmm(x[:, :2], x, x.t()), torch.mv(x, x[0])
        return *products, x.float().long(), x * 3

    got, wanted, report = results(capture, f, x)
    assert all(map(torch.equal, got, wanted))
    assert "aten.mul.Tensor" in [p.op for p in report.placements if p.placed_on == "openvino"]


def test_products_with_numbers_in_turn_may_be_infinite_on_the_way(capture) -> None:
    """OpenVINO joins two of them to one, whose number is the product."""
    large = torch.tensor([1e20, -1e20, 3.0, 1e-30])

    def f(x):
        twice, added = (x * 1e30) * 1e-30, (x * 1e30 + 1) * 1e-30
        return twice, added, (x * 1e-30) * 1e30, (x * 1e30).neg() * 1e-30, (x * torch.full((4,), 1e30)) * 1e-30

    got, wanted, _ = results(capture, f, large)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_products_with_numbers_that_agree_stay(capture) -> None:
    """Numbers that all enlarge, or all do not: what is infinite or zero in between is so in the end."""
    x = torch.tensor([1e20, -3e38, 3.0, 1e-40])
    got, wanted, report = results(capture, lambda x: ((x * 2) * 3.5, (x * 0.5) * 0.25, (x * 2) * 1.0), x)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other)
    assert {p.placed_on for p in report.placements if p.op == "aten.mul.Tensor"} == {"openvino"}


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * 1e30 * 1e30, lambda x: x * 1e-30 * 1e-30, lambda x: x * 1e30 * 1.0 * 0.5,
        lambda x: x * 1e-30 * 1.0 * 4.0,
    ],
)  # fmt: skip
def test_products_with_numbers_count_as_a_chain(capture, f) -> None:
    """Two whose product is no number of the type, and three, of which two that follow each other agree."""
    x = torch.tensor([1e20, -1e-20, 3.0, 1e-30, 1e30])
    got, wanted, report = results(capture, f, x)
    torch.testing.assert_close(got, wanted)
    placed = [p.placed_on for p in report.placements if p.op == "aten.mul.Tensor"]
    assert "eager" in placed and "openvino" in placed


@pytest.mark.parametrize("low", [0, -3])
def test_indices_that_are_drawn_are_drawn_by_calls_alone(low):
    """How large they are is asked of their bounds: to draw some while compiling would change the program's numbers."""

    def program(x):
        return x[:, torch.randint(low, 3, (4,))] * 2, torch.rand(2)

    x = torch.randn(2, 3, 4)
    compiled = torchmux.compile(program, backend="openvino")
    for seed in range(4):
        torch.manual_seed(seed)
        found = compiled(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(found, program(x), rtol=0, atol=0)


def test_joined_vectors_keep_their_signs() -> None:
    """OpenVINO computes the absolute values of what it joins, also where something else reads what was joined."""

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        joined, scalars = torch.cat([x, y]), torch.stack([x[0], y[0]])
        return joined, joined.abs(), (joined * 1).view(1, -1).abs().sum(), scalars, F.logsigmoid(scalars), (x * 2).abs()

    given = torch.tensor([-0.5, 2.0]), torch.tensor([-0.7, 1.5, 0.3])
    torch.testing.assert_close(torchmux.compile(f, backend="openvino")(*given), f(*given))
