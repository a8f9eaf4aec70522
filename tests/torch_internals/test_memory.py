"""Where the contents of tensors lie."""

from __future__ import annotations

import ctypes
import weakref

import pytest
import torch

from torchmux import torch_internals as ti

from .walk import checks


@checks("share_storage")
def test_share_storage() -> None:
    mode = ti.fake_tensor_mode(symbolic=False)
    with mode:
        x = torch.ones(4)
        assert ti.share_storage(x, x.view(2, 2))
        assert not ti.share_storage(x, x + 1)


@checks("storage_use_count", "addresses_equal")
def test_memory() -> None:
    x, y = torch.ones(2), torch.ones(2)
    storage = x.untyped_storage()
    before = ti.storage_use_count(storage)
    alias = x.detach()
    assert ti.storage_use_count(storage) == before + 1
    del alias
    assert ti.storage_use_count(storage) == before
    addresses = [x.data_ptr(), None, y.data_ptr()]
    assert ti.addresses_equal((x, 5, y), addresses, [0, 2])
    assert not ti.addresses_equal((y, 5, y), addresses, [0, 2])
    assert ti.addresses_equal((y, 5, y), addresses, [2])


@checks("weak_count")
def test_weak_count() -> None:
    x = torch.ones(2, 2, requires_grad=True)
    references = [weakref.ref(x)]
    assert ti.weak_count(x) == 1
    with torch.autocast("cpu", torch.bfloat16):
        torch.mm(x, x)
        assert ti.weak_count(x) == 2
    assert (ti.weak_count(x), len(references)) == (1, 1)


@checks("place_of_address")
def test_place_of_address() -> None:
    tensors = [torch.ones(2), torch.nn.Parameter(torch.ones(3))]
    place = ti.place_of_address(tensors)
    assert all(ctypes.c_size_t.from_address(id(t) + place).value == t._cdata for t in tensors)
    with pytest.raises(LookupError, match="address of a tensor"):
        ti.place_of_address([])  # nothing tells places apart


@checks("new_on_cpu")
def test_new_on_cpu() -> None:
    made = ti.new_on_cpu((2, 0, 3), (1, 1, 2), torch.float16)
    assert (tuple(made.shape), made.dtype, made.device.type) == ((2, 0, 3), torch.float16, "cpu")
    made = ti.new_on_cpu((3, 2), (1, 4), torch.int64)
    assert made.stride() == (1, 4)
    with torch.inference_mode():
        assert ti.new_on_cpu((3,), (1,), torch.float32).is_inference()


@checks("increment_versions")
def test_increment_versions() -> None:
    x, y = torch.ones(2), torch.ones(3)
    ti.increment_versions((x, y))
    assert (x._version, y._version) == (1, 1)


@checks("new_on_gpu")
def test_new_on_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    made = ti.new_on_gpu((2, 0, 3), (1, 1, 2), torch.float16)
    assert (tuple(made.shape), made.dtype, made.device.type) == ((2, 0, 3), torch.float16, "cuda")


@checks("end_allocating_to_pool")
def test_pools() -> None:
    assert callable(ti.end_allocating_to_pool)
    if torch.cuda.is_available():  # tests/backends/cudagraphs/test_cudagraphs_gpu.py calls it where it matters
        assert callable(torch._C._cuda_endAllocateToPool)


@checks("current_raw_stream")
def test_current_raw_stream() -> None:
    assert callable(ti.current_raw_stream)
    if torch.cuda.is_available():
        assert ti.current_raw_stream(torch.cuda.current_device()) == torch.cuda.current_stream().cuda_stream


@checks("copied_together", "taken_apart")
def test_tensors_in_one() -> None:
    given = [torch.randn(2, 3).t(), torch.tensor(1.5), torch.empty(0), torch.randn(4)]
    flat = ti.copied_together(given)
    assert flat.shape == (11,)
    assert flat.untyped_storage().data_ptr() != given[0].untyped_storage().data_ptr()
    assert all(torch.equal(a, b) for a, b in zip(ti.taken_apart(flat, given), given, strict=True))
