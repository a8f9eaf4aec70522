"""Overloads of operators: their schemas, and which kernel serves which dispatch key; those that take functions."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch._higher_order_ops.while_loop import while_loop as while_loop

OpOverload = torch._ops.OpOverload
DispatchKey = torch._C.DispatchKey
functions_in_c = {"nn": torch._C._nn, "linalg": torch._C._linalg}
"""Modules of functions that do what operators do, in half the time that ``torch.ops`` takes."""


def overloads(function: Any) -> list[Any]:
    """The operator overloads that a call of what is in ``torch.ops`` may run; none for any other function."""
    if isinstance(function, torch._ops.OpOverloadPacket):
        return [getattr(function, name) for name in function.overloads()]
    return [function] if isinstance(function, OpOverload) else []


def operator_schema(op: Any) -> Any:
    """The ``FunctionSchema`` of an operator overload."""
    return op._schema


def is_composite(op: Any) -> bool:
    """Whether ``op`` consists of other operators, also for autograd.  Some names exist in TorchScript only: False."""
    return torch._C._dispatch_has_kernel(op.name()) and op.has_kernel_for_dispatch_key(
        DispatchKey.CompositeImplicitAutograd
    )


def has_kernel(op: Any, key: Any) -> bool:
    """Whether ``op`` has a kernel of its own in C++ for ``key``; a kernel for all operators does not count."""
    return torch._C._dispatch_has_kernel(op.name()) and torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key)


def python_kernels(op: Any) -> dict[Any, Any]:
    """The Python kernels of an operator by dispatch key; after changing them call ``forget_dispatch(op)``."""
    return op.py_kernels


def forget_dispatch(op: Any) -> None:
    """Drop the operator's memory of which kernel serves which dispatch key."""
    op._dispatch_cache.clear()


def run_kernel(op: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the C++ kernel that serves ``key``, whatever Python kernels there are."""
    return op._op_dk(key, *args, **kwargs)


def python_registrations() -> set[str]:
    """The kernels that ``torch.library`` has registered from Python: ``"aten/sin/CPU"``."""
    return torch.library._impls


def tag_checkpoint() -> Any:
    """The operator that runs a checkpointed graph while a compiler traces it."""
    return torch.ops.higher_order.tag_activation_checkpoint


def checkpoints_by_decorators() -> tuple[Any, ...]:
    """What a function that ``checkpoint`` decorates calls with its arguments, from torch 2.14 on."""
    found = getattr(torch.utils.checkpoint, "_checkpoint_impl", None)
    return () if found is None else (found,)


def random_wrappers() -> tuple[Any, ...]:
    """The operators that run a random one of forward, and run it again in backward with the same numbers."""
    higher_order = torch.ops.higher_order
    return higher_order.run_and_save_rng_state, higher_order.run_with_rng_state


def scan_stacks_along_its_dimension() -> bool:
    """Whether ``scan`` along another dimension than the first stacks results along that; before torch 2.13, its results
    are along the first."""
    from torch._higher_order_ops.scan import scan

    moves = [c for c in inspect.unwrap(scan).__code__.co_consts if getattr(c, "co_name", "") == "<lambda>"]
    return any("dim" in code.co_freevars for code in moves)
