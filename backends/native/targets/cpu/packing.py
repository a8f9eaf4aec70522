"""Constant weights in the form that the fastest kernel on this machine needs.

A frozen graph records which of its weights are operands of matrix products and convolutions.  They are packed when its
code is loaded.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from .choosing import BY_MKL, BY_TILES, fastest


@dataclass(frozen=True)
class PackedMatrix:
    """The right operand of products with ``m`` rows: ``k`` by ``n``, element (p, j) at ``p * rows + j * columns``."""

    constant: str
    m: int
    n: int
    k: int
    offset: int
    rows: int
    columns: int


@dataclass(frozen=True)
class PackedKernel:
    """The weight of a convolution of two dimensions on an input of ``sizes``."""

    constant: str
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class PackedWeight:
    """The weight of a convolution by ``convolution.h``: contiguous, of ``sizes``."""

    constant: str
    sizes: tuple[int, ...]


Pack = PackedMatrix | PackedKernel | PackedWeight
_KINDS: dict[str, type[Pack]] = {kind.__name__: kind for kind in (PackedMatrix, PackedKernel, PackedWeight)}


def as_json(packs: Mapping[str, Pack]) -> dict[str, Any]:
    """What :func:`from_json` reads."""
    return {name: {"kind": type(pack).__name__, **asdict(pack)} for name, pack in packs.items()}


def from_json(entries: Mapping[str, Any]) -> dict[str, Pack]:
    """The packs of an artifact."""
    found: dict[str, Pack] = {}
    for name, entry in entries.items():
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items() if k != "kind"}
        found[name] = _KINDS[entry["kind"]](**fields)
    return found


def packed(entries: Mapping[str, Any], constants: Mapping[str, torch.Tensor], library: Any) -> dict[str, torch.Tensor]:
    """The packed tensors of :func:`as_json`; ``library`` holds the code of ``gemm.h`` and
    ``convolution.h`` if it needs them."""
    made: dict[str, torch.Tensor] = {}
    for name, pack in from_json(entries).items():
        constant = constants[pack.constant]
        if isinstance(pack, PackedMatrix):
            made[name] = Matrices(library).packed(pack, constant)
        elif isinstance(pack, PackedWeight):
            made[name] = weight_by(library, constant)
        else:
            made[name] = kernel(pack, constant)
    return made


def kernel(pack: PackedKernel, weight: torch.Tensor) -> torch.Tensor:
    """The weight as the library wants it."""
    opaque = weight.contiguous().to_mkldnn()
    found: torch.Tensor = torch.ops.aten.mkldnn_reorder_conv2d_weight(
        opaque, pack.padding, pack.stride, pack.dilation, pack.groups, pack.sizes
    )
    return found


def weight_by(library: Any, weight: torch.Tensor) -> torch.Tensor:
    """The weight as the ``convolution.h`` in a library wants it."""
    function = library.pack_weight
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_void_p, *(ctypes.c_int64,) * 4), None
    weight = weight.contiguous()
    result = torch.empty_like(weight)
    function(result.data_ptr(), weight.data_ptr(), *weight.shape)
    return result


class Matrices:
    """The functions of ``gemm.h``."""

    def __init__(self, library: Any) -> None:
        size, address = ctypes.c_int64, ctypes.c_void_p
        library.packed_size.argtypes, library.packed_size.restype = (size,) * 4, size
        library.pack.argtypes, library.pack.restype = (address, size, address, *(size,) * 5), None
        library.packed_product.argtypes = (address, address, size, address, size, size, size)
        library.packed_product.restype = None
        self.library = library

    def packed(self, pack: PackedMatrix, weight: torch.Tensor) -> torch.Tensor:
        return self._made(self.fastest(pack, weight), pack, weight)

    def _made(self, kind: int, pack: PackedMatrix, weight: torch.Tensor) -> torch.Tensor:
        result = torch.empty(self.library.packed_size(kind, pack.m, pack.n, pack.k), dtype=torch.uint8)
        start = weight.data_ptr() + pack.offset * weight.element_size()
        sizes = (pack.rows, pack.columns, pack.m, pack.n, pack.k)
        self.library.pack(result.data_ptr(), kind, start, *sizes)
        return result

    def fastest(self, pack: PackedMatrix, weight: torch.Tensor) -> int:
        kinds = [kind for kind in (BY_MKL, BY_TILES) if self.library.packed_size(kind, pack.m, pack.n, pack.k)]

        def runs() -> Mapping[int, Callable[[], object]]:
            x, out = torch.ones(pack.m, pack.k), torch.empty(pack.m, pack.n)
            return {kind: functools.partial(self._run, self._made(kind, pack, weight), pack, x, out) for kind in kinds}

        return fastest(("packed product", pack.m, pack.n, pack.k), kinds, runs)

    def _run(self, matrix: torch.Tensor, pack: PackedMatrix, x: torch.Tensor, out: torch.Tensor) -> None:
        self.library.packed_product(out.data_ptr(), x.data_ptr(), pack.k, matrix.data_ptr(), pack.m, pack.n, pack.k)
