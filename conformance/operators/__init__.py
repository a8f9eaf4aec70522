"""Cases for single operators, from torch's own samples: forward and backward, contiguous and strided."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree

from .. import literals
from ..case import SEED, Case, Trial
from ..oracle.observation import Refused
from . import opinfo

PREFIX = "operators/"

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool)

_SUMS = {
    "cumsum": 64, "masked.cumsum": 64,
    "nn.functional.interpolate.trilinear": 8, "nn.functional.interpolate.bicubic": 16, "_upsample_bilinear2d_aa": 8,
    "trace": 8, "linalg.vector_norm": 4, "nn.functional.normalize": 4,
}  # fmt: skip
"""Operators that add so many numbers of a sample, which eager does exactly by chance or in a wider type."""

_CANCELLING = ("cumsum", "masked.cumsum", "log_softmax.with_dtype", "linspace", "_upsample_bilinear2d_aa")
"""Operators whose steps, in the working precision, may be larger than their results; in the last one positions are."""

_CANCELLING_BACKWARD = ("nn.functional.interpolate.bicubic",)
"""Operators whose gradients are sums that cancel at places that no change of the inputs shows."""

_AROUND = {
    "nn.functional.gelu": 1.5, "nn.functional.softmin": 1.5, "softmax": 1.5, "masked.softmin": 1.5,
    "torch.ops.aten._safe_softmax.default": 1.5, "tanh": 4.0, "expm1": 1.0,
    "nn.functional.mish": 6.0,
}  # fmt: skip
"""How large the numbers are whose differences are gradients: a derivative of GELU is a difference of numbers below one,
that of a softmax of given gradients, which are up to 1.5, and their mean, and that of tanh one of 1 and a square,
which has twice the error of its root, and that may be two units.  Mish multiplies this with what it is given."""

QUICK_SAMPLES, SAMPLES = 2, 8
"""How many samples a case of an operator runs at the quick level and at the full level."""


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
    source = functools.partial(_source, operator, dtype, backward, strided)
    # Gradients are sums over broadcast dimensions, of formulas that cancel themselves (1 - y * y).
    elementwise = operator.elementwise and not backward
    return Case(
        f"{PREFIX}{operator.name}/{name}-{direction}",
        run,
        f"torch's samples of {operator.name}",
        frozenset({name, *(["training"] if backward else [])}),
        quick=quick,
        reference=not operator.random and dtype.is_floating_point,
        elementwise=elementwise,
        cancels=operator.name in _CANCELLING or (backward and operator.name in _CANCELLING_BACKWARD),
        terms=_SUMS.get(operator.name, 0),
        around=_AROUND.get(operator.name, 0.0) if backward else 0.0,
        source=source if not operator.random else None,
    )


def _run(
    operator: opinfo.Operator, dtype: torch.dtype, backward: bool, strided: bool, count: int, trial: Trial
) -> list[Any]:
    results = []
    for number, sample in enumerate(_samples(operator, dtype, str(trial.device), backward, strided, count)):
        trial.step(number)
        sample = sample.map(trial.given)
        results.append(call(operator.call, sample.input, sample.args, sample.kwargs, trial, backward=backward))
    return results


def _samples(
    operator: opinfo.Operator, dtype: torch.dtype, device: str, backward: bool, strided: bool, count: int
) -> list[opinfo.Sample]:
    torch.manual_seed(SEED)
    samples = operator.samples(dtype, device, requires_grad=backward, count=count)
    return [sample.map(_strided) if strided else sample for sample in samples]


def _source(operator: opinfo.Operator, dtype: torch.dtype, backward: bool, strided: bool, number: int | None) -> str:
    """A sample as Python text, by default the first."""
    number = number or 0
    sample = _samples(operator, dtype, "cpu", backward, strided, number + 1)[number]
    lines = ["import torch", "", "from torchmux.conformance.operators import call"]
    name = operator.expression
    if not name:
        lines.insert(2, "from torchmux.conformance.operators.opinfo import operator")
        name = f"operator({operator.name!r}).call"
    text = literals.Text()
    given = [text.of(part) for part in (sample.input, sample.args, sample.kwargs)]
    if text.unpacks:
        lines.insert(-1, "from torchmux.conformance.literals import unpack")
    lines += [
        "", "", "def case(trial):",
        f"    input = {given[0]}",
        f"    args = {given[1]}",
        f"    kwargs = {given[2]}",
        "    input, args, kwargs = trial.given((input, args, kwargs))",
        f"    return call({name}, input, args, kwargs, trial, backward={backward})",
    ]  # fmt: skip
    return "\n".join(lines)


def call(
    call: Callable[..., Any], input: Any, args: tuple[Any, ...], kwargs: dict[str, Any], trial: Trial, *, backward: bool
) -> Any:
    """A trial's results for one call of an operator, and the gradients with fixed weights if ``backward``."""

    def f(input: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return call(input, *args, **kwargs)

    if trial.wide and getattr(kwargs.get("dtype"), "is_floating_point", False):
        tensors = [leaf for leaf in _pytree.tree_leaves((input, args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if all(tensor.dim() == 0 for tensor in tensors):  # of what is made of numbers, the dtype is all that is narrow
            kwargs = {**kwargs, "dtype": torch.float64}
    try:
        torch.manual_seed(SEED)
        result = trial.compile(f)(input, args, kwargs)
    except RuntimeError as error:
        if trial.backend is not None and not _raises(f, input, args, kwargs):
            raise
        # Some samples are for other devices or builds, or have layouts that eager's kernel does not accept.
        return Refused(type(error).__name__)
    if not backward:
        return result
    outputs = [leaf for leaf in _pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    given = _pytree.tree_leaves((input, args, kwargs))
    inputs = [t for t in given if isinstance(t, torch.Tensor) and t.requires_grad]
    if not outputs or not inputs:
        return result
    # These are inputs of the gradients, whose condition is that of them too.
    weights = [
        trial.given(torch.linspace(0.5, 1.5, max(o.numel(), 1))).to(o)[: o.numel()].view(o.shape) for o in outputs
    ]
    # Only leaves: their gradients have their layout.  The layout of others depends on the formula; torch promises
    # nothing.
    torch.autograd.backward(outputs, weights, inputs=inputs)
    gradients = [t.grad for t in inputs]
    return _pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, result), gradients


def _raises(function: Callable[..., Any], *given: Any) -> bool:
    """Whether eager also refuses this."""
    try:
        function(*given)
    except RuntimeError:
        return True
    return False


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in every other element of memory."""
    if tensor.layout is not torch.strided or tensor.dim() == 0:
        return tensor
    spread = torch.repeat_interleave(tensor.detach(), 2, dim=-1)
    return spread[..., ::2].requires_grad_(tensor.requires_grad)
