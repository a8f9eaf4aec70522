"""What torch's library keeps to itself: functions in C that programs call, mostly through torch's Python functions;
calls of graph modules, checks of distributions, pytrees."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

c_torch = torch._C  # has C functions that torch's own Python functions wrap
VariableFunctions = torch._C._VariableFunctions
SDPBackend = torch._C._SDPBackend
group_tensors_by_device_and_dtype = torch._C._group_tensors_by_device_and_dtype
custom_device_name = torch._C._get_privateuse1_backend_name
get_tracing_state = torch._C._get_tracing_state
disabled_torch_function = torch._C._disabled_torch_function_impl  # of classes whose operators give plain tensors
infer_size = torch._C._infer_size  # the shape to which two shapes broadcast
log_api_usage_once = torch._C._log_api_usage_once


def c_operator_modules() -> list[Any]:
    """The C modules whose functions are operators on tensors."""
    return [torch._C._nn, torch._C._linalg, torch._C._special, torch._C._fft, torch._C._nested]


def tracing_questions() -> list[Any]:
    """What newer torch asks to know whether the old TorchScript tracer runs."""
    return [torch._C._is_tracing] if hasattr(torch._C, "_is_tracing") else []


def calls_forward_alone(graph_module: torch.fx.GraphModule) -> bool:
    """Whether calling ``graph_module`` is calling ``Module.__call__``, but for what it says of errors."""
    cls = type(graph_module)
    wrapped = vars(cls).get("_wrapped_call")
    return wrapped is not None and wrapped.cls_call is None and cls.__call__.__module__ == "torch.fx.graph_module"


def distribution_checks() -> tuple[Any, ...]:
    """What tells distributions whether all elements of a bool tensor are true, as a bool (torch 2.15 and later)."""
    found = getattr(torch.distributions.distribution, "_all_true_or_runtime_assert", None)
    return () if found is None else (found,)


def broadcast_dims(dims: Any, structure: Any) -> list[Any] | None:
    """``in_dims`` or ``out_dims`` of ``vmap`` for each leaf of a pytree; None if they do not fit it."""
    return pytree._broadcast_to_and_flatten(dims, structure)
