"""Exceptions of compiled graphs, which have the type and the text of eager's.

Code that checks an index reports the number of a fault, the index and the size of the dimension.  The faults are those
of torch's operators on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch.fx import GraphModule, Node

_OUT_OF_BOUNDS = "index {index} is out of bounds for dimension {dim} with size {size}"

FAULTS: dict[str, tuple[type[Exception], str]] = {
    "some index": (
        IndexError,
        "index out of range in a compiled graph: an embedding, gather or index has an index that its tensor lacks",
    ),
    "row": (IndexError, "index out of range in self"),
    "slice": (RuntimeError, "INDICES element is out of DATA bounds, id={index} axis_dim={size}"),
    "element": (RuntimeError, _OUT_OF_BOUNDS),
    "index": (IndexError, _OUT_OF_BOUNDS),
    "flat": (IndexError, "out of range: tried to access index {index} on a tensor of {size} elements."),
    "target": (IndexError, "Target {index} is out of bounds."),
    "bag": (RuntimeError, "Index of input takes value {index} which is not in the valid range [0, {size})"),
    "first offset": (
        RuntimeError,
        "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got "
        "{index}",
    ),
    "last offset": (
        RuntimeError,
        "offsets[-1] can not be greater than input's length {most} but got offsets[-1] of {index}",
    ),
    "division": (RuntimeError, "ZeroDivisionError"),
    "copy": (IndexError, f"index_copy_(): {_OUT_OF_BOUNDS}"),
}
_NAMES = list(FAULTS)

# Operators that torch decomposes into indexing, and the fault that each raises.  The keys are names, because the
# operator that a node remembers may be a copy.
_COMPOSED = {
    "aten.take.default": "flat",
    "aten.nll_loss_nd.default": "target",
    "aten.nll_loss_forward.default": "target",
    "aten.nll_loss2d_forward.default": "target",
    "aten.cross_entropy_loss.default": "target",
}


def of_program(node: Node) -> str | None:
    """The fault of the operator that the program called, if ``node`` is a part of it and would raise another."""
    return _COMPOSED.get(str(node.meta.get("original_aten")))


def of_graph(gm: GraphModule) -> str:
    """What :func:`of_program` returns for the nodes of a graph; the text of the graph does not show it."""
    return repr([(n, fault) for n, node in enumerate(gm.graph.nodes) if (fault := of_program(node)) is not None])


def number(name: str, dim: int) -> int:
    """The number by which code reports the fault ``name`` in dimension ``dim``; never 0."""
    return 1 + _NAMES.index(name) + len(_NAMES) * dim


def fault(found: Sequence[int]) -> Exception:
    """The exception for the number of a fault, the index and the size that code has reported."""
    code, at, size = found
    dim, name = divmod(code - 1, len(_NAMES))
    kind, words = FAULTS[_NAMES[name]]
    return kind(words.format(index=at, dim=dim, size=size, most=size - 1))
