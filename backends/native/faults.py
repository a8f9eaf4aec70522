"""What a compiled graph raises where eager raises: the same type of exception, in the same words.

Code that verifies an index reports the number of a fault, the index and the size of the dimension.  The faults are
those of torch's operators on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence

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


def number(name: str, dim: int) -> int:
    """The fault ``name`` in dimension ``dim`` as code reports it: never 0."""
    return 1 + _NAMES.index(name) + len(_NAMES) * dim


def fault(found: Sequence[int]) -> Exception:
    """The exception for what code reports: the number of a fault, the index, the size."""
    code, at, size = found
    dim, name = divmod(code - 1, len(_NAMES))
    kind, words = FAULTS[_NAMES[name]]
    return kind(words.format(index=at, dim=dim, size=size))
