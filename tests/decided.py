"""Decisions for tests, made without measuring."""

from __future__ import annotations

import dataclasses
from typing import Any

from torchmux.multiplexer.decisions import Backend, Decision, Fingerprint, Row

FINGERPRINT = Fingerprint(
    graph="0" * 64,
    nodes=5,
    inputs=["float32[8] on cpu"],
    bucket="",
    phase="inference",
    strict="False",
    asked={"objective": "latency"},
    machine={"processor": "Abacus 5", "capability": "AVX2", "threads": "8", "gpu": ""},
    software={"torch": "2.13.0", "torchmux": "0.1.0", "python": "3.11"},
    settings={"default_dtype": "torch.float32"},
    candidates={"native": Backend("n1", [{"keep_scratch": True}]), "openvino": Backend("o1", [])},
    about={"program": "model.py:3"},
)


def decision(**changes: Any) -> Decision:
    """A decision for native; ``changes`` are fields of its fingerprint."""
    rows = [
        Row("native", "native", {}, "chosen", "", 0.5, 1.0, 0.01, 1e-9, 1 << 28, 1.0),
        Row("native(keep_scratch=True)", "native", {"keep_scratch": True}, "tie", "", 0.5, 1.01),
        Row("eager", "eager", {}, "slower", "2.00 times the time of native", 0.0, 2.0),
        Row("openvino", "openvino", {}, "wrong", "on the inputs of the call: off by 1"),
    ]
    made = Decision("native", {}, "it is the quickest beyond doubt", rows, 12.5)
    made.fingerprint = dataclasses.replace(FINGERPRINT, **changes)
    made.about = dict(FINGERPRINT.about)
    return made
