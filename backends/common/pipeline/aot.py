"""From a captured torch graph to functional ATen graphs.

Inference uses ``make_fx`` below autograd.  It costs a third of AOTAutograd, and imports neither ``torch._dynamo`` nor
Inductor while the frontend's stand-ins answer for them, unless sizes are symbolic.
Gradients, and the few inference graphs that combine mutation and aliasing, go through torch's AOTAutograd, which
handles all of these rules.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta
from torch.multiprocessing.reductions import StorageWeakRef

from torchmux import torch_internals as internals
from torchmux.torch_internals.symbolic_tensors import SymbolicTensors

from ..max_pooling import offsets_saved
from ..recurrent import recurrent_as_in_eager
from . import aliasing, overlap, simplify
from .autocast.inside import CastingInside, CastingModule, may_cast
from .decompose import (
    Table,
    checks,
    corrections,
    differentiated_whole,
    drop_dead_code,
    formulas_as_in_eager,
    kept_whole,
    resized_as_in_eager,
)
from .derivatives import Derivatives, Joint, Recorder
from .saved import bases_saved, draws_kept, repeated_once, signs_saved, without_detaching
from .tangents import Backward, Tangents

# Called with a functional ATen graph, its fake inputs and whether it is the backward graph; returns the code for it.
Lower = Callable[[GraphModule, Sequence[Any], tuple[int, ...] | None], Callable[..., Sequence[Any]]]
"""Compiles a graph for inputs; the last is None for a forward graph, and the tangents a backward graph lacks."""


VIEW_OF_SUBCLASS = "a result that consists of other tensors is a view of an input, or of another result"


class NeedsAutograd(Exception):
    """The short way cannot be right for this graph; the message says why."""


class StaysInTorch(Exception):
    """No functional graph can be right for this graph; the message says why."""


@dataclass
class Traced:
    """A functional ATen graph; ``mutates`` if it ends with ``copy_`` nodes that write to inputs."""

    gm: GraphModule
    mutates: bool


def fake_inputs(gm: GraphModule, example_inputs: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The fake mode of ``gm`` and its fake inputs: FakeTensors, SymInts and plain numbers.

    They are what the capture left in ``meta["example_value"]``; a graph that has none gets static fakes made from
    ``example_inputs``.
    """
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    values = [n.meta.get("example_value", example) for n, example in zip(placeholders, example_inputs, strict=True)]
    modes = [part.fake_mode for v in values for part in internals.parts_of(v) if internals.is_fake(part)]
    mode = internals.correct(modes[0] if modes else internals.active_fake_mode() or internals.new_fake_mode())
    return mode, [
        v
        if not isinstance(v, torch.Tensor) or any(map(internals.is_fake, internals.parts_of(v)))
        else mode.from_tensor(v)
        for v in values
    ]


def trace_inference(
    gm: GraphModule, mode: Any, fakes: Sequence[Any], example_inputs: Sequence[Any], table: Table, whole: frozenset[Any]
) -> Traced:
    """Trace a captured graph that needs no gradient.

    Raises:
        NeedsAutograd: mutation and aliasing meet, and only AOTAutograd gets it right.
        StaysInTorch: not even AOTAutograd does.
    """
    if has_subclasses(gm):
        raise NeedsAutograd("some tensors consist of others")
    if internals.has_dual_level(gm.graph):
        raise NeedsAutograd("forward derivatives are computed in it")
    table = {**{op: function for op, function in table.items() if op not in whole}, **corrections(), **checks()}
    with tracing(mode):
        # Aliases, so that an operator that changes a tensor's sizes does not change the capture's own tensors.
        inputs = [_alias(f) for f in fakes]
    shapes = [_geometry(f) for f in inputs]
    results: list[Any] = []

    def run(*args: Any) -> Any:
        results[:] = CastingInside(gm).run(*args)
        return tuple(results)

    with tracing(mode), kept_whole(whole), recurrent_as_in_eager(gm, differentiated=False):
        traced = make_fx(run, decomposition_table=table)(*inputs)
    simplify.drop_detach_in_place(traced.graph)
    if not any(aliasing.writes(n) for n in traced.graph.nodes):
        return Traced(traced, mutates=False)

    if overlap.is_written_to(traced):
        raise StaysInTorch(overlap.REASON)
    if [_geometry(f) for f in inputs] != shapes:
        raise NeedsAutograd("an input's sizes, strides or storage are changed in place")
    shown = aliasing.returned_inputs(traced.graph)
    if _any_alias(inputs, [result for at, result in enumerate(results) if at not in shown]):
        raise NeedsAutograd("the graph changes tensors in place and its outputs share memory")

    with tracing(mode), kept_whole(whole):
        inputs = [_alias(f) for f in fakes]
        again = _KeepingWhole(traced, whole)

        def computed(*args: Any) -> Any:
            return tuple(result for at, result in enumerate(again.run(*args)) if at not in shown)

        functional = torch.func.functionalize(computed, remove="mutations")
        rewritten = make_fx(functional, decomposition_table=table)(*inputs)
        try:
            aliasing.lay_out_results(rewritten.graph, [result for at, result in enumerate(results) if at not in shown])
        except LookupError as error:
            raise StaysInTorch(str(error)) from None
        aliasing.return_inputs(rewritten.graph, shown)
        rewritten.recompile()
    drop_dead_code(rewritten.graph)
    written = [n for n in rewritten.graph.nodes if aliasing.writes(n)]
    if not all(n.target is torch.ops.aten.copy_.default and n.args[0].op == "placeholder" for n in written):
        raise NeedsAutograd("an operator that changes its arguments has no functional form")
    if written and not share_nothing(example_inputs):
        raise NeedsAutograd("the graph changes an input in place and inputs share memory")
    return Traced(rewritten, mutates=bool(written))


class _KeepingWhole(Interpreter):
    """Runs a graph under functionalization, which would take composite operators apart."""

    def __init__(self, gm: GraphModule, whole: frozenset[Any]) -> None:
        super().__init__(gm)
        self.whole = whole

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target in self.whole:
            return internals.beneath_functionalization(target, args, kwargs)
        return super().call_function(target, args, kwargs)


def through_autograd(
    gm: GraphModule,
    fakes: Sequence[Any],
    table: Table,
    lower: Lower,
    *,
    training: bool,
    strict: bool = False,
    whole: Iterable[Any] = (),
) -> Callable[..., Sequence[Any]]:
    """Compile ``gm`` through AOTAutograd: split into forward and backward, recomputation by minimum cut.

    Returns a function of the graph's flat inputs that takes part in autograd.  The graphs reach ``lower`` decomposed
    by ``table``, but for the composite ``whole``; memory of the forward pass is never given away, so that backward may
    run twice where eager may.
    It must run in the tracing context of the fake inputs; :func:`internals.inputs_are_mutated` then tells the rest.

    Raises:
        StaysInTorch: AOTAutograd would get it wrong.
    """
    if overlap.may_be_written_to(gm, fakes) and _writes_to_overlap(gm, fakes):
        raise StaysInTorch(overlap.REASON)
    if returns_views_of_subclasses(gm):
        raise StaysInTorch(VIEW_OF_SUBCLASS)
    if overlap.writes_behind_autograd(gm):
        raise StaysInTorch(overlap.BEHIND_AUTOGRAD)
    if (reason := overlap.returns_parts_of_written_inputs(gm)) is not None:
        raise StaysInTorch(reason)
    settings: dict[str, Any] = {"training": training, "strict": strict, "whole": whole}
    if training:  # of inference, only what the short way cannot do comes here
        with contextlib.suppress(_ReturnsWhatItWrites):
            return _through_autograd(gm, fakes, table, lower, writes_inputs=True, **settings)
    return _through_autograd(gm, fakes, table, lower, writes_inputs=False, **settings)


def _writes_to_overlap(gm: GraphModule, fakes: Sequence[Any]) -> bool:
    """Whether an operator of the graph writes to a tensor that overlaps itself, or may do so where that is not seen.

    Versions do not tell: what is expanded after a write has the version of its base.
    """
    mode = fake_inputs(gm, fakes)[0]

    def run(*args: Any) -> Any:
        return tuple(CastingInside(gm).run(*args))

    try:
        with tracing(mode):
            traced = make_fx(run)(*(_alias(f) for f in fakes))
    except Exception:
        return True
    return any(traced.children()) or overlap.is_written_to(traced)  # graphs inside of it are not looked into


class _ReturnsWhatItWrites(Exception):
    """The forward graph may not write to inputs."""


def _through_autograd(
    gm: GraphModule,
    fakes: Sequence[Any],
    table: Table,
    lower: Lower,
    *,
    training: bool,
    strict: bool,
    whole: Iterable[Any],
    writes_inputs: bool,
) -> Callable[..., Sequence[Any]]:
    """See :func:`through_autograd`; whether the forward graph writes to inputs itself where autograd does not mind.

    Otherwise it returns their new contents, and torch copies each.

    Raises:
        _ReturnsWhatItWrites: only torch's copies can be right for this graph.
        StaysInTorch: see :func:`through_autograd`.
    """
    aot = internals.aot_autograd()
    tangents, joint = Tangents(), Joint()
    split = repeated_once(internals.min_cut_partition())
    if table:  # else operators run as they are, and more of them take longer
        split = offsets_saved(signs_saved(split))
    split = without_detaching(split)

    def compiler(backward: bool) -> Callable[[GraphModule, Sequence[Any]], Any]:
        def compile_one(part: GraphModule, inputs: Sequence[Any]) -> Any:
            if not backward:
                if training:
                    _keep_old_contents(part)
                if writes_inputs and _returns_what_it_writes(part):
                    raise _ReturnsWhatItWrites
                run = lower(part, inputs, None)
                return _boxed(run, run)
            back = Backward.of_graph(
                part, tangents, internals.not_captured(lambda gm, missing: lower(gm, inputs, missing))
            )
            return _boxed(back.boxed, back.run, emptying=True)

        # Backward is compiled when it first runs, which may be in the middle of a program that is captured.
        return internals.not_captured(compile_one)

    with (
        torch.set_grad_enabled(training),
        # Programs leave a region of autocast before backward, which eager then computes in the dtypes it finds.
        internals.functorch_config().patch(
            donated_buffer=False,
            backward_pass_autocast="off",
            cse=False,  # which imports all of Inductor; see repeated_once
            # AOTAutograd copies a gradient into the strides of its result, where elements of windows overwrite others.
            guess_tangent_strides_as_outputs=not overlap.may_be_returned(gm),
        ),
        internals.draws_have_effects(),
        internals.floats_stay(),
        internals.modules_without_code(),
        internals.graphs_are_not_printed(),
        internals.checks_without_tokens(),
        internals.bases_among_results(),
        recurrent_as_in_eager(gm, differentiated=True),
        SymbolicTensors(),
        differentiated_whole(whole),
        resized_as_in_eager(),
        formulas_as_in_eager(),
    ):
        compiled = aot(
            CastingModule(gm) if may_cast(gm) else gm,
            list(fakes),
            fw_compiler=compiler(False),
            bw_compiler=compiler(True),
            inference_compiler=compiler(False),
            partition_fn=tangents.counted(joint.noticed(_with_real_zeros(draws_kept(bases_saved(split))))),
            decompositions={**table, **checks()},
            keep_inference_input_mutations=writes_inputs,
        )
        internals.keep_saved_buffers()
        if joint.is_known:
            recorder = Recorder.of_aot(tangents.traced)
            tangents.traced = ()
            return Derivatives(compiled, gm, fakes, joint, tangents, recorder, strict=strict)
        return tangents.watched(compiled)


def _with_real_zeros(split: Callable[..., Any]) -> Callable[..., Any]:
    """The partitioner ``split``, wrapped so that it computes those zeros of the joint graph that have no memory.

    Forward derivatives make them where no trace sees it.
    """

    def computing(joint: GraphModule, *args: Any, **settings: Any) -> Any:
        for node in joint.graph.find_nodes(op="get_attr"):
            constant = getattr(joint, str(node.target), None)
            if not isinstance(constant, torch.Tensor) or not constant._is_zerotensor():
                continue
            with joint.graph.inserting_before(node):
                given = {"dtype": constant.dtype, "device": constant.device}
                zeros = joint.graph.call_function(torch.ops.aten.zeros.default, (list(constant.shape),), given)
            zeros.meta = node.meta
            node.replace_all_uses_with(zeros)
            joint.graph.erase_node(node)
        return split(joint, *args, **settings)

    return computing


def _keep_old_contents(forward: GraphModule) -> None:
    """Let backward have copies of those inputs that are written to after the forward graph has read them.

    The trace takes a program's own copies away where nothing is seen to write.

    Raises:
        StaysInTorch: autograd does not see the write, so eager may have kept the input itself, or a copy.
    """
    written, results = internals.written_inputs(), internals.count_of_results()
    output = forward.graph.output_node()
    saved = [v for v in output.args[0][results:] if isinstance(v, Node)]
    if not written or not saved:
        return
    placeholders, root = forward.graph.find_nodes(op="placeholder"), aliasing.roots(forward.graph)
    contents = {placeholders[position]: hidden for position, hidden in written.items()}
    copies: dict[Node, Node] = {}
    for node in saved:
        if root[node] not in contents or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        if contents[root[node]]:
            raise StaysInTorch("its backward pass reads an input to which it writes unseen by autograd")
        with forward.graph.inserting_after(node):
            copies[node] = forward.graph.call_function(torch.ops.aten.clone.default, (node,))
        copies[node].meta = {"val": node.meta["val"].clone()}
    if copies:
        kept = [copies.get(v, v) for v in output.args[0][results:]]
        output.args = ((*output.args[0][:results], *kept),)
        forward.recompile()


def _returns_what_it_writes(forward: GraphModule) -> bool:
    """Whether a forward graph returns an input that it writes to, or writes to one by another operator than a copy."""
    written = [n for n in forward.graph.nodes if aliasing.writes(n)]
    root = aliasing.roots(forward.graph)
    returned = {root[n] for n in forward.graph.output_node().all_input_nodes}
    copies = all(n.target is torch.ops.aten.copy_.default for n in written)
    return not copies or not returned.isdisjoint(root[n.args[0]] for n in written)


def has_subclasses(gm: GraphModule) -> bool:
    """Whether some tensors of a captured graph consist of others, as distributed ones do."""
    values = (node.meta.get("example_value") for node in gm.graph.nodes)
    return any(isinstance(v, torch.Tensor) and not internals.is_fake(v) and internals.is_wrapper(v) for v in values)


def returns_views_of_subclasses(gm: GraphModule) -> bool:
    """Whether a result that consists of others shares memory with an input or another result.

    AOTAutograd makes such a result from the sizes and strides of the whole, which many classes do not understand.
    """
    results = [n.meta.get("example_value") for n in gm.graph.output_node().all_input_nodes]
    inputs = [n.meta.get("example_value") for n in gm.graph.find_nodes(op="placeholder")]
    storages = [StorageWeakRef(v.untyped_storage()) for v in (*inputs, *results) if isinstance(v, torch.Tensor)]
    wrappers = (v for v in results if isinstance(v, torch.Tensor) and not internals.is_fake(v))
    return any(storages.count(StorageWeakRef(v.untyped_storage())) > 1 for v in wrappers)


def changes_grad_mode(gm: GraphModule) -> bool:
    """Whether the graph switches gradients on: then even a call under ``no_grad`` may record some."""
    return any(
        n.op == "call_function" and n.target is internals.set_grad_enabled and n.args and n.args[0] is True
        for n in gm.graph.nodes
    )


@contextlib.contextmanager
def tracing(mode: Any) -> Any:
    """What ``make_fx`` works in here: below autograd, on fake tensors of ``mode``, with what nodes carry."""
    # Autocast is part of the capture: what is active around the call is active around this, and its casts are traced.
    # Operators that C++ takes apart, such as a view inside of a decomposition, know symbolic sizes in Python alone.
    symbolic = internals.python_dispatcher() if mode.shape_env is not None else contextlib.nullcontext()
    with mode, torch.no_grad(), preserve_node_meta(), internals.below_autograd(), SymbolicTensors(), symbolic:
        yield


def _alias(fake: Any) -> Any:
    if not isinstance(fake, torch.Tensor):
        return fake
    alias = fake.detach()
    internals.keep_number(fake, alias)
    return alias


def _geometry(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return None
    return tuple(value.shape), tuple(value.stride()), StorageWeakRef(value.untyped_storage())


def share_nothing(values: Sequence[Any]) -> bool:
    """Whether no two of these tensors share a storage."""
    return aliasing.sharing(values) == tuple(range(sum(isinstance(v, torch.Tensor) for v in values)))


def _any_alias(inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """Whether an output shares memory with an input or with another output."""
    seen = {StorageWeakRef(t.untyped_storage()) for t in inputs if isinstance(t, torch.Tensor)}
    for output in {id(t): t for t in outputs if isinstance(t, torch.Tensor)}.values():
        storage = StorageWeakRef(output.untyped_storage())
        if storage in seen:
            return True
        seen.add(storage)
    return False


def _boxed(compiled: Any, direct: Any, *, emptying: bool = False) -> Callable[[list[Any]], Sequence[Any]]:
    """AOTAutograd's calling convention: one list, emptied by the callee so that memory is freed as it goes.

    ``compiled`` takes such a list itself if it is ``emptying``.  ``direct`` is what :class:`internals.ShortPasses`
    calls instead.
    """

    def call(args: list[Any]) -> Sequence[Any]:
        taken = args[:]
        args.clear()
        found: Sequence[Any] = compiled(taken) if emptying else compiled(*taken)
        return found

    call._boxed_call = True  # type: ignore[attr-defined]
    call.direct = direct  # type: ignore[attr-defined]
    return internals.not_captured(call)
