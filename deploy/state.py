"""The tensors that a program reads besides its arguments: parameters, buffers, and others that it holds."""

from __future__ import annotations

import hashlib
import types
from collections.abc import Mapping
from typing import Any

import torch

from torchmux.registry.errors import LoadRefused

from .container import is_storable
from .values import NotTold, code_digest, told


class State:
    """Tensors by name, each once; ``root`` is the module whose parameters keep their names."""

    def __init__(self, root: torch.nn.Module | None) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._names: dict[int, str] = {}
        self._known = {}
        if root is not None:
            named = (*root.named_parameters(remove_duplicate=False), *root.named_buffers(remove_duplicate=False))
            self._known = {id(tensor): name for name, tensor in reversed(named)}

    def add(self, tensor: torch.Tensor) -> str:
        """The name of a tensor, which goes into the file.

        Raises:
            NotTold: it is none that a file can hold.
        """
        name = self._names.get(id(tensor))
        if name is None:
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or not is_storable(tensor):
                raise NotTold(f"a {type(tensor).__name__} of {tensor.dtype}, {tensor.layout}")
            if tensor.is_conj() or tensor.is_neg():
                raise NotTold("a tensor that is conjugated or negated lazily")
            name = self._known.get(id(tensor), f"constant_{len(self.tensors)}")
            while name in self.tensors:
                name += "_"
            self._names[id(tensor)], self.tensors[name] = name, tensor
        return name

    def told(self) -> dict[str, Any]:
        """What else than its numbers there is to know of each, for JSON."""
        return {
            name: {
                "parameter": isinstance(tensor, torch.nn.Parameter),
                "requires_grad": tensor.requires_grad,
                "stride": list(tensor.stride()),
                "shape": list(tensor.shape),
                "dtype": told(tensor.dtype)[2],
                "device": str(tensor.device),
            }
            for name, tensor in self.tensors.items()
        }


def structure(root: torch.nn.Module, *, attributes: bool = True) -> list[list[str]]:
    """What of a module decides on its results besides tensors: each submodule's class, code and plain attributes.

    Without ``attributes``, those that guards look at in each call are left out.
    """
    return [[name, _digest_of(module, attributes)] for name, module in root.named_modules(remove_duplicate=False)]


def _digest_of(module: torch.nn.Module, attributes: bool) -> str:
    cls = type(module)
    for base in cls.__mro__:
        if base.__name__ == cls.__name__ and "_torchmux_original" not in vars(base):
            cls = base  # below the class of a compiled module
            break
    parts = [f"{cls.__module__}.{cls.__qualname__}"]
    forward = getattr(cls, "forward", None)
    if isinstance(forward, types.FunctionType):
        parts.append(code_digest(forward.__code__))
    for name, value in sorted(vars(module).items()) if attributes else ():
        try:
            parts.append(f"{name}={told(value)}")
        except NotTold:
            continue
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def check_structure(saved: list[list[str]], root: torch.nn.Module, *, attributes: bool = True) -> None:
    """Compare a module with the one that was saved; ``attributes`` as for :func:`structure`.

    Raises:
        LoadRefused: a submodule is missing, or is another.
    """
    here = {each[0]: each[1] for each in structure(root, attributes=attributes)}
    there = {each[0]: each[1] for each in saved}
    for name in [*there, *here]:
        if here.get(name) != there.get(name):
            what = "is missing" if name not in here else "was not there" if name not in there else "is another"
            about = "its class, its code, or an attribute such as training" if attributes else "its class or its code"
            raise LoadRefused(
                f"The model is not the one that was saved: {name or 'the model itself'} {what} ({about}). Pass the "
                "same model, or save it again."
            )


def tensors_again(description: Mapping[str, Any], stored: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors of :meth:`State.told`, with the numbers that are ``stored``.

    Raises:
        LoadRefused: one is missing, or is another.
    """
    found: dict[str, torch.Tensor] = {}
    for name, about in description.items():
        tensor = stored.get(name)
        if tensor is None:
            raise LoadRefused(
                f"There are no numbers for {name}: the file was saved without weights. Pass them with "
                "load(..., model=model) or load(..., weights=model.state_dict())."
            )
        if list(tensor.shape) != about["shape"] or str(tensor.dtype).removeprefix("torch.") != about[
            "dtype"
        ].removeprefix("torch."):
            raise LoadRefused(
                f"{name} is {list(tensor.shape)} of {tensor.dtype}; the file was saved for {about['shape']} of "
                f"{about['dtype']}. Pass the weights of the same model, or save the file again."
            )
        found[name] = _alike(tensor, about)
    return found


def _alike(tensor: torch.Tensor, about: Mapping[str, Any]) -> torch.Tensor:
    with torch.no_grad():
        tensor = tensor.detach().to(about["device"])
        strides = tuple(about["stride"])
        if tensor.stride() != strides:
            tensor = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
    if about["parameter"]:
        return torch.nn.Parameter(tensor, requires_grad=about["requires_grad"])
    return tensor.requires_grad_(about["requires_grad"])
