"""Events as spans of OpenTelemetry, for programs that are watched from elsewhere: ``config.otel``, ``torchmux[otel]``.

A stage is a span from its beginning to its end, ``torchmux capture`` for instance; any other event is a span without
length.  Their attributes are what the event has to say.  Where they go is decided by the program, which sets a provider
of tracers, or by OpenTelemetry's own environment variables.
"""

from __future__ import annotations

import time
from typing import Any

from .version import __version__


def note(event: str, told: dict[str, Any]) -> None:
    """Hand one event on as a span, below the one that the program is in.

    Raises:
        ImportError: opentelemetry-api is not installed.
    """
    from opentelemetry import trace

    now = time.time()
    attributes = {
        f"torchmux.{name}": value if isinstance(value, (bool, int, float, str)) else str(value)
        for name, value in told.items()
        if name not in ("begin", "end") and value is not None
    }
    name = str(told["name"]) if event == "stage" else event
    tracer = trace.get_tracer("torchmux", __version__)
    span = tracer.start_span(f"torchmux {name}", attributes=attributes, start_time=int(told.get("begin", now) * 1e9))
    span.end(end_time=int(told.get("end", now) * 1e9))
