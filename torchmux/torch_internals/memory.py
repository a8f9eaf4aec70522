"""Where the contents of tensors lie."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch


def share_storage(left: Any, right: Any) -> bool:
    """Whether two tensors are, or are views into, the same memory; works for fake tensors."""
    return left.untyped_storage()._cdata == right.untyped_storage()._cdata


def storage_use_count(storage: Any) -> int:
    """How many tensors and storage objects hold the memory of ``storage``, this one included."""
    return torch._C._storage_Use_Count(storage._cdata)


def weak_count(tensor: Any) -> int:
    """How many weak references torch itself has to a tensor, and one for all strong ones; Python's do not count."""
    return ctypes.c_uint32.from_address(tensor._cdata + 12).value & 0x7FFFFFFF  # the last bit says something else


def place_of_address(tensors: Sequence[torch.Tensor]) -> int:
    """How many bytes into its Python object a tensor has the address of what it is; it differs among versions of torch.

    Raises:
        LookupError: it is not the same, or not the only one, for these tensors.
    """
    words = range(object.__basicsize__, torch.Tensor.__basicsize__, 8)
    found = [w for w in words if all(ctypes.c_size_t.from_address(id(t) + w).value == t._cdata for t in tensors)]
    if len(found) != 1:
        raise LookupError(f"the address of a tensor is at {found or 'no place'} in its object")
    return found[0]


def addresses_equal(values: Any, addresses: list[int | None], positions: list[int]) -> bool:
    """Whether the tensors at ``positions`` begin at ``addresses``; in C++ where torch was built for CUDA."""
    compare = getattr(torch._C, "_tensors_data_ptrs_at_indices_equal", None)
    if compare is None:
        return all(values[p].data_ptr() == addresses[p] for p in positions)
    return compare(list(values), addresses, positions)


# A tensor that holds nothing, of sizes, strides and a dtype on the CPU: half the time of ``torch.empty_strided``.
new_on_cpu = torch._C._dynamo.guards._empty_strided_cpu
new_on_gpu = torch._C._dynamo.guards._empty_strided_cuda  # on the current one


# Copies tensors of one dtype and device into one, one behind the other; and makes tensors of such sizes of its parts.
copied_together = torch._C._nn.flatten_dense_tensors
taken_apart = torch._C._nn.unflatten_dense_tensors


# Counts a write to each tensor of a tuple, which is what ``torch.autograd.graph.increment_version`` comes to.
increment_versions = torch._C._increment_version


def end_allocating_to_pool(device: int, pool: Any) -> None:
    """Give the memory of a device from the usual place again, after a recording that failed."""
    torch._C._cuda_endAllocateToPool(device, pool)


def current_raw_stream(device: int) -> int:
    """The address of the stream that programs use now on a GPU."""
    return torch._C._cuda_getCurrentRawStream(device)
