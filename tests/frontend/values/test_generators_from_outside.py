"""Generators that the program made before what is compiled: part of the graph if they have not begun."""

from __future__ import annotations

from collections.abc import Iterator

import torch

import torchmux


def _graphs_of_one_capture(compiled: object) -> tuple[int, int]:
    report = torchmux.report(compiled)
    return report.graph_count, len(report.breaks)


def test_parameters_are_clipped_in_one_graph() -> None:
    model = torch.nn.Linear(2, 3)
    compiled = torchmux.compile(torch.nn.utils.clip_grad_norm_, backend="eager", fullgraph=True)
    for _ in range(2):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        norm = compiled(model.parameters(), 0.5)
        assert torch.allclose(norm, torch.tensor(3.0))
        assert torch.allclose(model.bias.grad, torch.full((3,), 0.5 / 3))
    assert _graphs_of_one_capture(compiled) == (1, 0)


def _counting(log: list[int]) -> Iterator[int]:
    for i in range(4):
        log.append(i)
        yield i


def _up_to(end: int) -> Iterator[int]:
    i = 0
    while i < end:
        yield i
        i += 1


def _first_two(x: torch.Tensor, numbers: Iterator[int]) -> torch.Tensor:
    return x + next(numbers) + next(numbers)


def test_what_the_graph_leaves_is_there_afterwards() -> None:
    compiled = torchmux.compile(_first_two, backend="eager")
    numbers = _up_to(4)
    assert compiled(torch.zeros(1), numbers).item() == 1
    assert list(numbers) == [2, 3]
    assert _graphs_of_one_capture(compiled) == (1, 0)


def test_what_a_generator_has_done_is_not_done_twice() -> None:
    compiled = torchmux.compile(_first_two, backend="eager")
    for _ in range(2):
        log: list[int] = []
        numbers = _counting(log)
        assert compiled(torch.zeros(1), numbers).item() == 1
        assert log == [0, 1]
        assert list(numbers) == [2, 3]


def test_other_code_is_captured_anew() -> None:
    compiled = torchmux.compile(lambda x, numbers: x + sum(numbers), backend="eager", fullgraph=True)
    assert compiled(torch.zeros(1), (i for i in range(4))).item() == 6
    assert compiled(torch.zeros(1), (i * 2 for i in range(4))).item() == 12
    assert compiled(torch.zeros(1), (i for i in range(4))).item() == 6


def test_one_that_has_begun_breaks_the_graph() -> None:
    compiled = torchmux.compile(lambda x, numbers: x + sum(numbers), backend="eager")
    numbers = (i for i in range(4))
    next(numbers)
    next(numbers)
    assert compiled(torch.zeros(1), numbers).item() == 5
