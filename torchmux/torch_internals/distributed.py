"""What torch's distributed wrappers tell about the call that is running."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple


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
