"""Timing the kernel of a finished product, in tiles of all sizes, beside the library and a pass over its result.

Both compute made-up numbers on the GPU of the graph.  Their launches are recorded, so that only the GPU's time counts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from torchmux import logs, torch_internals as internals

from ....ir.expressions import Buffer, Statement
from ....ir.program import Call, Program, TensorRef
from ....schedule.kernel import of_statement
from .. import compiling, driver, gpu_host, loading, loops
from ..compiling import Cubin
from ..printer import print_kernel
from ..scopes import TritonKernel
from ..shapes import Shape
from .candidates import Candidate
from .choosing import Choice, library_way, ways
from .printing import print_product

_CALLS = 20
"""So many calls are recorded together."""
_ROUNDS = 5
_CACHE = 2**27
_MOST_TURNS = 8
"""Inputs of as many calls as the second cache cannot hold, which is at most 60 MB on a GPU of today."""
_GAIN = 0.97
"""What saves less of the time is noise."""

_known: dict[str, tuple[Shape, ...]] = {}
"""What was found in this process, by the code of both sides; the lock of expressions is held around it."""


def measured(program: Program, capability: int) -> Choice:
    """The choice for the products of ``program``, whose device is there and has this compute capability."""

    def choice(candidates: Sequence[Candidate]) -> list[tuple[Shape, ...]]:
        if torch.cuda.is_current_stream_capturing():
            return [()] * len(candidates)
        sides = [_sides(program, candidate) for candidate in candidates]
        new = {each.key: each for each in sides if each.key not in _known}
        jobs = [job for each in new.values() for job in each.jobs()]
        with internals.without_modes(), torch.no_grad(), torch.cuda.device(program.device):
            cubins = iter(compiling.attempt_all(jobs, capability))
            for key, each in new.items():
                _known[key] = each.best([next(cubins) for _ in each.jobs()], program.device)
        return [_known[each.key] for each in sides]

    return choice


def _sides(program: Program, candidate: Candidate) -> _Sides:
    candidate.step.shapes = ways(candidate.step)
    theirs = [
        print_kernel(loops.plan(of_statement(item, 0), {item.target})) if isinstance(item, Statement) else item
        for item in library_way(program, candidate)
    ]
    return _Sides(print_product(candidate.step), theirs)


@dataclass(frozen=True)
class _Sides:
    """Our kernel, in several shapes; and what the library's way is: calls and a kernel in one shape."""

    ours: TritonKernel
    theirs: Sequence[TritonKernel | Call]

    @property
    def key(self) -> str:
        return "\n".join(map(_told, (self.ours, *self.theirs)))

    @property
    def passes(self) -> list[TritonKernel]:
        return [part for part in self.theirs if isinstance(part, TritonKernel)]

    def jobs(self) -> list[compiling.Job]:
        """Each shape of ours, and then what the library's way needs."""
        in_shapes = [replace(self.ours, shapes=(shape,)) for shape in self.ours.shapes]
        return [gpu_host.job(kernel, "kernel", narrow=False) for kernel in (*in_shapes, *self.passes)]

    def best(self, cubins: Sequence[Cubin | None], device: torch.device) -> tuple[Shape, ...]:
        """The fastest shape, if it takes less time than the library's way."""
        numbers = torch.Generator(device).manual_seed(0)  # the program's own stay what they were
        turns = self._made_up(device, numbers)
        count = len(self.ours.shapes)
        runs: dict[Shape, _Recorded] = {}
        for shape, cubin in zip(self.ours.shapes, cubins, strict=False):
            if cubin is not None and cubin.shared <= driver.most_shared_memory(device):
                launch = _Launch(replace(self.ours, shapes=(shape,)), cubin, device)
                runs[shape] = _Recorded(functools.partial(launch, {}), turns, device)
        passes = []
        for kernel, cubin in zip(self.passes, cubins[count:], strict=True):
            if cubin is None:
                return ()
            passes.append(_Launch(kernel, cubin, device))
        limit, *taken = _in_turns([_Recorded(functools.partial(self._library, passes), turns, device), *runs.values()])
        found = sorted(zip(taken, runs, strict=True), key=lambda each: each[0])
        shown = (f"{each:9.1f} us  {dict(shape.blocks)}, {shape.warps} warps" for each, shape in found)
        refused = f"; {count - len(runs)} of {count} sizes of tiles do not run here" * (len(runs) < count)
        logs.emit("tuning", f"native: {limit:.1f} us by the library{refused}", *shown)
        return (found[0][1],) if found and found[0][0] < _GAIN * limit else ()

    def _touched(self) -> set[Buffer]:
        kernels = (self.ours, *self.passes)
        calls = [ref.buffer for part in self.theirs if isinstance(part, Call) for ref in _tensors_in(part)]
        return {*calls, *(b for kernel in kernels for b in kernel.buffers)}

    def _made_up(self, device: torch.device, numbers: torch.Generator) -> list[dict[Buffer, torch.Tensor]]:
        """Tensors for calls in turn: what comes from outside is not in a cache in the next call."""
        used = self._touched()
        outside = [buffer for buffer in used if buffer.kind == "input"]
        size = sum(int(buffer.numel) * buffer.dtype.itemsize for buffer in outside)  # type: ignore[arg-type]
        same = {buffer: _made_up(buffer, device, numbers) for buffer in used - set(outside)}
        count = min(_MOST_TURNS, 1 + _CACHE // max(size, 1))
        return [{**same, **{b: _made_up(b, device, numbers) for b in outside}} for _ in range(count)]

    def _library(self, passes: list[_Launch], tensors: dict[Buffer, torch.Tensor]) -> None:
        """One call; a pass reads what the library has just written."""
        made: dict[Buffer, torch.Tensor] = {}
        for call in self.theirs:
            if isinstance(call, Call):
                args = [
                    tensors[a.buffer].as_strided(a.sizes, a.strides, a.offset) if isinstance(a, TensorRef) else a
                    for a in call.args
                ]
                (target,) = call.results
                assert target is not None
                made[target] = call.op(*args, **call.kwargs)
        for launch in passes:
            launch(made, tensors)


def _told(part: TritonKernel | Call) -> str:
    if isinstance(part, TritonKernel):
        return "\n".join([part.source, repr(part.shapes), *(f"{b.dtype} {b.numel}" for b in part.buffers)])
    return f"{part.op} {[(ref.sizes, ref.strides, ref.offset) for ref in _tensors_in(part)]}"


def _tensors_in(call: Call) -> Iterator[TensorRef]:
    return (arg for arg in call.args if isinstance(arg, TensorRef))


def _made_up(buffer: Buffer, device: torch.device, numbers: torch.Generator) -> torch.Tensor:
    tensor = torch.zeros(int(buffer.numel), dtype=buffer.dtype, device=device)  # type: ignore[arg-type]
    return tensor.uniform_(-1, 1, generator=numbers) if buffer.dtype.is_floating_point else tensor


class _Launch:
    """A kernel that is on the GPU."""

    def __init__(self, kernel: TritonKernel, cubin: Cubin, device: torch.device) -> None:
        self.kernel = kernel
        self.bad = torch.zeros((), dtype=torch.int32, device=device)
        count = len(kernel.buffers) + kernel.verifies
        step = (driver.function_of(cubin, device), cubin, (0, 1, 1), range(2, 2 + count))
        self.launch = loading.launching([step], 2 + count, device)

    def __call__(self, made: dict[Buffer, torch.Tensor], tensors: dict[Buffer, torch.Tensor]) -> None:
        addresses = [made.get(b, tensors[b]).data_ptr() for b in self.kernel.buffers]
        more = [self.bad.data_ptr()] if self.kernel.verifies else []
        self.launch(torch.cuda.current_stream().cuda_stream, self.kernel.programs, 1, *addresses, *more)


class _Recorded:
    """Some calls of ``run`` with each of ``turns``, one after the other, as a CUDA graph."""

    def __init__(
        self,
        run: Callable[[dict[Buffer, torch.Tensor]], None],
        turns: Sequence[dict[Buffer, torch.Tensor]],
        device: torch.device,
    ) -> None:
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run(turns[0])
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
            for at in range(_CALLS):
                run(turns[at % len(turns)])

    def microseconds(self) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / _CALLS * 1e3


def _in_turns(runs: Sequence[_Recorded]) -> list[float]:
    """The shortest time of each, in microseconds, in turns."""
    least = [float("inf")] * len(runs)
    for _ in range(_ROUNDS):
        least = [min(best, run.microseconds()) for best, run in zip(least, runs, strict=True)]
    return least
