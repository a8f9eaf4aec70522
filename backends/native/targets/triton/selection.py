"""Who computes the abstract operations on a GPU: torch's operators, which are cuBLAS, cuDNN and flash attention."""

from __future__ import annotations

from ...ir.products import Attention, Convolution, Product
from ...ir.program import Program
from ..torch_calls import call_of
from . import epilogues


def select(program: Program) -> None:
    """Replace what is abstract in ``program``."""
    abstract = (Product, Convolution, Attention)
    program.items = [call_of(item) if isinstance(item, abstract) else item for item in epilogues.fused(program)]
