"""``torch.utils.checkpoint``: a region that the backward pass recomputes instead of keeping its tensors.

The graph calls :func:`checkpointed`.  If the graph runs unchanged, this really checkpoints.  A compiler that traces it
gets torch's own marks on the operators, which tell the split into forward and backward what to recompute.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.utils.checkpoint as torch_checkpoint
from torch.fx import GraphModule

from torchmux import torch_internals as ti

from .. import breaks
from ..breaks import GraphBreak
from ..handlers.table import handles
from ..values.base import MISSING, Value
from ..values.constants import ConstValue
from ..values.containers.sequences import TupleValue
from ..values.contexts import UNKNOWN_GRAD
from ..values.functions import PartialValue
from ..values.tensors import TensorValue
from .graph_effects import Watch
from .region import Region, examples, node_of, operator_name, rebind, run_operator
from .trees import flatten

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

_NO_CONTEXT = torch_checkpoint.noop_context_fn
_OWN = (
    "use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state",
    "respect_saved_tensors_hooks",
)  # fmt: skip


# --- what the graph calls -----------------------------------------------------------------------------------------


class Options(NamedTuple):
    """The arguments of ``checkpoint`` that are not the function's."""

    use_reentrant: bool
    preserve_rng_state: bool
    determinism_check: str
    early_stop: bool


def checkpointed(graph: Any, options: tuple, *captured: Any) -> tuple:
    """Run ``graph`` so that backward computes it again; a context function is in ``graph.meta``."""
    if ti.count_dispatch_modes():  # it is being traced
        return ti.tag_checkpoint()(graph, *captured)
    given = Options(*options)._asdict()
    if given["use_reentrant"]:
        del given["determinism_check"], given["early_stop"]
    elif CONTEXT in graph.meta:
        given["context_fn"] = graph.meta[CONTEXT]
    return torch_checkpoint.checkpoint(graph, *captured, **given)


CONTEXT = "_checkpoint_context_fn"  # where torch's operator looks for it


# --- tracing ------------------------------------------------------------------------------------------------------


@handles(torch_checkpoint.checkpoint)
def checkpoint(tr: Tracer, function: Value, *args: Value, **kwargs: Value) -> Value:
    """``torch.utils.checkpoint.checkpoint``."""
    own = {name: kwargs.pop(name) for name in _OWN if name in kwargs}
    options, context = _options(tr, own)
    if options.use_reentrant:
        if kwargs:
            raise GraphBreak(breaks.REGION, "checkpoint with use_reentrant=True and keyword arguments")
        if not any(isinstance(arg, TensorValue) and arg.example.requires_grad for arg in args):
            return _without_gradients(tr, function, list(args))
        if not all(isinstance(arg, (TensorValue, ConstValue)) for arg in args):
            raise GraphBreak(breaks.REGION, "checkpoint with use_reentrant=True and arguments that are not tensors")
    region = Region(tr, f"checkpointed {function.describe()}", pure=True, roots=[function, *args, *kwargs.values()])
    with region:
        if options.use_reentrant:
            tr.grad_enabled = UNKNOWN_GRAD  # off in forward, on when it is run again
        result = function.call(tr, list(args), kwargs)
        if options.use_reentrant:
            _check_results(result, args)
    escaping = region.made_in(result)
    graph = region.close([value.arg(tr) for value in escaping])
    _check_rerun(tr, region, graph, options)
    if context is not None:
        graph.meta[CONTEXT] = context
    outer = list(region.captures)
    args_ = (node_of(tr, graph, "checkpointed"), tuple(options), *outer)
    rebind(escaping, run_operator(tr, checkpointed, args_, (graph, tuple(options), *examples(outer))))
    return result


@handles(*ti.checkpoints_by_decorators())
def decorated(tr: Tracer, function: Value, args: Value, kwargs: Value, **own: Value) -> Value:
    """A call of a function that ``checkpoint(...)`` has decorated."""
    named = {key.const(tr): kwargs.getitem(tr, key) for key in kwargs.unpack(tr)}
    if not named.keys().isdisjoint(_OWN):
        raise GraphBreak(breaks.REGION, f"checkpoint of a function with arguments named as its own: {sorted(named)}")
    return checkpoint(tr, function, *args.unpack(tr), **named, **own)


def _check_rerun(tr: Tracer, region: Region, graph: GraphModule, options: Options) -> None:
    """Running it twice must change nothing more than running it once."""
    if not options.preserve_rng_state or any("norm" in operator_name(node) for node in graph.graph.nodes):
        watch = Watch()
        with tr.fake_mode, torch.no_grad(), watch:
            graph(*examples(list(region.captures)))
        if watch.writes:
            raise GraphBreak(
                breaks.REGION, f"{region.what} runs {watch.writes}, which changes its arguments in every run"
            )
        if watch.random and not options.preserve_rng_state:
            raise GraphBreak(breaks.REGION, f"{region.what} draws random numbers, which differ when it runs again")


def _options(tr: Tracer, given: dict[str, Value]) -> tuple[Options, Any]:
    reentrant = given.get("use_reentrant")
    if reentrant is None or reentrant.const(tr) is None:
        _warn_first(tr, warn_of_default, "checkpoint without use_reentrant")
        reentrant = ConstValue(True)
    if "debug" in given and given["debug"].truth(tr):
        raise GraphBreak(breaks.TORCH_STATE, "checkpoint with debug=True prints what it runs")
    if "respect_saved_tensors_hooks" in given and given["respect_saved_tensors_hooks"].const(tr) is not None:
        raise GraphBreak(breaks.REGION, "checkpoint that says whether hooks of saved tensors apply")
    context = _real_function(tr, given["context_fn"]) if "context_fn" in given else _NO_CONTEXT
    check = given["determinism_check"].const(tr) if "determinism_check" in given else "default"
    options = Options(
        use_reentrant=reentrant.truth(tr),
        preserve_rng_state="preserve_rng_state" not in given or given["preserve_rng_state"].truth(tr),
        determinism_check=check,
        early_stop="early_stop" not in given or given["early_stop"].truth(tr),
    )
    return options, None if context is _NO_CONTEXT else context


def _warn_first(tr: Tracer, warn: Callable[[], None], what: str) -> None:
    """The frame issues torch's warning before the graph runs, so nothing may have been changed before it."""
    if tr.effects or tr.writes_inputs():
        raise GraphBreak(breaks.TORCH_STATE, f"{what} issues a warning")
    if warn not in tr.calls_first:
        tr.calls_first.append(warn)


def warn_of_default() -> None:
    """What ``checkpoint`` says without ``use_reentrant``: it does so before it looks at the other arguments."""
    with contextlib.suppress(ValueError):
        torch_checkpoint.checkpoint(print, unexpected=True)


def _real_function(tr: Tracer, value: Value) -> Any:
    """The function itself, which torch calls when it checkpoints: it is not traced."""
    if isinstance(value, PartialValue):
        args = [_real_function(tr, arg) for arg in value.args]
        return functools.partial(
            _real_function(tr, value.function), *args, **{k: _real_function(tr, v) for k, v in value.kwargs.items()}
        )
    real = value.real()
    if real is not MISSING:
        if value.source is not None and not value.is_const():
            tr.guards.is_object(value.source, real)
        return real
    return value.const(tr)


def _check_results(result: Value, args: tuple[Value, ...]) -> None:
    """Of the old way, autograd sees the results that are tensors or in one tuple, each as a new tensor."""
    for leaf in result._items if isinstance(result, TupleValue) else [result]:
        if not isinstance(leaf, TensorValue) or leaf.is_input or leaf in args:
            what = leaf.describe() if isinstance(leaf, Value) else "something else"
            raise GraphBreak(breaks.REGION, f"checkpoint with use_reentrant=True that returns {what}")


def _without_gradients(tr: Tracer, function: Value, args: list[Value]) -> Value:
    """The old way with no argument that requires gradients: results have none, and nothing runs again."""
    if tr.grad_enabled is UNKNOWN_GRAD or tr.region is not None:
        raise GraphBreak(breaks.REGION, "checkpoint with use_reentrant=True and no argument that requires gradients")
    _warn_first(tr, warn_of_no_gradients, "checkpoint with no argument that requires gradients")
    before = tr.grad_enabled
    tr.set_grad(False)
    result = function.call(tr, args, {})
    tr.set_grad(before)
    for leaf in flatten(tr, result)[0]:
        if not isinstance(leaf, TensorValue) or leaf.is_input or leaf in args or leaf.example.requires_grad:
            raise GraphBreak(breaks.REGION, f"checkpoint with use_reentrant=True that returns {leaf.describe()}")
    return result


def warn_of_no_gradients() -> None:
    """What ``checkpoint`` says in such a call."""
    torch_checkpoint.check_backward_validity(())
