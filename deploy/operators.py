"""Which functions and operators a file may name: those that compute with tensors, and nothing that reads a file.

torch lists its functions that take tensors (``torch.overrides``); what makes tensors of numbers is listed here.  A name
leads to a function of these lists only, whatever a file says.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable
from typing import Any

import torch

from torchmux import torch_internals as internals
from torchmux.registry.errors import LoadRefused

from .values import NotTold

_FACTORIES = frozenset(
    [
        "arange",
        "bartlett_window",
        "blackman_window",
        "empty",
        "empty_permuted",
        "empty_strided",
        "eye",
        "fft_fftfreq",
        "fft_rfftfreq",
        "full",
        "hamming_window",
        "hann_window",
        "kaiser_window",
        "linspace",
        "logspace",
        "normal",
        "ones",
        "rand",
        "randint",
        "randn",
        "randperm",
        "range",
        "scalar_tensor",
        "tril_indices",
        "triu_indices",
        "zeros",
        "sym_size",
        "sym_stride",
        "sym_numel",
        "sym_storage_offset",
        "iota",
    ]
)
_METHODS_OF_SIZES = ("size", "stride", "dim", "numel", "storage_offset", "ndimension", "nelement", "item")
_PROPERTIES = ("T", "mT", "H", "mH", "real", "imag", "shape", "dtype", "device", "ndim", "data", "requires_grad")
_OPERATORS = frozenset(
    [
        "add",
        "and_",
        "eq",
        "floordiv",
        "ge",
        "getitem",
        "gt",
        "iadd",
        "iand",
        "ifloordiv",
        "imatmul",
        "imod",
        "imul",
        "invert",
        "ior",
        "ipow",
        "isub",
        "itruediv",
        "ixor",
        "le",
        "lt",
        "matmul",
        "mod",
        "mul",
        "ne",
        "neg",
        "not_",
        "or_",
        "pos",
        "pow",
        "setitem",
        "sub",
        "truediv",
        "xor",
        "lshift",
        "rshift",
        "abs",
    ]
)


@functools.cache
def _functions() -> dict[str, Callable[..., Any]]:
    """torch's functions of tensors, and those that make tensors, by a name that each process finds."""
    found: dict[str, Callable[..., Any]] = {f"operator.{name}": getattr(operator, name) for name in _OPERATORS}
    for namespace, functions in torch.overrides.get_overridable_functions().items():
        if isinstance(namespace, types.ModuleType):
            for name in dir(namespace):
                function = getattr(namespace, name)
                if callable(function) and any(function is each for each in functions):
                    found.setdefault(f"{namespace.__name__}.{name}", function)
    for name in _FACTORIES:
        function = getattr(torch, name, None)
        if function is not None:
            found[f"torch.{name}"] = function
    return found


@functools.cache
def _names() -> dict[Any, str]:
    return {function: name for name, function in _functions().items()}


def function_told(function: Any) -> Any:
    """The name of a function in a graph of torch-level calls.

    Raises:
        NotTold: a file must not name it.
    """
    if isinstance(function, internals.OpOverload):
        name = str(function)
        if is_aten(name):
            return ["aten", name]
    elif (name := _names().get(function, "")) != "":
        return ["torch", name]
    raise NotTold(f"a call of {getattr(function, '__qualname__', function)}")


def function_again(told: Any) -> Callable[..., Any]:
    """What :func:`function_told` named.

    Raises:
        LoadRefused: it is none of those.
    """
    kind, name = told
    if kind == "torch" and name in _functions():
        return _functions()[name]
    if kind == "aten" and is_aten(name):
        namespace, packet, overload = name.split(".")
        found: Callable[..., Any] = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
        return found
    raise LoadRefused(f"A saved file names {name}, which is no function of tensors in torch {torch.__version__}.")


def method_told(name: str) -> str:
    """The name of a method of tensors; errors as :func:`function_told`."""
    if not is_method(name):
        raise NotTold(f"a call of Tensor.{name}")
    return name


def is_method(name: str) -> bool:
    """Whether a method of tensors computes with them."""
    if name in _METHODS_OF_SIZES:
        return True
    return name in _method_names() and not name.startswith("__")


def is_property(name: Any) -> bool:
    """Whether this is the name of what a tensor shows of itself."""
    return name in _PROPERTIES


@functools.cache
def _method_names() -> frozenset[str]:
    methods = torch.overrides.get_overridable_functions()[torch.Tensor]
    unsafe = {"register_hook", "backward", "__reduce_ex__", "share_memory_", "storage", "apply_", "map_", "map2_"}
    return frozenset(getattr(m, "__name__", "") for m in methods) - unsafe


@functools.cache
def is_aten(name: str) -> bool:
    """Whether this is an ATen operator that takes a tensor, or makes one of numbers."""
    parts = name.split(".")
    if len(parts) != 3 or parts[0] not in ("aten", "prims"):
        return False
    try:
        op = getattr(getattr(getattr(torch.ops, parts[0]), parts[1]), parts[2])
        schema = op._schema
    except AttributeError:
        return False
    return parts[1] in _FACTORIES or any("Tensor" in str(argument.type) for argument in schema.arguments)


def is_missing(name: str) -> bool:
    """Whether this is the name of an operator that nothing in this process has registered."""
    parts = name.split(".")
    if len(parts) != 3 or parts[0] in ("aten", "prims"):
        return False
    return not hasattr(getattr(torch.ops, parts[0]), parts[1])
