"""Distributed tensors, and what torch's distributed wrappers tell about a call."""

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


@checks("Distribution", "draws_by_rank", "is_distributed", "is_mesh", "is_placement")
def test_distributed_tensors(tmp_path: Path) -> None:
    assert not ti.is_distributed(torch.Tensor) and not ti.is_mesh(torch.ones(1)) and not ti.is_placement(torch.Tensor)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

        mesh, other = (init_device_mesh("cpu", (1,)) for _ in range(2))
        assert ti.is_mesh(mesh) and ti.is_distributed(DTensor)
        assert all(map(ti.is_placement, (Shard, Replicate, Partial)))
        tensor = DTensor.from_local(torch.ones(2, 2), mesh, [Shard(0)])
        known = ti.Distribution.of(tensor)
        assert known.is_of(tensor) and known.is_of(tensor * 2)
        for changed in ([mesh, [Shard(1)]], [mesh, [Replicate()]], [other, [Shard(0)]]):
            assert not known.is_of(DTensor.from_local(torch.ones(2, 2), *changed))
        assert not known.is_of(DTensor.from_local(torch.ones(4, 2), mesh, [Shard(0)]))
        bernoulli = torch.ops.aten.bernoulli_.float
        assert not ti.draws_by_rank(bernoulli, tensor)
        elsewhere = DTensor.from_local(torch.ones(2, 2, device="meta"), mesh, [Shard(0)])
        assert ti.draws_by_rank(bernoulli, elsewhere) and not ti.draws_by_rank(torch.ops.aten.sin.default, elsewhere)
    finally:
        dist.destroy_process_group()
