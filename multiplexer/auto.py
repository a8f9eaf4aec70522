"""``backend="auto"``: each graph to the candidate that is measured to be right and the best.

Until the decision falls, the best candidate so far runs the graph, eager at first; ``options={"wait": True}`` waits.
The measurement runs in a thread, which only talks to other processes and compiles what the program is to run.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule

from torchmux import torch_internals as internals
from torchmux.registry.spec import CompiledGraph, CompileRequest

from . import decisions
from .candidates import EAGER, Field, candidates_for
from .decisions import Decision
from .measure import Measurement, default_memory
from .objectives import Objective
from .options import AutoOptions
from .parcel import Unknown, pack
from .running import background
from .running.chosen import Chosen, Decide, Lead, Pending

log = logging.getLogger("torchmux")

_NO_INPUTS = (
    "it is a part of a larger graph, and is compiled before there are inputs to measure with; compile the part as a "
    "module or function of its own with backend='auto', or pin it to the backend that it shall have"
)


class Auto:
    """The backend object; see :class:`torchmux.registry.spec.Backend`."""

    def supports(self, node: Any) -> Any:
        return True

    def compile(self, gm: GraphModule, example_inputs: Sequence[Any], request: CompileRequest) -> CompiledGraph:
        """The graph in eager, which becomes what is chosen; at once if the decision is known, or is waited for."""
        options = request.options if request.options is not None else AutoOptions()
        chosen = Chosen(gm, request, options, example_inputs, decider(gm, request, options))
        chosen.begin(example_inputs)
        return chosen


def decider(gm: GraphModule, request: CompileRequest, options: AutoOptions) -> Decide:
    """What decides about a captured graph."""
    training = request.phase != "inference"
    objective = Objective.of(options)

    def decide(inputs: Sequence[Any], bucket: str, anew: bool) -> tuple[Decision, str] | Pending:
        found = candidates_for(
            inputs,
            training=training,
            freeze=options.freeze,
            allow=options.allow,
            forbid=options.forbid,
            mode=options.also_mode,
        )
        key = decisions.key_of(gm, inputs, request, found.fingerprint, options.asked, bucket=bucket)
        known = decisions.load(key) if key is not None and not anew else None
        if known is not None:
            return known, known.source
        if any(map(internals.is_fake, inputs)):
            return _unmeasured(found, _NO_INPUTS), "no measurement"
        try:
            parcel = pack(
                gm,
                inputs,
                training=training,
                static_inputs=request.static_inputs,
                strict=request.strict,
                dynamic=request.dynamic,
            )
        except Unknown as why:
            return _unmeasured(found, str(why)), "no measurement"
        memory = default_memory() if options.memory_mb is None else options.memory_mb << 20

        def make(lead: Lead | None, check: Any) -> Decision:
            measurement = Measurement(
                parcel,
                found,
                budget=options.budget_s,
                memory=memory,
                strict=request.strict,
                objective=objective,
                lead=lead,
                turn=background.one_at_a_time,
                check=check,
            )
            if anew and key is not None:  # what is filed, here and by others, is out of date
                decision = measurement.decide()
                decisions.keep(key, decision)
            else:
                decision = decisions.once(key, measurement.decide, options.budget_s, check)
            log.info("auto: %s: %s", decision.choice, decision.reason)
            return decision

        return Pending(make)

    return decide


def _unmeasured(found: Field, why: str) -> Decision:
    """The first backend in the order of the registry, for a graph that cannot be measured."""
    first = next((c for c in found.candidates if c.backend != EAGER and not c.options), found.candidates[0])
    row = decisions.Row(first.name, first.backend, {}, "chosen", f"not measured: {why.partition(';')[0]}")
    return Decision(first.backend, {}, f"the graph cannot be measured, since {why}", [row], machine=decisions.machine())
