"""AOTAutograd, which splits forward from backward.  Importing its parts imports ``torch._dynamo``."""

from __future__ import annotations

import sys
from typing import Any


def aot_autograd() -> Any:
    """``aot_module_simplified``."""
    from torch._functorch.aot_autograd import aot_module_simplified

    return aot_module_simplified


def min_cut_partition() -> Any:
    """The partitioner that decides what backward recomputes."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    return min_cut_rematerialization_partition


def functorch_config() -> Any:
    """The settings of AOTAutograd."""
    from torch._functorch import config

    return config


def inputs_are_mutated() -> bool:
    """Whether the graph that AOTAutograd compiled last in this tracing context writes to its inputs."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    return metadata is not None and any(i.mutates_data or i.mutates_metadata for i in metadata.input_info)


def keep_saved_buffers() -> None:
    """Say of the graph that AOTAutograd compiled last that backward gives no memory away.

    With the setting off it says nothing, which a backward that is run with ``retain_graph`` takes for the contrary.
    """
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []


def floats_needed(error: BaseException) -> frozenset[str] | None:
    """The names of the symbolic floats that AOTAutograd needs as constants, if that is what ``error`` says."""
    state = sys.modules.get("torch._dynamo.symbolic_convert")
    if state is None or type(error).__name__ != "TensorifyScalarRestartAnalysis":
        return None
    names = frozenset(state.TensorifyState.force_specializations)
    state.TensorifyState.clear()
    return names
