"""What the front door says to calls that mistake its arguments."""

from __future__ import annotations

import pytest
import torch

import torchmux


def test_an_option_as_a_keyword():
    with pytest.raises(TypeError, match=r"options=\{'freeze': True\}"):
        torchmux.compile(torch.relu, backend="eager", freeze=True)


def test_inputs_beside_the_function():
    with pytest.raises(TypeError, match=r"explain\(f\)\(x\)"):
        torchmux.explain(torch.relu, torch.ones(2))


@pytest.mark.parametrize(("value", "words"), [(3, "not an int"), ("f", "not a str")])
def test_what_cannot_be_called(value, words):
    with pytest.raises(torchmux.InvalidOption, match=words):
        torchmux.compile(value, backend="eager")
    with pytest.raises(TypeError, match=words):
        torchmux.export(value)
