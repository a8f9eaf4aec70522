"""What a compiled graph raises where eager raises: the same type of exception, in the same words.

Code that verifies an index reports the number of a fault, the index and the size of the dimension.  The faults are
those of torch's operators on the CPU.
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
    "copy": (IndexError, f"index_copy_(): {_OUT_OF_BOUNDS}"),
}
_NAMES = list(FAULTS)

# What torch takes apart into reading where data says, and what such an operator raises; by name, since what a node
# remembers may be a copy.
_COMPOSED = {
    "aten.take.default": "flat",
    "aten.nll_loss_nd.default": "target",
    "aten.nll_loss_forward.default": "target",
    "aten.nll_loss2d_forward.default": "target",
    "aten.cross_entropy_loss.default": "target",
}


def of_program(node: Node) -> str | None:
    """The fault of what the program calls, if ``node`` is a part of that and would raise something else."""
    return _COMPOSED.get(str(node.meta.get("original_aten")))


def of_graph(gm: GraphModule) -> str:
    """All that :func:`of_program` says of a graph, which its text does not show."""
    return repr([(n, fault) for n, node in enumerate(gm.graph.nodes) if (fault := of_program(node)) is not None])


def number(name: str, dim: int) -> int:
    """The fault ``name`` in dimension ``dim`` as code reports it: never 0."""
    return 1 + _NAMES.index(name) + len(_NAMES) * dim


def fault(found: Sequence[int]) -> Exception:
    """The exception for what code reports: the number of a fault, the index, the size."""
    code, at, size = found
    dim, name = divmod(code - 1, len(_NAMES))
    kind, words = FAULTS[_NAMES[name]]
    return kind(words.format(index=at, dim=dim, size=size))
