"""Calls compiled graphs."""

from __future__ import annotations

import functools
import struct
import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Union

import torch

from torchmux import logs, torch_internals as internals
from torchmux.registry.spec import ToolFile
from torchmux.stages import stage

from ..common import onednn_lstm, recurrent
from ..common.cache.code_or_refusal import Code
from ..common.pipeline.promises import brought, copied
from . import faults, targets
from .targets.loaded import Sooner

if TYPE_CHECKING:
    from torchmux.registry.report import GraphReport, Placement

    from .replaying import Replayed


def fit(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """``tensor``, or a copy of it, with the strides that the code was compiled for."""
    if tensor.stride() == tuple(strides):
        return tensor
    if all(s <= 1 or a == b for s, a, b in zip(tensor.shape, tensor.stride(), strides, strict=True)):
        return tensor
    return copied(tensor, strides)


def shown(tensor: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
    """A view of memory, ``offset`` elements from the tensor's first."""
    return tensor.as_strided(sizes, strides, tensor.storage_offset() + offset)


def new_arena(size: int, device: torch.device | None = None) -> torch.Tensor:
    """Memory for what torch never sees."""
    return torch.empty(size, dtype=torch.uint8, device=device)


class KeptScratch(threading.local):
    """As :func:`new_arena`, with one piece of memory for each thread that stays for the next call."""

    arena: torch.Tensor | None = None

    def __call__(self, size: int, device: torch.device | None = None) -> torch.Tensor:
        if self.arena is None or self.arena.numel() < size:
            self.arena = new_arena(size, device)
        return self.arena


class NativeFunction:
    """A compiled graph: flat inputs in, flat outputs out; ``artifact`` is its name in the cache.

    ``direct`` takes and returns the same in less time.  ``library_positions`` tells of nodes by where they stand in the
    graph, since names differ among equal graphs.
    """

    artifact: str | None = None
    _calls_in: str | None = None
    _report: GraphReport | None = None
    library_calls: Mapping[str, str] = MappingProxyType({})
    kernels: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        head: Mapping[str, Any],
        built: bytes,
        constants: Mapping[str, torch.Tensor],
        *,
        cache_hit: bool,
    ) -> None:
        self.notes: list[str] = head["notes"]
        self.library_positions: list[tuple[int, str]] = head["library_calls"]
        self.kernel_positions: list[tuple[int, str]] = head["kernels"]
        self.cache_hit = cache_hit
        self.output_code = [head["code"], head["python"]]
        self._target, self._own = head["target"], head["own"]
        code = targets.loader(head["target"])(head["own"], built, constants)
        kept = KeptScratch() if head["keep_scratch"] else None
        namespace: dict[str, Any] = {
            "torch": torch,
            "ops": torch.ops,
            **internals.functions_in_c,
            "recurrent": recurrent,
            "onednn_lstm": onednn_lstm,
            "empty": internals.new_on_cpu,
            "array": array,
            "pack": struct.pack,
            "fit": fit,
            "brought": brought,
            "overwritten": internals.increment_versions,
            "shown": shown,
            "new_arena": kept or new_arena,
            "kept_arena": kept,
            "fault": faults.fault,
            "inf": float("inf"),
            "nan": float("nan"),
            **{name: constants[of] for name, of in zip(head["names"], head["constants"], strict=True)},
            **code.names,
        }
        around = code.around or (lambda run: run)
        self._run = around(self._made(head["python"], namespace, code.sooner))
        if head["library_calls"]:  # what these allocate can lie where inputs were
            made = functools.partial(_emptying, head["python"], namespace)
            self._run.make_emptying = lambda: around(made())  # type: ignore[attr-defined]
        self._timers: list[str] = head["timers"]
        self._take_times = code.take_times
        self.direct: Callable[..., Sequence[Any]] = self._run if self._take_times is None else self
        self.kernel_seconds: list[tuple[str, float]] | None = None if self._take_times is None else []

    def _made(self, text: str, namespace: dict[str, Any], sooner: Sooner | None) -> Callable[..., Any]:
        """``run``, or what stands in for it; else ``run`` looks for that once it has been called often."""
        if sooner is None:
            return _function(text, namespace)
        if sooner.is_there and (made := sooner(_function(text, namespace), namespace)) is not None:
            self._calls_in = IN_CPP
            return made

        def look() -> None:
            if (made := sooner(_function(text, dict(namespace)), namespace)) is not None:
                namespace["sooner"] = made
                self._say(IN_CPP)
            elif (why := sooner.why_not) is not None:
                namespace["until"] = repeat(None)
                self._say(f"{IN_PYTHON} ({why})")
            else:
                namespace["until"] = repeat(None, OFTEN - 1)

        namespace |= {"sooner": None, "until": repeat(None, OFTEN - 1), "look": look}
        return _function(_looking(text), namespace)

    def follow(self, report: GraphReport, placements: list[Placement]) -> None:
        """Say in the report how the code is called, and when that changes."""
        self._report = report
        if self._calls_in is not None:
            self._say(self._calls_in)

    def _say(self, words: str) -> None:
        self._calls_in = words
        if self._report is not None and words not in self._report.notes:  # both passes may say it
            self._report.notes.append(words)

    def files(self) -> list[ToolFile]:
        from . import files

        code, host = self.output_code
        return files.tool_files(self._target, code, host, self._own, self.artifact)

    def __call__(self, *args: Any) -> Sequence[Any]:
        result: Sequence[Any] = self._run(*args)
        if self._take_times is not None:
            self._tell_times(self._take_times())
        return result

    def _tell_times(self, spent: Sequence[float]) -> None:
        """Say how long each step of this call took, the longest first."""
        steps = sorted(zip(spent, self._timers, strict=True), reverse=True)
        if self.kernel_seconds is not None:
            self.kernel_seconds[:] = [(step, seconds) for seconds, step in steps]
        lines = [f"{seconds * 1e3:10.4f} ms  {step}" for seconds, step in steps]
        logs.emit("kernel_times", f"{sum(spent) * 1e3:.4f} ms in {len(steps)} steps", "\n".join(lines))


OFTEN = 256
"""After how many calls a graph looks for what calls it sooner, and after how many more it looks again."""

IN_CPP = "native calls it from C++"
IN_PYTHON = "native calls it from Python"


def _function(text: str, namespace: dict[str, Any]) -> Callable[..., Any]:
    exec(compile(text, "<torchmux native>", "exec"), namespace)
    made: Callable[..., Any] = namespace["run"]
    return made


def _looking(text: str) -> str:
    """``run``, which counts its calls, and looks from time to time for what stands in for it."""
    head, _, body = text.partition("):\n")
    parameters = head.partition("def run(")[2]
    lines = ["if sooner is not None:", f"    return sooner({parameters})", "if next(until, True):", "    look()"]
    return f"{head}):\n" + "".join(f"    {line}\n" for line in lines) + body


def _emptying(text: str, namespace: dict[str, Any]) -> Callable[[list[Any]], Sequence[Any]]:
    """``run`` as a function of a list of its inputs, which it empties: each is freed after its last use."""
    before, _, rest = text.partition("def run(")
    parameters, _, body = rest.partition("):\n")
    head = f"def emptying(given):\n    [{parameters}] = given\n    given.clear()\n"
    exec(compile(before + head + body, "<torchmux native>", "exec"), namespace)
    made: Callable[[list[Any]], Sequence[Any]] = namespace.pop("emptying")
    return made


Made = Union[NativeFunction, "Replayed"]
"""What a graph is compiled to."""


class MissingConstant(LookupError):
    """The graph lacks a tensor that an artifact needs."""


def loaded(code: Code, constant: Callable[[str], torch.Tensor | None], *, cache_hit: bool) -> Made:
    """The function of an artifact that holds code; ``constant`` finds the graph's tensors by name.

    Raises:
        MissingConstant: a tensor is missing; freezing a graph creates some.
    """
    head = code.head
    for kind in ("fusion", "perf_hints"):
        if head[kind]:
            logs.emit(kind, "native", "\n".join(head[kind]))
    constants = {}
    for name in head["constants"]:
        if (tensor := constant(name)) is None:
            raise MissingConstant(name)
        constants[name] = tensor.detach()
    with stage("load"):
        function = NativeFunction(head, code.code, constants, cache_hit=cache_hit)
        return function if head["replay"] is None else _replayed(function, **head["replay"])


def _replayed(function: NativeFunction, device: str, symbolic: bool, writes: Sequence[int]) -> Replayed:
    from .replaying import Replayed

    return Replayed(function, torch.device(device), symbolic=symbolic, writes=writes)
