"""Tests draw the same random numbers in every run, and whichever tests run before them."""

from __future__ import annotations

import random

import pytest
import torch

IMPORTED = torch.randn(2)
SEEDED = torch.randn(2, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def drawn_once() -> torch.Tensor:
    return torch.randn(2)


def test_fixtures_draw_seeded_numbers(drawn_once: torch.Tensor) -> None:
    assert torch.equal(drawn_once, SEEDED)


@pytest.mark.parametrize("time", ["first", "again"])
def test_each_test_draws_the_same(time: str) -> None:
    assert torch.equal(torch.randn(2), SEEDED)
    assert random.random() == random.Random(0).random()


def test_modules_draw_seeded_numbers() -> None:
    assert torch.equal(IMPORTED, SEEDED)
