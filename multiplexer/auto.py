"""``backend="auto"``: each graph to the candidate that is measured to be right and the quickest.

Until the decision falls, eager runs the graph; ``options={"wait": True}`` waits for it.  The measurement runs in a
thread, which only talks to other processes.  The call that finds the decision made compiles the chosen candidate.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from torchmux import torch_internals as internals
from torchmux.backends.common.adapter.graphs import copy_graph
from torchmux.registry.errors import FallbackRefused, TorchmuxError
from torchmux.registry.report import GraphReport, place_all
from torchmux.registry.resolve import resolve
from torchmux.registry.spec import CompiledGraph, CompileRequest

from . import decisions
from .candidates import EAGER, Field, candidates_for
from .decisions import Decision
from .measure import Measurement, default_memory
from .options import AutoOptions
from .parcel import Unknown, pack

log = logging.getLogger("torchmux")


class Auto:
    """The backend object; see :class:`torchmux.registry.spec.Backend`."""

    def supports(self, node: Any) -> Any:
        return True

    def compile(self, gm: GraphModule, example_inputs: Sequence[Any], request: CompileRequest) -> CompiledGraph:
        """The graph in eager, which becomes what is chosen; at once if the decision is known, or is waited for."""
        options = request.options if request.options is not None else AutoOptions()
        chosen = Chosen(gm, request, options)
        training = request.phase != "inference"
        found = candidates_for(
            example_inputs, training=training, freeze=options.freeze, allow=options.allow, forbid=options.forbid
        )
        asked = {"freeze": options.freeze, "allow": options.allow, "forbid": options.forbid}
        key = decisions.key_of(gm, example_inputs, request, found.fingerprint, asked)
        known = decisions.load(key) if key is not None else None
        if known is not None:
            chosen.follow(known, example_inputs, known.source)
            return chosen
        try:
            parcel = pack(
                gm, example_inputs, training=training, static_inputs=request.static_inputs, strict=request.strict
            )
        except Unknown as why:
            chosen.follow(_unmeasured(found, str(why)), example_inputs, "no measurement")
            return chosen
        memory = default_memory() if options.memory_mb is None else options.memory_mb << 20
        measurement = Measurement(parcel, found, budget=options.budget_s, memory=memory, strict=request.strict)

        def decide() -> Decision:
            decision = decisions.once(key, measurement.decide, options.budget_s)
            log.info("auto: %s: %s", decision.backend, decision.reason)
            return decision

        if options.wait or request.strict:
            chosen.follow(decide(), example_inputs, "a measurement")
        else:
            chosen.expect(decide)
        return chosen


class Chosen:
    """A graph's code: eager until there is a decision, then what was chosen, or the next that compiles here."""

    def __init__(self, gm: GraphModule, request: CompileRequest, options: AutoOptions) -> None:
        self._gm = gm
        self._request = request
        self._run: Any = gm.forward
        self._decision: Decision | None = None
        self._pending = False  # whether a decision waits for a call that compiles what it says
        self._lock = threading.Lock()
        self._eager = GraphReport(
            EAGER,
            phase="inference" if request.phase == "inference" else "training",
            placements=place_all(gm.graph, EAGER, None, "library", "torch"),
            notes=["auto has not decided yet; eager runs the graph meanwhile"],
        )
        self.report = self._eager  # of what runs now

    def __call__(self, *args: Any) -> Sequence[Any]:
        if self._pending:
            self._switch(args)
        return self._run(*args)

    @property
    def decision(self) -> Decision | None:
        """What was decided, if it was."""
        return self._decision

    def expect(self, decide: Any) -> None:
        """Let a thread decide; the first call after that follows."""

        def work() -> None:
            try:
                self._decision = decide()
            except Exception as error:
                log.warning("auto cannot measure, and stays with eager: %s: %s", type(error).__name__, error)
                self._eager.notes[:] = [f"auto could not measure: {type(error).__name__}: {error}"]
                return
            self._pending = True

        threading.Thread(target=work, name="torchmux-auto", daemon=True).start()

    def follow(self, decision: Decision, inputs: Sequence[Any], source: str) -> None:
        """Compile what was decided, or the next that can be compiled here.

        Raises:
            FallbackRefused: only eager is left, and the request is strict.
        """
        self._decision = decision
        lost = []
        for row in decision.ranking:
            if row.backend == EAGER:
                break
            try:
                compiled = self._compiled(row.backend, row.options, inputs)
            except TorchmuxError as error:
                lost.append(f"{row.candidate} was to run it, but: {error}")
                log.warning("auto: %s", lost[-1])
                continue
            compiled.report.notes += [*_told(decision, source), *lost]
            self._run, self.report = compiled, compiled.report
            return
        if self._request.strict:
            told = "; ".join(_told(decision, source))
            raise FallbackRefused(f"strict={self._request.strict!r}, and auto has no candidate but eager: {told}")
        self._eager.notes[:] = [*_told(decision, source), *lost]

    def _compiled(self, backend: str, options: dict[str, Any], inputs: Sequence[Any]) -> CompiledGraph:
        request = self._request
        resolved = resolve(backend, options=options or None, dynamic=request.dynamic, strict=request.strict)
        return resolved.compile(
            copy_graph(self._gm),
            inputs,
            training=request.phase != "inference",
            static_inputs=request.static_inputs,
        )

    def _switch(self, args: Sequence[Any]) -> None:
        """Compile what was decided, in the call that first finds the decision; other threads go on meanwhile."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if not self._pending:
                return
            self._pending = False
            assert self._decision is not None
            mode = next(
                (
                    value.fake_mode
                    for node in self._gm.graph.find_nodes(op="placeholder")
                    if internals.is_fake(value := node.meta.get("example_value"))
                ),
                None,
            )
            with internals.tracing_context(mode), torch.set_grad_enabled(self._request.phase != "inference"):
                self.follow(self._decision, args, "a measurement")
        finally:
            self._lock.release()


def _told(decision: Decision, source: str) -> list[str]:
    name = decision.pinned or decision.backend
    head = f"auto chose {name}: {decision.explanation} ({source}, {decision.seconds:.1f} s)"
    return ["\n      ".join([head, *decision.table(), *decision.notes])]


def _unmeasured(found: Field, why: str) -> Decision:
    """The first backend in the order of the registry, for a graph that cannot be measured."""
    first = next((c for c in found.candidates if c.backend != EAGER and not c.options), found.candidates[0])
    row = decisions.Row(first.name, first.backend, {}, "chosen", f"not measured: {why}")
    return Decision(first.backend, {}, f"the graph cannot be measured, since {why}", [row], machine=decisions.machine())
