"""torch's own samples of its operators, compiled and compared with eager and float64 (see ``samples.py``)."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("torch.testing._internal.common_methods_invocations")

from ..conftest import both_targets
from .samples import OPERATORS, judge

EXAMPLES = ("argmax", "cat", "gather", "index_select", "nn.functional.layer_norm", "softmax", "var", "where")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool)
# The layout of these gradients is the trace's, not eager's, whichever backend runs it.
OTHER_LAYOUT = {("rot90", "backward"), ("ormqr", "backward"), ("tensordot", "backward")}
# Eager fills what has gaps one number at a time and what has none in vectors, which draw in another order; the trace
# fills a new tensor without gaps.
OTHER_NUMBERS = {("normal.in_place", "strided")}


@both_targets
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_operator(name: str, target: str) -> None:
    outcome = judge(OPERATORS[name], torch.float32, "forward", 2)
    assert outcome.compared
    assert not outcome.error
    assert not outcome.difference


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["forward", "backward", "strided"])
@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator(name: str, direction: str) -> None:
    op = OPERATORS[name]
    backward = direction == "backward"
    if (name, direction) in OTHER_NUMBERS:
        pytest.skip("draws other numbers than eager")
    dtypes = [d for d in DTYPES if d in op.dtypes]
    if backward:  # some operators name integers among what has gradients
        dtypes = [d for d in dtypes if d in op.backward_dtypes and d.is_floating_point and op.supports_autograd]
    compared = 0
    for dtype in dtypes:
        outcome = judge(op, dtype, direction, 3)
        assert not outcome.error, f"{dtype}: {outcome.error}"
        if not ("strides" in outcome.difference and (name, direction) in OTHER_LAYOUT):
            assert not outcome.difference, f"{dtype}: {outcome.difference}"
        compared += outcome.compared
    if not compared:
        pytest.skip("no sample that can be compared")
