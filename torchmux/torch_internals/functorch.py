"""Transforms of functions (``torch.func``): whether one is active, and what is beneath functionalization."""

from __future__ import annotations

from typing import Any

import torch


def is_functorch_active() -> bool:
    """Whether the program is inside a functorch transform (vmap, grad, ...)."""
    return torch._C._functorch.peek_interpreter_stack() is not None


are_transforms_active = torch._C._are_functorch_transforms_active  # what libraries ask


def is_batched(value: Any) -> bool:
    """Whether a tensor stands for many, as the gradients of ``torch.autograd.grad(..., is_grads_batched=True)`` do."""
    return isinstance(value, torch.Tensor) and (
        torch._C._functorch.is_batchedtensor(value) or torch._C._functorch.is_legacy_batchedtensor(value)
    )


def beneath_functionalization(op: Any, args: Any, kwargs: Any) -> Any:
    """Inside of ``torch.func.functionalize``: call ``op``, which changes nothing, as functionalization would call it.

    An operator that is composed of others reaches whatever is beneath in one piece then.
    """
    from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter
    from torch._subclasses.functional_tensor import FunctorchFunctionalizeAPI

    layer: Any = FunctorchFunctionalizeAPI(retrieve_current_functorch_interpreter())
    args, kwargs = layer.unwrap_tensors((args, kwargs))
    with layer.redispatch_to_next():
        result = op(*args, **kwargs)
    return layer.wrap_tensors(result)
