"""Runs the short form of a backend: a function ``(gm, example_inputs, **options) -> callable``."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from torchmux.stages import collecting

from .contract import STATIC
from .errors import CompilationFailed, FallbackRefused, GraphRefused
from .options import TorchOptions, as_keywords
from .report import GraphReport, Placement, counts_in_words, libraries_in_words, output_code_of, place_all
from .spec import ANY, BackendSpec, CompiledGraph, CompileRequest

log = logging.getLogger("torchmux.fallback")


class PlainGraph:
    """The callable that a plain function returned, with the report of its compilation."""

    __slots__ = ("function", "report")

    def __init__(self, function: Callable[..., Sequence[Any]], report: GraphReport) -> None:
        self.function = function
        self.report = report

    @property
    def built(self) -> Any:
        """The graph, if it runs as it is; otherwise why it cannot be told what it consists of."""
        from torch.fx import GraphModule

        graph = getattr(self.function, "__self__", self.function)
        if isinstance(graph, GraphModule) and self.function in (graph, graph.forward):
            return graph
        return f"{self.report.backend} is a plain function, which does not tell what it has compiled"

    def __call__(self, *args: Any) -> Sequence[Any]:
        return self.function(*args)


strict: ContextVar[bool] = ContextVar("strict", default=False)
"""Whether what is being compiled may leave no call to torch; for functions whose code holds for some calls only."""


@contextlib.contextmanager
def _strictly(asked: bool) -> Iterator[None]:
    token = strict.set(asked)
    try:
        yield
    finally:
        strict.reset(token)


def compile_plain(
    function: Callable[..., Any],
    spec: BackendSpec,
    gm: Any,
    example_inputs: Sequence[Any],
    request: CompileRequest,
    *,
    training: bool,
) -> CompiledGraph:
    """Hand the whole graph to ``function``, or to eager if ``spec`` or the function says that it cannot take it.

    Raises:
        FallbackRefused: eager would run it, but the request is strict.
        CompilationFailed: what ``function`` returned cannot be called.
    """
    report = GraphReport(backend=spec.name, phase="training" if training else "inference", partitions=1)
    report.placements = place_all(gm.graph, spec.name)  # before the call: a backend may rewrite the graph in place
    try:
        if (refusal := _refusal(spec, example_inputs, training)) is not None:
            raise GraphRefused(refusal)
        _mark_static(gm, request)
        with collecting(report.seconds, "compiler"), _strictly(bool(request.strict)):
            compiled = function(gm, list(example_inputs), **keywords_of(request))
    except GraphRefused as refused:
        return left_to_torch(spec, gm, request, refused, training=training)
    if not callable(compiled):
        raise CompilationFailed(
            f"{spec.name} returned {compiled!r} ({type(compiled).__name__}) for a graph. A backend must return a "
            "callable that takes the graph's inputs and returns the tuple of its outputs."
        )
    told = getattr(compiled, "report", None)
    if isinstance(told, GraphReport):  # its own report knows better what ran where
        _check_strict(told, request)
        return compiled
    report.placements = _with_kinds(report.placements, spec, getattr(compiled, "library_calls", None))
    _check_strict(report, request)
    report.output_code = output_code_of(compiled)
    return PlainGraph(_without_hooks(compiled), report)


def _without_hooks(compiled: Any) -> Any:
    """What runs a graph that was returned as it is: torch's global hooks are for the modules of the program."""
    from torch.fx import GraphModule

    if type(compiled).__mro__[1:2] != (GraphModule,):  # each has a class of its own
        return compiled
    has_own = any(compiled.__dict__[table] for table in ("_forward_hooks", "_forward_pre_hooks"))
    has_own |= any(compiled.__dict__[table] for table in ("_backward_hooks", "_backward_pre_hooks"))
    return compiled if has_own else compiled.forward


def _mark_static(gm: Any, request: CompileRequest) -> None:
    """Tell a function, which is not given the request, which inputs are parameters and buffers."""
    static = frozenset(request.static_inputs)
    for position, node in enumerate(n for n in gm.graph.nodes if n.op == "placeholder"):
        if position in static:
            node.meta[STATIC] = True


def _with_kinds(placements: list[Placement], spec: BackendSpec, library_calls: Any) -> list[Placement]:
    """``placements`` on the backend, with what it tells of its own code and of libraries."""
    return [dataclasses.replace(p, **kind_told(p.node, spec, library_calls)) for p in placements]


def kind_told(node: str, spec: BackendSpec, library_calls: Any) -> dict[str, Any]:
    """``kind`` and ``library`` of the placement of a node, by what the spec or the compiled code tells of it."""
    library = spec.library or (library_calls or {}).get(node)
    if library:
        return {"kind": "library", "library": library}
    return {"kind": "untold" if library_calls is None else "own"}


def _check_strict(report: GraphReport, request: CompileRequest) -> None:
    forbidden = report.forbidden(request.strict)
    if forbidden:
        libraries = libraries_in_words(forbidden)
        raise FallbackRefused(
            f"strict={request.strict!r}, and {report.backend} would run {len(forbidden)} of {len(report.placements)} "
            f"operators otherwise: {counts_in_words(report.kinds)}{f' ({libraries})' if libraries else ''}. Call with "
            "strict=True to allow library kernels, or with strict=False to allow torch as well."
        )


def left_to_torch(
    spec: BackendSpec, gm: Any, request: CompileRequest, refused: GraphRefused, *, training: bool
) -> CompiledGraph:
    """A graph that a backend refused as a whole, run by eager.

    Raises:
        FallbackRefused: the request is strict.
    """
    if request.strict:
        raise FallbackRefused(
            f"{spec.name} cannot run this graph, and strict={request.strict!r} forbids a fallback: {refused}. "
            "Without strict, eager runs it; torchmux.backends() shows what each backend accepts."
        ) from None
    report = GraphReport(backend=spec.name, phase="training" if training else "inference")
    report.placements = place_all(gm.graph, "eager", str(refused), "torch")
    log.warning("%s: torch runs a whole graph of %d operators: %s", spec.name, len(report.placements), refused)
    return PlainGraph(gm, report)


def keywords_of(request: CompileRequest) -> dict[str, Any]:
    """The options and the mode as a plain function gets them."""
    if not isinstance(request.options, TorchOptions):
        return as_keywords(request.options)
    # As torch.compile does: the two keywords are omitted if the user gave none.
    keywords: dict[str, Any] = {}
    if request.mode is not None and request.mode != "default":
        keywords["mode"] = request.mode
    if request.options:
        keywords["options"] = as_keywords(request.options)
    return keywords


def _refusal(spec: BackendSpec, example_inputs: Sequence[Any], training: bool) -> str | None:
    """Why the description rules out a graph with these inputs, or ``None``."""
    import torch

    if training and not spec.training:
        return f"{spec.name} does not support training"
    for value in example_inputs:
        if isinstance(value, torch.SymInt) and not spec.dynamic_shapes:
            return f"{spec.name} does not support symbolic sizes"
        if not isinstance(value, torch.Tensor):
            continue
        if ANY not in spec.devices and value.device.type not in spec.devices:
            return f"{spec.name} does not run on {value.device.type}"
        # Integers and booleans are indices and masks; the list of dtypes is about computation.
        name = str(value.dtype).removeprefix("torch.")
        if (value.is_floating_point() or value.is_complex()) and ANY not in spec.dtypes and name not in spec.dtypes:
            return f"{spec.name} does not compute in {name}"
    return None
