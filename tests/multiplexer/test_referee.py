"""Eager's process judges results: by eager's error, which may be small by chance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchmux
from torchmux.conformance.oracle import bounds
from torchmux.multiplexer import worker
from torchmux.multiplexer.parcel import PARCEL, pack

NAMES = ["call", "other"]


def cancels(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (64,)).sum()


def in_another_order(x: torch.Tensor) -> list[torch.Tensor]:
    return [F.layer_norm(x, (64,)).flip(0).reshape(-1, 8).sum(0).sum()]


def in_half_precision(x: torch.Tensor) -> list[torch.Tensor]:
    return [F.layer_norm(x.bfloat16(), (64,)).float().sum()]


@pytest.fixture
def judged(tmp_path: Path) -> Callable[..., list[str]]:
    """``judged(x, *others)``: what is wrong with each of ``others``, which compute ``program``."""

    def work(x: torch.Tensor, *others: Callable[..., Any], drawing: float = 60, program: Any = cancels) -> list[str]:
        def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
            pack(gm, inputs, training=False, static_inputs=(), strict=False).save(tmp_path / PARCEL)
            return gm.forward

        torchmux.compile(program, backend=backend, fullgraph=True)(x)
        referee = worker.Worker({"parcel": str(tmp_path / PARCEL), "folder": str(tmp_path)})
        referee.reference(60, drawing)
        found = []
        for number, other in enumerate(others):
            for name, shown in referee.trials.runs(other, NAMES):
                torch.save(shown, tmp_path / f"{number}-{name}")
            found.append(referee.judge(str(tmp_path / str(number)), NAMES)["wrong"])
        return found

    return work


def test_a_sum_that_cancels_is_judged_by_more_than_one_error_of_eager(judged, monkeypatch) -> None:
    given = [torch.randn(64, 64, generator=torch.Generator().manual_seed(n)) for n in range(12)]
    for x in given:
        right, rough = judged(x, in_another_order, in_half_precision)
        assert right == ""
        assert "is off by" in rough
    hasty = [wrong for x in given for wrong in judged(x, in_another_order, drawing=0)]
    assert any(hasty)
    assert all(not wrong or wrong.endswith("there was time to measure eager's error 1 of 12 times") for wrong in hasty)
    monkeypatch.setattr(bounds, "DRAWS", 1)
    assert any(judged(x, in_another_order) != [""] for x in given)


def decides(x: torch.Tensor, more: float = 0.0) -> torch.Tensor:
    return torch.where(x.sum(1) + more > 0, 3 * x[:, 0], x[:, 0])


def test_rounding_errors_may_decide_on_the_side_of_a_threshold(judged) -> None:
    """The sums are a bit below zero: closer than 64 rounding errors, and further than most draws of eager show."""
    x = torch.randn(16, 64, generator=torch.Generator().manual_seed(0))
    x[:, 63] = -(x[:, :63].double().sum(1) + 8e-7).float()

    def errs_by(more: float) -> Callable[[torch.Tensor], list[torch.Tensor]]:
        return lambda x: [decides(x, more)]

    right, wrong = judged(x, errs_by(1e-6), errs_by(1e-3), program=decides)
    assert right == ""
    assert "is off by" in wrong


def test_what_is_the_same_once_more_is_not_written(tmp_path: Path) -> None:
    """A second call with other bits is."""
    calls = [0]

    def drifts(gm: torch.fx.GraphModule) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            calls[0] += 1
            return [gm(*args)[0] + calls[0]]

        return run

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        pack(gm, inputs, training=False, static_inputs=(), strict=False).save(tmp_path / PARCEL)
        return gm.forward

    torchmux.compile(cancels, backend=backend, fullgraph=True)(torch.randn(8, 64))
    process = worker.Worker({"parcel": str(tmp_path / PARCEL), "folder": str(tmp_path)})
    names = ["call", "again", "other", "thread", "kept"]
    process.run = process.gm.forward
    assert process.results(str(tmp_path / "same"), names)["written"] == ["call", "other"]
    process.run = drifts(process.gm)
    assert process.results(str(tmp_path / "drifts"), names)["written"] == ["call", "again", "other", "thread"]
