"""The order in which the pieces of a backward pass and the communication of their gradients are launched."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import torchmux

BACKWARD, REDUCE = "CompiledFunctionBackward", "c10d::allreduce_"


def launches(net, backend, bucket, split):
    """What the third step launches, in order; the wrapper has chosen its buckets anew after the first."""
    torchmux.reset()
    with torchmux.config.patch(split_at_ddp_buckets=split):
        model = DistributedDataParallel(torchmux.compile(net(), backend=backend), bucket_cap_mb=bucket)
        for step in range(3):
            loss = model(torch.randn(8, 16)).sum()
            if step < 2:
                loss.backward()
                continue
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
                loss.backward()
    events = sorted(profile.events(), key=lambda event: event.time_range.start)
    return [event.name for event in events if event.name in (BACKWARD, REDUCE)]


def check(net, backend, bucket):
    """Whole, the backward pass comes before all communication; in pieces, each is followed by that of its gradients."""
    whole, split = (launches(net, backend, bucket, wanted) for wanted in (False, True))
    assert whole.count(BACKWARD) == 1 and whole[0] == BACKWARD, whole
    pieces, sent = split.count(BACKWARD), split.count(REDUCE)
    assert pieces >= 4 and sent >= 4, split
    assert sent == whole.count(REDUCE), (whole, split)
    for number in range(1, pieces):
        begins = [at for at, name in enumerate(split) if name == BACKWARD][number]
        assert split[:begins].count(REDUCE) >= number, split
    dist.barrier()
