"""Architectures of ``transformers`` by kind, tiny and with random weights; nothing is downloaded.

Tests, the conformance suite and benchmarks share them; the results of their computations have no meaning.
"""

from __future__ import annotations

from .architecture import Architecture, Depth, Inputs
from .audio import AUDIO
from .decoders import DECODERS
from .encoders import ENCODERS
from .multimodal import MULTIMODAL
from .seq2seq import SEQ2SEQ
from .vision import VISION

ARCHITECTURES: dict[str, Architecture] = {
    entry.name: entry for entry in (*ENCODERS, *DECODERS, *SEQ2SEQ, *VISION, *AUDIO, *MULTIMODAL)
}

__all__ = ["ARCHITECTURES", "Architecture", "Depth", "Inputs"]
