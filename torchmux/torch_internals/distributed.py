"""Distributed tensors, and what torch's distributed wrappers tell about the call that is running."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

_PLACEMENTS = ("Shard", "_StridedShard", "Replicate", "Partial", "_MaskPartial")


def is_distributed(cls: type) -> bool:
    """Whether a class is ``DTensor``; imports nothing."""
    api: Any = sys.modules.get("torch.distributed.tensor")
    return api is not None and cls is api.DTensor


def draws_by_rank(operator: Any, tensor: Any) -> bool:
    """Whether an operator on a DTensor draws other random numbers in each process, by the state of a generator."""
    return (
        is_distributed(type(tensor))
        and tensor.device.type != "cpu"
        and operator in type(tensor)._op_dispatcher._random_ops
    )


def is_placement(cls: type) -> bool:
    """Whether a class says how one dimension of a mesh distributes a DTensor."""
    return cls.__name__ in _PLACEMENTS and cls.__module__.startswith("torch.distributed.tensor.")


def is_mesh(value: Any) -> bool:
    """Whether a value is a mesh of processes."""
    module: Any = sys.modules.get("torch.distributed.device_mesh")
    return module is not None and type(value) is module.DeviceMesh


class Distribution(NamedTuple):
    """How a DTensor is distributed."""

    mesh: Any
    placements: Any
    tensor_meta: Any
    shard_order: Any

    @classmethod
    def of(cls, tensor: Any) -> Distribution:
        spec = tensor._spec
        return cls(spec.mesh, spec.placements, spec.tensor_meta, spec.shard_order)

    def is_of(self, tensor: Any) -> bool:
        """Whether another DTensor is distributed in the same way, on the same mesh."""
        spec = tensor._spec
        return (
            spec.mesh is self.mesh
            and (spec.placements is self.placements or spec.placements == self.placements)
            and (spec.tensor_meta is self.tensor_meta or spec.tensor_meta == self.tensor_meta)
            and (spec.shard_order is self.shard_order or spec.shard_order == self.shard_order)
        )


class Buckets(NamedTuple):
    """The parameters whose gradients a ``DistributedDataParallel`` sums, and how many bytes of them at a time.

    ``parameters`` are ids.  ``first`` are the bytes of the bucket that is sent first, ``limit`` those of each other.
    This process is ``rank`` of ``ranks``.
    """

    parameters: frozenset[int]
    first: int
    limit: int
    rank: int
    ranks: int


def buckets_of_running_ddp() -> Buckets | None:
    """The buckets of the ``DistributedDataParallel`` whose ``forward`` runs now in this process; None outside of one.

    Imports nothing: a program that has not imported torch's wrapper has none.
    """
    wrapper: Any = sys.modules.get("torch.nn.parallel.distributed")
    ddp = wrapper.DistributedDataParallel._get_active_ddp_module() if wrapper is not None else None
    if ddp is None:
        return None
    ignored = ddp.parameters_to_ignore
    named = ddp.module.named_parameters(remove_duplicate=False)
    parameters = frozenset(id(p) for name, p in named if p.requires_grad and name not in ignored)
    limit = ddp.bucket_bytes_cap
    first = wrapper.dist._DEFAULT_FIRST_BUCKET_BYTES if ddp.bucket_bytes_cap_default else limit
    group = ddp.process_group
    return Buckets(parameters, min(first, limit), limit, group.rank(), group.size())
