"""Runs the short form of a backend: a function ``(gm, example_inputs, **options) -> callable``."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from .errors import CompilationFailed, FallbackRefused, GraphRefused
from .options import TorchOptions, as_keywords
from .report import GraphReport, output_code_of, place_all
from .spec import ANY, BackendSpec, CompiledGraph, CompileRequest

log = logging.getLogger("torchmux.fallback")


class PlainGraph:
    """The callable that a plain function returned, with the report of its compilation."""

    __slots__ = ("function", "report")

    def __init__(self, function: Callable[..., Sequence[Any]], report: GraphReport) -> None:
        self.function = function
        self.report = report

    def __call__(self, *args: Any) -> Sequence[Any]:
        return self.function(*args)


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
    started = time.perf_counter()
    try:
        if (refusal := _refusal(spec, example_inputs, training)) is not None:
            raise GraphRefused(refusal)
        compiled = function(gm, list(example_inputs), **_keywords(request))
    except GraphRefused as refused:
        if request.strict:
            raise FallbackRefused(
                f"{spec.name} cannot run this graph, and strict=True forbids a fallback: {refused}. Without strict, "
                "eager runs it; torchmux.backends() shows what each backend accepts."
            ) from None
        log.warning("%s: torch runs a whole graph of %d operators: %s", spec.name, len(report.placements), refused)
        report.partitions = 0
        report.placements = place_all(gm.graph, "eager", str(refused))
        return PlainGraph(gm, report)
    report.compile_seconds = time.perf_counter() - started
    if not callable(compiled):
        raise CompilationFailed(
            f"{spec.name} returned {compiled!r} ({type(compiled).__name__}) for a graph. A backend must return a "
            "callable that takes the graph's inputs and returns the tuple of its outputs."
        )
    if isinstance(getattr(compiled, "report", None), GraphReport):
        return compiled  # its own report knows better what ran where
    report.output_code = output_code_of(compiled)
    return PlainGraph(compiled, report)


def _keywords(request: CompileRequest) -> dict[str, Any]:
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
