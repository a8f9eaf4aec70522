"""Calling compiled graphs."""

from __future__ import annotations

import ctypes
import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torchmux import logs

from . import artifact
from .targets.cpu import build


def fit(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """``tensor``, or a copy of it, with the strides that the code was compiled for."""
    if tensor.stride() == tuple(strides):
        return tensor
    if all(s <= 1 or a == b for s, a, b in zip(tensor.shape, tensor.stride(), strides, strict=True)):
        return tensor
    copy = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype)
    return copy.copy_(tensor)


def shown(tensor: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
    """A view of memory, ``offset`` elements from the tensor's first."""
    return tensor.as_strided(sizes, strides, tensor.storage_offset() + offset)


def new_arena(size: int) -> torch.Tensor:
    """Memory for what torch never sees."""
    return torch.empty(size, dtype=torch.uint8)


class KeptScratch(threading.local):
    """As :func:`new_arena`, with one piece of memory for each thread that stays for the next call."""

    arena: torch.Tensor | None = None

    def __call__(self, size: int) -> torch.Tensor:
        if self.arena is None or self.arena.numel() < size:
            self.arena = new_arena(size)
        return self.arena


def bad_index() -> None:
    raise IndexError(
        "index out of range in a compiled graph: an embedding, gather or index has an index that its tensor lacks"
    )


class NativeFunction:
    """A compiled graph: flat inputs in, flat outputs out; ``artifact`` is its name in the cache."""

    artifact: str | None = None

    def __init__(
        self,
        python: str,
        library: bytes | None,
        constants: Sequence[torch.Tensor],
        names: Sequence[str],
        attributes: Sequence[str],
        packs: Mapping[str, Any],
        products: Sequence[Sequence[Any]],
        *,
        notes: list[str],
        output_code: list[str],
        timers: list[str],
        cache_hit: bool,
        keep_scratch: bool = False,
    ) -> None:
        self.notes = notes
        self.cache_hit = cache_hit
        self.output_code = output_code
        namespace: dict[str, Any] = {
            "torch": torch,
            "ops": torch.ops,
            "empty": torch.empty_strided,
            "array": array,
            "fit": fit,
            "shown": shown,
            "new_arena": KeptScratch() if keep_scratch else new_arena,
            "bad_index": bad_index,
            "inf": float("inf"),
            "nan": float("nan"),
            **dict(zip(names, constants, strict=True)),
        }
        self._library = build.load(library) if library else None  # kept alive with the functions
        if packs:
            from .targets.cpu import packing

            namespace |= packing.packed(packs, dict(zip(attributes, constants, strict=True)), self._library)
        if products:
            from .targets.cpu import choosing

            choosing.choose(products, self._library)
        at = 0
        while self._library is not None and hasattr(self._library, f"run{at}"):
            function = getattr(self._library, f"run{at}")
            function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
            function.restype = ctypes.c_int64
            namespace[f"run{at}"] = function
            at += 1
        exec(compile(python, "<torchmux native>", "exec"), namespace)
        self._run = namespace["run"]
        self._timers = timers

    def __call__(self, *args: Any) -> Sequence[Any]:
        result: Sequence[Any] = self._run(*args)
        if self._timers:
            self._tell_times()
        return result

    def _tell_times(self) -> None:
        """Say how long each step of this call took, the longest first."""
        assert self._library is not None
        spent = (ctypes.c_double * len(self._timers)).in_dll(self._library, "spent")
        steps = sorted(zip(spent, self._timers, strict=True), reverse=True)
        lines = [f"{seconds * 1e3:10.4f} ms  {step}" for seconds, step in steps]
        logs.emit("kernel_times", f"{sum(spent) * 1e3:.4f} ms in {len(steps)} steps", "\n".join(lines))
        ctypes.memset(ctypes.addressof(spent), 0, ctypes.sizeof(spent))


def loaded(payload: bytes, constant: Callable[[str], torch.Tensor], *, cache_hit: bool) -> NativeFunction:
    """What an artifact that holds code stands for; ``constant`` finds the graph's tensors by name."""
    head, library = artifact.code_in(payload)
    if "ops.torchmux." in head["python"]:
        from .targets.cpu import attention_kernel  # noqa: F401  # which registers the operator
    for kind in ("fusion", "perf_hints"):
        if head[kind]:
            logs.emit(kind, "native", "\n".join(head[kind]))
    return NativeFunction(
        head["python"],
        library,
        [constant(name).detach() for name in head["constants"]],
        head["names"],
        head["constants"],
        head["packs"],
        head["products"],
        notes=head["notes"],
        output_code=[head["cpp"], head["python"]],
        timers=head["timers"],
        cache_hit=cache_hit,
        keep_scratch=head["keep_scratch"],
    )
