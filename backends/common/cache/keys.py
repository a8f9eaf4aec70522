"""The names of artifacts: hashes of everything that determines them.

A name covers the graph with all arguments, its constants, what is known of its inputs, the options, the backend's
fingerprint, the versions of torch, Python and torchmux, and the sources of the backends and of ``torch_internals``:
what they make of a graph changes with each of them.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchmux import torch_internals as internals
from torchmux.version import __version__

from .versions import sources_digest

_DIGEST = hashlib.sha256


def graph_key(gm: GraphModule, fingerprint: str, *more: object) -> str:
    """The name of the artifact compiled from ``gm``: a hexadecimal hash.

    ``more`` is anything else that determines the artifact, by its ``repr``.  The name covers what is known of inputs
    (``meta["val"]``), not their values; the range of each symbol, because code for a size that is never negative may be
    wrong for one that can be; and the content of tensors that the graph holds.
    """
    digest = _DIGEST()
    for text in _graph_text(gm, ((*_software(), fingerprint), *more)):
        digest.update(text.encode())
        digest.update(b"\n")
    for name in sorted({str(n.target) for n in gm.graph.nodes if n.op == "get_attr"}):
        digest.update(_content(getattr(gm, name)))
    return digest.hexdigest()


def text_key(*values: object) -> str:
    """The name of an artifact that is determined by the ``repr`` of some values and the versions of the software."""
    return _DIGEST(repr((*_software(), *values)).encode()).hexdigest()


def _software() -> tuple[object, ...]:
    sources = (sources_digest(folder) for folder in (Path(__file__).parents[2], Path(internals.__file__).parent))
    return __version__, torch.__version__, sys.version_info[:2], *sources


def _graph_text(gm: GraphModule, head: Sequence[object]) -> Iterable[str]:
    yield repr(head)
    yield repr(_ranges(gm))
    number: dict[Node, int] = {}
    for node in gm.graph.nodes:
        number[node] = len(number)
        # Names of nodes are left out, so that equal graphs are equal however they were named.
        args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), lambda n: _Reference(number[n]))
        target = node.target if node.op in ("call_function", "call_method", "get_attr") else ""
        yield f"{node.op} {target} {args!r} {kwargs!r} {describe(node.meta.get('val'))}"


def _ranges(gm: GraphModule) -> list[tuple[str, str]]:
    """The range of each symbol, as far as the shape environment knows it."""
    found: dict[str, str] = {}
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        for part in value if isinstance(value, (tuple, list)) else (value,):
            for size in (*part.shape, *part.stride()) if isinstance(part, torch.Tensor) else (part,):
                if isinstance(size, torch.SymInt):
                    found.update(internals.ranges_of(size))
    return sorted(found.items())


class _Reference:
    """Stands for a node among arguments."""

    def __init__(self, position: int) -> None:
        self.position = position

    def __repr__(self) -> str:
        return f"%{self.position}"


def describe(value: Any) -> str:
    """What is known of a fake or real tensor (dtype, sizes, strides, device), a number, or a tuple of these."""
    if isinstance(value, torch.Tensor):
        # Through str, a symbolic size shows its expression and decides nothing.
        shape, stride = (",".join(map(str, v)) for v in (value.shape, value.stride()))
        return f"{value.dtype}[{shape}]({stride})+{value.storage_offset()}@{value.device}"
    if isinstance(value, (tuple, list)):
        return "(" + ";".join(map(describe, value)) + ")"
    return f"{type(value).__name__} {value}"


def _content(tensor: torch.Tensor) -> bytes:
    data = tensor.detach().cpu().contiguous()
    digest = _DIGEST(describe(data).encode())
    digest.update(data.reshape(-1).view(torch.uint8).numpy().tobytes() if data.numel() else b"")
    return digest.digest()
