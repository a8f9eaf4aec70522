"""A mistake of an adapter is told from what its compiler refuses."""

from __future__ import annotations

import pytest
import torch

import torchmux
from torchmux.backends.common.adapter.bugs import raise_mistake
from torchmux.backends.common.adapter.graphs import held_names


def mistake() -> Exception:
    try:
        held_names(None)  # type: ignore[arg-type]
    except AttributeError as error:
        return error
    raise AssertionError("there is no mistake in it")


def test_a_mistake_of_ours_is_raised_in_tests_alone() -> None:
    error = mistake()
    with pytest.raises(AttributeError):
        raise_mistake(error)
    with torchmux.config.patch(fail_on_compiler_errors=False):
        raise_mistake(error)


def test_what_others_raise_is_a_refusal() -> None:
    try:
        torch.ones(2)[5]
    except IndexError as error:
        raise_mistake(error)
    try:
        raise ValueError("a size that depends on the call")
    except ValueError as error:
        raise_mistake(error)
