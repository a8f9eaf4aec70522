"""Where torch keeps what guards on a tensor are about: words in memory that a watch compares.

The check in C++ takes 70 nanoseconds for each tensor of a model, a watch takes one or two for each word.  The words are
the sizes and strides, the dtype, the device and the flags, the dispatch keys, and whether gradients are needed.  Where
they stand is found out, and every way to write to them is tried, on the installed torch: see :func:`is_available`.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch

from torchmux import torch_internals as ti

from . import write_watch
from .write_watch import CLASS, WORD, Watch, read

_LONGEST = 5  # dimensions: more of them stand elsewhere
_IN_OBJECT, _IN_TENSOR, _IN_AUTOGRAD = 8, 26, 24  # words that are looked at


class Layout(NamedTuple):
    """Positions of words: in the Python object, in torch's tensor, and in what autograd adds to that."""

    tensor: int
    sizes: int
    facts: tuple[int, ...]  # dtype, device, flags, dispatch keys
    autograd: int
    needs_grad: tuple[int, int]  # whether it was asked for, and what it was computed by


def note(watch: Watch, tensor: Any) -> bool:
    """Have ``watch`` note all that a guard on ``tensor`` compares; False if that is not possible for this one."""
    layout = _layout()
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return False
    if tensor.is_nested or tensor.dim() > _LONGEST or layout is None:
        return False
    address = tensor._cdata
    sizes = address + layout.sizes
    strides = sizes + (1 + _LONGEST) * WORD
    places = [sizes + WORD * (1 + n) for n in range(tensor.dim())] + [strides + WORD * n for n in range(tensor.dim())]
    if [*map(read, places)] != [*tensor.shape, *tensor.stride()] or read(sizes) != tensor.dim():
        return False  # a kind of tensor that keeps them elsewhere
    watch.note(tensor, id(tensor) + CLASS)
    watch.note(tensor, id(tensor) + layout.tensor)
    behind = [sizes, *places, *(address + offset for offset in layout.facts), address + layout.autograd]
    if (autograd := read(address + layout.autograd)) != 0:
        flag, history = layout.needs_grad
        behind += (
            [autograd + flag] if tensor.is_leaf and tensor.requires_grad else [autograd + flag, autograd + history]
        )
    for place in behind:
        watch.note_behind(tensor, place)
    return True


# --- the trial -------------------------------------------------------------------------------------------------------


def _ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype, device="cpu")  # whatever the defaults are


def _words(address: int, count: int) -> list[int]:
    return [read(address + WORD * n) for n in range(count)]


def _changes(address: int, count: int, write: Any) -> list[int]:
    """The offsets of the words that ``write`` changes."""
    before = _words(address, count)
    write()
    return [WORD * n for n, (was, now) in enumerate(zip(before, _words(address, count), strict=True)) if was != now]


@functools.cache
def _layout() -> Layout | None:
    try:
        with torch.inference_mode(False), torch.enable_grad():
            return _find()
    except (ValueError, IndexError):
        return None


def _find() -> Layout:
    """Where the words stand; a ValueError if they are not where they are expected."""
    shape, strides = [1009, 1013], [10007, 10009]
    tensor = torch.empty_strided(shape, strides, device="meta")
    in_object = _words(id(tensor), _IN_OBJECT).index(tensor._cdata)
    words = _words(tensor._cdata, _IN_TENSOR)
    (sizes,) = [n for n in range(_IN_TENSOR - 8) if words[n : n + 3] == [2, *shape] and words[n + 6 : n + 8] == strides]
    offset_and_count = sizes + 1 + 2 * _LONGEST
    if words[offset_and_count : offset_and_count + 2] != [0, 1009 * 1013]:
        raise ValueError
    (last,) = [n for n in range(offset_and_count + 2, _IN_TENSOR) if words[n] == ti.dispatch_keys(tensor)]
    plain = _ones(2)
    (autograd,) = _changes(plain._cdata, last + 1, plain.requires_grad_)
    behind = read(plain._cdata + autograd)
    flags = [_changes(behind, _IN_AUTOGRAD, lambda n=n: plain.requires_grad_(n % 2 == 1)) for n in range(6)]
    (flag,) = set.intersection(*map(set, flags))  # what lies next to it may change as well
    written = _ones(2).requires_grad_().requires_grad_(False)
    source = _ones(2).requires_grad_()
    history = _changes(read(written._cdata + autograd), flag // WORD, lambda: written.add_(source))
    facts = tuple(WORD * n for n in range(offset_and_count + 2, last + 1))
    return Layout(WORD * in_object, WORD * sizes, facts, autograd, (flag, history[0]))


def is_noticed(write: Any) -> bool:
    """Whether a watch detects this operation on a tensor that needs no gradients."""
    tensor = torch.nn.Parameter(_ones(2, 3), requires_grad=False)
    watch = Watch()
    if not note(watch, tensor):
        return False
    watch.seal()
    if not watch.unchanged():
        return False
    write(tensor)
    return not watch.unchanged()


def _set_data(tensor: Any, value: Any) -> None:
    tensor.data = value


WRITES = (
    lambda t: t.requires_grad_(),
    lambda t: t.add_(_ones(2, 3).requires_grad_()),
    lambda t: t.resize_(3, 2),
    lambda t: t.t_(),
    lambda t: t.unsqueeze_(0),
    lambda t: t.as_strided_((2, 3), (1, 1)),
    lambda t: t.set_(_ones(5)),
    lambda t: _set_data(t, _ones(3, 2)),
    lambda t: _set_data(t, _ones(3, 2).t()),
    lambda t: _set_data(t, _ones(6)),
    lambda t: _set_data(t, _ones(2, 3, 1)),
    lambda t: _set_data(t, _ones(2, 3, dtype=torch.float64)),
    lambda t: _set_data(t, _ones(2, 3, dtype=torch.complex64)),
    lambda t: _set_data(t, _ones(2, 3, dtype=torch.bfloat16)),
    lambda t: torch.utils.swap_tensors(t, torch.nn.Parameter(_ones(2, 3))),
    lambda t: setattr(t, "__class__", torch.Tensor),
)


@functools.cache
def is_available() -> bool:
    """Whether such watches work here."""
    if not write_watch.is_available() or _layout() is None:
        return False
    try:
        with torch.inference_mode(False), torch.enable_grad():
            return all(map(is_noticed, WRITES))
    except (RuntimeError, TypeError, AttributeError):
        return False
