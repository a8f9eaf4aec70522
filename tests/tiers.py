"""Which of a test's parameters belong to the default run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

PARTS = 128
"""The quick level of the conformance suite in so many parts, for workers to share."""

BY_DEFAULT = {
    "aot_eager": (5,), "native": (1,), "onnxrt": (4,), "openvino": (3,), "tvm": (2,),
}  # fmt: skip
"""The parts of the default run, which has a twenty-sixth of the cases, each once; some of the others run under eager.
Those of a backend share a process.

``-m slow`` has the others, and ``python -m torchmux conformance NAME`` all of one backend.
"""


def slow_but(values: Iterable[Any], *quick: Any) -> list[Any]:
    """``values`` for ``parametrize``, all of them in the slow tier except ``quick``."""
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]
