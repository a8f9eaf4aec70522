"""From ATen operators to the loop IR: one function per operator, by overload, in ``registry.table``.

``graph`` walks a graph and applies them; ``calls`` leaves operators to torch; each of the other modules holds the
operators of one kind.  What a lowering makes of an operator says what is computed and where it lies, never who computes
it: products, convolutions and attention stay abstract.
"""

from __future__ import annotations

from . import (
    activations as activations,
    calls as calls,
    complex_numbers as complex_numbers,
    convolutions as convolutions,
    creation as creation,
    float8 as float8,
    indexing as indexing,
    joining as joining,
    norms as norms,
    pointwise as pointwise,
    pooling as pooling,
    products as products,
    reductions as reductions,
    resampling as resampling,
    scatters as scatters,
    views as views,
    windows as windows,
)
from .registry import Context as Context, table as table
