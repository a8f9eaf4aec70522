"""From a captured graph and a backend to a callable with a report.

``captured graph -> AOT split -> decomposition -> partition by supports(node) -> compile each part -> one callable``.

What a node of the report can be: run by the backend, or run by torch for a reason that is told.  Nodes that compute
nothing are in no report: views that end up outside of a part, sizes, checks, elements of tuples, and the copies that
write results back to mutated inputs, which torch does around any compiler.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchmux import torch_internals as internals
from torchmux.registry.errors import CompilationFailed, FallbackRefused, FloatsNeeded, TorchmuxError
from torchmux.registry.options import as_keywords
from torchmux.registry.plain import compile_plain
from torchmux.registry.report import GraphReport, Placement, operator_name, output_code_of
from torchmux.registry.spec import ANY, BackendSpec, CompiledGraph, CompileRequest

from ..adapter.refusal import NodesRefused
from ..cache import recipes
from ..cache.cache import default_cache
from . import aliasing, aot, decompose, floats, lines, simplify, symbols
from .assemble import assemble, extract, inputs_of
from .partition import Part, partition, takes_element
from .runtime import Compiled, eager_when_overlap_differs, without_autocast

log = logging.getLogger("torchmux.fallback")

_CHECKS = ("_assert", "sym_constrain_range")


def compile_graph(
    implementation: Any,
    spec: BackendSpec,
    gm: GraphModule,
    example_inputs: Sequence[Any],
    request: CompileRequest,
    *,
    training: bool,
) -> CompiledGraph:
    """Compile a captured graph with one backend.

    Args:
        implementation: what ``spec.load`` stands for: a function ``(gm, example_inputs, **options)``, which takes
            every node, or an object with ``supports(node)`` and ``compile(gm, example_inputs, request)``.
        gm: a graph of torch-level calls on lifted inputs, each with ``meta["example_value"]``.
        example_inputs: the tensors and numbers of the call, in the order of the placeholders.
        training: whether gradients are recorded.

    ``compile`` gets ATen graphs whose nodes have ``meta["val"]``; its example inputs are fake except at
    ``request.static_inputs``, where an inference graph has the real parameters and buffers.

    Returns:
        A callable on the flat inputs that returns the flat outputs, with ``.report``.

    Raises:
        FallbackRefused: ``request.strict`` and some node would not run in the backend.
        CompilationFailed: ``request.strict`` and the backend, or tracing for it, raised.
    """
    plain = not hasattr(implementation, "compile")
    if plain and spec.graph == "torch":
        return compile_plain(implementation, spec, gm, example_inputs, request, training=training)
    start = time.perf_counter()
    training = training or (aot.changes_grad_mode(gm) and any(_requires_grad(v) for v in example_inputs))
    report = GraphReport(spec.name, phase="training" if training else "inference")
    work = _Work(implementation, spec, gm, list(example_inputs), request, training, report)
    lines.attach(gm)
    reason = _refusal(spec, gm, training)
    if reason is not None:
        run = work.run_captured(reason)
    elif spec.graph == "torch":
        run = work.compile_captured()
    else:
        run = work.compile_aten()
    report.compile_seconds = time.perf_counter() - start
    work.tell()
    return Compiled(run, report)


def _refusal(spec: BackendSpec, gm: GraphModule, training: bool) -> str | None:
    """Why ``spec`` cannot take the graph as a whole, if so."""
    if training and not spec.training:
        return f"{spec.name} does not train"
    if not spec.dynamic_shapes:
        for node in gm.graph.nodes:
            if node.op == "placeholder" and isinstance(node.meta.get("example_value"), torch.SymInt):
                return f"{spec.name} takes no dynamic sizes"
    return None


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


@dataclass
class _Attempt:
    """What came of compiling the parts of one split."""

    compiled: dict[int, Callable[..., Any]] = field(default_factory=dict)  # by id(part)
    # nodes, where, reason, code
    placed: list[tuple[list[Node], str, str | None, Callable[..., Any]]] = field(default_factory=list)
    refused: dict[Node, str] = field(default_factory=dict)


@dataclass
class _Work:
    """One captured graph on its way to one backend."""

    implementation: Any
    spec: BackendSpec
    gm: GraphModule
    example_inputs: list[Any]
    request: CompileRequest
    training: bool
    report: GraphReport
    origins: list[int | None] = field(default_factory=list)  # the captured node of each placement
    told: int | None = None  # how many placements have been told of

    # --- the graph as a whole -------------------------------------------------------------------------------------

    def compile_captured(self) -> Callable[..., Sequence[Any]]:
        """Give the captured graph itself to a backend that wants torch-level calls."""
        nodes = _operators(self.gm)
        for node in nodes:
            answer = self.implementation.supports(node)
            if answer is not True:
                # Parts of a torch-level graph may write to what other parts read: it is compiled whole or not.
                return self.run_captured(f"{node.name}: {answer}")
        try:
            run = self.implementation.compile(self.gm, self.example_inputs, self.request)
        except TorchmuxError:
            raise
        except Exception as error:
            self._check_failure(error)
            return self.run_captured(_failure(error))
        self._place(nodes, self.spec.name)
        self.report.partitions = 1
        self.report.output_code += output_code_of(run)
        return run

    def run_captured(self, reason: str) -> Callable[..., Sequence[Any]]:
        """Leave the whole captured graph to torch."""
        self.report.placements.clear()
        self.origins.clear()
        self._place(_operators(self.gm), "eager", reason)
        self._check_strict()
        return self.gm.forward

    def compile_aten(self) -> Callable[..., Sequence[Any]]:
        """Trace the captured graph to ATen, and compile what comes out."""
        try:
            return self._trace_and_compile()
        except TorchmuxError:
            raise
        except Exception as error:
            self._check_failure(error)
            return self.run_captured(_failure(error))

    def _trace_and_compile(self) -> Callable[..., Sequence[Any]]:
        if self.training:
            return self._trace(None)
        key = recipes.recipe_key(self.gm, self.example_inputs, self.implementation, self.request)
        cache = default_cache() if key is not None else None
        if cache is None or key is None:
            return self._trace(None)
        return self._follow_recipe(cache.load(key)) or self._trace(functools.partial(recipes.keep, cache, key))

    def _follow_recipe(self, content: bytes | None) -> Callable[..., Sequence[Any]] | None:
        """The code that an earlier process made of this very graph, if all of it is still there."""
        if content is None:
            return None
        found = recipes.follow(content, self.gm, self.implementation, self.report)
        if found is None:
            return None
        gm, split, compiled = found
        self._tell_of(compiled)
        return without_autocast(assemble(gm, split, compiled))

    def _trace(self, keep: Callable[..., None] | None) -> Callable[..., Sequence[Any]]:
        rewrite = getattr(self.implementation, "rewrite", None)
        gm = self.gm if rewrite is None else rewrite(self.gm, self.request)
        mode, fakes = aot.fake_inputs(gm, self.example_inputs)
        with internals.tracing_with(mode):
            return self._split_and_compile(gm, mode, fakes, keep)

    def _split_and_compile(
        self, gm: GraphModule, mode: Any, fakes: Sequence[Any], keep: Callable[..., None] | None
    ) -> Callable[..., Sequence[Any]]:
        table = decompose.table_for(self.implementation)
        if not self.training:
            whole = decompose.whole_operators(self.implementation)
            try:
                traced = aot.trace_inference(gm, mode, fakes, self.example_inputs, table, whole)
            except aot.NeedsAutograd as why:
                self.report.notes.append(f"traced by AOTAutograd: {why}")
            else:
                static = {p: self.example_inputs[p] for p in self.request.static_inputs}
                keep = None if traced.mutates else keep
                run = without_autocast(self._lower(traced.gm, "inference", static, keep))
                if not traced.mutates:
                    return run
                return eager_when_overlap_differs(run, self.gm, self.example_inputs, strict=self.request.strict)

        def lower(part: GraphModule, inputs: Sequence[Any], backward: bool) -> Callable[..., Sequence[Any]]:
            if not backward:
                return self._lower(part, "forward" if self.training else "inference", {})
            run = self._lower(part, "backward", {})
            if self.told is not None:  # most are compiled when they first run, after the rest was told
                self.tell()
            return run

        run = aot.through_autograd(gm, fakes, table, lower, training=self.training)
        if not internals.inputs_are_mutated():
            return run
        if aliasing.sharing(fakes) != aliasing.sharing(self.example_inputs):
            raise RuntimeError("the graph changes inputs that overlap in memory, which the capture does not show")
        return eager_when_overlap_differs(run, self.gm, self.example_inputs, strict=self.request.strict)

    # --- one ATen graph -------------------------------------------------------------------------------------------

    def _lower(
        self, gm: GraphModule, phase: Any, static: dict[int, Any], keep: Callable[..., None] | None = None
    ) -> Callable[..., Any]:
        """Partition a functional ATen graph, compile its parts, and put the result together.

        ``keep`` is told what came of it, if every part is the backend's own code.
        """
        _drop_lifts(gm)
        simplify.drop_empty_concatenands(gm.graph)
        simplify.spare_overwritten(gm.graph)
        floats.as_tensors(gm.graph)
        symbols.hoist(gm.graph)
        outside = aliasing.split_off_output_views(gm.graph)
        placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
        written = {n.args[0] for n in gm.graph.nodes if _writes_back(n)}
        constants = {placeholders[p]: v for p, v in static.items() if placeholders[p] not in written}
        refused: dict[Node, str] = {}

        def supported(node: Node) -> bool:
            if node in outside or _is_glue(node):
                return False
            answer = refused.get(node) or self._supports(node)
            if answer is not True:
                refused[node] = answer
            return answer is True

        def ordered(node: Node) -> bool:
            # A random operator that a backend takes draws nothing; one left to torch must draw in its turn.
            return aliasing.writes(node) or (node in refused and decompose.is_random(node.target))

        while True:
            split = partition(gm.graph, supported, trivial=aliasing.is_view, ordered=ordered, last=_writes_back)
            attempt = _Attempt()
            for part in split.parts:
                self._compile_part(part, gm, phase, constants, attempt)
            if not attempt.refused:
                break
            refused.update(attempt.refused)
        for step in split.steps:
            if isinstance(step, Node) and step in refused:
                self._place([step], "eager", refused[step])
        for nodes, placed_on, reason, run in attempt.placed:
            placements = self._place(nodes, placed_on, reason)
            if hasattr(run, "follow"):
                run.follow(self.report, placements)
        self.report.partitions += sum(placed_on != "eager" for _, placed_on, _, _ in attempt.placed)
        if keep is not None:
            keep(gm, split, attempt.compiled, self.report, self.origins)
        self._tell_of(attempt.compiled)
        return assemble(gm, split, attempt.compiled)

    def _tell_of(self, compiled: dict[int, Callable[..., Any]]) -> None:
        """Report on the code of all parts.

        Raises:
            FallbackRefused: torch runs something, and that is not allowed.
        """
        self.report.cache_hits += sum(bool(getattr(run, "cache_hit", False)) for run in compiled.values())
        for run in compiled.values():
            self.report.notes += getattr(run, "notes", ())
            self.report.output_code += output_code_of(run)
        self._check_strict()

    def _compile_part(
        self, part: Part, gm: GraphModule, phase: Any, constants: dict[Node, Any], attempt: _Attempt
    ) -> None:
        """The backend's code for one part; torch's own if the backend raises."""
        module = extract(part, gm)
        copies = {n.name: o for n, o in zip(_calls(module), part.nodes, strict=True)}
        taken = inputs_of(part)
        static = tuple(i for i, v in enumerate(taken) if v in constants)
        request = dataclasses.replace(self.request, phase=phase, static_inputs=static)
        nodes = [n for n in part.nodes if takes_element(n) is None]
        try:
            run = self._compile(module, [constants.get(v, v.meta.get("val")) for v in taken], request)
        except NodesRefused as refusal:
            attempt.refused.update((_maker(copies[name]), reason) for name, reason in refusal.reasons.items())
        except TorchmuxError:
            raise
        except Exception as error:
            self._check_failure(error)
            run = extract(part, gm).forward
            attempt.placed.append((nodes, "eager", _failure(error), run))
            attempt.compiled[id(part)] = run
        else:
            attempt.placed.append((nodes, self.spec.name, None, run))
            attempt.compiled[id(part)] = run

    # --- the backend ----------------------------------------------------------------------------------------------

    @property
    def _is_plain(self) -> bool:
        return not hasattr(self.implementation, "compile")

    def _supports(self, node: Node) -> Any:
        if self._is_plain:
            return True
        for value in _values(node):
            if isinstance(value, torch.Tensor) and not self._runs_on(value.device.type):
                return f"{self.spec.name} does not run on {value.device.type}"
        return self.implementation.supports(node)

    def _runs_on(self, device: str) -> bool:
        return ANY in self.spec.devices or device in self.spec.devices

    def _compile(self, gm: GraphModule, inputs: Sequence[Any], request: CompileRequest) -> Callable[..., Any]:
        if self._is_plain:
            return self.implementation(gm, inputs, **as_keywords(request.options))
        with internals.without_modes():  # AOTAutograd compiles among fake tensors, and constants of a graph are real
            return self.implementation.compile(gm, inputs, request)

    # --- telling --------------------------------------------------------------------------------------------------

    def _place(self, nodes: Sequence[Node], placed_on: str, reason: str | None = None) -> list[Placement]:
        placements = [
            Placement(node.name, operator_name(node), placed_on, reason, lines.line_of(node)) for node in nodes
        ]
        self.report.placements += placements
        self.origins += map(lines.origin_of, nodes)
        return placements

    def _check_strict(self) -> None:
        if self.request.strict and self.report.fallbacks:
            raise FallbackRefused(
                f"strict=True, and {self.spec.name} would leave {len(self.report.fallbacks)} of "
                f"{len(self.report.placements)} operators to torch: {_describe(self.report.fallbacks)}. "
                f"Call without strict to let torch run them, or choose a backend that supports them."
            )

    def _check_failure(self, error: Exception) -> None:
        if (symbols := internals.floats_needed(error)) is not None:
            raise FloatsNeeded(self.spec.name, symbols) from None
        if self.request.strict:
            raise CompilationFailed(
                f"{self.spec.name} failed to compile a graph of {len(_operators(self.gm))} operators: "
                f"{_failure(error)}. Call without strict to let torch run it."
            ) from error
        log.debug("%s raised while compiling", self.spec.name, exc_info=error)

    def tell(self) -> None:
        """One line for what is new in a graph that the backend does not run whole."""
        later, placements = self.told is not None, self.report.placements[self.told or 0 :]
        self.told = len(self.report.placements)
        fallbacks = [p for p in placements if p.placed_on != self.spec.name]
        if fallbacks:
            log.warning(
                "%s: torch runs %d of %d operators%s: %s",
                self.spec.name,
                len(fallbacks),
                len(placements),
                " of the backward pass" if later else "",
                _describe(fallbacks),
            )


def _maker(node: Node) -> Node:
    """``node``, or what makes the tuple that it is an element of: an element goes where its tuple goes."""
    while (made_by := takes_element(node)) is not None:
        node = made_by
    return node


def _calls(gm: GraphModule) -> list[Node]:
    return [n for n in gm.graph.nodes if n.op.startswith("call_")]


def _operators(gm: GraphModule) -> list[Node]:
    """The nodes of a torch-level graph that a report counts."""
    return [n for n in gm.graph.nodes if n.op.startswith("call_") and takes_element(n) is None]


def _describe(fallbacks: Sequence[Placement], limit: int = 5) -> str:
    """The fallbacks in a few words, those with one reason together."""
    groups: dict[str | None, dict[str, list[Placement]]] = {}
    for placement in fallbacks:
        groups.setdefault(placement.reason, {}).setdefault(placement.op, []).append(placement)
    return "; ".join(f"{_operators_in_words(ops, limit)}: {reason}" for reason, ops in groups.items())


def _operators_in_words(groups: dict[str, list[Placement]], limit: int) -> str:
    words = []
    for op, placements in list(groups.items())[:limit]:
        times = f" ({len(placements)} times)" if len(placements) > 1 else ""
        where = next((f" at {p.where}" for p in placements if p.where), "")
        words.append(f"{op}{times}{where}")
    if len(groups) > limit:
        words.append(f"{len(groups) - limit} more")
    return ", ".join(words)


def _values(node: Node) -> tuple[Any, ...]:
    value = node.meta.get("val")
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _failure(error: BaseException) -> str:
    """The exception in one line; what torch.fx adds about the node being traced is left out."""
    lines_of_it = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines_of_it[0][:300]}" if lines_of_it else type(error).__name__


def _is_check(node: Node) -> bool:
    name = getattr(node.target, "__name__", "")
    return name.startswith(_CHECKS)


def _is_glue(node: Node) -> bool:
    return symbols.is_symbolic(node) or floats.is_number(node) or _is_check(node) or _writes_back(node)


def _writes_back(node: Node) -> bool:
    return node.target is torch.ops.aten.copy_.default and node.args[0].op == "placeholder"


def _drop_lifts(gm: GraphModule) -> None:
    """Read constants directly: with no mutation left, the copy that protects them is needed for outputs only."""
    output = next(n for n in reversed(gm.graph.nodes) if n.op == "output")
    root = aliasing.roots(gm.graph)
    returned = {root[n] for n in output.all_input_nodes}
    for node in list(gm.graph.nodes):
        if node.target is torch.ops.aten.lift_fresh_copy.default and node not in returned:
            constant = node.args[0]
            constant.meta.setdefault("val", node.meta["val"])
            node.replace_all_uses_with(constant)
            gm.graph.erase_node(node)
