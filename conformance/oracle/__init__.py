"""When an answer is right: ``docs/conformance-oracle.md`` has the model of error behind it.

* ``bounds``: how far a floating-point number may be from the exact one, element by element, and bias;
* ``tensors``: two tensors: what must be equal, and what may differ within the bounds; who shares memory;
* ``observation``: nested values, compared leaf by leaf; ``wide``: a program in float64, whatever types it names.
"""

from .bounds import DRAWS, reach
from .tensors import Difference, compare_tensors, distance, largest, nudged, random_like, sharing

__all__ = ["DRAWS", "Difference", "compare_tensors", "distance", "largest", "nudged", "random_like", "reach", "sharing"]
