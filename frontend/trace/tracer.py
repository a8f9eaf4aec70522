"""What values, handlers and higher-order code may ask of the trace they are part of, and of the frame it becomes.

They are written against these two names, so that none of them imports the trace, or the writer of frames.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Tracer: TypeAlias = Any  # one attempt to capture a frame: trace.Trace implements it
FrameWriter: TypeAlias = Any  # the function that replaces a frame: capture.frame_writer.Output implements it
