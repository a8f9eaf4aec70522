"""Cases of single operators, from torch's own samples: forward and backward, contiguous and strided."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree

from . import opinfo
from .case import SEED, Case, Trial, widened

PREFIX = "operators/"

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool)

QUICK_SAMPLES, SAMPLES = 2, 8
"""How many samples a case of an operator runs, at the quick level and at the full one."""


def cases(*, full: bool) -> Iterator[Case]:
    """One case for each operator, dtype and direction.

    The quick level has the core ATen operators in float32, forward only, on two samples each.
    """
    for operator in opinfo.operators():
        if operator.name in opinfo.UNDEFINED:
            continue
        for dtype in DTYPES:
            name = str(dtype).removeprefix("torch.")
            if dtype in operator.dtypes:
                quick = operator.is_core and dtype is torch.float32
                if full or quick:
                    yield _case(operator, dtype, name, backward=False, strided=False, quick=quick, full=full)
                if full and dtype is torch.float32:
                    yield _case(operator, dtype, name, backward=False, strided=True, quick=False, full=True)
            if full and dtype in operator.backward_dtypes and dtype is torch.float32:
                yield _case(operator, dtype, name, backward=True, strided=False, quick=False, full=True)


def _case(
    operator: opinfo.Operator, dtype: torch.dtype, name: str, *, backward: bool, strided: bool, quick: bool, full: bool
) -> Case:
    direction = "backward" if backward else "strided" if strided else "forward"
    run = functools.partial(_run, operator, dtype, backward, strided, SAMPLES if full else QUICK_SAMPLES)
    return Case(
        f"{PREFIX}{operator.name}/{name}-{direction}",
        run,
        f"torch's samples of {operator.name}",
        frozenset({name, *(["training"] if backward else [])}),
        quick=quick,
        reference=not operator.random and dtype.is_floating_point,
        elementwise=operator.elementwise,
    )


def _run(
    operator: opinfo.Operator, dtype: torch.dtype, backward: bool, strided: bool, count: int, trial: Trial
) -> list[Any]:
    results = []
    torch.manual_seed(SEED)
    samples = list(operator.samples(dtype, str(trial.device), requires_grad=backward, count=count))
    for sample in samples:
        if trial.wide:
            sample = sample.map(lambda t: widened(t.detach()).requires_grad_(t.requires_grad))
        if strided:
            sample = sample.map(_strided)
        results.append(_call(operator, sample, backward, trial))
    return results


def _call(operator: opinfo.Operator, sample: opinfo.Sample, backward: bool, trial: Trial) -> Any:
    call = operator.call

    def f(input: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return call(input, *args, **kwargs)

    torch.manual_seed(SEED)
    try:
        result = trial.compile(f)(sample.input, sample.args, sample.kwargs)
    except RuntimeError as error:
        if trial.backend is None:
            return f"raises {type(error).__name__}"  # some samples are for other devices or builds
        raise
    if not backward:
        return result
    outputs = [leaf for leaf in _pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    inputs = [t for t in sample.tensors() if t.requires_grad]
    if not outputs or not inputs:
        return result
    weights = [torch.linspace(0.5, 1.5, max(o.numel(), 1)).to(o)[: o.numel()].view(o.shape) for o in outputs]
    gradients = torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
    return _pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, result), gradients


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers, every other element of memory."""
    if tensor.layout is not torch.strided or tensor.dim() == 0:
        return tensor
    spread = torch.repeat_interleave(tensor.detach(), 2, dim=-1)
    return spread[..., ::2].requires_grad_(tensor.requires_grad)
