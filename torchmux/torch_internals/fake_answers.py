"""What operators make of fake tensors, remembered by a fake mode for the next layer that is alike.

torch remembers this as well, for all modes of a process.  It describes each tensor by seventeen fields for that, on the
way to an answer that takes longer than most captures can afford: a third of a millisecond for each operator.  Most
tensors of a model are plain, which few words tell: known sizes, dense, and no number behind them that torch keeps track
of.  Views of such tensors are made by the kernels of real views, which are faster than any memory.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import torch

from .frame_hook import dispatch_keys

_aten = torch.ops.aten

_VIEWS = frozenset(
    (
        _aten._unsafe_view.default,
        _aten.expand.default,
        _aten.permute.default,
        _aten.select.int,
        _aten.slice.Tensor,
        _aten.squeeze.dim,
        _aten.squeeze.dims,
        _aten.t.default,
        _aten.transpose.int,
        _aten.unsqueeze.default,
        _aten.view.default,
    )
)
"""Operators whose only tensor is their first argument, and whose result lies in its memory."""

_OF_DATA = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view)
_CONSTANTS = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)

Key = tuple[Hashable, ...]
"""All that an answer depends on."""


def made_view(mode: Any, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of a view of a plain tensor; None if it is something else, or fails."""
    if func not in _VIEWS or kwargs or not mode.cache_enabled:
        return None
    with torch._C.DisableTorchFunction():
        if not _is_plain(mode, args[0]) or not all(map(_is_known, args[1:])):
            return None
        from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager

        try:
            with in_kernel_invocation_manager(mode):
                view = func(*args)
        except (RuntimeError, IndexError):  # the fake raises its own
            return None
        return FakeTensor(mode, view, args[0].fake_device)


def key_of(mode: Any, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], refuses: bool) -> Key | None:
    """The name of the answer; None if nothing is remembered for such a call."""
    if not _has_answers(func) or not mode.cache_enabled:
        return None
    words: list[Any] = [func, refuses]
    with torch._C.DisableTorchFunction():
        words += torch.get_default_dtype(), torch._C._get_default_device(), torch.is_inference_mode_enabled()
        if not _add_all(words, args, mode) or not _add_all(words, kwargs.values(), mode):
            return None
    words += kwargs
    return tuple(words)


def recalled(mode: Any, key: Key, args: Sequence[Any]) -> Any:
    """What was remembered under this name, as new tensors; None if nothing was."""
    recipe = _answers(mode).get(key)
    if recipe is None:
        return None
    if recipe == _FIRST:
        return args[0]
    with torch._C.DisableTorchFunction():
        if type(recipe) is list:
            return tuple(None if each is None else _new(mode, *each) for each in recipe)
        return _new(mode, *recipe)


def remember(mode: Any, key: Key, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
    """Keep ``result`` for the next call, if it is plain and new, or the first argument."""
    if func._schema.is_mutable:
        if result is args[0] and key_of(mode, func, args, kwargs, bool(key[1])) == key:  # of the same kind as before
            _answers(mode)[key] = _FIRST
        return
    with torch._C.DisableTorchFunction():
        results = result if type(result) is tuple else (result,)
        there = {t.untyped_storage()._cdata for t in tensors_in((*args, *kwargs.values()))}
        recipes: list[Any] = []
        for each in results:
            if each is None:
                recipes.append(None)
                continue
            if not _is_plain(mode, each) or each.requires_grad or (own := each.untyped_storage()._cdata) in there:
                return
            there.add(own)
            recipes.append((each.shape, each.stride(), each.dtype, each.fake_device))
            if _described(_new(mode, *recipes[-1])) != _described(each):
                return
    _answers(mode)[key] = recipes if type(result) is tuple else recipes[0]


_FIRST = "the first argument"


def _answers(mode: Any) -> dict[Key, Any]:
    found: dict[Key, Any] = vars(mode).setdefault("torchmux_answers", {})
    return found


@functools.cache
def _has_answers(func: Any) -> bool:
    """Whether the results of an operator follow from what is said of its arguments."""
    if getattr(func, "namespace", None) not in ("aten", "prims") or not hasattr(func, "_schema"):
        return False
    return not func.is_view and not any(tag in func.tags for tag in _OF_DATA) and "lift" not in func._schema.name


def _is_plain(mode: Any, value: Any) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    if type(value) is not FakeTensor or value.fake_mode is not mode or value.constant is not None:
        return False
    if value.layout is not torch.strided or value._has_symbolic_sizes_strides:
        return False
    # A row of a symbolic number has known sizes, and begins somewhere.
    return type(value.storage_offset()) is int and type(value.untyped_storage().nbytes()) is int


def _is_known(value: Any) -> bool:
    if type(value) in (list, tuple):
        return all(type(each) is int for each in value)
    return value is None or type(value) is int


def _described(tensor: Any) -> tuple[Hashable, ...]:
    """A plain tensor in words.  Whether it is conjugate, negative, quantized or of inference is in its keys."""
    place = tensor.storage_offset(), tensor.untyped_storage().nbytes()
    kind = tensor.dtype, tensor.fake_device, dispatch_keys(tensor), tensor.requires_grad
    return *kind, tensor.shape, tensor.stride(), *place


def _add_all(words: list[Any], values: Any, mode: Any) -> bool:
    """Add what ``values`` are; False if one of them is nothing that is remembered."""
    for value in values:
        kind = type(value)
        words.append(kind)
        if kind in _CONSTANTS:
            words.append(value)
        elif kind in (list, tuple):
            words.append(len(value))
            if not _add_all(words, value, mode):
                return False
        elif _is_plain(mode, value):
            words += _described(value)
        else:
            return False
    return True


def _new(mode: Any, shape: Any, strides: Any, dtype: torch.dtype, device: torch.device) -> Any:
    from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager

    with in_kernel_invocation_manager(mode):
        meta = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
    return FakeTensor(mode, meta, device)


def tensors_in(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    """The tensors among arguments, and in their lists."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)
