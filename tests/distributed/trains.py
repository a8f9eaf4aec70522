"""Each rank trains a small network in several ways, compiled and in eager, and compares.

Arguments: the backends, and the ways, separated by commas.  The way ``overlap`` looks at the order of what is launched,
and ``dtensors`` runs small programs on DTensors.
"""

from __future__ import annotations

import functools
import sys

import dtensors
import overlaps
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import torchmux

STEPS = 20
BUCKET = 0.05  # MiB: the network has some five buckets


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.up = nn.Linear(size, 4 * size)
        self.down = nn.Linear(4 * size, size)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, size=64, blocks=3):
        super().__init__()
        self.enter = nn.Linear(16, size)
        self.blocks = nn.ModuleList(Block(size) for _ in range(blocks))
        self.leave = nn.Linear(size, 8)

    def forward(self, x):
        x = self.enter(x)
        for block in self.blocks:
            x = block(x)
        return self.leave(x)


def net():
    torch.manual_seed(0)
    return Net().to(torch.get_default_dtype())


def compile_blocks(model, compiled):
    for at, block in enumerate(model.blocks):
        model.blocks[at] = compiled(block)
    return model


def ddp_around(compiled):
    return DistributedDataParallel(compiled(net()), bucket_cap_mb=BUCKET)


def ddp_inside(compiled):
    return compiled(DistributedDataParallel(net(), bucket_cap_mb=BUCKET))


def ddp_accumulating(compiled):
    """Every second step communicates."""
    model = ddp_around(compiled)
    model.accumulates = True
    return model


def sharded(model):
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model


def fsdp_blocks(compiled):
    return sharded(compile_blocks(net(), compiled))


def fsdp_whole(compiled):
    return compiled(sharded(net()))


def tensor_parallel(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def tp_whole(compiled):
    return compiled(tensor_parallel(net()))


def tp_blocks(compiled):
    return compile_blocks(tensor_parallel(net()), compiled)


WAYS = {
    way.__name__: way
    for way in (ddp_around, ddp_inside, ddp_accumulating, fsdp_blocks, fsdp_whole, tp_whole, tp_blocks)
}


def whole(tensor):
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().double().clone()


def train(model):
    """All losses, and the gradients of the first step.  Ranks have different data, but for tensor parallelism."""
    accumulates = getattr(model, "accumulates", False)
    parallel = any(isinstance(p, DTensor) and p.placements[0].is_replicate() for p in model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    numbers = torch.Generator().manual_seed(100 + (0 if parallel else dist.get_rank()))
    losses, gradients = [], []
    for step in range(STEPS):
        x, y = (torch.randn(8, n, generator=numbers, dtype=torch.float64) for n in (16, 8))
        x, y = x.to(torch.get_default_dtype()), y.to(torch.get_default_dtype())
        waits = accumulates and step % 2 == 0
        if waits:
            model.require_backward_grad_sync = False
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        if waits:
            model.require_backward_grad_sync = True
        losses.append(whole(loss))
        if not gradients and not waits:
            gradients = [whole(p.grad) for p in model.parameters()]
        if not waits:
            optimizer.step()
            optimizer.zero_grad()
    return [torch.stack(losses), *gradients]


def in_float64(way):
    torch.set_default_dtype(torch.float64)
    try:
        return train(way(lambda model: model))
    finally:
        torch.set_default_dtype(torch.float32)


def main(backends, ways):
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    for name in ways:
        if name == "overlap":
            overlaps.check(net, backends[0], BUCKET)
            continue
        if name == "dtensors":
            for backend in backends:
                dtensors.check(backend)
                print(f"{name} {backend}: as eager", flush=True)
            continue
        way = WAYS[name]
        exact, eager = in_float64(way), train(way(lambda model: model))
        for backend in backends:
            torchmux.reset()
            ours = train(way(functools.partial(torchmux.compile, backend=backend)))
            assert len(ours) == len(eager) == len(exact)
            for mine, theirs, right in zip(ours, eager, exact, strict=True):
                allowed = 4 * (theirs - right).abs().max() + 2e-7 * right.abs().max()
                error = (mine - right).abs().max()
                assert error <= allowed, (name, backend, float(error), float(allowed))
            dist.barrier()
            print(f"{name} {backend}: as eager", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*(each.split(",") for each in sys.argv[1:]))
