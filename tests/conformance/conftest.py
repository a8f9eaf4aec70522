"""What planted faults leave in this process is undone: other tests run here, too."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest
import torch.nn.functional as F


@pytest.fixture(autouse=True)
def without_traces_of_faults() -> Iterator[None]:
    function, hook, collects = F.gelu, sys.excepthook, gc.isenabled()
    yield
    F.gelu, sys.excepthook = function, hook
    (gc.enable if collects else gc.disable)()
