"""Large tensors that are made where others have been; small ones stand for them here."""

from __future__ import annotations

import pytest
import torch

from torchmux.backends.native.schedule import host, memory


def in_turn(x, w):
    h = torch.tanh(x @ w)
    return torch.relu(h @ w + 1) @ w


def over_rows(x, w):
    h = x @ w
    return (h - h.mean(-1, keepdim=True)).softmax(-1) @ w


def with_sums(x, w):
    h = torch.sin(x @ w)
    return h.sum(0), h @ w


def turned(x, w):
    return torch.tanh((x @ w).flip(0)) @ w


def read_again(x, w):
    h = x @ w
    return torch.tanh(h) @ w + (h @ w).cos()


@pytest.mark.parametrize("target", ["triton"], indirect=True)
@pytest.mark.parametrize(
    ("function", "count"), [(in_turn, 2), (over_rows, 1), (with_sums, 1), (turned, 0), (read_again, 0)]
)
def test_what_lies_where_another_tensor_was_is_right(check, monkeypatch, function, count) -> None:
    """It is made there if its kernel is the last to read the other one, and each element where it is written."""
    found: list[int] = []
    usual = host.taken_over

    def noted(*given):
        taken = usual(*given)
        found.append(len(taken))
        return taken

    monkeypatch.setattr(memory, "LARGE", {"cpu": 0})
    monkeypatch.setattr(host, "taken_over", noted)
    check(function, torch.randn(40, 40), torch.randn(40, 40) / 6, options={"matmul": "library"})
    assert sum(found) == count
