"""The results of torch's operators, compared with what the traced graph says about them.

Generated code relies on the dtypes and sizes of fake tensors.  If a kernel of torch returned another dtype or size,
that code would misread memory.  Each tensor that goes from an operator of torch to a compiled part is
therefore checked.  Strides may differ as well: a view that they do not allow is a copy, and what is read by its address
is copied to where the trace has it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from torchmux.registry.errors import CompilationFailed

from . import aliasing
from .overlap import is_overlapping, span

log = logging.getLogger("torchmux.fallback")

Promise = list[Any]
"""The name of a dtype, sizes and strides, None for symbolic ones, as JSON can represent them."""


def promise_of(value: Any) -> Promise | None:
    """The dtype, sizes and strides that ``value``, a fake tensor, promises; None for anything but tensors."""
    if not isinstance(value, torch.Tensor):
        return None
    strides = value.stride() if value.layout is torch.strided else ()
    known = ([n if type(n) is int else None for n in numbers] for numbers in (value.shape, strides))
    return [str(value.dtype).removeprefix("torch."), *known]


def keeper(promise: Promise, name: str) -> Any:
    """A function that returns its argument, a tensor, converted to what was promised."""
    dtype: torch.dtype = getattr(torch, promise[0])
    sizes = promise[1]
    static = None if None in sizes else torch.Size(sizes)
    rank, known = len(sizes), [(at, size) for at, size in enumerate(sizes) if size is not None]

    def kept(value: Any) -> Any:
        shape = value.shape
        if value.dtype is dtype:
            if static is not None:
                if shape == static:
                    return value
            elif len(shape) == rank:
                for at, size in known:
                    if shape[at] != size:
                        break
                else:
                    return value
        return brought(value, dtype, value.shape if _fits(value.shape, sizes) else sizes, name)

    kept.__name__ = kept.__qualname__ = "kept"
    return kept


def copied(value: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """A copy of ``value`` with these strides, by which several elements may share memory, as those of a row repeated.

    Raises:
        RuntimeError: they share memory otherwise than by a stride of zero, and ``value`` has other strides.
    """
    copy = written = value.new_empty_strided(value.shape, strides)
    read = value
    for dim, (size, stride) in enumerate(zip(value.shape, strides, strict=True)):
        if not stride and size > 1:
            written, read = written.narrow(dim, 0, 1), read.narrow(dim, 0, 1)
    if value.stride() == tuple(strides) and is_overlapping(written):
        return span(value).clone().as_strided(value.shape, strides)
    written.copy_(read)
    return copy


def layout_keeper(promise: Promise) -> Any:
    """A function that returns its argument, a tensor, with the strides that were promised, as far as they are known."""
    strides = None if None in promise[2] else tuple(promise[2])

    def laid_out(value: torch.Tensor) -> torch.Tensor:
        if strides is None or value.stride() == strides or len(strides) != value.dim():
            return value
        return copied(value, strides)

    laid_out.__name__ = laid_out.__qualname__ = "laid_out"
    return laid_out


def read_by_address(graph: Graph) -> set[Node]:
    """The results of operators in whose memory another operator chooses elements by strides and an offset."""
    root = aliasing.roots(graph)
    chosen = {root[node.all_input_nodes[0]] for node in graph.nodes if node.target in aliasing.BY_ADDRESS_OPERATORS}
    return {node for node in chosen if node.op == "call_function"}


def _fits(found: Sequence[int], promised: Sequence[int | None]) -> bool:
    return len(found) == len(promised) and all(b is None or a == b for a, b in zip(found, promised, strict=True))


def brought(value: torch.Tensor, dtype: torch.dtype, sizes: Sequence[Any], name: str) -> torch.Tensor:
    """``value`` converted to ``dtype``; a conversion is logged.

    Raises:
        CompilationFailed: ``value`` has other sizes than promised.
    """
    if tuple(value.shape) != tuple(sizes):
        raise CompilationFailed(
            f"torch's {name} returned a tensor of sizes {tuple(value.shape)} where the trace says {tuple(sizes)}; code "
            "that was compiled for the latter cannot run on the former."
        )
    if value.dtype is not dtype:
        log.warning("torch's %s returned %s where the trace says %s: converted", name, value.dtype, dtype)
        return value.to(dtype)
    return value
