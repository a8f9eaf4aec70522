"""What counts as right: exact where it must be, and as close as eager's own error elsewhere."""

from __future__ import annotations

import copy
import io
import math

import pytest
import torch

from torchmux.conformance import oracle
from torchmux.conformance.case import Trial
from torchmux.conformance.oracle import observation, tensors
from torchmux.conformance.oracle.wide import Wide

X = torch.linspace(-2, 2, 12).view(3, 4)


def kinds(found, expected, reference=None, **how):
    return [d.what for d in observation.compare(found, [(expected, reference)], **how)]


@pytest.mark.parametrize(
    ("found", "expected", "what"),
    [
        (X.double(), X, "dtype"),
        (X[:2], X, "shape"),
        (X.t().contiguous().t(), X, "stride"),
        (X + 1e-3, X, "value"),
        (torch.tensor([1, 3]), torch.tensor([1, 2]), "value"),
        (torch.tensor([math.nan]), torch.tensor([1.0]), "value"),
        (torch.tensor([1.0]), torch.tensor([math.nan]), "value"),
        (torch.tensor([-math.inf]), torch.tensor([math.inf]), "value"),
        (X.clone().requires_grad_(), X, "requires_grad"),
        (observation.Raised(KeyError(1)), X, "exception"),
        (observation.Raised(KeyError(1)), observation.Raised(ValueError(1)), "exception"),
        ([X], (X,), "type"),
        ([X], [X, X], "type"),
        ({"a": X}, {"b": X}, "type"),
        (1, 1.0, "type"),
        ("left", "right", "value"),
        (0.1, 0.2, "value"),
    ],
)
def test_differences(found, expected, what):
    assert what in kinds(found, expected)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (X.clone(), X),
        (torch.ones(1, 3).as_strided((1, 3), (9, 1)), torch.ones(1, 3)),
        (torch.empty(0, 3), torch.empty(3, 0).t()),
        (torch.tensor([math.nan, math.inf]), torch.tensor([math.nan, math.inf])),
        (observation.Raised(KeyError(1)), observation.Raised(KeyError(2))),
        ({"a": [X, 3]}, {"a": [X, 3]}),
        (torch.sparse_coo_tensor([[0]], [1.0], (2,)), torch.sparse_coo_tensor([[0]], [1.0], (2,))),
        (X * (1 + 1j), X * (1 + 1j)),
    ],
)
def test_no_difference(found, expected):
    assert kinds(found, expected) == []


def test_a_view_where_eager_has_a_copy():
    x = X.clone()
    assert kinds((x, x[0]), (X, X[0].clone())) == ["alias"]
    assert kinds((x, x[0].clone()), (X, X[0])) == ["alias"]
    assert kinds((x, x[0]), (X, X[0])) == []


def test_eagers_own_error_is_the_measure():
    exact = torch.full((8,), 1.0, dtype=torch.float64)
    eager = (exact + 1e-4).float()
    assert kinds((exact + 3e-4).float(), eager, exact) == []
    assert kinds((exact + 5e-4).float(), eager, exact) == ["value"]
    assert kinds((exact - 3e-4).float(), eager, exact) == []


def test_a_better_result_than_eagers_is_right():
    exact = torch.rand(8, dtype=torch.float64)
    assert kinds(exact.float(), (exact + 0.01).float(), exact) == []


def test_small_elements_beside_large_ones():
    exact = torch.tensor([1.0, 1e-6], dtype=torch.float64)
    found = torch.tensor([1.0, 1.1e-6])
    assert kinds(found, exact.float(), exact) == []
    assert kinds(found, exact.float(), exact, elementwise=True) == ["value"]


def test_without_a_reference_eager_is_exact():
    x = torch.rand(8) + 1
    assert kinds(x * (1 + 5e-7), x) == []
    assert kinds(x * (1 + 1e-5), x) == ["value"]


def test_half_precision_is_held_to_its_own_units():
    x = torch.rand(8).bfloat16() + 1
    assert kinds(x * (1 + torch.finfo(torch.bfloat16).eps), x) == []
    assert kinds(x * 1.5, x) == ["value"]


@pytest.mark.parametrize("elementwise", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("with_reference", [False, True])
def test_a_few_units_of_half_precision_are_wrong(dtype, elementwise, with_reference):
    exact = torch.randn(64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    eager, unit = exact.to(dtype), torch.finfo(dtype).eps
    reference = exact if with_reference else None
    for units in (0.0, 0.1, 0.2):
        assert kinds((exact * (1 + units * unit)).to(dtype), eager, reference, elementwise=elementwise) == []
    for units in (2, 3, 12):
        found = (exact * (1 + units * unit)).to(dtype)
        assert kinds(found, eager, reference, elementwise=elementwise) == ["value"]


def test_float16_computed_in_bfloat16_is_wrong():
    exact = torch.randn(64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert kinds(exact.bfloat16().half(), exact.half(), exact, elementwise=True) == ["value"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_that_rounds_less_often_than_eager_is_right(dtype):
    """A fused chain, a product and a softmax: computed in float32 and rounded once, against eager and its reference."""
    torch.manual_seed(0)
    x, w = torch.randn(16, 64).to(dtype), torch.randn(64, 64).to(dtype)
    for f in (
        lambda x, w: (x.sin() * 3 + x.exp()).tanh() - x,
        lambda x, w: x @ w,
        lambda x, w: torch.softmax(x @ w / 8, -1),
        lambda x, w: torch.nn.functional.gelu(x @ w).sum(-1),
    ):
        eager, exact = f(x, w), f(x.double(), w.double())
        assert kinds(f(x.float(), w.float()).to(dtype), eager, exact) == []


def test_who_shares_memory():
    x, y = torch.rand(4), torch.rand(4)
    assert oracle.sharing([x, y, x[1:], y.view(2, 2), torch.rand(1)]) == [0, 1, 0, 1, 4]
    nothing = torch.empty(2, 0)
    assert oracle.sharing([nothing, nothing[0], nothing]) == [0, 1, 2]


def test_the_largest_of_several_draws_of_eagers_error_counts():
    exact = torch.ones(4, dtype=torch.float64)
    lucky, usual, found = exact.float(), exact.float() + 1e-4, exact.float() + 3e-4
    assert [d.what for d in observation.compare(found, [(lucky, exact)])] == ["value"]
    assert observation.compare(found, [(lucky, exact), (usual, exact)]) == []
    assert [d.what for d in observation.compare(found + 2e-4, [(lucky, exact), (usual, exact)])] == ["value"]


def test_draws_are_the_same_problem_with_other_rounding_errors():
    model, x = torch.nn.Linear(3, 3), torch.randn(2, 3)
    made = [
        (trial.given(x), trial.module(copy.deepcopy(model)).weight)
        for trial in (Trial(), Trial(draw=1), Trial(draw=1, wide=True), Trial(draw=2))
    ]
    for (plain, drawn, wide, other), value in zip(zip(*made, strict=True), (x, model.weight), strict=True):
        assert torch.equal(plain, value)
        assert torch.equal(drawn.double(), wide)
        assert not torch.equal(drawn, plain)
        assert not torch.equal(drawn, other)
        torch.testing.assert_close(drawn, plain, rtol=2.4e-7, atol=0)


def test_what_eager_refuses_is_not_held_against_a_backend():
    refused = observation.Refused("RuntimeError")
    assert observation.compare([X, X], [([refused, X], None)]) == []
    assert observation.compare(X, [(refused, None)]) == []
    assert observation.compare([X, X + 1], [([refused, X], None)])
    assert observation.compare([refused, X], [([X, X], None)])


def test_without_a_reference_draws_are_held_against_the_first_one():
    eager, found = torch.ones(4), torch.ones(4) + 3e-4
    assert observation.compare(found, [(eager, None)])
    assert observation.compare(found, [(eager, None), (eager + 1e-4, None)]) == []
    assert observation.compare(found + 2e-4, [(eager, None), (eager + 1e-4, None)])


def test_zeros_that_all_cancels_to_are_zero_as_far_as_the_largest_result_can_tell():
    zero, one = torch.zeros(3), torch.ones(2)
    draws = [([zero, one], [zero.double(), one.double()])] * 2
    assert observation.compare([zero + 5e-8, one], draws) == []
    assert observation.compare([zero + 5e-7, one], draws)
    assert observation.compare([zero + 5e-8, one], draws[:1])
    small = [([zero + 1e-9, one], [zero.double() + 1e-9, one.double()])] * 2
    assert observation.compare([zero, one], small)


def test_where_eager_has_no_correct_digit_noise_is_noise():
    exact, one = torch.full((3,), 1e-17, dtype=torch.float64), torch.ones(2)
    draws = [([torch.full((3,), 2e-9), one], [exact, one.double()])] * 2
    assert observation.compare([torch.full((3,), -6e-8), one], draws) == []
    assert observation.compare([torch.full((3,), 6e-7), one], draws)
    digits = [([torch.full((3,), 2e-9), one], [exact + 1.9e-9, one.double()])] * 2
    assert observation.compare([torch.full((3,), -6e-8), one], digits)


def test_sparse_tensors_are_compared_as_dense_ones():
    for sparse in (X.relu().to_sparse(), X.relu().to_sparse_csr()):
        assert not kinds(sparse, sparse.clone(), sparse.double())
        assert kinds(sparse * 1.01, sparse, sparse.double()) == ["value"]


def test_what_is_missing_is_named():
    (difference,) = observation.compare({"a": X, "c": X}, [({"a": X, "b": X}, None)])
    assert str(difference) == "dict, eager has dict; ['b'] missing; ['c'] present, unlike in eager"


def test_where_only_eagers_kernel_is_not_finite():
    """Eager's gelu of infinity is nan or infinity, by the layout: what float64 computes is right as well."""
    inf, nan = math.inf, math.nan
    eager, exact = torch.tensor([nan, inf, nan, inf, 1.0]), torch.tensor([inf, 3e38, nan, 1e60, 1.0]).double()
    for found in (eager, torch.tensor([inf, 3e38, nan, inf, 1.0])):
        assert kinds(found, eager, exact) == []
    for place, wrong in ((0, 0.0), (0, -inf), (1, nan), (1, 2e38), (2, inf), (2, 1.0), (3, 3e38), (4, nan), (4, inf)):
        found = eager.clone()
        found[place] = wrong
        assert kinds(found, eager, exact) == ["value"]
        assert kinds(eager, eager) == []  # without a reference eager alone is right
        assert kinds(found, eager) == ["value"]


def test_memory_of_several_dtypes_reaches_another_process():
    """torch's file format refuses it; what shares memory still does, flags of views included."""
    x, z = torch.arange(6.0).view(2, 3), torch.complex(torch.ones(2), torch.arange(2.0))
    told = observation.Leaves.portable([x, x.view(torch.int32).t(), x[1], z.conj().imag, z, torch.ones(2)])
    file = io.BytesIO()
    torch.save(told.stored(), file)
    file.seek(0)
    received = torch.load(file, weights_only=False).viewed()
    assert not observation.compare(received, [(told, None)])
    tensors = [leaf for _, leaf in received if isinstance(leaf, torch.Tensor)]
    assert oracle.sharing(tensors) == [0, 0, 0, 3, 3, 5]


def test_zeros_without_memory_are_told_as_zeros():
    """Some of autograd's gradients are such zeros, and no file takes them."""
    x = torch.ones(3, requires_grad=True)
    torch.sgn(x).sum().backward()
    assert x.grad._is_zerotensor(), "no gradient is one any more"
    file = io.BytesIO()
    torch.save(observation.Leaves.portable([x.grad]).stored(), file)
    file.seek(0)
    ((_, told), *_) = [
        each for each in torch.load(file, weights_only=False).viewed() if isinstance(each[1], torch.Tensor)
    ]
    assert told.equal(torch.zeros(3))


def test_a_unit_of_the_numbers_whose_difference_is_the_result_is_allowed():
    exact = torch.full((4,), 1e-4, dtype=torch.float64)
    found = exact.float() + 1e-7
    draws = [(exact.float() + 1e-11, exact)]
    assert [d.what for d in observation.compare(found, draws)] == ["value"]
    assert observation.compare(found, draws, around=1.0) == []
    assert [d.what for d in observation.compare(found + 2e-7, draws, around=1.0)] == ["value"]


def test_a_jump_in_draws_from_further_away_excuses_its_element_only():
    """Near draws move by a unit, those from further away by eight: in proportion, or across a threshold."""
    exact = torch.rand(64, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 1
    unit = torch.finfo(torch.float32).eps
    near, far = exact * (1 + unit), exact * (1 + 8 * unit)
    far[3] += 0.5
    draws = observation.Draws([exact.float()], [exact])
    draws.add([near.float()], [near])
    draws.add([far.float()], [far], reach=8.0)

    def differs(place: int, much: float) -> bool:
        found = exact.float()
        found[place] += much
        return bool(draws.compare([found]))

    assert not differs(3, 0.5)
    assert differs(3, 2.5)
    assert differs(4, 0.5)
    assert differs(4, 100 * unit), "what moves in proportion is no jump"


def test_the_largest_error_grows_with_the_number_of_elements_where_draws_are_few():
    """Two sums of normal errors: eager's, and a backend's whose largest one is beyond four times what is usual."""
    generator = torch.Generator().manual_seed(0)
    exact = torch.rand(2**20, dtype=torch.float64, generator=generator) + 1
    error = torch.randn(2**20, dtype=torch.float64, generator=generator) * 20 * torch.finfo(torch.float32).eps
    eager, found = (exact + error).float(), exact.float()
    usual = float(error.abs().quantile(0.99))

    def differs(times: float, *, few_draws: bool) -> bool:
        found[7] = exact[7] + times * usual
        return bool(observation.Draws([eager], [exact]).compare([found], few_draws=few_draws))

    assert not differs(5.0, few_draws=True)
    assert differs(5.0, few_draws=False)
    assert differs(8.0, few_draws=True)


def test_random_numbers_of_large_tensors_repeat(monkeypatch):
    """Those of small ones are torch's own."""
    small, large = torch.empty(4, 5), torch.empty(7, 5)
    found = oracle.random_like(small, torch.randn, torch.Generator().manual_seed(2))
    assert torch.equal(found, torch.randn(4, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64))
    monkeypatch.setattr(tensors, "PERIOD", 11)
    found = oracle.random_like(large, torch.rand, torch.Generator().manual_seed(1))
    assert found.shape == large.shape and torch.equal(found.flatten()[11:], found.flatten()[:-11])
    assert len(found.unique(dim=0)) == 7


def test_float64_has_its_digits_where_a_program_asks_for_float32():
    x = torch.linspace(0.1, 1.0, 7, dtype=torch.float64)
    with Wide():
        loss = (x.float() / 3).sum() + x.to(torch.float32).sum() + torch.zeros(1, dtype=torch.float32)
    assert loss.dtype is torch.float64
    assert torch.equal(loss, (x / 3).sum() + x.sum() + torch.zeros(1, dtype=torch.float64))


@pytest.mark.parametrize(
    "expected, rounded",
    [(torch.ones(3), True), (torch.arange(3), False), (torch.ones(3, dtype=torch.bool), False), (True, False),
     (torch.full((3,), math.inf), False)],
)  # fmt: skip
def test_only_rounded_numbers_wait_for_other_runs_of_eager(expected, rounded):
    found = ~expected if torch.is_tensor(expected) and expected.dtype is torch.bool else expected - expected
    found = torch.zeros(3) if torch.is_tensor(expected) and expected.isinf().any() else found
    asked = []
    (difference,) = observation.Draws(expected, None).judge(found, lambda: asked.append(1))
    assert difference.rounded is rounded
    assert bool(asked) is rounded
