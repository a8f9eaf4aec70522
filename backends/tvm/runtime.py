"""Calls a compiled part on torch's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import tvm_ffi

from torchmux import logs
from torchmux.registry.spec import ToolFile

from . import files, machine, streams, threads
from .layout import Layout
from .sizes import Source, values

ALIGNMENT = 64
"""Bytes.  TVM's code takes it that every tensor begins at such a boundary, and the process dies where one does not: the
rows of a matrix with an odd number of columns, say."""


class TvmFunction:
    """A compiled part: takes its tensors and sizes, returns tensors; may be called from several threads.

    ``cache_hit`` says whether the code came from the artifact cache, ``artifact`` how to make this again; ``notes``
    and ``library_calls`` are for the report.
    """

    artifact: str | None = None
    key: str | None = None  # of its code in the artifact cache, if it is kept

    def __init__(
        self,
        executable: Any,
        inputs: Sequence[Layout],
        outputs: Sequence[Layout],
        constants: Sequence[torch.Tensor],
        sizes: Sequence[Source],
        device: torch.device,
        *,
        cache_hit: bool,
        notes: Sequence[str],
        library_calls: Mapping[str, str],
    ) -> None:
        self.cache_hit = cache_hit
        self.notes = tuple(notes)
        self.library_calls = library_calls
        self._executable = executable
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._constants = tuple(_at_boundary(c) for c in constants)
        self._unusual = tuple(i for i, layout in enumerate(outputs) if not layout.is_usual)
        self._sizes = tuple(sizes)
        self._device = device
        self._as_they_are = all(layout.order is None for layout in self._inputs)
        self._free: list[Any] = []
        self._copied: tuple[int, ...] | None = None  # outputs that show memory of something else, once known

    @classmethod
    def described(
        cls, executable: Any, head: Mapping[str, Any], constants: Sequence[torch.Tensor], *, cache_hit: bool
    ) -> TvmFunction:
        """The function for an executable; ``head`` has the data stored with it."""
        inputs, outputs = ([Layout.from_json(v) for v in head[name]] for name in ("inputs", "outputs"))
        sizes, device = [tuple(source) for source in head["sizes"]], torch.device(head["device"])
        told: dict[str, Any] = {name: head[name] for name in ("notes", "library_calls")}
        return cls(executable, inputs, outputs, constants, sizes, device, cache_hit=cache_hit, **told)

    @property
    def output_code(self) -> list[str]:
        """The module in Relax, if somebody reads it and it is kept."""
        return files.relax_of(self.key) if "output_code" in logs.enabled() else []

    def files(self) -> list[ToolFile]:
        return files.tool_files(self.key)

    def __call__(self, *args: Any) -> tuple[torch.Tensor, ...]:
        sizes = (tvm_ffi.Shape(values(self._sizes, args)),) if self._sizes else ()
        given = (*args, *self._constants)
        if len(given) > len(self._inputs):  # numbers are among the arguments, whether or not the code asks for them
            given = tuple(v for v in given if isinstance(v, torch.Tensor))
        if self._as_they_are:
            given = tuple(v if v.is_contiguous() else v.contiguous() for v in given)
        else:
            given = tuple(layout.hand_over(v) for layout, v in zip(self._inputs, given, strict=True))
        given = tuple(_at_boundary(v) for v in given)
        try:
            main = self._free.pop()
        except IndexError:
            main = machine.start(self._executable, self._device)
        run = main
        try:
            if self._device.type == "cuda":
                run = streams.on_torchs_stream(main, self._device)
            else:
                threads.follow_torch()
            if torch.is_grad_enabled():
                with torch.no_grad():
                    results = list(run(*sizes, *given))
            else:
                results = list(run(*sizes, *given))
        finally:
            self._free.append(main)
        if not self._inputs:  # TVM knows that results are to be torch's by what it is given
            results = [torch.from_dlpack(r) for r in results]
        if self._copied is None:
            self._copied = _sharing(given, results)
        for position in self._copied:
            results[position] = results[position].clone()
        for position in self._unusual:
            results[position] = self._outputs[position].take_back(results[position])
        return tuple(results)


def _at_boundary(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def _sharing(inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Results on the memory of an input or of an earlier result: Relax reshapes without copying."""
    seen = {t.data_ptr() for t in inputs}
    found = []
    for position, result in enumerate(results):
        if result.data_ptr() in seen:
            found.append(position)
        seen.add(result.data_ptr())
    return tuple(found)
