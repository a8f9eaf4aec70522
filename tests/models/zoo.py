"""The five models, tiny, and what every test of them asks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import torchmux
from torchmux.demo.models import MODELS, Inputs
from torchmux.demo.trial import Subject, error_against, floats, subject

NAMES = tuple(MODELS)
BACKENDS = ("eager", "aot_eager", "onnxrt", pytest.param("inductor", marks=pytest.mark.slow))


def make(name: str, **config: Any) -> torch.nn.Module:
    """A tiny model in ``eval`` mode."""
    return MODELS[name].build("tiny", **config)


def inputs_for(name: str, model: torch.nn.Module, batch: int = 2, seed: int = 0) -> Inputs:
    """Random inputs for a tiny model."""
    return MODELS[name].example(model, "tiny", batch, seed)


def subject_for(name: str) -> Subject:
    """A tiny model with eager's results and those of float64."""
    return subject(MODELS[name], "tiny")


def compile_or_skip(model: Any, backend: str, **keywords: Any) -> Any:
    """``torchmux.compile``; a backend that is not installed skips the test."""
    try:
        return torchmux.compile(model, backend=backend, **keywords)
    except torchmux.BackendUnavailable as error:
        pytest.skip(str(error))


def assert_equal(found: Any, expected: Any) -> None:
    """The same type of result, and the same bits in all its floating-point tensors."""
    assert type(found) is type(expected)
    values, wanted = floats(found), floats(expected)
    assert len(values) == len(wanted) > 0
    for one, other in zip(values, wanted, strict=True):
        assert one.dtype is other.dtype
        assert torch.equal(one, other)


def assert_close_enough(subject: Subject, found: Any) -> None:
    """Not more than the stated multiple of eager's own distance from float64, in the same dtypes."""
    values = floats(found)
    assert [(v.shape, v.dtype) for v in values] == [(v.shape, v.dtype) for v in subject.eager]
    assert error_against(subject.reference, values) <= subject.bound


def assert_one_graph(report: Any) -> None:
    """Nothing broke; the messages say what did."""
    assert not report.breaks, "\n".join(entry.message() for entry in report.breaks)
    assert report.graph_count == 1


@dataclass
class Trained:
    """What one training step leaves behind."""

    outputs: Any
    loss: torch.Tensor
    gradients: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]


def train_step(model: torch.nn.Module, call: Callable[..., Any], inputs: Inputs) -> Trained:
    """Forward and backward with the same random numbers each time, which dropout draws."""
    model.zero_grad()
    torch.manual_seed(7)
    outputs = call(**inputs)
    outputs.loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return Trained(outputs, outputs.loss.detach(), gradients, {k: b.clone() for k, b in model.named_buffers()})


def pair(name: str, **config: Any) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Two equal models in ``train`` mode, one to compile and one to compare with."""
    model = make(name, **config).train()
    return model, copy.deepcopy(model)
