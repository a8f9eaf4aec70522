"""What torch's distributed wrappers tell about a call."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from torchmux import torch_internals as ti

from .walk import checks


class Asks(torch.nn.Linear):
    """Notes the buckets of the call that it is in."""

    told: ti.Buckets | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.told = ti.buckets_of_running_ddp()
        return super().forward(x)


@checks("Buckets", "buckets_of_running_ddp")
def test_buckets(tmp_path: Path) -> None:
    """A first micro-batch, which does not communicate, is compiled for those that do."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        asks = Asks(2, 2)
        assert ti.buckets_of_running_ddp() is None
        for wanted, limits in ((None, (dist._DEFAULT_FIRST_BUCKET_BYTES, 25 * 2**20)), (2, (2**21, 2**21))):
            wrapped = torch.nn.parallel.DistributedDataParallel(asks, bucket_cap_mb=wanted)
            wrapped(torch.ones(1, 2))
            assert asks.told == ti.Buckets(frozenset(map(id, asks.parameters())), *limits, 0, 1)
        with wrapped.no_sync():
            wrapped(torch.ones(1, 2))
        assert asks.told is not None
        assert ti.buckets_of_running_ddp() is None
    finally:
        dist.destroy_process_group()
