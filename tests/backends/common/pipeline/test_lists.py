"""Operators on lists of tensors, decomposed into operators on each, compute what torch's do."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from torchmux.backends.common.pipeline.decompose import of_each


def arguments(operator: Any) -> list[Any]:
    torch.manual_seed(0)
    made: list[Any] = []
    for argument in operator._schema.arguments:
        if argument.kwarg_only or argument.name == "non_blocking":
            continue
        kind = str(argument.type)
        tensors = [torch.rand(3) + 0.1, torch.rand(2, 2) + 0.1]
        numbers = [2.0, 3.0]
        made.append(
            tensors
            if kind == "List[Tensor]"
            else numbers
            if kind.startswith("List[")
            else torch.tensor(2.0)
            if kind == "Tensor"
            else 2
        )
    return made


@pytest.mark.parametrize("operator", of_each(), ids=str)
def test_as_the_operator_on_lists(operator: Any) -> None:
    whole = arguments(operator)
    each = copy.deepcopy(whole)
    expected, found = operator(*whole), of_each()[operator](*each)
    torch.testing.assert_close(each, whole)
    if expected is not None:
        torch.testing.assert_close(found, expected)


def test_lists_that_do_not_fit_are_left_to_torch() -> None:
    decompose = of_each()[torch.ops.aten._foreach_add.List]
    assert decompose([torch.ones(1)], [torch.ones(1)] * 2) is NotImplemented
    assert decompose([], []) is NotImplemented
