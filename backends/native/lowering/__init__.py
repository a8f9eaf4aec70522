"""From ATen operators to the loop IR: one function per operator, by overload, in ``registry.table``."""

from __future__ import annotations

from . import (
    activations as activations,
    attention as attention,
    calls as calls,
    convolutions as convolutions,
    creation as creation,
    indexing as indexing,
    joining as joining,
    norms as norms,
    pointwise as pointwise,
    products as products,
    reductions as reductions,
    scans as scans,
    scatters as scatters,
    views as views,
)
from .registry import Context as Context, table as table
