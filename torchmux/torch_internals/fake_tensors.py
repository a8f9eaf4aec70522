"""Tensors without data: how they are made, how they refuse, and the mode that a compilation works in."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from .fake_results import correct
from .shape_env import located_shape_env


def fake_tensor_mode(
    *, symbolic: bool, where: Callable[[], str] | None = None, scalars: bool = False, dynamic_outputs: bool = False
) -> Any:
    """A FakeTensorMode; with a ShapeEnv only if ``symbolic``, since that doubles the cost of propagation.

    ``where`` tells the line of the program that a guard on a size is due to.  ``scalars`` and ``dynamic_outputs`` say
    whether numbers read from tensors, and operators whose output size depends on data, get symbols of their own.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    shape_env = None
    if symbolic:
        shape_env = located_shape_env()(allow_scalar_outputs=scalars, allow_dynamic_output_shape_ops=dynamic_outputs)
        shape_env.where = where
    return correct(FakeTensorMode(shape_env=shape_env, allow_non_fake_inputs=False))


def new_fake_mode() -> Any:
    """A FakeTensorMode without symbolic sizes, for graphs that come without one."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return correct(FakeTensorMode(allow_non_fake_inputs=True))


def forget_real_tensors(mode: Any) -> None:
    """Drop the mode's weak references to the tensors that it has made fake ones of: who swaps a tensor minds them."""
    mode.fake_tensor_converter.meta_converter.describer.lookup_tensor.data.clear()


def plain_fake(mode: Any, tensor: torch.Tensor) -> Any:
    """What ``mode.from_tensor(tensor)`` makes, in a fifth of its time; None unless the tensor is as plain as most are.

    That is: static sizes, a leaf, no view, memory of its own.  The converter remembers it as one of its own.
    """
    if mode.shape_env is not None or not tensor.is_leaf or tensor._is_view() or tensor.grad is not None:
        return None
    if tensor.is_inference() or tensor.is_conj() or tensor.is_neg() or tensor._backward_hooks:
        return None
    if tensor.device.type not in ("cpu", "cuda") or tensor.storage_offset() or type(tensor) not in _PLAIN_CLASSES:
        return None
    if any(getattr(tensor, "names", ())):  # torch 2.12 and before
        return None
    if tensor.requires_grad and getattr(tensor, "grad_dtype", tensor.dtype) is not tensor.dtype:
        return None
    storage = tensor.untyped_storage()
    extent = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    if not tensor.numel() or storage.nbytes() != extent * tensor.element_size():
        return None
    converter = mode.fake_tensor_converter.meta_converter
    number = converter.describer.get_storage_id(storage)
    if number in converter.storage_memo or mode.fake_tensor_converter._get_memo(tensor) is not None:
        return None
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._mode_utils import no_dispatch

    with no_dispatch():
        meta = torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta", requires_grad=tensor.requires_grad
        )
        fake = FakeTensor(mode, meta, tensor.device)
    if type(tensor) is torch.nn.Parameter:
        fake._is_param = True
    mode.fake_tensor_converter.set_tensor_memo(tensor, fake)
    converter.storage_memo[number] = fake.untyped_storage()
    return fake


_PLAIN_CLASSES = (torch.Tensor, torch.nn.Parameter)


def fake_tensor_errors() -> dict[str, type[BaseException]]:
    """The exceptions by which fake propagation says that it cannot know."""
    from torch._subclasses import fake_tensor
    from torch.fx.experimental import symbolic_shapes

    return {
        "data_dependent": fake_tensor.DataDependentOutputException,
        "dynamic_output": fake_tensor.DynamicOutputShapeException,
        "unsupported": fake_tensor.UnsupportedFakeTensorException,
        "guard": symbolic_shapes.GuardOnDataDependentSymNode,
    }


def is_fake(value: Any) -> bool:
    """Whether ``value`` is a FakeTensor."""
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor)


def is_fake_class(cls: type) -> bool:
    """Whether a class is that of fake tensors."""
    from torch._subclasses.fake_tensor import FakeTensor

    return cls is FakeTensor


def is_wrapper(tensor: Any) -> bool:
    """Whether a tensor is of a class that says which tensors it consists of."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    return is_traceable_wrapper_subclass(tensor)


def parts_of(value: Any) -> list[Any]:
    """The tensors that a tensor consists of, parts of parts included; of other values, the value itself."""
    if not isinstance(value, torch.Tensor) or not is_wrapper(value):
        return [value]
    parts = (getattr(value, name) for name in value.__tensor_flatten__()[0])
    return [inner for part in parts if isinstance(part, torch.Tensor) for inner in parts_of(part)]


def keep_number(source: Any, target: Any) -> None:
    """Let a fake tensor's ``item()`` be the symbol that it is for another one, of which it is an alias."""
    if getattr(source, "item_memo", None) is not None:
        target.item_memo = source.item_memo


def tracing_context(fake_mode: Any) -> Any:
    """Context manager under which torch's AOTAutograd finds the fake mode of the capture."""
    from torch._guards import TracingContext, tracing

    return tracing(TracingContext(fake_mode))


def tracing_with(fake_mode: Any) -> Any:
    """The tracing context that AOTAutograd works in: the active one if it has this fake mode, or a new one."""
    from torch._guards import TracingContext

    active = TracingContext.try_get()
    if active is not None and active.fake_mode is fake_mode:
        return contextlib.nullcontext()
    return tracing_context(fake_mode)


def ignoring_new_symbols(fake_mode: Any) -> Any:
    """Context manager for a run on fake tensors whose results nobody needs: no symbols for what depends on data."""
    env = fake_mode.shape_env
    return contextlib.nullcontext() if env is None else env.ignore_fresh_unbacked_symbols()


def active_fake_mode() -> Any:
    """The FakeTensorMode of the compilation in progress, or None."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    return context.fake_mode if context is not None else None
