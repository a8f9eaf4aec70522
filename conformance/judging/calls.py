"""What each call of a compiled function shows, beside what its case returns.

A case returns what its author thought of.  Of every call, this records the rest: the inputs afterwards, which results
and inputs share memory and from where on, strides, ``requires_grad``, which inputs were written to or moved, what
became of modules and tensors that the function has, the exception, and the states of random generators.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree

from ..oracle import sharing
from ..oracle.tensors import telling_strides

LARGEST = 1 << 20
"""Inputs of more elements are not kept; their versions still tell whether they were written to."""


class Records(list[dict[str, Any]]):
    """What calls showed; ``room`` is for how many more elements of inputs, so that many calls stay payable."""

    room = 1 << 21

    def kept(self, tensor: torch.Tensor) -> torch.Tensor | str:
        """A copy of the input as it is after a call."""
        if tensor.layout is torch.strided:
            size = tensor.untyped_storage().nbytes() // tensor.element_size()
            if size > min(LARGEST, self.room):
                return "too large to keep"
            self.room -= size
        return tensor.detach().clone()


class Called:
    """A function, compiled or not, whose calls are recorded; everything else is the function's own."""

    def __init__(
        self,
        function: Any,
        records: Records,
        sample: Callable[[], int | None],
        device: torch.device,
        keep: Callable[[Any, Any, Any], None] = lambda function, args, keywords: None,
        original: Any = None,
    ) -> None:
        self.__dict__.update(_function=function, _records=records, _sample=sample, _keep=keep, _device=device)
        self.__dict__["_reads"] = reads_of(function if original is None else original)
        self.__dict__["_thread"] = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._function, name, value)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if threading.get_ident() != self._thread:  # the order of calls in other threads is not eager's
            return self._function(*args, **keywords)
        self._keep(self._function, args, keywords)
        inputs = tensors_in((args, keywords))
        record: dict[str, Any] = {"sample": self._sample(), "raised": None}
        versions = [_version(tensor) for tensor in inputs]
        places = [_place(tensor) for tensor in inputs]
        read = self._reads()
        try:
            results = self._function(*args, **keywords)
        except Exception as error:
            record["raised"] = type(error).__name__
            raise
        else:
            record |= _of_results(inputs, tensors_in(results))
            return results
        finally:
            record["written"] = [_version(tensor) != was for tensor, was in zip(inputs, versions, strict=True)]
            record["inputs"] = [self._records.kept(tensor) for tensor in inputs]
            record["left on inputs"] = [_left_on(tensor) for tensor in inputs]
            record["inputs stay"] = [_place(t) == was for t, was in zip(inputs, places, strict=True)]
            record["what it reads"] = read.changes()
            record["random"] = random_states(self._device)
            self._records.append(record)


class Read:
    """The tensors and modules that a function has beside its arguments, as they are before a call."""

    def __init__(self, modules: list[torch.nn.Module], tensors: dict[str, torch.Tensor]) -> None:
        self._modules, self._tensors = modules, tensors
        self._before, self._settings = self._state(), self._of_modules()

    def _state(self) -> dict[str, Any]:
        # Some kernels write to buffers of statistics uncounted.
        return {
            name: (_version(t) if t.requires_grad else 0, _place(t), t.requires_grad, _left_on(t))
            for name, t in self._tensors.items()
        }

    def _of_modules(self) -> list[Any]:
        return [(m.training, sorted(vars(m)), len(m._forward_hooks), len(m._backward_hooks)) for m in self._modules]

    def changes(self) -> list[str]:
        """What is otherwise than before the call, by name."""
        what = "is written to", "has other memory", "has another need of a gradient", "has something new on it"
        found = [
            f"{name} {words}"
            for name, state in self._state().items()
            for words, was, now in zip(what, self._before[name], state, strict=True)
            if was != now
        ]
        return found + ["a module has another state"] * (self._of_modules() != self._settings)


def reads_of(function: Any) -> Callable[[], Read]:
    """What tells what a function reads beside its arguments: the parts of a module, or those that it closes over."""

    def read() -> Read:
        cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or () if _is_filled(cell)]
        homes = [each for each in (function, *cells) if isinstance(each, torch.nn.Module)]
        modules = [module for home in homes for module in home.modules()]
        tensors = {f"tensor {at}": cell for at, cell in enumerate(cells) if isinstance(cell, torch.Tensor)}
        for at, home in enumerate(homes):
            parts = itertools.chain(home.named_parameters(), home.named_buffers())
            tensors |= {f"{name} of module {at}": part for name, part in parts}
        return Read(modules, tensors)

    return read


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty one raises
    except ValueError:
        return False
    return True


def _place(tensor: torch.Tensor) -> Any:
    """Where a tensor has its numbers, in which order, and whether it has a gradient."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return tensor.requires_grad
    if tensor._is_zerotensor():
        return None
    return tensor.data_ptr(), tensor.stride(), tensor.untyped_storage().nbytes(), tensor.requires_grad


def plain(function: Any) -> Any:
    """The function behind a :class:`Called`."""
    return function._function if isinstance(function, Called) else function


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of nested containers, dataclasses among them, in order."""
    found = []
    for leaf in _pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif hasattr(leaf, "__dataclass_fields__"):
            found += tensors_in([getattr(leaf, name) for name in leaf.__dataclass_fields__])
    return found


def _of_results(inputs: list[torch.Tensor], results: list[torch.Tensor]) -> dict[str, Any]:
    shared = sharing([*inputs, *results])
    return {
        "results": [_outline(tensor) for tensor in results],
        "strides": [telling_strides(t) if t.layout is torch.strided else [] for t in results],
        "shares memory with": shared,
        "begins at": [tensor.storage_offset() if tensor.layout is torch.strided else 0 for tensor in results],
        "left on results": [_left_on(tensor) for tensor in results],
        "wasted memory": [_wastes(tensor) for tensor in results],
        "is an input": [next((i for i, given in enumerate(inputs) if given is each), None) for each in results],
    }


def _outline(tensor: torch.Tensor) -> str:
    """What a tensor is, apart from its dtype and its numbers: float64 has the same."""
    words = [type(tensor).__name__, str(tuple(tensor.shape))]
    words += ["requires a gradient"] * tensor.requires_grad + ["is a leaf"] * tensor.is_leaf
    words += ["of inference mode"] * tensor.is_inference() + ["conjugated by a flag"] * tensor.is_conj()
    words += ["negative by a flag"] * tensor.is_neg() + ["shared with processes"] * _is_shared(tensor)
    return " ".join(words)


def _left_on(tensor: torch.Tensor) -> str:
    """What a call may leave on a tensor beside its numbers: attributes, hooks, a gradient; torch's marks aside."""
    words = sorted(name for name in vars(tensor) if not name.startswith("_dynamo"))
    words += [f"{len(tensor._backward_hooks)} hooks"] if tensor._backward_hooks else []
    words += ["hooks after gradients"] * bool(tensor.is_leaf and tensor._post_accumulate_grad_hooks)
    words += ["keeps its gradient"] * (not tensor.is_leaf and tensor.retains_grad)
    return ", ".join(words + ["a gradient"] * (tensor.is_leaf and tensor.grad is not None))


def _wastes(tensor: torch.Tensor) -> bool:
    """Whether it keeps much more memory than its numbers take: what is stored or sent would be as large."""
    if tensor.layout is not torch.strided or type(tensor) is not torch.Tensor:
        return False
    return tensor.untyped_storage().nbytes() > 4 * tensor.numel() * tensor.element_size() + (1 << 16)


def _is_shared(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.device.type == "cpu" and tensor.is_shared()


def _version(tensor: torch.Tensor) -> int:
    """How often it was written to; tensors of inference mode do not count."""
    return -1 if tensor.is_inference() else tensor._version


def random_states(device: torch.device) -> str:
    """The states of the generators of torch, of the device too, of Python and of NumPy in one text."""
    said = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
    if device.type == "cuda":
        said.update(torch.cuda.get_rng_state(device).numpy().tobytes())
    said.update(repr(random.getstate()).encode())
    if "numpy" in sys.modules:
        state = sys.modules["numpy"].random.get_state(legacy=False)["state"]
        said.update(state["key"].tobytes() + bytes([state["pos"] % 256]))
    return said.hexdigest()[:16]
