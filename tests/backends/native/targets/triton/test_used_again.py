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


def test_where_a_launch_is_divided() -> None:
    """Three tensors, each made of the one before: two are there at a time, as in a loop over single steps."""
    chain = [(0, 1, 8), (1, 2, 8), (2, 3, 8)]
    assert memory.cuts(chain, [], 4) == {2}
    assert memory.cuts(chain, [1], 4) == set()  # a call lies between
    assert memory.cuts([*chain, (0, 4, 100)], [], 5) == {2}
    assert memory.cuts([(0, 1, 8), (2, 3, 4), (3, 4, 16)], [], 5) == {3}
    assert memory.cuts([], [], 3) == set()


@pytest.mark.parametrize("target", ["triton"], indirect=True)
def test_a_tensor_is_freed_between_two_launches(check, monkeypatch) -> None:
    """What a call has made is gone before a later kernel of the same run writes."""
    monkeypatch.setattr(memory, "LARGE", {"cpu": 0})

    def halves(x, w):
        h = (x @ w)[:20]
        first = h.cumsum(1).flip(0)
        second = first.cumsum(1).flip(1)
        return second.cumsum(0).flip(0) @ w

    code = check(halves, torch.randn(40, 40), torch.randn(40, 40) / 6, options={"matmul": "library"}).output_code[1]
    first, last = code.index("launch("), code.rindex("launch(")
    assert code[first:last].count("del ") == 2, code
