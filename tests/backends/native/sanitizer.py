"""Checks what kernels do to memory under Triton's interpreter, as compute-sanitizer does on a GPU.

Each pointer that a kernel is given carries the number of its argument in the bits that no address uses, and keeps it
through all arithmetic.  An access is out of bounds if it does not lie in the tensor of that argument, even if it lies
in another tensor or in the same arena.  The interpreter runs programs one after the other, and so hides races: whatever
one program writes and another one reads or writes is told, but for atomic operations.  Arenas begin as numbers that are
none, so that reading what nothing has written shows in results.
"""

from __future__ import annotations

import contextlib
import unittest.mock
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

_SHIFT = np.uint64(48)
_ADDRESS = np.uint64((1 << 48) - 1)


class _Tagged:
    """A tensor whose address has a number in its upper bits."""

    def __init__(self, tensor: torch.Tensor, number: int) -> None:
        self.dtype, self.tensor, self.number = tensor.dtype, tensor, number

    def data_ptr(self) -> int:
        return self.tensor.data_ptr() | self.number << int(_SHIFT)


@dataclass
class _Access:
    kind: str  # "read", "write" or "add"
    program: int
    addresses: np.ndarray
    values: np.ndarray | None


@dataclass
class Sanitizer:
    """``findings`` are sentences, one for a kernel and what it does wrong; ``launches`` is how many kernels ran."""

    findings: list[str] = field(default_factory=list)
    launches: int = 0
    kernel: str = ""
    bounds: list[tuple[int, int]] = field(default_factory=list)
    accesses: list[_Access] = field(default_factory=list)

    # --- launches -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def launch(self, kernel: str) -> Iterator[None]:
        self.kernel, self.bounds, self.accesses = kernel, [], []
        self.launches += 1
        yield
        self._find_races()
        self.accesses = []

    def tagged(self, tensor: torch.Tensor) -> _Tagged:
        reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
        first = tensor.data_ptr()
        last = first + (reach + 1) * tensor.element_size() if tensor.numel() else first
        self.bounds.append((first, last))
        return _Tagged(tensor, len(self.bounds))

    def tell(self, words: str) -> None:
        sentence = f"{self.kernel} {words}"
        if sentence not in self.findings:
            self.findings.append(sentence)

    # --- accesses -------------------------------------------------------------------------------------------------

    def checked(self, kind: str, pointers: Any, mask: Any, itemsize: int, values: Any = None) -> tuple[Any, Any]:
        """The addresses of an access, and its mask without what is out of bounds."""
        shape = np.broadcast_shapes(np.shape(pointers), np.shape(mask))
        pointers, mask = np.broadcast_to(pointers, shape), np.broadcast_to(mask, shape).astype(bool)
        numbers, addresses = pointers >> _SHIFT, pointers & _ADDRESS
        wrong = np.zeros(shape, dtype=bool)
        for number in np.unique(numbers[mask]):
            here = mask & (numbers == number)
            if not 0 < number <= len(self.bounds):
                wrong |= here
                self.tell(f"{kind}s before the beginning of a tensor")
                continue
            first, last = self.bounds[int(number) - 1]
            outside = here & ((addresses < first) | (addresses + np.uint64(itemsize) > last))
            if outside.any():
                wrong |= outside
                at = (int(addresses[outside].flat[0]) - first) // itemsize
                size = (last - first) // itemsize
                self.tell(f"{kind}s element {at} of argument p{int(number) - 1}, which has {size}")
        mask = mask & ~wrong
        if values is not None:
            values = np.broadcast_to(values, shape)[mask].copy()
        self.accesses.append(_Access(kind, _program(), addresses[mask].copy(), values))
        return np.ascontiguousarray(addresses), np.ascontiguousarray(mask)

    def _find_races(self) -> None:
        kept = {kind: self._all(kind) for kind in ("read", "write", "add")}
        written, writers = kept["write"]
        for kind, (addresses, programs) in kept.items():
            if kind == "add" or not len(addresses):
                continue
            for others, owners, what in ((written, writers, "writes"), (*kept["add"], "adds to")):
                if len(others) and _is_touched_by_another(addresses, programs, others, owners):
                    if kind == "write" and what == "writes" and self._write_the_same():
                        continue
                    self.tell(f"{kind}s in one program what another one {what}")

    def _all(self, kind: str) -> tuple[np.ndarray, np.ndarray]:
        found = [a for a in self.accesses if a.kind == kind]
        if not found:
            return np.empty(0, np.uint64), np.empty(0, np.int64)
        programs = [np.full(len(a.addresses), a.program, np.int64) for a in found]
        return np.concatenate([a.addresses for a in found]), np.concatenate(programs)

    def _write_the_same(self) -> bool:
        """Whether all that is written to a place is the same, so that the order does not matter."""
        seen: dict[int, bytes] = {}
        for access in self.accesses:
            if access.kind == "write" and access.values is not None:
                for address, value in zip(access.addresses.tolist(), access.values, strict=True):
                    if seen.setdefault(address, value.tobytes()) != value.tobytes():
                        return False
        return True


def _is_touched_by_another(addresses: np.ndarray, programs: np.ndarray, others: np.ndarray, owners: np.ndarray) -> bool:
    """Whether a program has an address that another one has among ``others``."""
    order = np.lexsort((owners, others))
    others, owners = others[order], owners[order]
    first = np.searchsorted(others, addresses, "left")
    last = np.searchsorted(others, addresses, "right")
    found = last > first
    if not found.any():
        return False
    least, most = owners[first[found]], owners[last[found] - 1]
    return bool(((least != programs[found]) | (most != programs[found])).any())


def _program() -> int:
    from triton.runtime import interpreter

    return int(interpreter.interpreter_builder.grid_idx[0])


class _Memory:
    """In place of the interpreter's accesses to memory."""

    def __init__(self, real: Any, sanitizer: Sanitizer) -> None:
        self.real, self.sanitizer = real, sanitizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        addresses, mask = self.sanitizer.checked("read", pointers, mask, np.dtype(dtype).itemsize)
        other = np.ascontiguousarray(np.broadcast_to(other, addresses.shape))
        return self.real.load(addresses, mask, other, dtype)

    def store(self, pointers: Any, values: Any, mask: Any) -> Any:
        addresses, mask = self.sanitizer.checked("write", pointers, mask, values.dtype.itemsize, values)
        return self.real.store(addresses, np.ascontiguousarray(np.broadcast_to(values, addresses.shape)), mask)

    def atomic_rmw(self, operation: Any, pointers: Any, values: Any, mask: Any, order: Any) -> Any:
        addresses, mask = self.sanitizer.checked("add", pointers, mask, values.dtype.itemsize)
        values = np.ascontiguousarray(np.broadcast_to(values, addresses.shape))
        return self.real.atomic_rmw(operation, addresses, values, mask, order)


_active: list[Sanitizer] = []


@contextlib.contextmanager
def sanitized() -> Iterator[Sanitizer]:
    """Check all kernels that the interpreter runs meanwhile, and raise AssertionError in the end for what they did.

    Inside of another one it is the same one.
    """
    if not _active:
        with _patched(Sanitizer()) as sanitizer:
            _active.append(sanitizer)
            try:
                yield sanitizer
            finally:
                _active.remove(sanitizer)
    else:
        sanitizer = _active[-1]
        yield sanitizer
    assert not sanitizer.findings, "\n".join(sanitizer.findings)


@contextlib.contextmanager
def _patched(sanitizer: Sanitizer) -> Iterator[Sanitizer]:
    from triton.runtime import interpreter

    from torchmux.backends.native import runtime

    convert, run, new_arena = interpreter._implicit_cvt, interpreter.GridExecutor.__call__, runtime.new_arena

    def converted(value: Any) -> Any:
        return convert(sanitizer.tagged(value) if isinstance(value, torch.Tensor) else value)

    def launched(executor: Any, *given: Any, **named: Any) -> Any:
        with sanitizer.launch(f"{executor.fn.__name__} of {executor.fn.__code__.co_filename}"):
            return run(executor, *given, **named)

    def poisoned(*given: Any) -> torch.Tensor:
        return new_arena(*given).fill_(255)

    with (
        unittest.mock.patch.object(interpreter, "_implicit_cvt", converted),
        unittest.mock.patch.object(interpreter, "_interpreter", _Memory(interpreter._interpreter, sanitizer)),
        unittest.mock.patch.object(interpreter.GridExecutor, "__call__", launched),
        unittest.mock.patch.object(runtime, "new_arena", poisoned),
    ):
        yield sanitizer
