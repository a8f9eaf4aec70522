"""Cases for whole models: architectures of ``transformers`` with tiny configurations and random weights."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch

from torchmux.zoo import ARCHITECTURES, Architecture
from torchmux.zoo.compare import loss_of, tensors_in

from .case import SEED, Case, Trial
from .oracle.wide import Wide

PREFIX = "models/"

QUICK = ("bert", "qwen3", "resnet", "t5", "vit")
"""The models of the quick level: all of them in inference, the first and the third in training."""

MANY_DRAWS = 40
"""How many times eager's error is measured before a model is judged wrong: among a million numbers there are some at
which a dozen draws of eager's are all near the exact one by chance."""

# These check whether they are being compiled, and then compute differently under any compiler (docs/models.md).
OTHERWISE = frozenset(("falcon_mamba", "jamba", "longt5", "mamba", "nystromformer", "paligemma", "switch_transformers"))

# The same on a GPU only, where masks are chosen by what is in them unless the model is being compiled.
OTHERWISE_ON_A_GPU = frozenset(("informer", "umt5"))


def cases() -> Iterator[Case]:
    """Two cases for each architecture: inference and one training step."""
    for name, architecture in ARCHITECTURES.items():
        if name in OTHERWISE:
            continue
        for training in (False, True):
            if training and not architecture.trains:
                continue
            what = "training" if training else "inference"
            yield Case(
                f"{PREFIX}{name}/{what}",
                functools.partial(_run, name, architecture, training),
                f"{what} of {architecture.model_class}",
                frozenset(["training"] if training else []),
                quick=name in QUICK and (not training or name in (QUICK[0], QUICK[2])),
                draws=MANY_DRAWS,
            )


def _run(name: str, architecture: Architecture, training: bool, trial: Trial) -> Any:
    if name in OTHERWISE_ON_A_GPU and trial.device.type != "cpu":
        raise NotImplementedError("the model computes differently under any compiler on a GPU")
    model = _without_dropout(architecture.build())
    inputs = trial.given(architecture.example_with_targets(model) if training else architecture.example(model))
    model = trial.module(model).train(training)
    if trial.wide and hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")  # torch multiplies by groups of experts in float32 only
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if trial.wide else default)  # for tensors that a model creates itself
    wide = contextlib.ExitStack()
    try:
        if trial.wide:
            wide.enter_context(Wide())  # a loss may ask for float32
        compiled = trial.compile(model)
        torch.manual_seed(SEED)
        if not training:
            with torch.no_grad():
                return dict(tensors_in(compiled(**inputs)))
        outputs = compiled(**inputs)
        loss_of(outputs).backward()
        left = {f"output{name}": tensor.detach() for name, tensor in tensors_in(outputs)}
        left |= {f"gradient.{name}": p.grad for name, p in model.named_parameters() if p.grad is not None}
        return left | {f"buffer.{name}": buffer for name, buffer in model.named_buffers()}
    finally:
        wide.close()
        torch.set_default_dtype(default)


def _without_dropout(model: torch.nn.Module) -> torch.nn.Module:
    """``model`` with every dropout probability at zero: random numbers have their own cases.

    In float64 they would be different numbers, and there would be no reference.
    """
    for module in model.modules():
        settings = [module, *(value for value in vars(module).values() if hasattr(value, "to_diff_dict"))]
        for each in settings:
            for name, value in list(vars(each).items()):
                if "drop" in name and isinstance(value, float):
                    setattr(each, name, 0.0)
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
    return model
