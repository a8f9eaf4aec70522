"""Calls a shared object of ``torchmux.save(format="so")`` through its C interface."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

NUMBERS = {
    torch.uint8: 0,
    torch.int64: 4,
    torch.float32: 6,
    torch.float64: 7,
    torch.bool: 11,
    torch.bfloat16: 15,
}
DTYPES = {number: dtype for dtype, number in NUMBERS.items()}


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("sizes", ctypes.c_int64 * 8),
    )


class CModel:
    """A model whose call takes and returns tensors.

    Raises:
        RuntimeError: the object refuses to load or to run; with its message.
    """

    def __init__(self, path: Path, outputs: int, weights: Path | None = None) -> None:
        self.library, self.outputs = ctypes.CDLL(str(path)), outputs
        self.name = path.stem.removeprefix("lib")
        for name, kind in (("load", ctypes.c_void_p), ("error", ctypes.c_char_p)):
            self._function(name).restype = kind
        self.model = self._function("load")(None if weights is None else str(weights).encode())
        if not self.model:
            raise RuntimeError(self._function("error")().decode())

    def _function(self, name: str):
        return getattr(self.library, f"{self.name}_{name}")

    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        given = (Tensor * max(1, len(inputs)))()
        for each, tensor in zip(given, inputs, strict=False):
            assert tensor.is_contiguous()
            each.data, each.dtype, each.rank = tensor.data_ptr(), NUMBERS[tensor.dtype], tensor.dim()
            for dim, size in enumerate(tensor.shape):
                each.sizes[dim] = size
        results = (Tensor * self.outputs)()
        if self._function("run")(ctypes.c_void_p(self.model), given, results):
            raise RuntimeError(self._function("error")().decode())
        found = [_copied(each) for each in results]
        self._function("free_outputs")(results)
        return found


def _copied(result: Tensor) -> torch.Tensor:
    dtype, sizes = DTYPES[result.dtype], list(result.sizes[: result.rank])
    count = torch.Size(sizes).numel()
    if not count:
        return torch.empty(sizes, dtype=dtype)
    content = bytearray(ctypes.string_at(result.data, count * dtype.itemsize))
    return torch.frombuffer(content, dtype=dtype).reshape(sizes)
