"""Attention written out: found and fused, with eager's numbers, gradients and nans, or left as it is."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchmux
from torchmux.backends.native.targets.cpu import target
from torchmux.config import config

from ..conftest import assert_as_exact_as_eager

FUSED = "torchmux.attention.default"


@pytest.fixture(autouse=True)
def however_small(monkeypatch):
    monkeypatch.setattr(target, "SMALLEST_ATTENTION", 1)
    torchmux.reset()
    with config.patch(cache_enabled=False):  # what is kept does not know of this
        yield


def tensors(*mask, dtype=torch.float32, rows=6, columns=9):
    query = torch.randn(2, rows, 4, 8, dtype=dtype).transpose(1, 2)
    key, value = (torch.randn(2, 4, columns, 8, dtype=dtype) for _ in range(2))
    return (query, key, value, *mask)


def run(function, *args, backend="native", **options):
    """The results and what ran."""
    compiled = torchmux.compile(function, backend=backend, fullgraph=True, **options)
    got = compiled(*args)
    return got, [p.op for entry in torchmux.report(compiled).graphs for p in entry.report.placements]


def blocked(rows=6, columns=9):
    return torch.ones(rows, columns, dtype=torch.bool).triu(1)


SPELLINGS = {
    "plain": lambda q, k, v: (q @ k.transpose(-2, -1)).softmax(-1) @ v,
    "scaled": lambda q, k, v: torch.matmul(F.softmax(torch.matmul(q, k.transpose(2, 3)) * 0.3, dim=-1), v),
    "divided": lambda q, k, v: torch.softmax(q.matmul(k.permute(0, 1, 3, 2)) / math.sqrt(8), dim=3).matmul(v),
    "query scaled": lambda q, k, v: ((q * 0.3) @ k.transpose(-1, -2)).softmax(-1) @ v,
    "dropout": lambda q, k, v: F.dropout((q @ k.mT).softmax(-1), 0.5, False) @ v,
    "mask": lambda q, k, v: (q @ k.mT * 0.3 + torch.randn(6, 9).sign()).softmax(-1) @ v,
    "causal": lambda q, k, v: (q @ k.mT * 0.3).masked_fill(blocked(), -torch.inf).softmax(-1) @ v,
    "lowest": lambda q, k, v: (q @ k.mT).masked_fill(blocked(), torch.finfo(q.dtype).min).softmax(-1) @ v,
    "type": lambda q, k, v: F.softmax(q @ k.mT, dim=-1, dtype=torch.float32).to(q.dtype) @ v,
    "float": lambda q, k, v: (q @ k.mT / 3).float().softmax(-1).to(q.dtype) @ v,
    "where": lambda q, k, v: torch.where(~blocked(), q @ k.mT * 0.3, -torch.inf).softmax(-1) @ v,
    "key that lies turned": lambda q, k, v: (q @ k.mT.clone() / 3).softmax(-1) @ v,
    "three dimensions": lambda q, k, v: torch.bmm(
        (q.flatten(0, 1) @ k.flatten(0, 1).transpose(1, 2) + blocked().float()).softmax(-1), v.flatten(0, 1)
    ),
    "heads together": lambda q, k, v: ((q @ k.mT).softmax(-1) @ v).view(8, 6, 8).transpose(0, 1).reshape(6, 64),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings(name: str) -> None:
    function, args = SPELLINGS[name], tensors()
    if name == "mask":
        function = lambda q, k, v, m: (q @ k.mT * 0.3 + m).softmax(-1) @ v  # noqa: E731
        args = tensors(torch.randn(2, 1, 1, 9))
    with torch.no_grad():
        got, ran = run(function, *args)
        eager = function(*args)
        exact = function(*(t.double() if t.is_floating_point() else t for t in args)).double()
    assert FUSED in ran
    assert_as_exact_as_eager(got, eager, exact)


def test_what_eager_has_no_number_for_has_none() -> None:
    """torch's kernel makes zeros of a row that sees nothing, or has a nan."""

    def f(q, k, v, m):
        return (q @ k.mT + m).softmax(-1) @ v

    q, k, v, m = tensors(torch.zeros(2, 1, 6, 9))
    m[0, 0, 1] = -torch.inf
    m[1, 0, 2, 3] = torch.nan
    q[1, 2, 4, 0] = torch.nan
    q[0, 0, 5, 0] = torch.inf
    with torch.no_grad():
        got, ran = run(f, q, k, v, m)
    assert FUSED in ran
    assert f(q, k, v, m).isnan().any()
    torch.testing.assert_close(got, f(q, k, v, m), equal_nan=True)


def test_rows_of_the_lowest_number_are_averages() -> None:
    def f(q, k, v, hidden):
        return (q @ k.mT).masked_fill(hidden, torch.finfo(q.dtype).min).softmax(-1) @ v

    hidden = torch.zeros(6, 9, dtype=torch.bool)
    hidden[2] = True
    args = tensors(hidden)
    with torch.no_grad():
        got, ran = run(f, *args)
    assert FUSED in ran
    torch.testing.assert_close(got[:, :, 2], args[2].mean(2))
    torch.testing.assert_close(got, f(*args))


def test_the_lowest_number_of_float16_is_one_like_others_to_the_kernel() -> None:
    def f(q, k, v, hidden):
        return (q @ k.mT).masked_fill(hidden, torch.finfo(q.dtype).min).softmax(-1) @ v

    args = tensors(torch.ones(6, 9, dtype=torch.bool), dtype=torch.float16)
    with torch.no_grad():
        got, ran = run(f, *args)
    assert FUSED not in ran
    torch.testing.assert_close(got, f(*args))


@pytest.mark.parametrize("masked", [False, True])
def test_gradients(masked: bool) -> None:
    def f(q, k, v, m):
        scores = q @ k.transpose(-2, -1) * 0.3
        return (((scores + m if masked else scores).softmax(-1) @ v) * m.sum()).square().sum()

    args = tensors(torch.randn(1, 4, 6, 9))
    results = []
    for kind in ("native", "eager", "exact"):
        given = [t.double() if kind == "exact" else t.clone() for t in args]
        leaves = [t.requires_grad_() for t in given[:3]]
        value = run(f, *given)[0] if kind == "native" else f(*given)
        value.backward()
        results.append([value.detach(), *(leaf.grad for leaf in leaves)])
    assert_as_exact_as_eager(*results)


def changed_keys(q, k, v, m):
    k = k.clone()
    scores = q @ k.mT
    k.zero_()
    return scores.softmax(-1) @ v + k.sum()


def changed_mask(q, k, v, m):
    bias = torch.zeros(6, 9)
    scores = q @ k.mT + bias
    bias[0] = -torch.inf
    return scores.softmax(-1) @ v + bias[1].sum()


KEPT = {
    "keys change": changed_keys,
    "the mask changes": changed_mask,
    "a mask of more": lambda q, k, v, m: (q[:1] @ k[:1].mT + m.new_zeros(2, 1, 6, 9).float()).softmax(-1) @ v[:1],
    "weights are returned": lambda q, k, v, m: ((w := (q @ k.mT).softmax(-1)) @ v, w),
    "over another dimension": lambda q, k, v, m: (q @ k.mT).softmax(-2) @ v,
    "another mask": lambda q, k, v, m: (q @ k.mT).masked_fill(m, -100.0).softmax(-1) @ v,
    "in place": lambda q, k, v, m: (q @ k.mT).div_(2.5).softmax(-1) @ v,
    "dropped": lambda q, k, v, m: F.dropout((q @ k.mT).softmax(-1), 1.0, True) @ v,
    "scores twice": lambda q, k, v, m: (s := q @ k.mT).softmax(-1) @ v + s.sum(),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_something_else_stays(name: str) -> None:
    function, args = KEPT[name], tensors(blocked())
    with torch.no_grad():
        got, ran = run(function, *args)
        wanted = function(*args)
    assert FUSED not in ran
    for one, other in zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, wanted)), strict=True):
        torch.testing.assert_close(one, other)


def test_masks_that_learn_stay() -> None:
    q, k, v, m = tensors(torch.randn(1, 4, 6, 9, requires_grad=True))
    got, ran = run(lambda q, k, v, m: (q @ k.mT + m).softmax(-1) @ v, q, k, v, m)
    assert FUSED not in ran
    got.sum().backward()
    assert m.grad is not None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes(dtype) -> None:
    def f(q, k, v):
        weights = F.softmax(q @ k.mT * 0.3, dim=-1, dtype=torch.float32 if dtype.itemsize == 2 else None)
        return weights.to(dtype) @ v

    args = tensors(dtype=dtype)
    with torch.no_grad():
        got, ran = run(f, *args)
        wanted = [t.double() for t in args]
        exact = (wanted[0] @ wanted[1].mT * 0.3).softmax(-1) @ wanted[2]
    assert FUSED in ran
    assert_as_exact_as_eager(got, f(*args), exact)


def test_under_autocast_it_stays() -> None:
    def f(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return (q @ k.mT).softmax(-1) @ v

    args = tensors()
    with torch.no_grad():
        got, ran = run(f, *args)
    assert FUSED not in ran
    assert got.dtype is f(*args).dtype is torch.bfloat16
    torch.testing.assert_close(got, f(*args), rtol=0.02, atol=0.01)  # scores are rounded, after sums in another order


def test_small_ones_and_those_without_fusion_stay(monkeypatch) -> None:
    with torch.no_grad():
        assert FUSED not in run(SPELLINGS["plain"], *tensors(), options={"fusion": False})[1]
        torchmux.reset()
        monkeypatch.setattr(target, "SMALLEST_ATTENTION", 55)
        assert FUSED not in run(SPELLINGS["plain"], *tensors())[1]


def test_one_piece_of_code_for_every_length() -> None:
    function = SPELLINGS["scaled"]
    compiled = torchmux.compile(function, backend="native", fullgraph=True, dynamic=True)
    with torch.no_grad():
        for rows, columns in ((6, 9), (7, 12), (20, 5)):
            args = tensors(rows=rows, columns=columns)
            torch.testing.assert_close(compiled(*args), function(*args))
    (entry,) = torchmux.report(compiled).graphs
    assert FUSED in {p.op for p in entry.report.placements}


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_models_of_transformers(family: str, tmp_path) -> None:
    """Their own way to write it out, with the masks that they make; the second time from the cache."""
    import transformers

    if family == "bert":
        sizes = transformers.BertConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        )
    else:
        sizes = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, use_cache=False)
    sizes._attn_implementation = "eager"
    model = transformers.AutoModel.from_config(sizes, attn_implementation="eager").eval()
    given = {"input_ids": torch.randint(0, 100, (2, 12)), "attention_mask": torch.ones(2, 12, dtype=torch.int64)}
    given["attention_mask"][1, 7:] = 0
    exact = copy.deepcopy(model).double()
    with torch.no_grad(), config.patch(cache_dir=tmp_path, cache_enabled=True):
        eager, wanted = model(**given)[0], exact(**given)[0]
        for _ in range(2):
            torchmux.reset()
            compiled = torchmux.compile(model, backend="native")
            assert_as_exact_as_eager(compiled(**given)[0], eager, wanted)
            placed = [p.op for entry in torchmux.report(compiled).graphs for p in entry.report.placements]
            assert placed.count(FUSED) == 2


def test_a_network_that_trains() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer, self.dropout = nn.Linear(32, 96), nn.Linear(32, 32), nn.Dropout(0.0)
            self.register_buffer("seen", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))

        def forward(self, x):
            rows = x.shape[1]
            q, k, v = (t.view(-1, rows, 4, 8).transpose(1, 2) for t in self.inner(x).split(32, dim=2))
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            scores = scores.masked_fill(self.seen[:, :, :rows, :rows] == 0, float("-inf"))
            mixed = self.dropout(F.softmax(scores, dim=-1)) @ v
            return self.outer(mixed.transpose(1, 2).contiguous().view(-1, rows, 32))

    model, x = Attention(), torch.randn(3, 10, 32)
    twin = copy.deepcopy(model)
    got, ran = run(model, x)
    assert FUSED in ran
    got.square().mean().backward()
    twin(x).square().mean().backward()
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
