"""From a captured graph and a backend to a callable with a report.

``captured graph -> AOT split -> decomposition -> partition by supports(node) -> compile each part -> one callable``.

What a node of the report can be: the backend's own code, a library kernel that it calls, or run by torch for a reason
that is told.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchmux import torch_internals as internals
from torchmux.compile_lock import shared
from torchmux.registry.errors import GraphRefused, LeftToTorch, NodesRefused, TorchmuxError
from torchmux.registry.report import GraphReport
from torchmux.registry.spec import BackendSpec, CompiledGraph, CompileRequest
from torchmux.stages import collecting, stage

from ..cache import recipes
from ..cache.cache import ArtifactCache, default_cache
from ..cache.training import Followed, Keeper, told_so_far
from . import aliasing, aot, lines, overlap
from .assemble import Built, assemble
from .autocast import regions
from .derivatives import Derivatives, eager_with_tangents
from .implementation import Implementation, Several, Told, as_backend
from .partition import Partition
from .parts import Compiler, Keep, Run
from .placing import Placing, compiler_error, failure, operators_of
from .runtime import Compiled, WithoutAutocast, eager_when_overlap_differs, noting_calls, small_in_torch

_FOR_TRAINING = "it was compiled for training"
_CHANGED_IN_PLACE = "modified by an inplace operation"  # in what autograd says


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
        implementation: what ``spec.load`` stands for, as :mod:`torchmux.registry.contract` describes it; a plain
            function only with ``spec.graph == "aten"``, where it takes every node.
        gm: a graph of torch-level calls on lifted inputs, each with ``meta["example_value"]``.
        example_inputs: the tensors and numbers of the call, in the order of the placeholders.
        training: whether gradients are recorded.

    Returns:
        A callable on the flat inputs that returns the flat outputs, with ``.report``.

    Raises:
        FallbackRefused: ``request.strict`` and some node would not run in the backend.
        CompilationFailed: ``request.strict`` and the backend, or tracing for it, raised.
    """
    training = training or (aot.changes_grad_mode(gm) and any(_requires_grad(v) for v in example_inputs))
    report = GraphReport(spec.name, phase="training" if training else "inference")
    work = _Work(
        as_backend(implementation, spec),
        gm,
        list(example_inputs),
        request,
        training,
        Placing(report, spec, strict=request.strict),
    )
    lines.attach(gm)
    reason = _refusal(spec, gm, training)
    with collecting(report.seconds, "AOT"), noting_calls(report):
        if reason is not None:
            run = work.run_captured(reason)
        elif spec.graph == "torch":
            run = work.compile_captured()
        else:
            run = work.compile_in_region()
    work.example_inputs = []  # what compiles a backward pass later must not keep the first batch alive
    if spec.graph == "torch" and Told(run).report is not None:
        told: Any = run  # its own report knows better what ran where
        return told
    work.placing.tell()
    return Compiled(run, report, work.built)


def _refusal(spec: BackendSpec, gm: GraphModule, training: bool) -> str | None:
    """Why ``spec`` cannot take the graph as a whole, if so."""
    if training and not spec.training:
        return f"{spec.name} does not support training"
    if not spec.dynamic_shapes:
        for node in gm.graph.nodes:
            if node.op == "placeholder" and isinstance(node.meta.get("example_value"), torch.SymInt):
                return f"{spec.name} does not support symbolic sizes"
    return None


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


@dataclass
class _Work:
    """One captured graph on its way to one backend."""

    implementation: Implementation
    gm: GraphModule
    example_inputs: list[Any]
    request: CompileRequest
    training: bool
    placing: Placing
    built: Built | GraphModule | str = "its backend is given torch-level calls"

    @functools.cached_property
    def compiler(self) -> Compiler:
        operators = len(operators_of(self.gm.graph.nodes))
        compiler = self.implementation.compiler if isinstance(self.implementation, Several) else Compiler
        return compiler(self.implementation, self.request, self.placing, operators)

    # --- the captured graph itself --------------------------------------------------------------------------------

    def compile_captured(self) -> Run:
        """Give the captured graph itself to a backend that wants torch-level calls."""
        nodes, report = operators_of(self.gm.graph.nodes), self.placing.report
        for node in nodes:
            answer = self.implementation.supports(node)
            if answer is not True:
                # Parts of a torch-level graph may write to what other parts read: it is compiled whole or not.
                return self.run_captured(f"{node.name}: {answer}")
        try:
            with stage("compiler"):
                run = self.implementation.compile(self.gm, self.example_inputs, self.request)
        except (GraphRefused, NodesRefused) as refusal:
            return self.run_captured(str(refusal))
        except TorchmuxError:
            raise
        except Exception as error:
            return self._run_failed(error)
        self.placing.place(nodes, Told(run).library_calls)
        report.partitions = 1
        report.output_code += Told(run).output_code
        report.kernel_seconds += Told(run).kernel_seconds
        self.placing.check_strict()
        return run

    def _run_failed(self, error: Exception) -> Run:
        """Leave the captured graph to torch, since the backend, or tracing for it, has raised what it should not.

        Raises:
            FloatsNeeded, CompilationFailed: torch must not run it; see :meth:`Placing.check_failure`.
        """
        if isinstance(error, tuple(internals.fake_tensor_errors().values())):
            return self.run_captured(f"torch cannot trace it: {failure(error)}")
        self.placing.check_failure(error, len(operators_of(self.gm.graph.nodes)))
        return self.run_captured(compiler_error(error), failed=True)

    def run_captured(self, reason: str, *, failed: bool = False, chosen: bool = False) -> Run:
        """Leave the whole captured graph to torch; ``failed`` if nobody meant to, ``chosen`` if it is best."""
        self.placing.forget()
        self.placing.is_choice = chosen
        self.placing.leave(operators_of(self.gm.graph.nodes), reason, compiler_error=failed)
        self.placing.check_strict()
        self.built = self.gm
        return self.gm.forward

    # --- the ATen graphs that are traced from it ------------------------------------------------------------------

    def compile_in_region(self) -> Run:
        """Compile ATen graphs with the casts that autocast makes once for a region as inputs."""
        try:
            casts = regions.of_graph(self.gm, self.example_inputs)
        except aot.StaysInTorch as why:
            return self.run_captured(str(why))
        self.gm, self.example_inputs = casts.gm, casts.example_inputs
        strict = bool(self.request.strict)
        run = self.compile_aten()
        if run != self.gm.forward:  # torch's own operators know tangents
            run = eager_with_tangents(run, self.gm, strict=strict)
            small = self.implementation.small_calls(self.gm, self.request) if self.training else None
            if small is not None:
                self.placing.report.notes.append(small.reason)
                run = small_in_torch(run, self.gm, small)
        run = casts.around(run, self.implementation.casting, strict=strict)
        if casts.enters or casts.wanted:
            self.built = (
                "autocast casts weights in it, once for a region, as they require gradients: call "
                "requires_grad_(False) on the model before it is compiled"
            )
        return run

    def compile_aten(self) -> Run:
        """Trace the captured graph to ATen, and compile what comes out."""
        try:
            return self._trace_and_compile()
        except LeftToTorch as choice:
            return self.run_captured(str(choice), chosen=True)
        except (GraphRefused, NodesRefused) as refusal:
            return self.run_captured(str(refusal))
        except TorchmuxError:
            raise
        except aot.StaysInTorch as why:
            return self.run_captured(str(why))
        except Exception as error:
            if isinstance(error, RuntimeError) and _CHANGED_IN_PLACE in str(error):
                # The trace runs the backward pass; what autograd refuses there, it refuses in the program as well.
                return self.run_captured("autograd refuses its backward pass: what it needs is changed in place")
            return self._run_failed(error)

    def _trace_and_compile(self) -> Run:
        if self.implementation.restore is None or (self.training and self.request.strict):
            return self._trace(None)
        key = recipes.recipe_key(self.gm, self.example_inputs, self.request, training=self.training)
        cache = default_cache() if key is not None else None
        if cache is None or key is None:
            return self._trace(None)
        follow = self._follow_training if self.training else self._follow_recipe
        try:
            with stage("load"):
                found = None if (content := cache.load(key)) is None else follow(cache, key, content)
        except TorchmuxError:
            raise
        except Exception as error:  # the content may be anything
            recipes.log.warning("the recipe %s cannot be followed and will be rebuilt: %s", key, error)
            cache.drop(key)
            found = None
        if found is not None:
            return found
        if self.training:
            return self._trace(None, Keeper(cache, key, self.placing.report))
        return self._trace(functools.partial(self._keep_recipe, cache, key))

    def _follow_recipe(self, cache: ArtifactCache, key: str, content: bytes) -> Run | None:
        """The code that an earlier process compiled for the same graph, if all of it is still in the cache."""
        found = self._filed(content)
        if found is None:
            return None
        self.built = Built(*found)
        return self._as_captured() or WithoutAutocast(assemble(*found))

    def _filed(self, content: bytes) -> tuple[GraphModule, Partition, dict[int, Run]] | None:
        assert self.implementation.restore is not None
        found = recipes.follow(content, self.gm, self.implementation.restore, self.placing.report)
        if found is not None:
            self.compiler.tell_of(found[-1])
            for run in found[-1].values():
                Told(run).follow(self.placing.report, [])  # which placements are the part's, no recipe says
        return found

    def _follow_training(self, cache: ArtifactCache, key: str, content: bytes) -> Run | None:
        """Both passes as an earlier process compiled them, if those of forward are still in the cache."""

        def pass_of(content: bytes) -> Run | None:
            with collecting(self.placing.report.seconds, "AOT"), noting_calls(self.placing.report):
                found = self._filed(content)
            if self.placing.is_told:
                self.placing.tell()
            return None if found is None else assemble(*found)

        def trace(args: Sequence[Any]) -> Run:
            self.placing.forget()
            self.example_inputs = list(args)
            try:
                with shared.lock, torch.enable_grad(), noting_calls(self.placing.report):
                    run = self._trace(None, Keeper(cache, key, self.placing.report))
            finally:
                self.example_inputs = []
            self.placing.tell()
            return run.short(run) if isinstance(run, Derivatives) else run

        followed = Followed(self.gm, self.example_inputs, pass_of, cache.load, trace)
        found = followed.run(key, content)
        if found is None:
            return None
        self.built = _FOR_TRAINING
        return self._guarded(*found)

    def _as_captured(self) -> Run | None:
        """The captured graph, if all that is left of it shows memory: it makes the same in fewer calls of torch's.

        What computes would run under another name than the report has, and so would what no result needs.
        """
        if not isinstance(self.built, Built) or self.built.split.parts:
            return None
        calls = (n for n in self.built.gm.graph.nodes if isinstance(n.target, internals.OpOverload))
        unused = any(n.op.startswith("call") and not n.users for n in self.gm.graph.nodes)
        return None if unused or not all(map(_shows, calls)) else self.gm.forward

    def _keep_recipe(
        self, cache: ArtifactCache, key: str, gm: GraphModule, split: Partition, compiled: Mapping[int, Run]
    ) -> None:
        recipes.keep(cache, key, gm, split, compiled, self.placing.report)

    def _note_built(
        self, keep: Keep | None, writes: bool, gm: GraphModule, split: Partition, compiled: Mapping[int, Run]
    ) -> None:
        self.built = Built(
            gm, split, dict(compiled), overlap.Sharing.of(self.gm, self.example_inputs) if writes else None
        )
        if keep is not None:
            keep(gm, split, compiled)

    def _trace(self, keep: Keep | None, keeper: Keeper | None = None) -> Run:
        gm = self.implementation.rewrite(self.gm, self.request)
        mode, fakes = aot.fake_inputs(gm, self.example_inputs)
        with internals.tracing_with(mode), internals.leaving_dual_level():
            return self._split_and_compile(gm, mode, fakes, keep, keeper)

    def _split_and_compile(
        self, gm: GraphModule, mode: Any, fakes: Sequence[Any], keep: Keep | None, keeper: Keeper | None
    ) -> Run:
        table = self.implementation.decompositions()
        apart = not aot.has_subclasses(gm) and aot.share_nothing(self.example_inputs)
        if not self.training:
            whole = self.implementation.keep_whole()
            try:
                traced = aot.trace_inference(gm, mode, fakes, self.example_inputs, table, whole)
            except aot.NeedsAutograd as why:
                self.placing.report.notes.append(f"traced by AOTAutograd: {why}")
                self.built = f"AOTAutograd traced it: {why}"
            else:
                static = {p: self.example_inputs[p] for p in self.request.static_inputs}
                keep = functools.partial(self._note_built, None if traced.mutates else keep, traced.mutates)
                compiled = WithoutAutocast(self.compiler.compile(traced.gm, "inference", static, keep, apart=apart))
                if not traced.mutates:
                    return self._as_captured() or compiled
                return eager_when_overlap_differs(
                    compiled, self.gm, self.example_inputs, strict=bool(self.request.strict)
                )

        else:
            self.built = _FOR_TRAINING

        def lower(part: GraphModule, inputs: Sequence[Any], missing: tuple[int, ...] | None) -> Run:
            since, keep = told_so_far(self.placing.report), None
            if missing is None:
                if keeper is not None:
                    keep = functools.partial(keeper.forward, since)
                return self.compiler.compile(part, "forward" if self.training else "inference", {}, keep, apart=apart)
            if keeper is not None:
                keep = functools.partial(keeper.backward, missing, since)
            # Most are compiled when they first run, far from the capture.
            with collecting(self.placing.report.seconds, "AOT"), noting_calls(self.placing.report):
                run = self.compiler.compile(part, "backward", {}, keep)
            if self.placing.is_told:  # most are compiled at their first run, after the rest was reported
                self.placing.tell()
            return run

        strict = bool(self.request.strict)
        # torch's C++ does not take all of them apart where sizes are symbolic
        whole = self.implementation.differentiate_whole() if mode.shape_env is None else frozenset()
        run = aot.through_autograd(
            gm, fakes, table, lower, training=self.training, strict=strict, whole=whole if self.training else ()
        )
        writes = internals.inputs_are_mutated()
        if keeper is not None and isinstance(run, Derivatives):
            keeper.made(run, writes=writes)
        if writes:
            both = ([p for v in values for p in internals.parts_of(v)] for values in (fakes, self.example_inputs))
            if len(set(map(aliasing.sharing, both))) > 1:
                raise GraphRefused(
                    "the graph changes inputs that overlap in memory, but the capture does not show this"
                )
        return self._guarded(run, writes)

    def _guarded(self, run: Run, writes: bool) -> Run:
        """Code traced by AOTAutograd, for inputs that overlap as they do now if it ``writes`` to some."""
        if not writes:
            return run
        if isinstance(run, Derivatives):
            run = run.short(run)
        return eager_when_overlap_differs(run, self.gm, self.example_inputs, strict=bool(self.request.strict))


def _shows(node: Node) -> bool:
    """Whether ``node`` makes no numbers: it shows memory, or asks for a size."""
    returns = internals.operator_schema(node.target).returns
    return aliasing.is_view(node) or not any("Tensor" in str(result.type) for result in returns)
