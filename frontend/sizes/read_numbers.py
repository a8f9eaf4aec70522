"""What a graph does with numbers that it reads from tensors: the functions that stand in the graph.

Whoever runs the captured graph as it is gets Python's own numbers, and with them eager's results to the last bit.
Whoever traces the graph gets tensors of one float64 instead, because a compiler can do nothing with a number that only
the tensor's data knows.
"""

from __future__ import annotations

from typing import Any

import torch

from torchmux import torch_internals as ti


def as_tensor(number: float) -> torch.Tensor:
    """A float as torch hands it to backends."""
    return torch.tensor(number, dtype=torch.float64, device="cpu")


def read(tensor: Any) -> Any:
    """``tensor.item()``; a copy in float64 while the graph is traced."""
    if _has_data(tensor):
        return tensor.item()
    return tensor.detach().reshape(()).to(torch.float64, copy=True)


def _has_data(tensor: Any) -> bool:
    """Whether ``tensor`` is one of a running program, not of a trace that must hold for other data as well."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) or torch.jit.is_tracing():
        return False
    return not ti.count_dispatch_modes() and not ti.is_functorch_active()


def held(number: Any) -> torch.Tensor:
    """The number as a result of the graph, for the program to take out again."""
    return number if isinstance(number, torch.Tensor) else torch.tensor(number, dtype=torch.float64)


def beside(number: Any, tensor: torch.Tensor) -> Any:
    """The number as an operand beside ``tensor``: a number has no say in the result's dtype."""
    if not isinstance(number, torch.Tensor):
        return number
    dtype = tensor.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        return number.to(torch.get_default_dtype())
    if dtype.itemsize < torch.float32.itemsize and tensor.dim():
        return number.to(torch.float32)  # rounded no sooner than torch rounds a number
    return number.to(dtype.to_real())


def least(*numbers: Any) -> Any:
    """``min`` of numbers."""
    return _extreme(min, torch.minimum, numbers)


def greatest(*numbers: Any) -> Any:
    """``max`` of numbers."""
    return _extreme(max, torch.maximum, numbers)


def _extreme(of_numbers: Any, of_tensors: Any, numbers: tuple) -> Any:
    if not any(isinstance(number, torch.Tensor) for number in numbers):
        return of_numbers(numbers)
    found, *others = map(held, numbers)
    for other in others:
        found = of_tensors(found, other)
    return found


def tensor_of(number: Any, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
    """``torch.tensor`` of a number or of a list of numbers."""
    if isinstance(number, list) and any(isinstance(each, torch.Tensor) for each in number):
        number = torch.stack([held(each) for each in number])
    if not isinstance(number, torch.Tensor):
        return torch.tensor(number, dtype=dtype, device=device)
    return number.to(dtype=dtype or torch.get_default_dtype(), device=device or torch.get_default_device(), copy=True)


def add_multiple(method: str, tensor: torch.Tensor, other: Any, alpha: Any) -> torch.Tensor:
    """``add``, ``sub`` and their in-place forms with ``alpha``."""
    if not isinstance(alpha, torch.Tensor):
        return getattr(tensor, method)(other, alpha=alpha)
    return getattr(tensor, method)(other * beside(alpha, tensor))


def add_product(method: str, tensor: torch.Tensor, first: torch.Tensor, second: torch.Tensor, value: Any) -> Any:
    """``addcmul``, ``addcdiv`` and their in-place forms with ``value``."""
    if not isinstance(value, torch.Tensor):
        return getattr(tensor, method)(first, second, value=value)
    product = first * second if "mul" in method else first / second
    return getattr(tensor, "add_" if method.endswith("_") else "add")(product * beside(value, tensor))


def interpolate(method: str, tensor: torch.Tensor, end: torch.Tensor, weight: Any) -> torch.Tensor:
    """``lerp`` and ``lerp_``."""
    if not isinstance(weight, torch.Tensor):
        return getattr(tensor, method)(end, weight)
    return getattr(tensor, "add_" if method.endswith("_") else "add")((end - tensor) * beside(weight, tensor))


def foreach(name: str, tensors: list, *lists: Any) -> Any:
    """``torch._foreach_add`` and its like, whose last list is one of numbers."""
    numbers = lists[-1]
    if not any(isinstance(number, torch.Tensor) for number in numbers):
        return getattr(torch, f"_foreach_{name}")(tensors, *lists)
    results = []
    for tensor, *operands, number in zip(tensors, *lists, strict=True):
        if operands:
            first, second = operands
            results.append(add_product(name, tensor, first, second, number))
        else:
            results.append(getattr(tensor, name)(beside(number, tensor)))
    return None if name.endswith("_") else results
