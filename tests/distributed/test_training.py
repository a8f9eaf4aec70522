"""Two ranks train as eager does, whichever way the model is distributed and compiled."""

from __future__ import annotations

import pytest

from . import job

WAYS = ("ddp_around", "ddp_inside", "ddp_accumulating", "fsdp_blocks", "fsdp_whole", "tp_whole", "tp_blocks",
        "dtensors")  # fmt: skip


def test_ways_of_training(tmp_path):
    """Gradients and losses are as exact as eager's, and communication is launched during the backward pass."""
    ways = ("ddp_around", "fsdp_blocks", "tp_blocks", "overlap")
    for printed in job.run("trains.py", "aot_eager", ",".join(ways), cache=tmp_path / "cache"):
        assert printed.count("as eager") == len(ways) - 1


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native", "inductor", "auto"])
def test_all_ways_of_training(backend, tmp_path):
    for printed in job.run("trains.py", backend, ",".join(WAYS), cache=tmp_path / "cache", seconds=550):
        assert printed.count("as eager") == len(WAYS)
