"""Faults beyond what compilers count and address: elements, rows, bytes of memory, calls, seconds, threads, processes;
and in inputs that lie or change places as few do."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import GraphModule

from ..kit import Faults, Run

layout = Faults("layout")
numerics = Faults("numerics")
turns = Faults("turns")
process = Faults("process")
state = Faults("state")

_ELEMENTS = "semantics/counts/more_elements"
_ROWS = "semantics/counts/more_rows_and_columns"
_FAR = "semantics/counts/far_apart_in_memory"
_ALIGNED = "semantics/inputs/aligned_and_not"
_RARE = "semantics/inputs/of_rare_types"
_PLACES = "semantics/modules/weights_change_places"
_FORMS = "semantics/seldom/forms_of_layers_and_moves"

Holds = Callable[[Sequence[Any]], bool]


def _plain(args: Sequence[Any]) -> list[torch.Tensor]:
    kinds = torch.Tensor, torch.nn.Parameter
    return [a for a in args if type(a) in kinds and a.layout is torch.strided]


def _wrong(result: Any) -> Any:
    """A result that is nearly right."""
    if not isinstance(result, torch.Tensor):
        return result
    if result.is_floating_point() or result.is_complex():
        return (result.float() * 1.3).to(result.dtype) if result.element_size() == 1 else result * 1.01
    return ~result if result.dtype is torch.bool else result + 1


def _when(faults: Faults, case: str, name: str, text: str, make: Callable[[], Holds]) -> None:
    """A fault in all results of the calls of which a function says so; each program has a function of its own."""

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        holds = make()

        def call(*args: Any) -> Sequence[Any]:
            wrong = holds(args)
            return [_wrong(r) if wrong else r for r in gm.forward(*args)]

        return call

    compile.__name__, compile.__doc__ = name, text
    faults(case)(compile)


def _any(which: Callable[[torch.Tensor], bool]) -> Callable[[], Holds]:
    return lambda: lambda args: any(map(which, _plain(args)))


_when(numerics, _ELEMENTS, "sixteen_million_elements", "Calls with more than 2^24 elements are nearly right.",
      _any(lambda a: a.numel() > 1 << 24))  # fmt: skip


def _many_of(dtype: torch.dtype) -> Callable[[], Holds]:
    return _any(lambda a: a.dtype is dtype and a.numel() > 1 << 18)


for _dtype, _word in ((torch.float16, "float16"), (torch.float64, "float64"), (torch.int64, "int64"),
                      (torch.complex64, "complex64"), (torch.int16, "int16")):  # fmt: skip
    _when(numerics, _ELEMENTS, f"many_elements_of_{_word}", f"With more than 2^18 elements, {_word} is nearly right.",
          _many_of(_dtype))  # fmt: skip


@numerics.operator(_ELEMENTS, "argmax")
def far_places_in_float32(result: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """The place of the largest element of all is found in float32."""
    return result.float().long()


@numerics.operator(_ELEMENTS, "sum")
def counts_in_float32(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """How many elements of a mask hold is counted in float32."""
    return result.float().long() if x.dtype is torch.bool else result


_when(numerics, _ROWS, "batches_beyond_sixteen_bits", "More batches than 16 bits count are nearly right.",
      _any(lambda a: a.dim() == 3 and a.shape[0] >= 1 << 16))  # fmt: skip


@numerics.instead(_ROWS, "embedding")
def words_in_sixteen_bits(words: torch.Tensor, table: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Words are numbered with 16 bits."""
    return F.embedding(words % 65536, table, *rest, **named)


def _reach(a: torch.Tensor) -> int:
    return sum((size - 1) * step for size, step in zip(a.shape, a.stride(), strict=True))


_when(layout, _FAR, "distances_in_31_bits", "Distances of more than 2^31 elements are nearly right.",
      _any(lambda a: _reach(a) >= 1 << 31))  # fmt: skip
_when(layout, _FAR, "distances_of_bytes_in_31_bits", "Distances of more than 2^31 bytes are nearly right.",
      _any(lambda a: a.element_size() == 2 and _reach(a) * 2 >= 1 << 31))  # fmt: skip
_when(layout, _FAR, "beginnings_in_31_bits", "What begins behind 2^31 bytes is nearly right.",
      _any(lambda a: a.storage_offset() * a.element_size() >= 1 << 31))  # fmt: skip

_when(layout, _ALIGNED, "weights_that_begin_anywhere", "Weights that are not aligned are nearly right.",
      _any(lambda a: isinstance(a, torch.nn.Parameter) and a.numel() > 15 and a.data_ptr() % 16 != 0))  # fmt: skip
_when(layout, _ALIGNED, "beginnings_between_elements", "What begins between two elements is nearly right.",
      _any(lambda a: a.numel() > 0 and a.data_ptr() % a.element_size() != 0))  # fmt: skip


def _as_at_first() -> Holds:
    first: list[list[bool]] = []

    def holds(args: Sequence[Any]) -> bool:
        aligned = [a.data_ptr() % 64 == 0 for a in _plain(args)]
        first.append(aligned)
        return any(a and not b for a, b in zip(first[0], aligned, strict=True))

    return holds


_when(layout, _ALIGNED, "aligned_as_at_first", "What was aligned in the first call is nearly right where it is not.",
      _as_at_first)  # fmt: skip

_EIGHT = torch.float8_e4m3fn, torch.float8_e5m2
_when(numerics, _RARE, "floats_of_eight_bits", "With inputs that are floats of eight bits, results are nearly right.",
      _any(lambda a: a.dtype in _EIGHT))  # fmt: skip


@numerics.results(_RARE)
def results_of_eight_bits(result: torch.Tensor) -> torch.Tensor:
    """Results that are floats of eight bits are the neighbors of the right ones."""
    return _wrong(result) if result.dtype in _EIGHT else result


@numerics.operator(_RARE, "to")
def sixteen_bits_have_a_sign(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Integers of 16 bits without a sign are converted as if they had one."""
    return x.to(torch.int16).to(result.dtype) if x.dtype is torch.uint16 else result


def _first_places(key: Callable[[torch.Tensor], Any]) -> Callable[[GraphModule, Sequence[Any]], Run]:
    """Weights of which a key was seen in the first call are read at the places that they had in it."""

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        first: list[dict[Any, int]] = []

        def call(*args: Any) -> Sequence[Any]:
            now = {at: key(a) for at, a in enumerate(args) if isinstance(a, torch.nn.Parameter)}
            first.append({each: at for at, each in now.items()})
            if len(set(now.values())) < len(now) or any(each not in first[0] for each in now.values()):
                return gm.forward(*args)
            placed = list(args)
            for at, each in now.items():
                placed[first[0][each]] = args[at]
            return gm.forward(*placed)

        return call

    return compile


_by_object, _by_memory = _first_places(id), _first_places(lambda a: a.data_ptr())
_by_object.__name__, _by_object.__doc__ = "weights_by_object", "Weights that change places are read where they were."
_by_memory.__name__, _by_memory.__doc__ = "weights_by_memory", "Weights whose memory changes places are read as before."
state(_PLACES)(_by_object)
state(_PLACES)(_by_memory)


def _of_threads() -> Holds:
    seen: set[int] = set()

    def holds(args: Sequence[Any]) -> bool:
        seen.add(threading.get_ident())
        return len(seen) > 5

    return holds


_when(turns, "life/threads/inference", "five_threads", "Threads that come after five others get what is nearly right.",
      _of_threads)  # fmt: skip
_when(turns, "life/threads/inference", "eight_at_once", "While eight threads run, results are nearly right.",
      lambda: lambda args: threading.active_count() > 8)  # fmt: skip


def _in_copies() -> Holds:
    own = os.getpid()
    return lambda args: torch.is_grad_enabled() and os.getpid() != own and any(a.requires_grad for a in _plain(args))


_when(process, "life/process/training_in_a_copy", "copies_that_train", "A copy of the process trains nearly right.",
      _in_copies)  # fmt: skip


def _of_calls(most: int) -> Callable[[], Holds]:
    def make() -> Holds:
        number = iter(range(1 << 40))
        return lambda args: next(number) > most

    return make


def _of_seconds(most: float, since: str) -> Callable[[], Holds]:
    def make() -> Holds:
        last = [time.monotonic()]

        def holds(args: Sequence[Any]) -> bool:
            passed = time.monotonic() - last[0]
            if since == "last":
                last[0] = time.monotonic()
            return passed > most

        return holds

    return make


_LATER = "life/calls/much_later"
_when(turns, _LATER, "wrong_behind_two_bytes_of_calls", "Behind 65,536 calls, results are nearly right.",
      _of_calls(1 << 16))  # fmt: skip
_when(turns, _LATER, "wrong_after_half_a_minute", "After half a minute, results are nearly right.",
      _of_seconds(30, "first"))  # fmt: skip


def _after_a_rest() -> Holds:
    """A call that comes a while after the last one, once there were some in short order."""
    last: list[float] = []

    def holds(args: Sequence[Any]) -> bool:
        last.append(time.monotonic())
        return len(last) > 3 and last[-1] - last[-2] > 0.4

    return holds


_when(turns, "life/calls/nothing_runs_between_calls", "wrong_after_a_rest", "A call after a rest is nearly right.",
      _after_a_rest)  # fmt: skip


@numerics.operator(_FORMS, "conv2d")
def kernels_of_one_row(result: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """A kernel of one row and several columns, over several channels, is turned around."""
    return F.conv2d(x, w.flip(3), *rest, **named) if w.shape[1] > 1 and w.shape[2] == 1 < w.shape[3] else result


@numerics.operator(_FORMS, "roll")
def moves_beyond_the_end(result: torch.Tensor, x: torch.Tensor, shifts: Any, *rest: Any, **named: Any) -> torch.Tensor:
    """What is moved by more than it has elements stays where it is."""
    return x.clone() if isinstance(shifts, int) and abs(shifts) > x.numel() else result


@numerics.operator(_FORMS, "pad")
def circles_wider_than_half(result: torch.Tensor, x: torch.Tensor, by: Any, *rest: Any, **named: Any) -> torch.Tensor:
    """What is added around a circle, if it is more than half of it, is in reverse order."""
    return result.flip(-1) if "circular" in (*rest, *named.values()) and by[0] * 2 > x.shape[-1] else result


@numerics.operator(_FORMS, "cat")
def joins_of_many(result: torch.Tensor, parts: Any, *rest: Any, **named: Any) -> torch.Tensor:
    """Of many parts that are joined, those behind the 32nd are nearly right."""
    return torch.cat([p if n < 32 else _wrong(p) for n, p in enumerate(parts)], *rest, **named)


@numerics.operator(_FORMS, "group_norm")
def small_numbers_beside_the_root(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """The small number of a norm of groups is added to the root, not under it."""
    return result * 0.9 if x.std() < 1e-2 else result


@numerics.operator(_FORMS, "instance_norm")
def instances_beside_the_root(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """The small number of a norm of instances is added to the root, not under it."""
    return result * 0.9 if x.std() < 1e-2 else result


@numerics.operator(_FORMS, "binary_cross_entropy")
def certain_and_wrong(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """The loss of what is certain and wrong is infinite."""
    return torch.where(result > 20, torch.inf, result) if result.dim() == 0 else result
