"""Models with random weights; nothing is downloaded, and the results of their computations have no meaning.

``ARCHITECTURES`` are those of ``transformers`` by kind, tiny: tests, the conformance suite and benchmarks share them.
``WORKLOADS`` have the sizes at which compilers are compared; ``own`` has those that ``transformers`` lacks.
"""

from __future__ import annotations

from .architecture import Architecture, Depth, Inputs
from .audio import AUDIO
from .decoders import DECODERS
from .encoders import ENCODERS
from .multimodal import MULTIMODAL
from .seq2seq import SEQ2SEQ
from .vision import VISION
from .workloads import WORKLOADS, Workload

ARCHITECTURES: dict[str, Architecture] = {
    entry.name: entry for entry in (*ENCODERS, *DECODERS, *SEQ2SEQ, *VISION, *AUDIO, *MULTIMODAL)
}

__all__ = ["ARCHITECTURES", "WORKLOADS", "Architecture", "Depth", "Inputs", "Workload"]
