"""AOTAutograd, which splits forward from backward.  Importing its parts imports ``torch._dynamo``."""

from __future__ import annotations

import contextlib
import copy
import logging
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch


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


def draws_have_effects() -> Any:
    """Context manager under which torch's traces keep random draws that nothing uses.

    Without it, dead code goes within a tracing context as Inductor wants it, whose numbers are other ones anyway.
    """
    from torch._inductor import config

    return config.patch(fallback_random=True)


def modules_without_code() -> Any:
    """Context manager under which torch's traces and partitioners make graph modules whose code is written when they
    are first called.

    Most are read and changed, and never run; each change of a large one would write its code again.
    """
    from torch.fx._lazy_graph_module import _use_lazy_graph_module

    return _use_lazy_graph_module(True)


def module_without_code(root: Any, graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """A graph module as :func:`modules_without_code` makes them."""
    from torch.fx._lazy_graph_module import _LazyGraphModule

    return _LazyGraphModule(root, graph)


@contextlib.contextmanager
def graphs_are_not_printed() -> Iterator[None]:
    """Context manager under which AOTAutograd writes its graphs out only if ``TORCH_LOGS`` or ``TORCH_TRACE`` ask for
    them; otherwise it makes texts of them that nobody reads."""
    from torch._functorch._aot_autograd import graph_compile
    from torch._logging._internal import trace_log

    logs: list[Any] = [getattr(graph_compile, name, None) for name in ("aot_joint_log", "aot_graphs_log")]
    printers = {name: getattr(graph_compile, name, None) for name in ("_log_joint_graph", "_log_fw_bw_graphs")}
    # Without TORCH_TRACE there is a handler without a folder, which goes at the first message.
    traced = any(getattr(handler, "root_dir", "") is not None for handler in trace_log.handlers)
    elsewhere = None in logs or None in printers.values()  # a version of torch that has them in another module
    if elsewhere or traced or any(log.isEnabledFor(logging.INFO) for log in logs):
        yield
        return
    graph_compile._log_joint_graph = lambda *args, **settings: None
    graph_compile._log_fw_bw_graphs = lambda *args, **settings: (None, None)
    try:
        yield
    finally:
        for name, printer in printers.items():
            setattr(graph_compile, name, printer)


@contextlib.contextmanager
def floats_stay() -> Iterator[None]:
    """Context manager under which AOTAutograd leaves the floats in a graph to its compilers.

    A pass of its own makes tensors of them, and asks for a constant wherever an operator takes no tensor in the place
    of a number, which is another compilation for each value.
    """
    from torch._functorch._aot_autograd import graph_compile

    # The variable of the environment that turns it off is read once in a process, which torch's own compiler shares.
    before = getattr(graph_compile, "tensorify_python_scalars", None)
    if before is None:  # a version of torch that has it elsewhere
        yield
        return
    graph_compile.tensorify_python_scalars = lambda *args: None
    try:
        yield
    finally:
        graph_compile.tensorify_python_scalars = before


@contextlib.contextmanager
def checks_without_tokens() -> Iterator[None]:
    """Context manager under which a trace calls ``_linalg_check_errors`` as it is.

    AOTAutograd threads a tensor through its calls, so that they stay and keep their order.  That takes a call several
    times as long as the linear algebra that it checks.  Who uses this keeps the calls where they are.
    """
    from torch._library import simple_registry

    found: Any = getattr(simple_registry.singleton.find("aten::_linalg_check_errors"), "effect", None)
    before = getattr(found, "effect", None)
    if before is None:  # a version of torch that makes no effect of it
        yield
        return
    found.register(None)
    try:
        yield
    finally:
        found.register(before)


@contextlib.contextmanager
def bases_among_results() -> Iterator[None]:
    """Context manager under which AOTAutograd remakes what shows a result from that result.

    Where inputs share memory and one of them is written, AOTAutograd counts inputs anew.  It then takes the number of a
    result for that of an input, too, and shows another result.
    """
    aot_autograd()  # whose parts cannot be imported first
    from torch._functorch._aot_autograd import runtime_wrappers
    from torch._functorch._aot_autograd.schemas import OutputType

    before: Any = getattr(runtime_wrappers, "create_synthetic_base_metadata", None)
    if before is None:  # a version of torch that has it elsewhere
        yield
        return
    of_inputs = (OutputType.alias_of_input, OutputType.is_input)

    def counted(told: Any, *args: Any, **settings: Any) -> Any:
        hidden = copy.copy(told)
        hidden.output_info = [o if o.output_type in of_inputs else replace(o, base_idx=None) for o in told.output_info]
        made, indices = before(hidden, *args, **settings)
        for at, result in enumerate(told.output_info):
            if result.output_type not in of_inputs:
                made.output_info[at] = replace(made.output_info[at], base_idx=result.base_idx)
        return made, indices

    runtime_wrappers.create_synthetic_base_metadata = counted
    try:
        yield
    finally:
        runtime_wrappers.create_synthetic_base_metadata = before


def inputs_are_mutated() -> bool:
    """Whether the graph that AOTAutograd compiled last in this tracing context writes to its inputs."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    return metadata is not None and any(i.mutates_data or i.mutates_metadata for i in metadata.input_info)


def written_inputs() -> dict[int, bool]:
    """The inputs to which the graph that AOTAutograd compiles in this tracing context writes, by position.

    True for those of which autograd does not see the write, as one to ``x.data``.
    """
    from torch._guards import TracingContext

    known = TracingContext.get().fw_metadata.input_info
    return {i: info.mutations_hidden_from_autograd for i, info in enumerate(known) if info.mutates_data}


def count_of_results() -> int:
    """How many results of that graph's forward pass are not for its backward pass; these come after them."""
    from torch._guards import TracingContext

    return TracingContext.get().fw_metadata.num_forward_returns


def keep_saved_buffers() -> None:
    """Say of the graph that AOTAutograd compiled last that backward gives no memory away.

    With the setting off it says nothing, which a backward that is run with ``retain_graph`` takes for the contrary.
    """
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []
    if (function := compiled_function()) is not None:
        function.metadata.bw_donated_idxs = []


def floats_needed(error: BaseException) -> frozenset[str] | None:
    """The names of the symbolic floats that AOTAutograd needs as constants, if that is what ``error`` says."""
    state = sys.modules.get("torch._dynamo.symbolic_convert")
    if state is None or type(error).__name__ != "TensorifyScalarRestartAnalysis":
        return None
    names = frozenset(state.TensorifyState.force_specializations)
    state.TensorifyState.clear()
    return names


def ask_torch_for_constants(symbols: frozenset[str]) -> None:
    """Have torch's own frontend, if it is capturing, start again with these floats as constants that it guards.

    Raises:
        TensorifyScalarRestartAnalysis: torch's frontend catches it.
    """
    from torch._guards import CompileContext

    dynamo = sys.modules.get("torch._dynamo.symbolic_convert")
    if dynamo is None or CompileContext.current_compile_id() is None:
        return
    if symbols <= dynamo.TensorifyState.force_specializations:
        return  # they were constants in this attempt: another one would end here too
    for symbol in symbols:
        dynamo.TensorifyState.specialize(symbol)
    raise dynamo.TensorifyScalarRestartAnalysis


def compiled_function() -> Any:
    """The ``autograd.Function`` that AOTAutograd made last in this tracing context; None for an inference graph."""
    from torch._guards import TracingContext
    from torch.autograd import Function

    context = TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return None
    for cls in reversed(Function.__subclasses__()):
        known, subclasses = vars(cls).get("metadata"), vars(cls).get("maybe_subclass_metadata")
        # where tensors consist of others, the context has what is known of those
        if known is not None and context.fw_metadata in (known, getattr(subclasses, "fw_metadata", None)):
            return cls
    return None


def has_subclasses(function: Any) -> bool:
    """Whether the function of :func:`compiled_function` takes tensors that consist of others, or returns some."""
    return function.maybe_subclass_metadata is not None


def _has_tangent(info: Any) -> bool:
    """Whether backward takes a gradient of a result; torch 2.11 has no name of its own for this."""
    return bool(getattr(info, "requires_grad_for_backward", info.requires_grad))


class ExpectedGradients:
    """Which gradients the function of :func:`compiled_function` takes, if tensors consist of others."""

    def __init__(self, function: Any) -> None:
        known = function.metadata
        first = known.num_mutated_inp_runtime_indices
        wanted = [first + i for i, info in enumerate(known.output_info) if _has_tangent(info)]
        self._known = None
        metas = known.subclass_tangent_meta
        if not first and not known.num_intermediate_bases and len(metas) == len(wanted):
            self._known = list(zip(wanted, metas, strict=True))

    def accepts(self, gradients: Any) -> bool:
        """Whether each gradient is what the trace has taken for granted, or is turned into that by its class."""
        if self._known is None:
            return True
        return all(self._fits(gradients[at], meta) for at, meta in self._known)

    @staticmethod
    def _fits(gradient: Any, meta: Any) -> bool:
        expected = getattr(meta, "original_subclass_type", None) or torch.Tensor
        if type(gradient) is not expected:
            # a tensor whose communication has not ended becomes a plain one
            return expected is torch.Tensor and type(gradient).__name__ == "AsyncCollectiveTensor"
        if expected is torch.Tensor or hasattr(gradient, "__coerce_same_metadata_as_tangent__"):
            return True
        return bool(gradient.__tensor_flatten__()[1] == meta.meta)

    def without_made_up(self, gradients: Any) -> list[Any]:
        """The gradients, without the plain zeros that autograd has put in the place of a missing subclass."""
        found = list(gradients)
        for at, meta in self._known or ():
            if getattr(meta, "original_subclass_type", None) is not None and type(found[at]) is torch.Tensor:
                found[at] = None
        return found


@dataclass(frozen=True)
class Returns:
    """What the function of :func:`compiled_function` returns, and so has gradients of: positions in its results.

    They are the new contents of changed inputs, the results of the graph, and tensors of which some results are views.
    """

    inputs_changed: frozenset[int]
    first_result: int
    first_base: int
    view_of_base: Mapping[int, int]

    @classmethod
    def of(cls, function: Any) -> Returns:
        known = function.metadata
        first = known.num_mutated_inp_runtime_indices
        views = ("alias_of_intermediate", "alias_of_intermediate_save_as_output")
        kinds = [(p, info.output_type.name, info.base_idx) for p, info in enumerate(known.output_info)]
        return cls(
            frozenset(i for i, info in enumerate(known.input_info) if info.mutates_data),
            first,
            first + known.num_outputs,
            {base: position for position, kind, base in kinds if kind in views},
        )


def keeps_graph() -> bool:
    """Whether the backward pass that runs in this thread may run again (``retain_graph``)."""
    return torch._C._autograd._get_current_graph_task_keep_graph()
