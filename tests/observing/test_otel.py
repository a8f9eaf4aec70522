"""Events as spans of OpenTelemetry."""

from __future__ import annotations

import sys

import pytest
import torch

import torchmux


def halves(x):
    y = x.sin()
    torchmux.graph_break()
    return y.cos()


def test_spans(monkeypatch):
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    with torchmux.config.patch(otel=True), provider.get_tracer("the program").start_as_current_span("request") as mine:
        torchmux.compile(halves, backend="aot_eager")(torch.ones(3))
    spans = [span for span in exporter.get_finished_spans() if span.name != "request"]
    assert {"torchmux capture", "torchmux AOT", "torchmux graph", "torchmux graph_break"} <= {s.name for s in spans}
    assert all(span.parent.span_id == mine.get_span_context().span_id for span in spans)
    capture = next(span for span in spans if span.name == "torchmux capture")
    assert 0 < capture.end_time - capture.start_time < 60e9
    graph = next(span for span in spans if span.name == "torchmux graph")
    assert graph.attributes["torchmux.backend"] == "aot_eager"


def test_without_opentelemetry(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with torchmux.config.patch(otel=True):
        with pytest.warns(UserWarning, match=r"torchmux\[otel\]"):
            torchmux.compile(torch.sin, backend="eager")(torch.ones(3))
        assert torchmux.config.otel is False
