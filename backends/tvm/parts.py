"""Compiles one part of a graph: translates it, builds it, and compares it with torch."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from torchmux.registry.errors import GraphRefused, NodesRefused
from torchmux.stages import stage

from ..common.adapter import check
from ..common.adapter.bugs import raise_mistake
from ..common.adapter.graphs import lift_constants
from . import machine
from .codegen import build
from .options import TvmOptions
from .relax.translate import translate
from .runtime import TvmFunction

cache_log = logging.getLogger("torchmux.cache")


def make(
    gm: GraphModule, example_inputs: Sequence[Any], options: TvmOptions, device: torch.device
) -> tuple[TvmFunction, dict[str, Any], bytes | None, str]:
    """The function for ``gm``, what describes it, its code, and the module in Relax that was compiled.

    The code is None if it cannot be kept.

    Tensors that the graph holds become its last placeholders.

    Raises:
        NodesRefused: TVM does not take some nodes, or computes something else.
        GraphRefused: TVM does not compile the nodes together, though it takes each of them alone.
    """
    constants = lift_constants(gm)
    with stage("lowering"):
        made = translate(gm, use_library=options.library == "torch")
    notes: list[str] = []
    relax = str(made.module.script())
    head = {
        "inputs": [layout.to_json() for layout in made.inputs],
        "outputs": [layout.to_json() for layout in made.outputs],
        "sizes": made.sizes,
        "notes": notes,
        "device": str(device),
        "library_calls": made.library_calls,
    }
    alone = functools.partial(_make_alone, options=dataclasses.replace(options, tuning_trials=0), device=device)
    try:
        executable = build.compile_module(made.module, options, device, notes)
    except Exception as error:
        raise_mistake(error)
        wrong = check.uncompilable(gm, alone, "TVM")
        if not wrong:
            raise GraphRefused(
                f"TVM does not compile it: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
            ) from error
        raise NodesRefused(wrong) from error
    code = None
    try:
        code = build.to_bytes(executable)
        executable = machine.from_bytes(code, device)  # each machine would recompile the other's code
    except Exception as error:  # no compiler for linking, or a full disk: the code runs anyway
        cache_log.warning("TVM's compiled code cannot be cached: %s", error)
    if options.check:
        run = TvmFunction.described(executable, head, [], cache_hit=False)
        wrong = check.culprits(gm, run, [*example_inputs, *constants], alone, "TVM")
        if wrong:
            raise NodesRefused(wrong)
    return TvmFunction.described(executable, head, constants, cache_hit=False), head, code, relax


def _make_alone(gm: GraphModule, options: TvmOptions, device: torch.device) -> TvmFunction:
    made = translate(gm, use_library=options.library == "torch")
    executable = build.compile_module(made.module, options, device, [])
    return TvmFunction(
        executable, made.inputs, made.outputs, (), made.sizes, device, cache_hit=False, notes=(), library_calls={}
    )
